from __future__ import annotations

from msgspec.structs import replace

from karat.hunt.culprits import culprits
from karat.hunt.point import Point, Suspect
from karat.hunt.report import ChangeReport, StageReport
from karat.hunt.searching import Metric, Span

SPEED = Metric(name="speed", better="higher")
A, B = Point(id="a", label="a"), Point(id="b", label="b")
CULPRIT = Suspect(part="r", id="f" * 40, title="slower")


def change(before: float, after: float, *suspects: Suspect) -> ChangeReport:
    span = Span(
        metric="speed", good=0, bad=1, before=before, after=after, confidence=1.0, kind="shift"
    )
    return ChangeReport(span=span, old=A, new=B, kind="regression", suspects=suspects)


def found(*changes: ChangeReport) -> list[ChangeReport]:
    stage = StageReport(
        key="0", title="commits", timeline="commits", state="done", points=(), changes=changes
    )
    return [culprit.change for culprit in culprits([stage], {}, [SPEED])]


def test_a_commit_that_is_found_again_on_a_branch_is_named_once() -> None:
    first, again = change(100, 90, CULPRIT), change(110, 99, CULPRIT)
    other = change(90, 80, replace(CULPRIT, id="e" * 40))
    assert found(first, other, again) == [first, other]


def test_what_was_put_in_and_taken_away_is_two_changes_and_ranges_stay() -> None:
    there, back = change(100, 90, CULPRIT), change(90, 100, CULPRIT)
    assert found(there, back) == [there, back]
    second = replace(CULPRIT, id="d" * 40)
    lot = [change(100, 90, CULPRIT, second), change(90, 80, CULPRIT, second), change(80, 70)]
    assert found(*lot) == lot
