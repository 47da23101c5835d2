"""--reset: goldens only, listed first, and nothing is lost."""

from __future__ import annotations

import os

import pytest

from factories.commands import karat
from factories.repositories import Repository, curves, golden_path, golden_text
from karat.findings import UsageError
from karat.goldens.paths import DEFAULT_GLOBS, PathFilter
from karat.goldens.provenance import NAME, LockEntry, read_lock, write_lock
from karat.refreshes.worktree import apply_reset, plan_reset

GOLDEN = golden_path("a")
FILTER = PathFilter(DEFAULT_GLOBS)


@pytest.fixture
def edited(repository: Repository) -> Repository:
    repository.write(GOLDEN, golden_text(curves(1)))
    repository.write("src/model.py", "x = 1\n")
    repository.commit()
    repository.write(GOLDEN, golden_text(curves(2)))
    repository.write(golden_path("neu ß"), golden_text(curves(3)))
    repository.write("src/model.py", "x = 2\n")
    repository.write("notes.txt", "mine\n")
    return repository


def test_goldens_are_put_back_and_nothing_else_is_touched(edited: Repository) -> None:
    reset = plan_reset(edited.root, FILTER)
    assert (reset.restored, reset.deleted) == ((GOLDEN,), (golden_path("neu ß"),))
    apply_reset(reset)
    assert (edited.root / GOLDEN).read_text() == golden_text(curves(1))
    assert not (edited.root / golden_path("neu ß")).exists()
    assert edited.git("status", "--porcelain", "-uall").split("\n")[:2] == [
        " M src/model.py",
        "?? notes.txt",
    ]


def test_what_goes_stays_with_git(edited: Repository) -> None:
    kept = apply_reset(plan_reset(edited.root, FILTER))
    contents = {f.path: edited.git("cat-file", "-p", str(f.next).split()[3]) for f in kept}
    assert contents == {
        GOLDEN: golden_text(curves(2)),
        golden_path("neu ß"): golden_text(curves(3)),
    }


def test_staged_goldens_stay_staged(edited: Repository) -> None:
    edited.git("add", GOLDEN)
    edited.write(GOLDEN, golden_text(curves(5)))
    apply_reset(plan_reset(edited.root, FILTER))
    assert (edited.root / GOLDEN).read_text() == golden_text(curves(2))


def test_a_deleted_golden_comes_back(edited: Repository) -> None:
    (edited.root / GOLDEN).unlink()
    apply_reset(plan_reset(edited.root, FILTER))
    assert (edited.root / GOLDEN).read_text() == golden_text(curves(1))


def test_a_link_in_a_golden_s_place_is_refused(edited: Repository) -> None:
    (edited.root / GOLDEN).unlink()
    (edited.root / GOLDEN).symlink_to(edited.root / "notes.txt")
    with pytest.raises(UsageError, match="symbolic link"):
        plan_reset(edited.root, FILTER)


def test_a_merge_under_way_is_refused(repository: Repository) -> None:
    repository.write(GOLDEN, "{}\n")
    repository.commit()
    for branch, text in (("one", '{"a": 1}\n'), ("two", '{"a": 2}\n')):
        repository.git("checkout", "--quiet", "-b", branch, "main")
        repository.write(GOLDEN, text)
        repository.commit()
    with pytest.raises(Exception, match="merge"):
        repository.git("merge", "one")
    with pytest.raises(UsageError, match="conflict"):
        plan_reset(repository.root, FILTER)


def test_the_command_lists_before_it_acts_and_a_dry_run_only_lists(edited: Repository) -> None:
    done = karat("refresh", "--reset", "--dry-run", cwd=edited.root)
    assert done.code == 0
    assert f"would restore {GOLDEN}" in done.err
    assert (edited.root / GOLDEN).read_text() == golden_text(curves(2))
    done = karat("refresh", "--reset", cwd=edited.root)
    assert done.code == 0
    assert f"restore {GOLDEN}" in done.err
    assert "git cat-file -p" in done.err
    assert (edited.root / GOLDEN).read_text() == golden_text(curves(1))


def test_a_lock_goes_back_with_its_goldens_and_no_other_file_of_that_name(
    edited: Repository,
) -> None:
    edited.write(NAME, "{}")
    edited.write(f"vendored/{NAME}", "theirs")
    reset = plan_reset(edited.root, FILTER)
    assert NAME in reset.deleted
    apply_reset(reset)
    assert not (edited.root / NAME).exists()
    assert (edited.root / f"vendored/{NAME}").read_text() == "theirs"


def test_of_a_lock_only_the_lines_of_goldens_that_go_back(edited: Repository) -> None:
    other, new = golden_path("b"), golden_path("neu ß")
    line = LockEntry(source="github", run="1", sha256="0" * 64)
    write_lock(edited.root / NAME, {GOLDEN: line})
    edited.git("add", NAME)
    edited.git("commit", "--quiet", "--message=lock")
    later = LockEntry(source="github", run="2", sha256="1" * 64)
    write_lock(edited.root / NAME, dict.fromkeys([GOLDEN, new, other], later))
    for only in (GOLDEN, new):
        done = karat("refresh", "--reset", "--only", only, cwd=edited.root)
        assert done.code == 0, done.err
    entries = read_lock(edited.root / NAME)
    assert {path: entry.run for path, entry in entries.items()} == {GOLDEN: "1", other: "2"}


def test_a_pipe_in_a_golden_s_place_is_refused(edited: Repository) -> None:
    (edited.root / GOLDEN).unlink()
    os.mkfifo(edited.root / GOLDEN)
    with pytest.raises(UsageError, match="plain file"):
        plan_reset(edited.root, FILTER)
