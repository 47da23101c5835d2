from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from factories.commands import karat_here
from karat.schemas import schema

HUNT = """
name = "steps"
stages = ["values"]
[probe]
command = [{python}, "-c", "import sys; v = int(sys.argv[1]); print('speed:', 100 if v < 7 else 90)", "{{value}}"]
[[probe.metrics]]
name = "speed"
regex = 'speed: ([0-9.]+)'
better = "higher"
unit = "runs/s"
[values]
list = [{values}]
"""


@pytest.fixture(scope="module")
def hunted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a hunt that found one regression; reports change nothing of it."""
    tmp_path = tmp_path_factory.mktemp("eine Jagd")
    values = ", ".join(f'"{n}"' for n in range(12))
    text = HUNT.format(python=json.dumps(sys.executable), values=values)
    (tmp_path / "hunt.toml").write_text(text, encoding="utf-8")
    assert karat_here("hunt", "run", "--quiet", cwd=tmp_path).code == 1
    return tmp_path


@pytest.mark.slow
def test_the_same_answer_in_every_form(hunted: Path) -> None:
    done = karat_here("hunt", "report", "--html", "h.html", "--markdown", "i.md", "--json", "r.json", cwd=hunted)
    assert done.code == 1
    assert done.out.startswith("steps: 1 regression\n")
    assert "100 → 90 runs/s (−10.0%)" in done.out
    assert "last good 6, first bad 7" in done.out
    found = json.loads((hunted / "r.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema("karat.hunt/1")).validate(found)
    assert found["exit_code"] == done.code
    assert [c["change"]["new"]["label"] for c in found["culprits"]] == ["7"]
    assert "## Regression: speed 100 → 90 runs/s" in (hunted / "i.md").read_text(encoding="utf-8")
    assert "<svg" in (hunted / "h.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_line_that_reproduces_it_reproduces_it(hunted: Path) -> None:
    found = json.loads(karat_here("hunt", "report", "--json", "-", cwd=hunted).out)
    line = found["culprits"][0]["change"]["reproduce"]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # where karat is
    env = {**os.environ, "PATH": path}
    done = subprocess.run(["bash", "-c", line], cwd=hunted, env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "speed: 90\n"


@pytest.mark.slow
def test_the_advice_can_be_pasted(hunted: Path) -> None:
    advice = karat_here("hunt", "report", cwd=hunted).err.splitlines()[-1].removeprefix("next: karat ")
    shown = karat_here(*shlex.split(advice), cwd=hunted)
    assert shown.code == 0
    assert "speed" in shown.out


def test_by_its_file_by_its_toml_or_by_its_folder(hunted: Path) -> None:
    reports = [
        karat_here("hunt", "report", *words, cwd=hunted).out
        for words in ((), ("hunt.toml",), (".karat/hunt/steps.hunt",))
    ]
    assert reports[0] == reports[1] == reports[2]


def test_two_reports_in_one_place_are_refused(hunted: Path) -> None:
    assert karat_here("hunt", "report", "--json", "-", "--html", "-", cwd=hunted).code == 2


def test_without_a_hunt_there_is_no_report(tmp_path: Path) -> None:
    done = karat_here("hunt", "report", cwd=tmp_path)
    assert done.code == 3
    assert "found none" in done.err


def test_what_is_no_journal_is_no_answer(tmp_path: Path) -> None:
    (tmp_path / "x.hunt").write_bytes(bytes(range(256)) * 40)
    done = karat_here("hunt", "report", "x.hunt", cwd=tmp_path)
    assert done.code == 3
    assert "Traceback" not in done.err
