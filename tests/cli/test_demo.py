from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from factories.commands import karat
from factories.repositories import Repository
from karat.cli import demo


@pytest.mark.slow
def test_demo_runs_and_refuses_to_overwrite(tmp_path: Path) -> None:
    result = karat("demo", "somewhere new", cwd=tmp_path)
    assert result.code == 0
    assert "stops at step 13 of 50" in result.out
    assert (tmp_path / "somewhere new" / "report.html").is_file()
    assert "next: karat refresh --source folder ci-run" in result.out
    text = (tmp_path / "somewhere new" / "pr.md").read_text(encoding="utf-8")
    assert "Full refresh of golden values from a folder of results." in text
    assert "not refreshed (2)" in text
    assert karat("demo", "somewhere new", cwd=tmp_path).code == 2


@pytest.mark.slow
def test_demo_without_git(tmp_path: Path) -> None:
    result = karat("demo", "plain", cwd=tmp_path, PATH="")
    assert result.code == 0
    assert "stops at step 13 of 50" in result.out
    assert (tmp_path / "plain" / "pr.md").is_file()


@pytest.mark.slow
def test_demo_in_a_git_hook_leaves_the_other_repository_alone(repository: Repository, tmp_path: Path) -> None:
    before = repository.commit()
    git_dir = str(repository.root / ".git")
    assert karat("demo", str(tmp_path / "d"), cwd=tmp_path, GIT_DIR=git_dir).code == 0
    assert repository.git("rev-parse", "HEAD").strip() == before


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Where the demo was run, and its log: stdout and stderr in one."""
    folder = tmp_path_factory.mktemp("shown")
    mine = str(folder / "my own")
    done = subprocess.run(
        [sys.executable, "-m", "karat", "demo", "d"],
        cwd=folder,
        env={
            # What pytest tells those it runs is not for whoever the demo runs.
            **{k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")},
            **dict.fromkeys(("KARAT_STORE", "KARAT_CAPTURE_DIR", "KARAT_EVIDENCE"), mine),
            "KARAT_GRAD_FOCUS": "nothing:nothing:float64",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    )
    return folder, done.stdout


@pytest.mark.slow
def test_the_life_of_a_bundle(shown: tuple[Path, str]) -> None:
    life = shown[1].partition("$ python suite.py")[2].partition("Operators in ")[0]
    said = [
        "test_affine[dynamic] passed, and is captured",
        "packed 2 cases, 4 tensors",
        "verified 3 zips: 4 cases, 8 tensors",
        "pushed models/nightly to ",
        "2 goldens compared (2 same)",
        "1 case: 1 mismatch; 1 value compared",
    ]
    assert in_turn(said, life)
    assert ends(life) == [0, 0, 0, 0, 0, 1]


@pytest.mark.slow
def test_a_wrong_gradient_and_one_that_nobody_checked(shown: tuple[Path, str]) -> None:
    life = shown[1].partition("Operators in ")[2]
    said = [
        "FAIL  softmax (numpy, cpu)",
        "a term with a sum over it is",
        "replay    KARAT_GRAD_SEED=",
        "$ KARAT_EVIDENCE=evidence python -m unittest -q test_softmax",
        "fail  new-op: ops.scale",
        "$ KARAT_EVIDENCE=evidence python -m unittest -q test_scale",
        "gate passed: 2 op tests: 2 with evidence; 3 comparisons",
    ]
    assert in_turn(said, life)
    assert ends(life) == [1, 0, 1, 0, 0]


def in_turn(said: list[str], log: str) -> bool:
    """Whether the log has all of it, in that order."""
    places = [log.find(line) for line in said]
    return -1 not in places and places == sorted(places)


def ends(log: str) -> list[int]:
    """The exit codes of the commands."""
    return [int(code) for code in re.findall(r"^\(exit (\d+)\)$", log, re.MULTILINE)]


@pytest.mark.slow
def test_a_store_or_directory_of_the_user_s_is_none_of_its_business(shown: tuple[Path, str]) -> None:
    assert [path.name for path in shown[0].iterdir()] == ["d"]


def test_bundles_are_no_goldens_of_the_repository(shown: tuple[Path, str]) -> None:
    words = ["git", "status", "--porcelain"]
    done = subprocess.run(words, cwd=shown[0] / "d", capture_output=True, text=True, check=True)
    assert "goldens/" in done.stdout
    assert "bundles" not in done.stdout
    assert "gradients" not in done.stdout


def test_in_a_log_the_next_command_is_the_last_line_of_its_verb(shown: tuple[Path, str]) -> None:
    verbs = [part for part in shown[1].split("$ ") if part.startswith("karat ")]
    failed = [part.partition("\n(exit 1)")[0].splitlines() for part in verbs if "(exit 1)" in part]
    assert len(failed) == 4
    assert [part[-1].split(" ")[:2] for part in failed] == [["next:", "karat"]] * 4, shown[1]


@pytest.mark.slow
def test_what_the_demo_advises_can_be_run(shown: tuple[Path, str]) -> None:
    folder, log = shown
    (advised,) = {line for line in log.splitlines() if line.startswith("next: karat replay")}
    words = shlex.split(advised)[2:]
    again = karat(*words, "--json", "-", "--quiet", cwd=folder / "d" / "bundles")
    assert again.code == 1, again.err
    assert [case["outcome"] for case in json.loads(again.out)["cases"]] == ["mismatch"]


def test_without_safetensors_it_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "safetensors", None)
    demo._bundles(tmp_path / "bundles")
    assert "pip install 'karat[capture]'" in capsys.readouterr().out
    assert not (tmp_path / "bundles").exists()
