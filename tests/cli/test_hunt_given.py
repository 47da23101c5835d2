"""Hunts that need no file."""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from factories.commands import karat_here
from factories.hunts import BEGAN, commit_at, dated_commits
from factories.repositories import Repository

PYTHON = sys.executable


def found(folder: Path, *words: str, code: int = 1) -> dict[str, Any]:
    cut = words.index("--")
    done = karat_here("hunt", *words[:cut], "--json", "-", *words[cut:], cwd=folder)
    assert done.code == code, (done.out, done.err)
    report: dict[str, Any] = json.loads(done.out)
    return report


def first_bad(report: dict[str, Any]) -> list[str]:
    return [culprit["change"]["new"]["label"] for culprit in report["culprits"]]


@pytest.mark.slow
def test_the_commit_since_the_newest_tag_that_made_a_command_fail(repository: Repository) -> None:
    commits = dated_commits(repository, [100, 100, 100, 90, 90])
    repository.git("tag", "v1", commits[0])
    check = "import sys; sys.exit(float(open('speed').read().split()[-1]) < 95)"
    (repository.root / "check.py").write_text(check, encoding="utf-8")
    # check.py is nobody's but this folder's.
    report = found(repository.root, "--", PYTHON, "check.py")
    assert first_bad(report) == [commits[3][:12]]
    assert report["culprits"][0]["change"]["kind"] == "crash"


@pytest.mark.slow
@pytest.mark.parametrize("named", ["tools/check.py", "{root}/tools/check.py"])
def test_a_script_that_git_does_not_track_sees_the_commit_and_not_what_lies_beside_it_here(
    repository: Repository, named: str
) -> None:
    commits: list[str] = []
    for value in (100, 100, 90, 90):
        repository.write("tools/level.py", f"LEVEL = {value}  # {len(commits)}\n")
        commits.append(repository.commit("a level"))
    repository.write("tools/check.py", "import sys, level; sys.exit(level.LEVEL < 95)")
    words = ("run", "--commits", f"{commits[0]}..{commits[3]}")
    report = found(repository.root, *words, "--", PYTHON, named.format(root=repository.root))
    assert first_bad(report) == [commits[2][:12]]


@pytest.mark.slow
def test_a_hunt_without_a_file_is_resumed(repository: Repository) -> None:
    commits = dated_commits(repository, [100, 100, 100, 90, 90])
    words = ("run", "--commits", f"{commits[0]}..{commits[4]}", "--value", "", "--better", "higher", "--max-runs", "1")
    stopped = found(repository.root, *words, "--", "cat", "speed", code=3)
    resume = stopped["resume"].split()[1:]
    assert karat_here(*resume, "--max-runs", "99", "-q", cwd=repository.root).code == 1
    report = json.loads(karat_here("hunt", "report", "--json", "-", cwd=repository.root).out)
    assert first_bad(report) == [commits[3][:12]]


@pytest.mark.slow
def test_values(tmp_path: Path) -> None:
    probe = "print('took', 2 if int('{value}') < 4 else 3)"
    report = found(
        tmp_path, "run", "--values", "1,2,4,8", "--value", "took", "--better", "lower", "--", PYTHON, "-c", probe
    )
    assert first_bad(report) == ["4"]


@pytest.mark.slow
def test_what_an_issue_says(repository: Repository) -> None:
    commits = dated_commits(repository, [100, 100, 100, 90, 90, 90], timedelta(days=1))
    said = ("2023-08-24=100", "2023-08-26=100.2", "2023-08-28=90.1", "2023-08-29=90")
    report = found(repository.root, "from-issue", *said, "--value", "", "--", "cat", "speed")
    assert first_bad(report) == [commits[3][:12]]
    assert len(report["stages"][0]["points"]) == 3
    assert report["culprits"][0]["change"]["kind"] == "regression"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("from-issue", "2023-08-24=1", "--value", "x", "--", "true"), "expected two or more of WHEN=VALUE"),
        (("from-issue", "2023-08-24", "2023-08-26=1", "--seconds", "--", "true"), "found '2023-08-24 2023-08-26=1'"),
        (("from-issue", "a=1", "b=2", "--", "true"), "expected --value PATTERN or --seconds"),
        (("from-issue", "a=1", "b=2", "--seconds"), "expected the command to run at each point after --"),
        (
            ("run", "--commits", "a..b", "--values", "1,2", "--", "true"),
            "expected one of --commits, --releases and --values",
        ),
        (("run", "--commits", "nothing..HEAD", "--", "true"), "expected a commit, branch or tag"),
        (("run", "--values", "1,2"), "found no command after --"),
        (("run", "hunt.toml", "--", "true"), "found the file hunt.toml"),
        (("split", "--packages", "a==1..a==2"), "expected the command to run at each point after --"),
        (("split", "--packages", "a==1", "--", "true"), "expected OLD..NEW"),
    ],
)
def test_wrong_usage(repository: Repository, words: tuple[str, ...], said: str) -> None:
    repository.commit()
    done = karat_here("hunt", *words, cwd=repository.root)
    assert (done.code, said in done.err) == (2, True), done.err


@pytest.mark.slow
def test_a_command_that_fails_everywhere_is_said_to(tmp_path: Path) -> None:
    done = karat_here("hunt", "--values", "1,2,3", "--", "false", cwd=tmp_path)
    assert done.code == 0
    assert done.out.startswith("values: no change found: every point that was tried fails\n")


def test_without_a_file_there_is_none_to_edit(tmp_path: Path) -> None:
    done = karat_here("hunt", "--values", "1,1", "--", "true", cwd=tmp_path)
    assert done.code == 2
    assert "expected each value once, found '1' twice" in done.err
    assert done.err.splitlines()[-1] == "next: karat hunt --help"


def test_the_plan_of_a_split(repository: Repository) -> None:
    repository.commit()
    repository.git("tag", "v1")
    repository.write("speed", "1")
    commit_at(repository, BEGAN, "more")
    done = karat_here(
        "hunt",
        "split",
        "--code",
        "v1..HEAD",
        "--packages",
        "six==1.16.0..six==1.17.0",
        "--dry-run",
        "--",
        "true",
        cwd=repository.root,
    )
    assert done.code == 0, done.err
    assert "points: 2 at the first stage (old code, old environment … new code, new environment)" in done.out
    assert "journal: .karat/hunt/split.hunt" in done.out
    assert len(done.out.splitlines()) <= 10
