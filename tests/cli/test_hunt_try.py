from __future__ import annotations

import json
import subprocess
from pathlib import Path

import jsonschema
import pytest

from factories.commands import karat_here
from factories.hunts import commits_hunt, dated_commits, stepped, values_hunt
from factories.repositories import Repository

pytestmark = pytest.mark.slow


@pytest.fixture
def hunt(tmp_path: Path) -> Path:
    values_hunt(tmp_path, {**stepped(8, (4, 90.0)), "bad": "crash"})
    assert karat_here("hunt", "run", "-q", cwd=tmp_path).code == 1
    return tmp_path


def test_a_point_is_run_and_its_output_shown(hunt: Path) -> None:
    before = (hunt / "ran.txt").read_text(encoding="utf-8").count("v005")
    done = karat_here("hunt", "try", "v005", cwd=hunt)
    assert done.code == 0, done.err
    assert done.out.startswith("speed: 9")
    assert done.err.startswith("v005  90")
    assert (hunt / "ran.txt").read_text(encoding="utf-8").count("v005") == before + 1


def test_a_point_that_fails(hunt: Path) -> None:
    done = karat_here("hunt", "try", "bad", cwd=hunt)
    assert (done.code, "ImportError: cannot import name 'x'" in done.out) == (1, True)
    assert done.err.startswith("bad  crash: ImportError: cannot import name 'x' from 'y'")


@pytest.mark.parametrize(("point", "code", "said"), [("v004", 1, "they differ"), ("v005", 0, "they do not differ")])
def test_two_points_in_turns(hunt: Path, point: str, code: int, said: str) -> None:
    done = karat_here("hunt", "try", point, "--against", "parent", "--json", "-", cwd=hunt)
    assert done.code == code, (done.out, done.err)
    found = json.loads(done.out)
    jsonschema.validate(found, json.loads(karat_here("schema", "karat.hunt-try/1", cwd=hunt).out))
    assert found["exit_code"] == code
    assert [one["point"] for one in found["attempts"]] == [one["id"] for one in found["points"]] * 3
    assert said in karat_here("hunt", "try", point, "--against", "parent", cwd=hunt).out


def test_the_first_point_has_no_parent(hunt: Path) -> None:
    done = karat_here("hunt", "try", "v000", "--against", "parent", cwd=hunt)
    assert (done.code, "expected a point before v000, found none" in done.err) == (2, True)


def test_a_script_runs_a_commit_without_karat(repository: Repository) -> None:
    dated_commits(repository, [100, 100, 90, 90])
    more = "[commits]\ngood = { code = 'main~3' }\n"
    commits_hunt(repository.root, {"code": repository}, "echo speed: $(cat speed)", more, ["commits"])
    found = karat_here("hunt", "run", "--json", "-", cwd=repository.root)
    (culprit,) = json.loads(found.out)["culprits"]
    # What is too long to be read is this command, which runs the point.
    words = culprit["change"]["reproduce"].split()
    assert words[:3] == ["karat", "hunt", "try"]
    assert len(" ".join(words)) < 80
    assert karat_here(*words[1:], cwd=repository.root).out.strip().endswith("90")
    assert karat_here(*words[1:], "--script", "try.sh", cwd=repository.root).code == 0
    done = subprocess.run(["./try.sh"], cwd=repository.root, check=True, capture_output=True, text=True)
    assert done.stdout.strip().endswith("90")
