from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from karat.changepoints.series import Outcome
from karat.findings import exit_code
from karat.hunts.journal import Journal
from karat.hunts.model import (
    Attempt,
    ChangeReport,
    ChangeRow,
    Decision,
    HuntRow,
    Metric,
    Missed,
    Point,
    PointReport,
    Span,
    StageReport,
    StageRow,
    Suspect,
    Verdict,
)
from karat.hunts.report.assemble import NOT_REPRODUCED, build_report, culprits, findings_of
from karat.hunts.report.sentences import conclusion, heading

POINTS = tuple(Point(id=f"p{i}", label=f"night {i}") for i in range(6))
COMMITS = tuple(Point(id=f"lib@{i}", label=f"lib@{i}", parts={"lib": str(i)}) for i in range(4))


def span(good: int, bad: int, kind: str = "regression", metric: str = "speed") -> Span:
    return Span(metric=metric, good=good, bad=bad, before=100.0, after=90.0, confidence=0.99, kind=kind)


def attempt(stage: str, point: str, number: int = 1, **more: object) -> Attempt:
    facts: dict[str, object] = {"outcome": Outcome.OK, "samples": {"speed": (100.0,)}, "seconds": 2.0, **more}
    return Attempt(stage=stage, point=point, number=number, **facts)  # type: ignore[arg-type]


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    """A hunt of two metrics, its first stage begun."""
    row = HuntRow(
        name="nightly",
        file="hunt.toml",
        root=str(tmp_path),
        hunt="ab",
        settings="not understood",
        command=("sh", "probe.sh"),
        metrics=(Metric(name="speed", better="higher", unit="MLUPS"), Metric(name="sum", better="equal")),
    )
    with Journal.create(tmp_path / "n.hunt", row) as made:
        made.begin_stage(StageRow(key="0", title="nights", timeline="values"), POINTS)
        yield made


def test_before_anything_ran_there_is_a_report(journal: Journal) -> None:
    report = build_report(journal)
    assert (report.state, report.runs, report.culprits) == ("running", 0, ())
    assert [p.outcome for p in report.stages[0].points] == [None] * 6
    assert report.units == {"speed": "MLUPS"}
    assert findings_of(report) == ()


def test_a_hunt_that_nobody_works_on_and_that_is_not_done_was_killed(journal: Journal) -> None:
    path = journal.path
    journal.add_attempt(attempt("0", "p0"))
    journal.close()
    with Journal(path) as read:
        report = build_report(read)
    assert report.state == "stopped"
    assert report.stages[0].state == "stopped"
    assert "its process was killed. To continue: karat hunt resume" in report.notes[0]
    assert int(exit_code(findings_of(report))) == 3


def test_a_line_of_stages_ends_in_its_culprit(journal: Journal) -> None:
    missed = Missed(longest_dip=1, runs_to_rule_out=2, message="perhaps")
    journal.add_attempt(attempt("0", "p2"))
    journal.save_decision("0", Decision(asks=(), spans=(span(2, 3),), missed=missed, notes=("odd",)))
    journal.save_change("0", 0, ChangeRow(verdict=Verdict(part="lib"), zoom="0.0/1", swapped=True))
    journal.finish_stage("0")
    journal.begin_stage(StageRow(key="0.0/1", title="commits", timeline="commits", parent="0.0"), COMMITS)
    assert [c.stage for c in build_report(journal).culprits] == ["0"], "as close as it came so far"
    journal.add_attempt(attempt("0.0/1", "lib@2"))
    suspects = (Suspect(part="lib", id="c2", title="Fuse more", author="Ann"),)
    verdict = Verdict(part="lib", confirmed=True, confidence=0.999)
    journal.save_decision("0.0/1", Decision(asks=(), spans=(span(1, 2),)))
    journal.save_change("0.0/1", 0, ChangeRow(verdict=verdict, suspects=suspects, confirmed=True))
    journal.finish_stage("0.0/1")
    journal.set_fact("state", "done")
    report = build_report(journal)
    (culprit,) = report.culprits
    assert (culprit.stage, culprit.path) == ("0.0/1", ("0", "0.0/1"))
    assert (culprit.suspects, culprit.change.verdict) == (suspects, verdict)
    assert culprit.change.reproduce == "karat hunt try lib@2 --stage 0.0/1"
    assert report.stages[0].missed == missed
    assert report.stages[0].notes == ("odd",)
    assert (report.runs, report.seconds) == (2, 4.0)
    (finding,) = findings_of(report)
    assert (finding.kind, finding.severity.value) == ("level-regressed", "fail")
    assert "Fuse more" in finding.message
    assert finding.next == f"karat hunt show lib@2 --stage 0.0/1 --journal {journal.path}"


@pytest.mark.parametrize(
    ("kind", "metric", "expected"),
    [
        ("regression", "speed", ("level-regressed", 1)),
        ("improvement", "speed", ("level-improved", 0)),
        ("shift", "sum", ("level-shifted", 1)),
        ("shift", "speed", ("level-shifted", 0)),
        ("crash", "speed", ("crash-range", 1)),
        ("recovery", "speed", ("crash-range", 0)),
    ],
)
def test_what_a_change_comes_to(journal: Journal, kind: str, metric: str, expected: tuple[str, int]) -> None:
    journal.add_attempt(attempt("0", "p0"))
    journal.save_decision("0", Decision(asks=(), spans=(span(0, 1, kind, metric),)))
    journal.set_fact("state", "done")
    findings = findings_of(build_report(journal))
    assert (findings[0].kind, int(exit_code(findings))) == expected


def test_what_does_not_show_again_and_what_cannot_be_had_are_findings(journal: Journal) -> None:
    for name in ("p0", "p5"):
        journal.add_attempt(attempt("0", name))
    journal.update_point("0", 4, Point(id="p4", label="night 4", missing="no image"))
    journal.finish_stage("0", [f"{NOT_REPRODUCED} (a … b): odd"])
    journal.set_fact("state", "done")
    report = build_report(journal)
    assert report.stages[0].points[4].outcome is Outcome.MISSING
    assert [f.kind for f in findings_of(report)] == ["points-missing", "not-reproduced"]
    assert int(exit_code(findings_of(report))) == 0


@pytest.mark.parametrize(("confidence", "code"), [(0.06, 0), (0.94, 1)])
def test_runs_that_speak_against_a_change_do_not_fail_a_build(journal: Journal, confidence: float, code: int) -> None:
    journal.add_attempt(attempt("0", "p0"))
    journal.save_decision("0", Decision(asks=(), spans=(span(0, 1, "regression", "speed"),)))
    journal.set_fact("state", "done")
    report = build_report(journal)
    unclear = Verdict(tried=("run again: 5 before, 5.1 after: unclear",), confidence=confidence)
    (culprit,) = report.culprits
    change = msgspec.structs.replace(culprit.change, verdict=unclear)
    doubted = msgspec.structs.replace(report, culprits=(msgspec.structs.replace(culprit, change=change),))
    assert int(exit_code(findings_of(doubted))) == code


@pytest.mark.parametrize(("last", "code"), [("same", 3), ("other", 0)])
def test_one_build_at_all_points_is_no_pass(journal: Journal, last: str, code: int) -> None:
    for number, files in enumerate(("same", "same", last)):
        identity = {"files.sha256": files, "commit.lib": str(number)}
        journal.add_attempt(attempt("0", f"p{number}", identity=identity))
    journal.set_fact("state", "done")
    report = build_report(journal)
    assert int(exit_code(findings_of(report))) == code
    nothing = "nothing could be compared: nothing was rebuilt"
    assert conclusion(report).endswith(nothing if code else "no change found")


def test_outcomes_and_logs_of_points(journal: Journal) -> None:
    crash: dict[str, Any] = {"outcome": Outcome.CRASH, "samples": {}, "signature": "E: x"}
    journal.add_attempt(attempt("0", "p0", **crash), log=b"x" * 9000 + b"\xff the end")
    journal.add_attempt(attempt("0", "p1", **crash))
    journal.add_attempt(attempt("0", "p1", 2))
    journal.add_attempt(attempt("0", "p2", shared_with="p1"))
    first, second, third = build_report(journal).stages[0].points[:3]
    assert (first.outcome, first.values) == (Outcome.CRASH, {})
    assert first.log.endswith(r"\xff the end")
    assert len(first.log) < 5000
    assert (second.outcome, second.log) == (Outcome.OK, "")
    assert second.flags == ("flaky: 1 of 2 failed",)
    assert third.flags == ("shared with p1: the same thing was under test",)
    assert build_report(journal).runs == 3


SPEED = Metric(name="speed", better="higher", unit="MLUPS")
A, B = Point(id="a", label="a"), Point(id="b", label="b")
CULPRIT = Suspect(part="r", id="f" * 40, title="slower")


def change(before: float, after: float, *suspects: Suspect) -> ChangeReport:
    span = Span(metric="speed", good=0, bad=1, before=before, after=after, confidence=1.0, kind="shift")
    return ChangeReport(span=span, old=A, new=B, kind="regression", suspects=suspects)


def found(*changes: ChangeReport) -> list[ChangeReport]:
    stage = StageReport(key="0", title="commits", timeline="commits", state="done", points=(), changes=changes)
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
            key="0",
            title="",
            timeline="checkouts",
            state="done",
            points=(),
            changes=(replace(change(100, 90, xla, jax, other), verdict=verdict),),
        )
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
    first = StageReport(key="0", title="", timeline="commits", state="done", points=(), changes=(whole,))
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
    first = StageReport(key="0", title="", timeline="checkouts", state="done", points=(), changes=(there, back, later))
    finer = StageReport(key="0.2/1", title="", timeline="commits", state="done", points=(), changes=(inside,))
    listed = culprits([first, finer], {"0.2/1": "0.2"}, [SPEED])
    assert [culprit.change.dip for culprit in listed] == [0, 0, 1]


def test_what_stands_comes_first_and_what_could_not_be_confirmed_last() -> None:
    better = replace(change(90, 99), kind="improvement")
    doubted = replace(change(100, 49), verdict=Verdict(confirmed=False, tried=("run again: 100 before, 99 after",)))
    unclear = replace(change(100, 50), verdict=Verdict(tried=("run again: 100 before, 80 after: unclear",)))
    there, back = (replace(one, kind="dip", dip=0) for one in (change(100, 90), change(90, 100)))
    stands = replace(change(100, 82), verdict=Verdict(confirmed=True, tried=("run again: 100 before, 82 after",)))
    crash = replace(change(100, 0), kind="crash")
    lot = (better, doubted, there, back, unclear, stands, crash)
    assert found(*lot) == [stands, crash, better, there, back, doubted, unclear]


@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize("outcome", [Outcome.CRASH, Outcome.HANG])
def test_failures_are_called_what_they_are_and_those_that_ended_fail_nobody(
    journal: Journal, outcome: Outcome, *, ended: bool
) -> None:
    for number in range(6):
        fails = number in (2, 3) if ended else number > 1
        more: dict[str, Any] = {"outcome": outcome, "samples": {}} if fails else {}
        journal.add_attempt(attempt("0", f"p{number}", **more))
    begins = Span(metric="speed", good=1, bad=2, before=100.0, after=None, confidence=0.99, kind="crash")
    ends = Span(metric="speed", good=3, bad=4, before=None, after=100.0, confidence=0.99, kind="recovery")
    journal.save_decision("0", Decision(asks=(), spans=(begins, ends) if ended else (begins,)))
    journal.set_fact("state", "done")
    report = build_report(journal)
    said = "nightly: 1 hang" if outcome is Outcome.HANG else "nightly: 1 crash"
    assert conclusion(report) == (f"{said}, 1 recovery" if ended else said)
    assert int(exit_code(findings_of(report))) == (0 if ended else 1)
    assert heading(report.culprits[0], report) == f"{outcome.value}{' (ended later)' if ended else ''}"
