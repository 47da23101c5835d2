from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from factories.commands import karat
from factories.repositories import Repository
from karat.cli import demo


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


def test_demo_without_git(tmp_path: Path) -> None:
    result = karat("demo", "plain", cwd=tmp_path, PATH="")
    assert result.code == 0
    assert "stops at step 13 of 50" in result.out
    assert (tmp_path / "plain" / "pr.md").is_file()


def test_demo_in_a_git_hook_leaves_the_other_repository_alone(
    repository: Repository, tmp_path: Path
) -> None:
    before = repository.commit()
    git_dir = str(repository.root / ".git")
    assert karat("demo", str(tmp_path / "d"), cwd=tmp_path, GIT_DIR=git_dir).code == 0
    assert repository.git("rev-parse", "HEAD").strip() == before


def test_the_life_of_a_bundle(tmp_path: Path) -> None:
    mine = tmp_path / "my store"
    result = karat("demo", "d", cwd=tmp_path, KARAT_STORE=str(mine), KARAT_CAPTURE_DIR=str(mine))
    life = result.out.partition("$ python suite.py")[2]
    said = [
        "test_affine[dynamic] passed, and is captured",
        "packed 2 cases, 4 tensors",
        "verified 4 cases, 8 tensors",
        "pushed models/nightly to ",
        "2 goldens compared (2 same)",
        "1 case: 1 mismatch; 1 value compared",
    ]
    places = [life.find(line) for line in said]
    assert places == sorted(places), life
    assert -1 not in places, life
    assert [line for line in life.splitlines() if line.startswith("(exit ")] == [
        *["(exit 0)"] * 5,
        "(exit 1)",
    ]
    assert not mine.exists(), "a store or a directory of the user's is none of the demo's business"
    page = tmp_path / "d"
    changed = subprocess.run(
        ["git", "status", "--porcelain"], cwd=page, capture_output=True, text=True, check=True
    )
    assert "bundles" not in changed.stdout


def test_in_a_log_the_next_command_is_the_last_line_of_its_verb(tmp_path: Path) -> None:
    log = subprocess.run(
        [sys.executable, "-m", "karat", "demo", "d"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    ).stdout
    failed = [part.splitlines() for part in log.split("(exit 1)")[:-1]]
    assert len(failed) == 3
    assert [part[-1].split(" ")[:2] for part in failed] == [["next:", "karat"]] * 3, log


def test_what_the_demo_advises_can_be_run(tmp_path: Path) -> None:
    result = karat("demo", "d", cwd=tmp_path)
    assert "--keep replayed" in result.out
    again = karat(
        *("replay", "store#models/nightly", "--run", "phone:run", "--only", "*static*"),
        *("--keep", "replayed", "--json", "-", "--quiet"),
        cwd=tmp_path / "d" / "bundles",
    )
    assert again.code == 1
    assert [case["outcome"] for case in json.loads(again.out)["cases"]] == ["mismatch"]


def test_without_safetensors_it_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "safetensors", None)
    demo._bundles(tmp_path / "bundles")
    assert "pip install 'karat[capture]'" in capsys.readouterr().out
    assert not (tmp_path / "bundles").exists()
