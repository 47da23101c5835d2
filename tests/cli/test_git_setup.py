"""`karat git-setup`, with git's own merges and diffs."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from factories.commands import karat_here
from factories.refreshed import ONE, TWO, noisy
from factories.repositories import Repository, golden_text

pytestmark = pytest.mark.slow
LOCK = "tests/functional_tests/test_cases/goldens.lock.json"


@pytest.fixture
def project(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """A golden on two branches that changed neighbouring steps of it."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2] / "src"))
    repository.write(ONE, golden_text(noisy(1)))
    repository.write(TWO, golden_text(noisy(2)))
    repository.commit()
    for branch, step in (("left", "7"), ("right", "8")):
        repository.git("checkout", "-q", "-b", branch, "main")
        edit(repository, "lm loss", step, float(step))
        repository.commit()
    repository.git("checkout", "-q", "left")
    return repository


def edit(repository: Repository, metric: str, step: str, value: float) -> None:
    found = json.loads((repository.root / ONE).read_text())
    found[metric]["values"][step] = value
    repository.write(ONE, json.dumps(found, indent=4))


def loss(repository: Repository) -> dict[str, float]:
    found: dict[str, float] = json.loads((repository.root / ONE).read_text())["lm loss"]["values"]
    return found


def test_git_merges_neighbouring_steps(project: Repository) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        project.git("merge", "-q", "--no-edit", "right")
    project.git("merge", "--abort")
    assert karat_here("git-setup", cwd=project.root).code == 0
    project.git("merge", "-q", "--no-edit", "right")
    assert (loss(project)["7"], loss(project)["8"]) == (7.0, 8.0)


def test_a_conflict_is_one_to_git(project: Repository) -> None:
    edit(project, "lm loss", "8", 9.0)
    project.commit()
    karat_here("git-setup", cwd=project.root)
    with pytest.raises(subprocess.CalledProcessError):
        project.git("merge", "-q", "--no-edit", "right")
    assert project.git("diff", "--name-only", "--diff-filter=U").split() == [ONE]
    assert (project.root / ONE).read_text().count("<<<<<<<") == 1
    assert karat_here("lint", ONE, cwd=project.root).code == 1


def test_git_diff_says_which_metric_and_step(project: Repository) -> None:
    karat_here("git-setup", cwd=project.root)
    edit(project, "num-zeros", "50", 1.0)
    lines = project.git("diff", "-U0", "--", ONE).splitlines()
    assert lines[-1] == "+num-zeros  step 50  1.0"
    assert lines[-2].startswith("-num-zeros  step 50  ")


def test_it_may_be_run_again_and_undone(project: Repository) -> None:
    project.write(".gitattributes", "*.bin -text")
    project.commit()
    before = (project.root / ".git" / "config").read_text()
    first = karat_here("git-setup", cwd=project.root)
    assert first.out == "wrote .gitattributes, and merge.karat and diff.karat in this repository's configuration\n"
    text = (project.root / ".gitattributes").read_text()
    assert text.startswith("*.bin -text\n# >>> karat git-setup\n**/golden_values*.json merge=karat diff=karat\n")
    assert "{" not in text
    again = karat_here("git-setup", cwd=(project.root / ONE).parent)
    assert again.out.startswith("kept ../")
    assert (project.root / ".gitattributes").read_text() == text
    assert project.git("config", "--get-all", "merge.karat.driver").count("\n") == 1
    assert karat_here("git-setup", "--undo", cwd=project.root).code == 0
    assert (project.root / ".gitattributes").read_text() == "*.bin -text\n"
    assert (project.root / ".git" / "config").read_text() == before
    assert karat_here("git-setup", "--undo", cwd=project.root).code == 0


def test_git_knows_what_karat_takes_for_a_golden(repository: Repository) -> None:
    repository.write(
        "karat.toml", '[goldens]\npaths = ["a b/{x,y}*.json", "t/**/*.csv"]\nexclude = ["a b/x_no.json"]\n'
    )
    karat_here("git-setup", cwd=repository.root)
    files = [
        "a b/x1.json",
        "a b/y.json",
        "a b/z.json",
        "t/u/v.csv",
        "a b/x_no.json",
        "sub/a b/x1.json",
        "q/goldens.lock.json",
    ]
    said = repository.git("check-attr", "merge", "diff", "--", *files).splitlines()
    found = {file: [line.rpartition(": ")[2] for line in said if line.startswith(f"{file}: ")] for file in files}
    assert found == {
        "a b/x1.json": ["karat", "karat"],
        "a b/y.json": ["karat", "karat"],
        "a b/z.json": ["unspecified"] * 2,
        "t/u/v.csv": ["unspecified", "karat"],
        "a b/x_no.json": ["unspecified"] * 2,
        "sub/a b/x1.json": ["unspecified"] * 2,
        "q/goldens.lock.json": ["karat", "unspecified"],
    }


def test_outside_of_git_it_is_wrong_usage(tmp_path: Path) -> None:
    done = karat_here("git-setup", cwd=tmp_path)
    assert (done.code, done.err.splitlines()[-1]) == (2, "next: git init")
    gone = karat_here("git-setup", "--merge", "a", "b", "c", "7", "golden.json", cwd=tmp_path)
    assert gone.code == 129  # git: not merged, rather than a conflict


def test_nothing_is_changed_where_something_is_in_the_way(repository: Repository) -> None:
    before = (repository.root / ".git" / "config").read_text()
    repository.write("karat.toml", "paths = [")
    assert karat_here("git-setup", cwd=repository.root).code == 2
    (repository.root / "karat.toml").unlink()
    (repository.root / ".gitattributes").mkdir()
    done = karat_here("git-setup", cwd=repository.root)
    assert (done.code, "found a folder" in done.err) == (2, True)
    assert (repository.root / ".git" / "config").read_text() == before


def test_the_ends_of_lines_stay_and_the_block_is_found_again(repository: Repository) -> None:
    file = repository.root / ".gitattributes"
    file.write_bytes(b"*.bin -text\r\n")
    karat_here("git-setup", cwd=repository.root)
    file.write_bytes(file.read_bytes().replace(b"\r\n", b"\n").replace(b"\n", b"\r\n"))  # as autocrlf leaves it
    karat_here("git-setup", cwd=repository.root)
    assert file.read_bytes().count(b">>> karat git-setup") == 1
    karat_here("git-setup", "--undo", cwd=repository.root)
    assert file.read_bytes() == b"*.bin -text\r\n"
