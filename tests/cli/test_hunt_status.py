from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from factories.commands import karat_here
from factories.hunts import stepped, values_hunt


@pytest.mark.slow
def test_status_says_how_far_a_hunt_is(tmp_path: Path) -> None:
    values_hunt(tmp_path, {**stepped(12, (5, 90.0)), "v011": "crash"})
    karat_here("hunt", "run", "--strategy", "sweep", "--max-runs", "8", "-q", cwd=tmp_path)
    result = karat_here("hunt", "status", cwd=tmp_path)
    assert result.code == 0
    lines = result.out.splitlines()
    assert lines[0].startswith("hunt: stopped  8 runs, ")
    assert "values [0]  stopped: 8 of 12 points tried" in result.out
    assert "v007  89.99 MLUPS" in result.out
    assert lines[-1] == "Not done at values: 4 of 12 points not run, 1 change not confirmed."
    assert lines[-3].endswith("karat hunt resume .karat/hunt/hunt.hunt --max-runs 16")
    document = json.loads(karat_here("hunt", "status", "hunt.toml", "--json", "-", cwd=tmp_path).out)
    schema = json.loads(karat_here("schema", "karat.hunt/1", cwd=tmp_path).out)
    jsonschema.validate(document, schema)
    assert document["exit_code"] == 0
    assert (document["state"], document["process"], document["runs"]) == ("stopped", None, 8)
    assert document["stages"][0]["expected_left"] > 0
    karat_here("hunt", "resume", "--max-runs", "99", "-q", cwd=tmp_path)
    result = karat_here("hunt", "status", ".karat/hunt/hunt.hunt", cwd=tmp_path)
    assert result.out.startswith("hunt: done")
    assert "v011  crash: ImportError: cannot import name 'x' from 'y'" in result.out


def test_of_several_hunts_one_must_be_named(tmp_path: Path) -> None:
    file = values_hunt(tmp_path, stepped(2))
    for name in ("one", "two"):
        file.rename(tmp_path / f"{name}.toml")
        karat_here("hunt", "run", f"{name}.toml", "--max-runs", "1", "-q", cwd=tmp_path)
        file = tmp_path / f"{name}.toml"
    result = karat_here("hunt", "status", cwd=tmp_path)
    assert result.code == 2
    assert "expected the name of a journal, since there are several: .karat/hunt/one.hunt" in result.err
    assert karat_here("hunt", "status", "two.toml", cwd=tmp_path).out.startswith("two: stopped")


def test_a_file_that_is_not_there_is_cannot_verify(tmp_path: Path) -> None:
    result = karat_here("hunt", "status", "none.hunt", cwd=tmp_path)
    assert (result.code, "found none" in result.err) == (3, True)
