"""The short way of writing a golden gives the bytes of the long one."""

from __future__ import annotations

import fcntl
import json
import os

import pytest
from hypothesis import strategies as st

from factories.commands import karat
from factories.repositories import Repository, curves, golden_path, golden_text
from karat.findings import UsageError
from karat.goldens import formats
from karat.goldens.paths import DEFAULT_GLOBS, PathFilter
from karat.goldens.provenance import NAME, LockEntry, read_lock, write_lock
from karat.goldens.shapes import Series
from karat.refreshes.worktree import apply_reset, plan_reset, render
from karat.system.git import only_writer

NUMBERS = st.one_of(
    st.sampled_from(["0", "-0", "1", "-7", "0.0", "-0.0", "1.50", "1.5", "1e5", "100000.0", "1e-7"]),
    st.sampled_from(["12345678901234567890", "9007199254740993", "1E5", "1e400", "0.1", "3.0"]),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.integers(min_value=-(10**20), max_value=10**20).map(str),
)
STEPS = 4


def series(numbers: list[str]) -> str:
    values = ", ".join(f'"{i}": {text}' for i, text in enumerate(numbers, 1))
    return f'{{"lm loss": {{"start_step": 1, "end_step": {STEPS}, "step_interval": 1, "values": {{{values}}}}}}}'


def document(numbers: list[str]) -> str:
    return f'{{"a": {{"text 7": "x 1, y"}}, "b": [{", ".join(numbers)}]}}\n'


def table(numbers: list[str]) -> str:
    return "name,count\n" + "".join(f"m{i},{text}\n" for i, text in enumerate(numbers))


def test_equal_values_keep_their_old_characters_also_among_changed_ones() -> None:
    old, new = series(["1.50", "2.0", "3.0", "4.0"]), series(["1.5", "2.5", "3.0", "4.0"])
    golden = formats.read(new.encode()).golden
    assert golden is not None
    written = render(golden, old=old.encode(), incoming=new.encode(), padding=0)
    assert b'"1": 1.50, "2": 2.5' in written
    assert json.loads(written) == json.loads(new)


def test_one_writer_at_a_time_and_a_swept_workshop(repository: Repository) -> None:
    with only_writer(repository.root) as workshop:
        (workshop / ".left.tmp").write_bytes(b"half")
        with (workshop.parent / "writing").open("rb") as again, pytest.raises(BlockingIOError):
            fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with only_writer(repository.root) as workshop:
        assert list(workshop.iterdir()) == []


def test_style_is_given_up_where_a_value_would_be_lost_over_it() -> None:
    class Forgetful(Series, frozen=True):
        """A golden that no old file's style can hold."""

    golden = formats.read(series(["1.0", "2.0", "3.0", "4.0"]).encode()).golden
    assert isinstance(golden, Series)
    odd = Forgetful(metrics=golden.metrics, scalars=golden.scalars)
    old = series(["5.0", "2.0", "3.0", "4.0"]).encode()
    assert render(odd, old=old, incoming=b"as it came", padding=0) == b"as it came"


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
    assert edited.git("status", "--porcelain", "-uall").split("\n")[:2] == [" M src/model.py", "?? notes.txt"]


def test_what_goes_stays_with_git(edited: Repository) -> None:
    kept = apply_reset(plan_reset(edited.root, FILTER))
    contents = {f.path: edited.git("cat-file", "-p", str(f.next).split()[3]) for f in kept}
    assert contents == {GOLDEN: golden_text(curves(2)), golden_path("neu ß"): golden_text(curves(3))}


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


@pytest.mark.slow
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


def test_a_lock_goes_back_with_its_goldens_and_no_other_file_of_that_name(edited: Repository) -> None:
    edited.write(NAME, "{}")
    edited.write(f"vendored/{NAME}", "theirs")
    reset = plan_reset(edited.root, FILTER)
    assert NAME in reset.deleted
    apply_reset(reset)
    assert not (edited.root / NAME).exists()
    assert (edited.root / f"vendored/{NAME}").read_text() == "theirs"


@pytest.mark.slow
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
