"""Decisions in real repositories: the index and the working tree say what was decided, and undo puts both back."""

from __future__ import annotations

import json

import pytest

from factories.repositories import Repository
from factories.reviewed import LOSS, ZEROS, A, B, C, D, changed, everything, opened, status, text
from karat.goldens.provenance import NAME, read_lock
from karat.goldens.shapes import Reading
from karat.reviews.causes import metrics_of
from karat.reviews.details import details, differences
from karat.reviews.review import NeedsReason, Stale


@pytest.fixture
def tree(repository: Repository) -> Repository:
    return changed(repository)


def test_the_worst_comes_first_and_each_golden_once(tree: Repository) -> None:
    review = opened(tree)
    assert next(item.path for item in review.items()) == C
    assert sorted(item.path for item in review.items()) == sorted([A, B, C, D])
    assert {item.state for item in review.items()} == {"pending"}
    assert review.causes()[0].group is not None


def test_accepting_stages_the_golden_and_its_line_and_nothing_else(tree: Repository) -> None:
    review = opened(tree)
    review.accept([A])
    assert status(tree) == {A: "M ", B: " M", C: " M", D: "??", NAME: "MM", "notes.txt": "M "}
    staged = json.loads(tree.git("show", f":{NAME}"))
    assert (staged[A]["run"], staged[B]["run"]) == ("2", "1")
    assert {i.path: i.state for i in review.items()}[A] == "accepted"
    assert {i.path: i.state for i in opened(tree).items()}[A] == "accepted"


def test_rejecting_restores_and_what_was_there_can_be_had_back(tree: Repository) -> None:
    before, review = everything(tree), opened(tree)
    made = review.reject([A, D])
    assert status(tree) == {B: " M", C: " M", NAME: " M", "notes.txt": "M "}
    assert read_lock(tree.root / NAME)[A].run == "1"
    kept = {f.path: f.next for f in made.findings}
    assert kept.keys() == {A, D}
    assert {i.path: i.state for i in review.items()} == {A: "rejected", B: "pending", C: "pending", D: "rejected"}
    review.refresh()
    assert {i.path: i.state for i in review.items()} == {A: "rejected", B: "pending", C: "pending", D: "rejected"}
    assert review.undo() == made
    assert everything(tree) == before
    assert {i.state for i in review.items()} == {"pending"}


def test_what_fails_needs_a_reason_which_goes_into_the_lock(tree: Repository) -> None:
    before, review = everything(tree), opened(tree)
    with pytest.raises(NeedsReason) as error:
        review.accept([C, A])
    assert {f.path for f in error.value.failing} == {C}
    assert everything(tree) == before
    made = review.accept([C, A], reason="short run wanted")
    assert made.reason == "short run wanted"
    lock = json.loads(tree.git("show", f":{NAME}"))
    assert (lock[C]["accepted"], "accepted" in lock[A]) == ("short run wanted", False)
    review.undo()
    assert everything(tree) == before


def test_one_metric_is_staged_and_the_other_stays_to_be_decided(tree: Repository) -> None:
    review = opened(tree)
    assert set(metrics_of(review.item(A).change)) == {LOSS, ZEROS}
    review.accept([A], metric=LOSS)
    head, index = (json.loads(tree.git("show", f"{revision}:{A}")) for revision in ("HEAD", ""))
    disk = json.loads((tree.root / A).read_text())
    assert (index[LOSS], index[ZEROS]) == (disk[LOSS], head[ZEROS])
    assert review.item(A).state == "partly"
    line = json.loads(tree.git("show", f":{NAME}"))[A]
    assert (line["run"], line["metrics"][LOSS]["run"]) == ("1", "2")
    review.accept([A], metric=ZEROS)
    assert review.item(A).state == "accepted"
    assert "metrics" not in json.loads(tree.git("show", f":{NAME}"))[A]


def test_one_metric_is_put_back_and_the_rest_can_be_accepted(tree: Repository) -> None:
    before, review = everything(tree), opened(tree)
    review.reject([A], metric=LOSS)
    head, disk = json.loads(tree.git("show", f"HEAD:{A}")), json.loads((tree.root / A).read_text())
    assert disk[LOSS] == head[LOSS]
    assert disk[ZEROS] != head[ZEROS]
    assert LOSS not in metrics_of(review.item(A).change)
    review.undo()
    assert everything(tree) == before
    assert LOSS in metrics_of(review.item(A).change)


def test_a_decision_on_what_has_changed_since_is_refused(tree: Repository) -> None:
    review, other = opened(tree), opened(tree)
    (tree.root / A).write_text(text(0, lm_loss=2.0))
    before = everything(tree)
    for decide in (review.accept, review.reject):
        with pytest.raises(Stale):
            decide([B, A])
    assert everything(tree) == before
    other.accept([B])
    with pytest.raises(Stale):
        review.reject([B])
    review.refresh()
    review.reject([A])
    with pytest.raises(Stale):
        review.accept([B], seen={B: "another"})


def test_many_second_thoughts_lead_back_to_the_beginning(tree: Repository) -> None:
    before, review = everything(tree), opened(tree)
    review.accept([A], metric=LOSS)
    review.reject([A])
    review.accept([B, C], reason="known")
    review.reject([B], metric=ZEROS)
    review.accept([D])
    review.reject([C])
    while review.undo() is not None:
        pass
    assert everything(tree) == before


def test_an_undo_does_not_run_over_somebody_elses_work(tree: Repository) -> None:
    review = opened(tree)
    review.reject([A])
    (tree.root / A).write_text("mine\n")
    with pytest.raises(Stale):
        review.undo()
    assert (tree.root / A).read_text() == "mine\n"


def test_what_was_committed_since_is_not_undone(tree: Repository) -> None:
    review = opened(tree)
    review.accept([A])
    tree.git("commit", "-qm", "taken")
    before = everything(tree)
    with pytest.raises(Stale, match="HEAD has moved since it was accepted"):
        review.undo()
    review.refresh()
    with pytest.raises(Stale, match="HEAD has moved"):
        review.undo()
    assert everything(tree) == before


def test_what_cannot_be_read_is_shown_without_values(tree: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KARAT_MAX_GOLDEN_MB", "1")
    tree.write(C, (tree.root / C).read_text() + " " * (1 << 20))
    review = opened(tree)
    old, new = review.pair(C)
    assert old is not None
    assert old.golden is not None
    assert new == Reading(None)
    assert details(review, C)["findings"][0][1] == "unreadable"


def test_long_texts_begin_where_they_part() -> None:
    before, after = "once " * 600 + "upon", "once " * 600 + "before"
    ((where, old, new),) = differences({"text": before}, {"text": after})
    assert (where, old, new) == ("$.text", f'…{"once " * 6}upon"', f'…{"once " * 6}before"')
    assert [*differences({"a": "short"}, {})] == [["$.a", '"short"', None]]
