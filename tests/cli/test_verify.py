from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from factories.captured import capture_many
from factories.commands import Outcome, karat
from karat.schemas import schema
from karat.store import references


@pytest.fixture
def where(tmp_path: Path) -> Path:
    """A folder with captures, a pack of them, and a store."""
    capture_many(tmp_path / "captures", 1)
    assert karat("pack", "captures", "--name", "all", "-q", cwd=tmp_path).code == 0
    assert karat("push", "captures", "models/nightly", "--store", "shop", cwd=tmp_path).code == 0
    return tmp_path


def verify(where: Path, *words: str) -> Outcome:
    result = karat("verify", *words, "--json", "v.json", cwd=where)
    if result.code != 2:
        report = json.loads((where / "v.json").read_bytes())
        jsonschema.validate(report, schema("karat.verify/1"))
        assert report["exit_code"] == result.code
    return result


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("captures",), "verified 2 cases, 6 tensors, "),
        (("captures/models/xnnpack",), "verified 1 case, 3 tensors, "),
        (("packed/all.zip",), "verified 2 cases, 6 tensors, "),
        (("packed",), "verified 3 zips: 4 cases, 12 tensors, "),
        (("shop#models/nightly",), "verified 2 cases, 6 tensors, "),
        (("store:models/nightly", "--store", "shop"), "verified 2 cases, 6 tensors, "),
        (("shop",), "verified 2 cases, 6 tensors, "),
        (("--store", "shop"), "verified 2 cases, 6 tensors, "),
        (("captures", "packed/all.zip"), "verified 4 cases, 12 tensors, "),
    ],
)
def test_what_is_whole_is_0(where: Path, words: tuple[str, ...], said: str) -> None:
    result = verify(where, *words)
    assert (result.code, result.err) == (0, "")
    assert result.out.splitlines()[-1].startswith(said)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


@pytest.mark.slow
@pytest.mark.parametrize("word", ["captures", "packed/all.zip", "packed", "shop#models/nightly", "shop"])
def test_one_flipped_bit_is_1(where: Path, word: str) -> None:
    flip(next((where / "captures").rglob("model.pte")))
    flip(where / "packed" / "all.zip")
    for path in (p for p in (where / "shop").rglob("*") if p.is_file() and len(p.name) == 64):
        flip(path)
    result = verify(where, word)
    assert result.code == 1
    assert "fail  bundle-damaged: " in result.out
    assert "next: " in result.err


@pytest.mark.slow
def test_a_pack_is_held_against_its_sums(where: Path) -> None:
    zips = sorted((where / "packed" / "cases").rglob("*.zip"))
    zips[0].unlink()
    shutil.copy(zips[1], where / "packed" / "more.zip")
    result = verify(where, "packed")
    assert result.code == 1
    assert "by SHA256SUMS, found nothing" in result.out
    assert "unexpected-file: packed: more.zip: expected only what SHA256SUMS lists" in result.out
    (where / "packed" / "SHA256SUMS").write_bytes(b"<html>")
    result = verify(where, "packed")
    assert result.code == 1
    assert "SHA256SUMS: expected what `karat pack` writes" in result.out


@pytest.mark.parametrize("content", [b"", b"<!DOCTYPE html><html></html>", b"PK\x03\x04"])
def test_what_is_no_bundle_is_1(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.zip").write_bytes(content)
    result = verify(tmp_path, "a.zip")
    assert result.code == 1
    assert result.out.startswith("fail  ")


def test_nothing_to_verify_is_3(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    result = verify(tmp_path, "empty")
    assert result.code == 3
    assert "nothing-compared" in result.out
    assert result.out.splitlines()[-1].startswith("not verified: 0 cases")


def test_a_store_that_is_none_is_3(tmp_path: Path) -> None:
    result = verify(tmp_path, "--store", "nowhere")
    assert result.code == 3
    assert "next: " in result.err


def test_a_path_that_is_not_there_is_2(tmp_path: Path) -> None:
    result = verify(tmp_path, "nowhere")
    assert result.code == 2
    assert "nowhere: expected a folder or a zip of captured cases, found nothing there" in result.err


@pytest.mark.slow
def test_objects_that_no_reference_needs_are_told_and_no_failure(where: Path) -> None:
    for folder in (references.LINKS, references.PREFIX):
        shutil.rmtree(where / "shop" / folder)
    result = verify(where, "shop")
    assert result.code == 0
    (target,) = json.loads((where / "v.json").read_bytes())["targets"]
    assert target["orphans"] > 0
    assert target["orphan_size"] == target["size"]
    said = f"shop: no reference needs {target['orphans']} objects ("
    assert said in result.out
    assert "`karat gc` deletes them once old enough" in result.out


@pytest.mark.slow
def test_quiet_prints_nothing(where: Path) -> None:
    result = karat("verify", "captures", "-q", cwd=where)
    assert (result.code, result.out, result.err) == (0, "", "")


@pytest.mark.slow
def test_an_empty_word_is_2(where: Path) -> None:
    result = verify(where, "")
    assert result.code == 2
    assert "found an empty word" in result.err


@pytest.mark.slow
def test_zips_without_sums_are_no_pack(where: Path) -> None:
    (where / "packed" / "SHA256SUMS").unlink()
    (where / "packed" / ".karat-pack-0123").mkdir()
    for word, said in (("packed", "sums-missing: packed: expected SHA256SUMS"), ("packed/cases", "unexpected-file: ")):
        result = verify(where, word)
        assert result.code == 1
        assert f"fail  {said}" in result.out


@pytest.mark.slow
def test_who_verifies_files_waits_for_nothing_of_stores(where: Path) -> None:
    """What a command imports is most of what a small one takes."""
    words = f"from karat.store.verify import verify_target; print(verify_target({str(where / 'captures')!r}).cases)"
    told = "import sys; print([n for n in ('karat.store.references', 'karat.store.pack', 'numpy') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", f"{words}; {told}"], capture_output=True, check=True, text=True)
    assert done.stdout.split("\n") == ["2", "[]", ""]
