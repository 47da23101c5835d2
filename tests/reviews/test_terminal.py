"""`karat review` as a person uses it: keys into a terminal, and git says what came of them."""

from __future__ import annotations

import json
import os
import signal

import pytest

from factories.repositories import Repository, curves, golden_text
from factories.reviewed import LOSS, A, B, C, D, Screen, changed, everything, status
from karat.goldens.provenance import NAME, read_lock

pytestmark = pytest.mark.slow


@pytest.fixture
def tree(repository: Repository) -> Repository:
    return changed(repository)


def test_a_few_keys_decide_everything(tree: Repository) -> None:
    with Screen(tree.root) as screen:
        first = screen.until("quit")
        assert "stops at step 13 of 50" in first
        assert "o HEAD, x now, * both" in first
        assert "GitHub workflow run 1" not in first  # the lock knows nothing of C
        screen.press("a", "Why accept?")
        third = screen.press("short run wanted, für #42\r", "accepted 1 golden")
        assert "GitHub workflow run 2" in third
        screen.press("g", "accepted 2 goldens")
        screen.press("r", "rejected 1 golden")
        last = screen.press("q", "karat summary")
        assert "4 goldens: 3 accepted, 1 rejected, all decided" in last
        assert "have it back: git cat-file -p" in last
        assert screen.process.wait(30) == 0
    assert status(tree) == {A: "M ", B: "M ", C: "M ", NAME: "M ", "notes.txt": "M "}
    assert read_lock(tree.root / NAME)[C].accepted == "short run wanted, für #42"


def test_keys_typed_at_once_are_taken_one_by_one_and_undo_goes_back(tree: Repository) -> None:
    before = everything(tree)
    with Screen(tree.root) as screen:
        screen.until("quit")
        screen.press("Rgg", "all decided")
        assert status(tree) == {A: "M ", B: "M ", D: "A ", NAME: "M ", "notes.txt": "M "}
        screen.press("uuu", "undone: 1 golden that had been rejected")
        screen.press("u", "nothing to undo")
        screen.press("q", "goes on there")
        assert screen.process.wait(30) == 1  # what fails is undecided
    assert everything(tree) == before


def test_a_reason_can_be_left_and_mended(tree: Repository) -> None:
    with Screen(tree.root) as screen:
        screen.until("quit")
        screen.press("a", "Why accept?")
        screen.press("\x1b", "not accepted")
        screen.press("a", "Why accept?")
        screen.press("\r", "not accepted")  # no reason, no acceptance
        screen.press("a", "Why accept?")
        screen.press("wrong\x15because\x7fe\r", "accepted 1 golden")
    assert read_lock(tree.root / NAME)[C].accepted == "because"


def test_one_metric_is_decided_alone(tree: Repository) -> None:
    with Screen(tree.root) as screen:
        screen.until("quit")
        screen.press("n", A.split("/")[-2])
        shown = screen.press("m", "alone")
        metric = LOSS if f"{LOSS} alone" in shown else "num-zeros"
        screen.press("a", f"accepted {metric}")
        screen.press("q", "goes on there")
    (path,) = (path for path in (A, B) if status(tree)[path] == "MM")
    head, index = (json.loads(tree.git("show", f"{revision}:{path}")) for revision in ("HEAD", ""))
    assert [name for name in head if head[name] != index[name]] == [metric]


def test_what_changed_meanwhile_is_shown_anew_instead_of_decided(tree: Repository) -> None:
    with Screen(tree.root) as screen:
        screen.until("quit")
        tree.git("checkout", "--", C)
        screen.press("a", "changed since it was shown")
        assert C not in status(tree)
        screen.press("q", "3 to decide")


def test_skipping_leaves_things_as_they_are(tree: Repository) -> None:
    before = everything(tree)
    with Screen(tree.root) as screen:
        screen.until("quit")
        screen.press("sSs", "skipped")
        screen.press("?", "stage this golden")
        screen.press("q", "4 to decide")
    assert everything(tree) == before


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_leaving_in_any_way_keeps_what_was_decided(tree: Repository, end: signal.Signals) -> None:
    with Screen(tree.root) as screen:
        screen.until("quit")
        screen.press("R", "rejected 1 golden")
        os.kill(screen.process.pid, end)
        screen.process.wait(30)
    assert C not in status(tree)
    assert status(tree)[A] == " M"


@pytest.mark.parametrize(("columns", "environment"), [(40, {}), (80, {"NO_COLOR": "1"}), (200, {})])
def test_any_terminal_will_do(tree: Repository, columns: int, environment: dict[str, str]) -> None:
    with Screen(tree.root, columns=columns, **environment) as screen:
        raw = screen.until("quit")
        assert max(map(len, raw.splitlines())) <= columns + 1
        screen.press("NNBnbm", "")
        screen.press("q", "goes on there")


def test_a_dumb_terminal_gets_the_list(tree: Repository) -> None:
    with Screen(tree.root, TERM="dumb") as screen:
        assert "to take it:" in screen.until("next: karat diff --html report.html")
        assert screen.process.wait(30) == 1


def test_a_narrow_terminal_names_the_golden_and_where_it_came_from(tree: Repository) -> None:
    with Screen(tree.root, columns=60) as screen:
        screen.until("quit")
        shown = screen.press("n", "also     num-zeros up")
        assert "1 of 2 " in shown
        assert A.split("/")[-2] in shown
        assert "HEAD     GitHub workflow run 1" in shown
        assert "now      GitHub workflow run 2" in shown
        assert "all are as they were" in screen.press("q", "goes on there")


def test_a_golden_that_is_too_large_to_read_does_not_end_the_review(tree: Repository) -> None:
    tree.write(C, golden_text(curves(2)) + " " * (1 << 20))
    with Screen(tree.root, KARAT_MAX_GOLDEN_MB="1") as screen:
        assert "expected a golden of at most" in screen.until("quit")
        screen.press("r", "expected to read")  # git could not be given what would go
        screen.press("a", "Why accept?")
        screen.press("larger now\r", "accepted 1 golden")
        screen.press("q", "3 to decide")
    assert status(tree)[C] == "M "
