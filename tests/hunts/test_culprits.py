from __future__ import annotations

from msgspec.structs import replace

from karat.changepoints.series import Outcome
from karat.hunts.model import (
    ChangeReport,
    Metric,
    Point,
    PointReport,
    Span,
    StageReport,
    Suspect,
    Verdict,
)
from karat.hunts.report.assemble import culprits

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


def test_who_was_cleared_by_swapping_is_no_suspect() -> None:
    xla, jax, other = (replace(CULPRIT, part=part) for part in ("xla", "jax", "other"))
    for verdict, expected in (
        (Verdict(part="jax", parts=("jax",)), ["jax"]),
        (Verdict(interaction=True, parts=("xla", "jax")), ["xla", "jax"]),
        (Verdict(message="new xla does not build"), ["xla", "jax", "other"]),
        (Verdict(part="image"), ["xla", "jax", "other"]),
    ):
        stage = StageReport(
            key="0", title="", timeline="checkouts", state="done", points=(),
            changes=(replace(change(100, 90, xla, jax, other), verdict=verdict),),
        )  # fmt: skip
        (culprit,) = culprits([stage], {}, [SPEED])
        assert [one.part for one in culprit.suspects] == expected


MERGE, BRANCH = replace(CULPRIT, id="b" * 40), replace(CULPRIT, id="c" * 40)


def looked_into(
    tip: PointReport, state: str = "done", before: float | None = 100.0, after: float | None = 90.0
) -> list[str]:
    """Suspects of a merge whose branch showed no change."""
    old, new = replace(A, parts={"r": "a" * 40}), replace(B, parts={"r": MERGE.id})
    whole = replace(change(0, 0, BRANCH, MERGE), old=old, new=new, zoom="0.0/1")
    whole = replace(whole, span=replace(whole.span, before=before, after=after))
    first = StageReport(
        key="0", title="", timeline="commits", state="done", points=(), changes=(whole,)
    )
    branch = StageReport(key="0.0/1", title="", timeline="commits", state=state, points=(tip,))
    (culprit,) = culprits([first, branch], {"0.0/1": "0.0"}, [SPEED])
    return [suspect.id for suspect in culprit.suspects]


def test_a_merge_whose_branch_ends_as_it_was_before_is_the_only_suspect() -> None:
    point = Point(id="t", label="t", parts={"r": BRANCH.id})
    fine = PointReport(point=point, outcome=Outcome.OK, values={"speed": (99.0, 100.0)})
    both, alone = [BRANCH.id, MERGE.id], [MERGE.id]
    assert looked_into(fine) == alone
    assert looked_into(fine, after=None) == alone
    assert looked_into(replace(fine, outcome=Outcome.CRASH, values={}), before=None) == alone
    # The tip is not known, or is as slow as the merge, or the line is no branch, or nobody is done with it.
    assert looked_into(PointReport(point=point)) == both
    assert looked_into(replace(fine, outcome=Outcome.CRASH, values={}), after=None) == both
    assert looked_into(fine, before=None) == both
    assert looked_into(replace(fine, values={"speed": (91.0,)})) == both
    assert looked_into(replace(fine, point=replace(point, parts={"r": MERGE.id}))) == both
    assert looked_into(fine, state="stopped") == both


def test_every_dip_of_a_hunt_has_a_number_of_its_own() -> None:
    there, back = replace(change(100, 90, CULPRIT), dip=0), replace(change(90, 100, CULPRIT), dip=0)
    later = replace(change(100, 80), zoom="0.2/1")
    # The finer stage counts its dips from 0 as well.
    inside = replace(change(100, 80, BRANCH), dip=0, kind="dip")
    first = StageReport(
        key="0",
        title="",
        timeline="checkouts",
        state="done",
        points=(),
        changes=(there, back, later),
    )
    finer = StageReport(
        key="0.2/1", title="", timeline="commits", state="done", points=(), changes=(inside,)
    )
    listed = culprits([first, finer], {"0.2/1": "0.2"}, [SPEED])
    assert [culprit.change.dip for culprit in listed] == [0, 0, 1]
