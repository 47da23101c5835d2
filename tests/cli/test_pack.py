from __future__ import annotations

import json
import shlex
from pathlib import Path

import jsonschema
import pytest

from factories.captured import capture_many
from factories.commands import karat
from karat.schemas import schema


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return capture_many(tmp_path / "mein Prüfstand", 1)


def test_packing_says_what_was_written(tmp_path: Path, root: Path) -> None:
    result = karat("pack", root.name, "--at", "2026-11-15T06:30+02:00", cwd=tmp_path)
    assert (result.code, result.err) == (0, "")
    first, second, last = result.out.splitlines()
    assert first.startswith("packed/golden_artifacts_26111504.zip  ")
    assert second.startswith("packed/cases/  2 zips  ")
    assert last.startswith("packed 2 cases, 6 tensors, ")


@pytest.mark.slow
def test_the_report_fits_its_schema(tmp_path: Path, root: Path) -> None:
    result = karat("pack", root.name, "--json", "-", "--name", "nightly", cwd=tmp_path)
    report = json.loads(result.out)
    jsonschema.validate(report, schema("karat.pack/1"))
    assert [o["path"] for o in report["outputs"]][-1] == "nightly.zip"
    (next(root.rglob("manifest.json"))).write_bytes(b"<html>")
    result = karat("pack", root.name, "-o", "again", "--json", "pack.json", cwd=tmp_path)
    report = json.loads((tmp_path / "pack.json").read_bytes())
    jsonschema.validate(report, schema("karat.pack/1"))
    assert (result.code, report["exit_code"], report["state"]) == (1, 1, "refused")
    assert report["findings"][0]["kind"] == "bundle-damaged"
    assert "nothing packed: again is as it was" in result.out
    assert result.err.startswith("next: ")


@pytest.mark.slow
def test_the_hour_is_the_source_s(tmp_path: Path, root: Path) -> None:
    said = {"SOURCE_DATE_EPOCH": "1000000000"}
    karat("pack", root.name, "-q", cwd=tmp_path, **said)
    assert (tmp_path / "packed" / "golden_artifacts_01090901.zip").is_file()
    result = karat("pack", root.name, "-q", "-o", "b", "--at", "0", cwd=tmp_path, **said)
    assert (tmp_path / "b" / "golden_artifacts_70010100.zip").is_file()
    assert (result.out, result.err) == ("", "")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--no-cases", "--no-combined"), "expected at most one of --no-cases and --no-combined"),
        (("--at", "yesterday"), "--at: expected a time as 2026-01-31T04:00Z"),
        (("--name", "a/b"), "--name: expected a plain name, found 'a/b'"),
        (("--name", ".."), "--name: expected a plain name"),
        (("--name", "x", "--at", "0"), "--name: expected no --at beside it"),
        (("--level", "3"), "--level: expected 0 to 0 for stored, found 3"),
        (("--compression", "zstd", "--level", "20"), "--level: expected 1 to 19 for zstd, found 20"),
        (("-o", "."), "expected an empty or new folder"),
        (("nowhere",), "nowhere: expected a folder or a zip of captured cases, found nothing there"),
    ],
)
def test_wrong_usage_is_2(tmp_path: Path, root: Path, words: tuple[str, ...], said: str) -> None:
    result = karat("pack", root.name, *words, cwd=tmp_path)
    assert result.code == 2
    assert said in result.err
    assert "next: " in result.err
    assert not (tmp_path / "packed").exists()


def test_nothing_to_pack_is_3(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    result = karat("pack", "empty", cwd=tmp_path)
    assert result.code == 3
    assert "nothing-compared" in result.out
    assert "next: pytest --karat-capture=empty" in result.err


@pytest.mark.slow
def test_what_stands_in_the_way_is_replaced_by_the_command_that_is_told(tmp_path: Path, root: Path) -> None:
    words = ("pack", root.name, "--name", "all", "--compression", "deflate")
    assert karat(*words, cwd=tmp_path).code == 0
    refused = karat(*words, cwd=tmp_path)
    assert refused.code == 2
    command = shlex.split(refused.err.splitlines()[-1].removeprefix("next: "))
    assert command == ["karat", *words, "--replace"]
    assert karat(*command[1:], cwd=tmp_path).code == 0
    (tmp_path / "packed" / "mine").touch()
    assert "next: ls -l packed" in karat(*words, cwd=tmp_path).err


def test_many_findings_that_are_alike_are_told_in_few_lines(tmp_path: Path, root: Path) -> None:
    for number in range(50):
        (root / f"{number}.txt").touch()
    result = karat("pack", root.name, "--json", "p.json", cwd=tmp_path)
    assert result.code == 1
    assert result.out.count("unexpected-file") == 21
    assert "fail  unexpected-file: 30 more; --json F has all" in result.out
    assert len(json.loads((tmp_path / "p.json").read_bytes())["findings"]) == 50
