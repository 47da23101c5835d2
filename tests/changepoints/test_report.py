from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st
from msgspec import structs

from karat.changepoints.detector.detect import detect
from karat.changepoints.examine import ChangesReport, examine
from karat.changepoints.readers.read import SeriesCollection
from karat.changepoints.report import chance_text, sparkline, text_lines
from karat.changepoints.series import RAREST, Better, ChangeKind, DetectOptions, Observation, Outcome, Series
from karat.findings import CannotVerify, ExitCode, Finding, Severity
from karat.system.command import Command

OK, CRASH, MISSING = Outcome.OK, Outcome.CRASH, Outcome.MISSING


def made(*cells: float | str, better: Better | None = "higher", metric: str = "m") -> Series:
    """Numbers are values, other words crashes, and nothing is missing."""
    points = []
    for n, cell in enumerate(cells, 1):
        if isinstance(cell, str):
            outcome = CRASH if cell else MISSING
            points.append(Observation(label=f"p{n}", outcome=outcome, signature=cell, log=f"p{n}.log"))
        else:
            points.append(Observation(label=f"p{n}", values=(float(cell),), log=f"p{n}.log"))
    return Series(metric=metric, observations=tuple(points), better=better, source="s")


def report(*series: Series, online: bool = False) -> ChangesReport:
    return examine(SeriesCollection(series=series), DetectOptions(), online=online)


def wobble(level: float, count: int) -> list[float]:
    return [level + (0.01, -0.02, 0.015, 0.0, -0.01)[n % 5] for n in range(count)]


DOWN = (*wobble(10, 12), *wobble(8, 12))


def kinds(said: ChangesReport) -> list[tuple[str, str]]:
    return [(finding.kind, finding.severity.value) for finding in said.findings]


@pytest.mark.parametrize(
    ("better", "kind", "severity", "code"),
    [
        ("higher", "level-regressed", "fail", 1),
        ("lower", "level-improved", "info", 0),
        (None, "level-shifted", "warn", 0),
        ("equal", "level-shifted", "warn", 0),
    ],
)
def test_a_level_change_is_judged_by_what_is_better(better: Better | None, kind: str, severity: str, code: int) -> None:
    said = report(made(*DOWN, better=better))
    assert kinds(said) == [(kind, severity)]
    assert said.exit_code == code
    (finding,) = said.findings
    assert finding.numbers["last_good"] == "p12"
    assert finding.numbers["first_bad"] == "p13"
    assert finding.message.startswith("m fell from 9.99833 to 7.99833 (−20%) between p12 and p13")


def test_a_dip_is_a_warning() -> None:
    said = report(made(*wobble(10, 12), *wobble(8, 3), *wobble(10, 12)))
    assert kinds(said) == [("dip", "warn")]
    assert said.exit_code is ExitCode.OK


def test_a_crash_fails_while_it_goes_on_and_warns_when_it_is_over() -> None:
    over = report(made(*wobble(1, 8), "ValueError: x", *wobble(1, 8)))
    assert kinds(over) == [("crash-range", "warn")]
    still = report(made(*wobble(1, 8), "ValueError: x", "", "ValueError: x", ""))
    assert kinds(still)[0] == ("crash-range", "fail")
    assert still.findings[0].next == "tail -n 40 p9.log"
    assert "nothing after it has a value" in still.findings[0].message
    assert still.exit_code is ExitCode.FAIL


def test_missing_points_are_worth_a_word() -> None:
    said = report(made(*wobble(1, 8), "", "", *wobble(1, 8)))
    assert kinds(said) == [("gap", "info")]
    assert said.findings[0].where == "p9 … p10"


def test_without_any_value_there_is_no_report() -> None:
    with pytest.raises(CannotVerify, match=r"found none \(1 crash, 1 missing\)"):
        report(made("ValueError: x", ""))
    with pytest.raises(CannotVerify, match="nothing was compared"):
        report()


def test_too_few_values_are_not_passed_off_as_no_change() -> None:
    said = report(made(1, 1, 1), made(*wobble(1, 9), metric="n"))
    assert kinds(said) == [("nothing-compared", "warn")]
    assert said.exit_code is ExitCode.CANNOT_VERIFY
    assert text(said).endswith("2 series: 1 too short to tell")
    assert "no change" not in text(report(made(1, 1, 1)))


def test_online_says_whether_the_newest_is_a_change() -> None:
    calm = report(made(*wobble(10, 20)), online=True)
    assert (kinds(calm), calm.exit_code) == ([], ExitCode.OK)
    worse = report(made(*wobble(10, 20), *wobble(8, 3)), online=True)
    assert kinds(worse) == [("level-regressed", "fail")]
    better = report(made(*wobble(10, 20), *wobble(12, 3)), online=True)
    assert kinds(better) == [("level-improved", "info")]
    crashed = report(made(*wobble(10, 20), "ValueError: x"), online=True)
    assert kinds(crashed) == [("crash-range", "fail")]
    nothing = report(made(*wobble(10, 20), ""), online=True)
    assert (kinds(nothing), nothing.exit_code) == ([("nothing-compared", "warn")], ExitCode.CANNOT_VERIFY)
    old = report(made(*DOWN), online=True)
    assert kinds(old) == [], "what changed long ago is not new"


def text(said: ChangesReport, **more: bool) -> str:
    return "\n".join("".join(piece for piece, _ in line) for line in text_lines(said, **more))


def test_quiet_series_are_counted_unless_all_are_asked_for() -> None:
    said = report(made(*DOWN), made(*wobble(1, 9), metric="calm"))
    assert "calm" not in text(said)
    assert "1 more series without a change (--all shows them)" in text(said)
    assert "calm" in text(said, everything=True)
    assert text(said).endswith("2 series: 1 regression")


def test_a_step_says_what_lies_between() -> None:
    said = text(report(made(*wobble(10, 12), "ValueError: x", "", *wobble(8, 12))))
    assert "last good p12, first bad p15 (1 crashed, 1 missing between)" in said
    assert "crash       p13  ValueError: x  (p13.log)" in said
    assert "gap         1 point: p14" in said


def test_who_did_not_say_what_is_better_is_asked() -> None:
    assert "use --better so that regressions fail" in text(report(made(*DOWN, better=None)))


def test_series_that_changed_together_are_named_together() -> None:
    said = report(made(*DOWN), made(*DOWN, metric="n"), made(*wobble(1, 24), metric="o"))
    assert "2 series changed between p12 and p13: m, n" in said.notes


def test_what_is_too_little_to_be_told_alone_is_named_beside_a_change_at_the_same_place() -> None:
    generator = np.random.default_rng(1)
    clear, faint, still = (100 + generator.standard_normal(80) + np.repeat([0, size], 40) for size in (9.0, 1.1, 0.0))
    series = (made(*clear, metric="clear"), made(*faint, metric="faint"), made(*still, metric="still"))
    assert detect(series[1], DetectOptions(false_alarms=1e-4)).steps == ()
    said = examine(SeriesCollection(series=series), DetectOptions(false_alarms=1e-4))
    wanted = "1 series changed between p40 and p41: clear; faint moved there, too, by less than is told alone"
    assert said.notes == (wanted,)


def test_the_newest_point_is_judged_by_a_thousand_and_costs_no_more_each_night() -> None:
    values = np.random.default_rng(2).standard_normal(3000)
    values[:1500] += 50
    values[-3:] -= 9
    said = report(made(*values), online=True)
    (entry,) = said.entries
    assert entry.newest is not None
    assert entry.newest.verdict == "change"
    assert len(entry.series.observations) == 1000
    assert "the newest point is judged by the 1,000 newest" in said.notes


def test_trends_and_noise_have_lines_of_their_own() -> None:
    generator = np.random.default_rng(3)
    slow = report(made(*(100 + np.linspace(0, -8, 120) + generator.standard_normal(120))))
    lines = ["".join(text for text, _ in line) for line in text_lines(slow)]
    assert any(line.startswith("  trend       −") and " → " in line for line in lines)
    assert [(f.kind, f.severity) for f in slow.findings] == [("trend", Severity.WARN)]
    assert slow.rows()[0]["before"] == pytest.approx(100, abs=1.5)
    louder = report(made(*(100 + generator.standard_normal(200) * np.repeat([1.0, 6.0], 100))))
    assert [(f.kind, f.severity) for f in louder.findings] == [("noise-changed", Severity.INFO)]


@given(
    st.lists(st.one_of(st.floats(-1e300, 1e300), st.sampled_from(["", "E: x"])), min_size=1, max_size=60),
    st.integers(1, 80),
)
def test_a_strip_has_as_many_columns_as_fit(cells: list[float | str], width: int) -> None:
    series = made(*cells)
    drawn, marks = sparkline(series, detect(series), width)
    assert len(drawn) == min(width, len(cells))
    assert len(marks) <= len(drawn)
    if width >= len(cells):
        assert [sign in "×·" for sign in drawn] == [isinstance(cell, str) for cell in cells]


def test_every_kind_of_change_has_its_line() -> None:
    series = made(*wobble(10, 18), *wobble(8, 6), *wobble(10, 18), *wobble(7, 12), "E: x", "", *wobble(12, 12))
    said = report(series)
    assert {change.kind for change in said.entries[0].analysis.changes} == {
        ChangeKind.DIP,
        ChangeKind.REGRESSION,
        ChangeKind.CRASH,
        ChangeKind.GAP,
        ChangeKind.IMPROVEMENT,
    }
    shown = text(said)
    for word in ("dip ", "regression ", "crash ", "gap ", "improvement "):
        assert f"\n  {word}" in shown


def test_the_strip_of_the_largest_numbers_there_are() -> None:
    series = made(*[1e308, -1e308] * 3)
    assert sparkline(series, detect(made(*[1.0] * 6)), 80)[0] == "█▁█▁█▁"


def test_chances_that_nobody_can_vouch_for_are_said_to_be_below() -> None:
    said = report(made(*DOWN))
    (step,) = said.entries[0].analysis.steps
    assert step.p_value <= RAREST
    assert chance_text([step]) == "p ≤ 1e-6"
    assert chance_text([structs.replace(step, p_value=2.3e-5)]) == "p = 2e-5"


def test_a_hunt_s_regression_is_shown_where_it_was_hunted() -> None:
    series = made(*DOWN)
    points = [structs.replace(p, log=Command("karat", "hunt", "show", p.label)) for p in series.observations]
    said = report(structs.replace(series, observations=tuple(points)))
    assert said.findings[0].next == "karat hunt show p13"


def test_nothing_compared_says_what_is_odd() -> None:
    odd = Finding(kind="cannot-read", severity=Severity.WARN, message="no way", next="ls -l x")
    with pytest.raises(CannotVerify, match=r"found none \(2 missing; no way\)") as error:
        examine(SeriesCollection(series=(made("", ""),), findings=(odd,)), DetectOptions())
    assert error.value.next_command == "ls -l x"


def test_of_many_crashes_the_newest_are_shown() -> None:
    said = report(made(*(cell for n in range(20) for cell in (1.0, f"E{n}: x"))))
    shown = "\n".join("".join(text for text, _ in line) for line in text_lines(said))
    assert "8 earlier crashes (--all shows them)" in shown
    assert "E19: x" in shown
    assert "E7: x" not in shown
