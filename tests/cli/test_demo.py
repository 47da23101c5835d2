from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from factories.commands import karat
from factories.repositories import Repository


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
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    )
    return folder, done.stdout


@pytest.mark.slow
def test_a_store_or_directory_of_the_user_s_is_none_of_its_business(shown: tuple[Path, str]) -> None:
    assert [path.name for path in shown[0].iterdir()] == ["d"]


def test_in_a_log_the_next_command_is_the_last_line_of_its_verb(shown: tuple[Path, str]) -> None:
    verbs = [part for part in shown[1].split("$ ") if part.startswith("karat ")]
    failed = [part.partition("\n(exit 1)")[0].splitlines() for part in verbs if "(exit 1)" in part]
    assert len(failed) == 2
    assert [part[-1].split(" ")[:2] for part in failed] == [["next:", "karat"]] * 2, shown[1]
