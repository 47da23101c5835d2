from __future__ import annotations

import io

import msgspec
import pytest
from hypothesis import given, strategies as st

from factories.hunt_reports import NIGHTS, night, nightly, nothing
from karat.hunts.model import HuntReport, Point, PointReport, Verdict
from karat.hunts.report import html, markdown, sentences as say
from karat.hunts.report.assemble import findings_of
from karat.hunts.report.terminal import report_lines
from karat.report.terminal import print_lines


def shown(report: HuntReport, width: int | None = None) -> str:
    stream = io.StringIO()
    print_lines(report_lines(report, width=width), stream)
    return stream.getvalue()


def test_the_answer_comes_first() -> None:
    text = shown(nightly())
    assert text.startswith("mlups: 1 regression, 1 dip\n")
    regression = text[text.index("\nregression") :]
    for fact in (
        "577.3 → 536.7 MLUPS/s (−7.0%)",
        "last good xla@bbbbbbbb, first bad xla@cccccccc",
        "made by xla",
        "xla cccccccccccc Fuse convolutions",
        "(A. N. Author)",
        f"https://github.com/openxla/xla/commit/{'c' * 40}",
        "confirmed by running both sides again; confidence 99.8%",
        "karat hunt show 'xla@cccccccc' --stage 0.2/1",
    ):
        assert fact in regression


@pytest.mark.parametrize(("kind", "said"), [("crash", "works → fails"), ("recovery", "fails → works again")])
def test_a_hunted_crash_is_said_in_words(kind: str, said: str) -> None:
    begins = kind == "crash"
    change = nightly().culprits[0].change
    span = msgspec.structs.replace(
        change.span, metric="crash", kind=kind, before=float(not begins), after=float(begins)
    )
    assert say.amount(msgspec.structs.replace(change, span=span)) == said


def test_both_ends_of_a_dip_are_told_apart() -> None:
    text = shown(nightly())
    assert text.index("dip (there)") < text.index("dip (and back)")


def test_each_stage_has_its_strip_changes_failures_and_what_it_may_have_missed() -> None:
    text = shown(nightly())
    assert "  ··|··|·· ·✗|··∞·\n" in text
    assert "(1 between them could not be tried)" in text
    assert "crash       2023-08-09: ImportError: cannot import name '<b>x</b>' from \"jax\"" in text
    assert "hang        2023-08-12: no end within 600 s" in text
    assert "a dip of one night could hide; 3 more runs rule it out" in text
    assert "flaky: about 10% of the runs" in text


def test_points_that_cannot_be_had_are_told_by_reason() -> None:
    stage = nightly().stages[0]
    gone = [
        night(i, None) if why is None else _gone(i, why)
        for i, why in enumerate([None, "no image r/jax:n-{}", None, "no image r/jax:n-{}", "left out by skip"])
    ]
    several = msgspec.structs.replace(stage, points=(*stage.points, *gone), changes=())
    report = msgspec.structs.replace(nightly(), stages=(several,))
    text = shown(report)
    assert "  missing     2023-08-07, 2023-08-01, 2023-08-03: the registry has no such tag\n" in text
    assert "  missing     2023-08-02, 2023-08-04: no image …\n" in text
    assert "  missing     2023-08-05: left out by skip\n" in text
    said = [f.message for f in findings_of(report) if f.kind == "points-missing"]
    assert said[0] == "containers by day: 3 points not available, 2023-08-07 the first: the registry has no such tag"
    assert len(said) == 3
    many = msgspec.structs.replace(several, points=tuple(gone[:1] * 9))
    assert list(say.lacking(many)) == ["the registry has no such tag"]
    assert say.listed([p.point for p in many.points], 6).endswith(" and 3 more")


def _gone(index: int, why: str) -> PointReport:
    one = night(index, None)
    name = one.point.label
    parts = {"image": f"r/jax:n-{name}"}
    made = msgspec.structs.replace(one.point, parts=parts, missing=why.format(name))
    return msgspec.structs.replace(one, point=made)


def test_one_run_is_one_run() -> None:
    one = msgspec.structs.replace(nightly(), runs=1)
    assert "\n1 run, 72 min of measuring" in shown(one)
    assert "1 run, 72 min of measuring" in markdown.render(one)
    assert "1 run, 72 min of measuring" in html.render(one)


def test_a_hunt_that_was_stopped_does_not_look_finished() -> None:
    assert shown(nothing()).startswith("quiet: no change found so far (the hunt is stopped)\n")


@pytest.mark.parametrize("width", [10, 30, 100])
def test_a_strip_fits_its_room(width: int) -> None:
    stage = nightly().stages[0]
    found = say.strip(stage.points * 20, stage.changes, width)
    assert len(found) <= width + found.count("|")
    assert "|" in found
    assert len(stage.points) == len(NIGHTS)


def test_where_points_share_a_mark_it_is_what_most_of_them_came_to() -> None:
    fine, crashed = nightly().stages[0].points[0], nightly().stages[0].points[8]
    untried = PointReport(point=fine.point)
    row = [*[fine] * 29, crashed, *[crashed] * 20, *[fine, crashed] * 10, *[untried] * 20]
    assert say.strip(row, (), 9) == "···✗✗✗✗˙˙"
    assert say.strip([fine, crashed], (), 9) == "·✗", "where there is room, every point has its own"


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (577.30134, "577.3"),
        (0.0, "0"),
        (12345.6, "12,346"),
        (0.00012345, "0.0001234"),
        (1e-9, "1e-09"),
        (None, "–"),
        (-2.5, "-2.500"),
        (1e300, "1e+300"),
    ],
)
def test_values_are_short(number: float | None, text: str) -> None:
    assert say.value(number) == text


@given(st.floats(min_value=0, max_value=1))
def test_no_confidence_is_rounded_up_to_certainty(confidence: float) -> None:
    text = say.sure(confidence)
    assert "100%" not in text
    if text != "over 99.9%":
        assert float(text.removesuffix("%")) / 100 <= confidence + 1e-12


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_number_can_be_said(number: float) -> None:
    assert say.value(number)
    assert say.percent(1.0, number).endswith("%")


@pytest.mark.parametrize(
    ("verdict", "text"),
    [
        (Verdict(confirmed=True, confidence=0.995), "confirmed by running both sides again; confidence 99.5%"),
        (
            Verdict(confirmed=False, confidence=0.9),
            "NOT confirmed: run again, the two sides do not differ as before; confidence 90%",
        ),
        (
            Verdict(tried=("run again: 1 before, 2 after (8 and 8 runs): unclear",), confidence=0.6),
            "both sides were run again, without a clear result; confidence 60%",
        ),
        (Verdict(), "not run again; confidence 99.8%"),
    ],
)
def test_what_running_again_said(verdict: Verdict, text: str) -> None:
    change = msgspec.structs.replace(nightly().culprits[0].change, verdict=verdict)
    assert say.confirmed(change) == text


def test_blame_is_said_in_its_own_words() -> None:
    verdict = Verdict(interaction=True, message="it takes jax and xla together")
    found = nightly().culprits[-1].change
    change = msgspec.structs.replace(found, verdict=verdict)
    assert say.blame(change) == "it takes jax and xla together"
    alone = msgspec.structs.replace(change, new=Point(id="x", label="x", parts={"xla": "1" * 40}))
    assert say.blame(alone) == ""


def test_a_regression_that_does_not_hold_is_a_warning_with_a_suspect() -> None:
    report = nightly()
    *others, last = report.culprits
    for confirmed, severity, label in (
        (False, "warn", "suspect"),
        (None, "fail", "culprit"),
        (True, "fail", "culprit"),
    ):
        verdict = msgspec.structs.replace(last.change.verdict, confirmed=confirmed)
        change = msgspec.structs.replace(last.change, verdict=verdict)
        doubted = msgspec.structs.replace(last, change=change)
        changed = msgspec.structs.replace(report, culprits=(*others, doubted))
        (found,) = [f for f in findings_of(changed) if f.kind == "level-regressed"]
        assert found.severity.value == severity
        assert f"\n  {label} xla cccccccccccc" in shown(changed)
