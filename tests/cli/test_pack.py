from __future__ import annotations

import json
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
    result = karat("pack", root.name, cwd=tmp_path, SOURCE_DATE_EPOCH="1794717000")
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
    result = karat("pack", root.name, "-q", "-o", "b", cwd=tmp_path, SOURCE_DATE_EPOCH="yesterday")
    assert (result.code, result.out) == (2, "")
    assert "SOURCE_DATE_EPOCH: expected seconds since 1970, found 'yesterday'" in result.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--name", "a/b"), "--name: expected a plain name, found 'a/b'"),
        (("--name", ".."), "--name: expected a plain name"),
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


def test_many_findings_that_are_alike_are_told_in_few_lines(tmp_path: Path, root: Path) -> None:
    for number in range(50):
        (root / f"{number}.txt").touch()
    result = karat("pack", root.name, "--json", "p.json", cwd=tmp_path)
    assert result.code == 1
    assert result.out.count("unexpected-file") == 21
    assert "fail  unexpected-file: 30 more; --json F has all" in result.out
    assert len(json.loads((tmp_path / "p.json").read_bytes())["findings"]) == 50
