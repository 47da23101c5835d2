"""Reviews where something is in the way: odd names and folders, others' work, filters, and a kill in the middle."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from factories.repositories import Repository, golden_path
from factories.reviewed import A, B, C, D, changed, everything, opened, status, text
from karat.findings import KaratError, UsageError
from karat.reviews.review import Stale


@pytest.fixture
def tree(repository: Repository) -> Repository:
    return changed(repository)


def test_any_name_is_taken_as_it_is(repository: Repository) -> None:
    names = [golden_path(case) for case in ("*", "[a]", "a b", ":(glob)x", "-n", "zeile\nzwei", "日本", "%s")]
    for n, path in enumerate(names):
        repository.write(path, text(n))
    repository.commit()
    for n, path in enumerate(names):
        repository.write(path, text(n, lm_loss=1.002))
    before, review = everything(repository), opened(repository)
    for path in names:
        review.accept([path])
        assert {p for p, letters in status(repository).items() if letters == "M "} == {path}
        review.undo()
        review.reject([path])
        assert path not in status(repository)
        review.undo()
    assert everything(repository) == before


def test_what_cannot_be_written_is_not_half_rejected(tree: Repository) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write anywhere")
    folder = (tree.root / B).parent
    before, review = everything(tree), opened(tree)
    folder.chmod(0o555)
    try:
        with pytest.raises(KaratError):
            review.reject([A, B])
    finally:
        folder.chmod(0o755)
    assert everything(tree) == before


def test_a_golden_that_became_a_folder_is_not_half_rejected(tree: Repository) -> None:
    review = opened(tree)
    (tree.root / B).unlink()
    (tree.root / B).mkdir()
    (tree.root / B / "x").write_text("mine")
    before = everything(tree)
    with pytest.raises(Stale):
        review.reject([A, B])
    review.refresh()
    with pytest.raises(KaratError):
        review.reject([A, B])
    assert everything(tree) == before


def test_removed_and_unreadable_goldens_are_decided_too(tree: Repository) -> None:
    (tree.root / A).unlink()
    tree.write(B, b"\xff{not json")
    before, review = everything(tree), opened(tree)
    review.accept([A, B], reason="retired")
    assert (status(tree)[A], status(tree)[B]) == ("D ", "M ")
    review.undo()
    assert everything(tree) == before
    with pytest.raises(UsageError):
        review.accept([B], metric="lm loss", reason="x")
    review.reject([A, B])
    assert not {A, B} & status(tree).keys()
    review.undo()
    assert everything(tree) == before


def test_an_intent_to_add_and_a_mode_come_back(tree: Repository) -> None:
    tree.git("add", "--intent-to-add", D)
    (tree.root / A).chmod(0o755)
    before, review = everything(tree), opened(tree)
    assert status(tree)[D] == " A"
    review.accept([D, A])
    assert (status(tree)[D], status(tree)[A]) == ("A ", "M ")
    review.undo()
    assert everything(tree) == before
    review.reject([D, A])
    assert not {D, A} & status(tree).keys()
    review.undo()
    assert everything(tree) == before


def test_what_was_staged_before_is_there_again_after_an_undo(tree: Repository) -> None:
    tree.git("add", A)
    tree.write(A, text(0, lm_loss=1.003))
    before, review = everything(tree), opened(tree)
    assert review.item(A).state == "partly"
    for decide in (review.accept, review.reject):
        decide([A])
        review.undo()
        assert everything(tree) == before


def test_in_a_merge_nothing_is_decided(tree: Repository) -> None:
    tree.git("stash")
    tree.git("checkout", "--quiet", "-b", "other")
    tree.write(A, text(5))
    tree.commit()
    tree.git("checkout", "--quiet", "main")
    tree.write(A, text(6))
    tree.commit()
    with pytest.raises(subprocess.CalledProcessError):
        tree.git("merge", "other")
    with pytest.raises(UsageError, match="in conflict"):
        opened(tree)


def test_line_endings_of_the_work_tree_are_no_change(tree: Repository) -> None:
    tree.git("config", "core.autocrlf", "true")
    tree.git("checkout", "--quiet", "--", B)
    tree.write(A, text(0, lm_loss=1.002).replace("\n", "\r\n"))
    review = opened(tree)
    review.accept([A])
    assert (status(tree)[A], review.item(A).state) == ("M ", "accepted")
    review.reject([A])
    assert A not in status(tree)
    assert review.item(A).state == "rejected"


def test_a_new_commit_makes_every_decision_stale(tree: Repository) -> None:
    review = opened(tree)
    tree.git("commit", "--quiet", "--message=notes")
    with pytest.raises(Stale):
        review.accept([A])
    review.refresh()
    review.accept([A])


KILLED = """
import sys
from pathlib import Path
from karat.api import diff_options
from karat.config import load
from karat.reviews.review import Review
root = Path(sys.argv[1])
review = Review(root, config := load(root), diff_options(config, provenance=True))
paths = [item.path for item in review.items()]
print("ready", flush=True)
while True:
    review.accept(paths, reason="x")
    review.reject(paths)
    review.undo()
    review.undo()
"""


@pytest.mark.slow
def test_a_kill_in_the_middle_leaves_whole_files(tree: Repository) -> None:
    changed_bytes = {path: (tree.root / path).read_bytes() for path in (A, B, C, D)}
    whole = {path: {data} for path, data in changed_bytes.items()}
    for path in (A, B, C):
        whole[path].add(tree.git("show", f"HEAD:{path}").encode())
    for n in range(12):
        process = subprocess.Popen([sys.executable, "-c", KILLED, str(tree.root)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        line = process.stdout.readline()
        time.sleep(0.01 + 0.037 * n)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        assert line == b"ready\n"
        (Path(tree.root) / ".git" / "index.lock").unlink(missing_ok=True)  # git's own, if it was git that was killed
        for path, versions in whole.items():
            there = (tree.root / path).read_bytes() if (tree.root / path).exists() else None
            assert there in versions or (there is None and path == D)
        tree.git("fsck", "--no-dangling")
        assert status(tree)["notes.txt"] == "M "
        for path in whole:  # for the next round
            tree.git("reset", "--quiet", "--", path)
            (tree.root / path).write_bytes(changed_bytes[path])
