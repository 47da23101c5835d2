from __future__ import annotations

import io
import json
import xml.etree.ElementTree as ET
from importlib import resources
from math import inf, nan
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings, strategies as st

from factories.diffs import HOSTILE
from karat.checks import text
from karat.checks.report import Checked, CheckReport, at, finding, headline, value
from karat.compare.gate.result import CheckOutcome, Deviation, Medians, MetricResult
from karat.findings import Finding, Severity
from karat.report import github
from karat.report.terminal import print_lines

NAMES = st.one_of(st.sampled_from(HOSTILE), st.text(max_size=20))
NUMBERS = st.one_of(st.none(), st.floats(), NAMES)
DEVIATIONS = st.builds(
    Deviation,
    place=st.one_of(st.integers(), NAMES),
    how=st.sampled_from(["missing", "not-finite", "changed", "worse", "better"]),
    expected=NUMBERS,
    got=NUMBERS,
    error=st.one_of(st.none(), st.floats()),
    relative=st.one_of(st.none(), st.floats()),
    tolerance=st.one_of(st.none(), st.floats()),
)
MEDIANS = st.builds(
    Medians,
    first=st.integers(0, 9),
    last=st.integers(9, 99),
    steps=st.integers(0, 9),
    expected=st.floats(),
    got=st.floats(),
    tolerance=st.floats(),
    worse=st.booleans(),
    better=st.booleans(),
)
COUNTS = st.integers(0, 10**9)
RESULTS = st.builds(
    MetricResult,
    metric=NAMES,
    outcome=st.sampled_from(CheckOutcome),
    kind=st.sampled_from(["", "out-of-tolerance", "new-nan", "improved"]),
    check=st.sampled_from(["", "exact", "median", "rows"]),
    tolerance=NAMES,
    noun=st.sampled_from(["step", "row", "place"]),
    total=COUNTS,
    compared=COUNTS,
    failed=COUNTS,
    missing=COUNTS,
    broken=COUNTS,
    better=COUNTS,
    allowed=COUNTS,
    first=st.one_of(st.none(), DEVIATIONS),
    worst=st.one_of(st.none(), DEVIATIONS),
    deviations=st.lists(DEVIATIONS, max_size=3).map(tuple),
    likely=st.one_of(st.none(), NAMES),
    because=st.one_of(st.none(), NAMES),
    medians=st.one_of(st.none(), MEDIANS),
    used=st.one_of(st.none(), st.floats()),
)


def told(result: MetricResult) -> Finding | None:
    return finding(result, improved=Severity.WARN, unknown=Severity.WARN, next_command="karat record a -o b")


@st.composite
def checks(draw: st.DrawFn) -> Checked:
    results = draw(st.lists(RESULTS, max_size=4))
    findings = [f for f in map(told, results) if f is not None]
    return Checked(
        actual=draw(NAMES),
        golden=draw(st.one_of(st.none(), NAMES)),
        outcome=draw(st.sampled_from(CheckOutcome)),
        shape=draw(st.sampled_from([None, "series", "table"])),
        results=tuple(results),
        findings=tuple(findings),
        refresh=draw(st.one_of(st.none(), NAMES)),
    )


REPORTS = st.builds(CheckReport, checks=st.lists(checks(), max_size=3).map(tuple))


def failing(n: int, severity: Severity = Severity.FAIL) -> CheckReport:
    findings = tuple(
        Finding(kind="out-of-tolerance", severity=severity, path=f"g{i}.json", message=f"m{i}") for i in range(n)
    )
    return CheckReport(checks=(Checked(actual="a", golden="g", outcome=CheckOutcome.FAIL, findings=findings),))


SCHEMA = json.loads(resources.files("karat").joinpath("schemas", "karat.check.1.json").read_text(encoding="utf-8"))


@pytest.mark.slow
@settings(max_examples=50)
@given(REPORTS)
def test_json_follows_the_published_schema_whatever_stands_in_it(report: CheckReport) -> None:
    document = json.loads(report.to_json())
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    assert len(document["checks"]) == len(report.checks)


def test_the_schema_itself_is_one_and_refuses_less() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert list(jsonschema.Draft202012Validator(SCHEMA).iter_errors({"schema": "karat.check/1"}))


@pytest.mark.slow
@settings(max_examples=50)
@given(REPORTS)
def test_junit_is_well_formed_whatever_stands_in_it(report: CheckReport) -> None:
    root = ET.fromstring(text.render_junit(report))  # noqa: S314 - our own text
    cases = root.findall(".//testcase")
    assert int(root.attrib["tests"]) == len(cases)
    assert int(root.attrib["failures"]) == len(root.findall(".//failure"))
    for suite in root.findall("testsuite"):
        assert int(suite.attrib["tests"]) == len(suite.findall("testcase"))
    assert len(cases) >= sum(len(c.results) for c in report.checks)


def test_a_failing_metric_is_a_failing_test_and_an_exempted_one_is_skipped() -> None:
    bad = MetricResult(metric="loss", outcome=CheckOutcome.FAIL, kind="out-of-tolerance", total=3)
    good = MetricResult(metric="time", outcome=CheckOutcome.PASS)
    known = MetricResult(metric="zeros", outcome=CheckOutcome.EXEMPTED, kind="exempted", exemption=0)
    problem = told(bad)
    assert problem is not None
    checked = Checked(
        actual="a", golden="g", outcome=CheckOutcome.FAIL, results=(bad, good, known), findings=(problem,)
    )
    root = ET.fromstring(text.render_junit(CheckReport(checks=(checked,))))  # noqa: S314 - our own text
    found = {case.attrib["name"]: [child.tag for child in case] for case in root.iter("testcase")}
    assert found == {"loss": ["failure"], "time": [], "zeros (exemption 1)": ["skipped"]}


@pytest.mark.slow
@settings(max_examples=50)
@given(REPORTS)
def test_annotations_are_one_line_each_and_never_more_than_ten_of_a_kind(report: CheckReport) -> None:
    lines = github.workflow_commands(report.all_findings(), "karat check").split("\n")[:-1]
    for word in ("error", "warning"):
        assert sum(line.startswith(f"::{word} ") for line in lines) <= 10
    assert all(line.startswith(("::error ", "::warning ")) for line in lines)


@pytest.mark.parametrize(("n", "lines"), [(1, 1), (10, 10), (11, 10), (500, 10)])
def test_what_does_not_fit_is_counted(n: int, lines: int) -> None:
    found = github.workflow_commands(failing(n).all_findings(), "karat check").splitlines()
    assert len(found) == lines
    assert ("and" in found[-1]) == (n > 10)
    if n > 10:
        assert f"… and {n - 9} more errors" in found[-1]


def test_annotations_escape_what_the_runner_would_read_as_its_own() -> None:
    odd = Finding(
        kind="out-of-tolerance", severity=Severity.FAIL, path="a,b:c%.json", message="50% off\n::stop-commands::x"
    )
    report = CheckReport(checks=(), findings=(odd,))
    assert github.workflow_commands(report.all_findings(), "karat check") == (
        "::error file=a%2Cb%3Ac%25.json,title=karat check%3A out-of-tolerance::50%25 off%0A::stop-commands::x\n"
    )


@pytest.mark.slow
@settings(max_examples=50)
@given(REPORTS)
def test_the_summary_fits_and_lets_no_markup_through(report: CheckReport) -> None:
    summary = text.summary(report, github.LARGEST_SUMMARY)
    assert len(summary.encode("utf-8", "backslashreplace")) < github.LARGEST_SUMMARY
    assert "\n<img" not in summary


def test_a_summary_never_outgrows_the_room_that_is_left() -> None:
    result = MetricResult(metric="m" * 3000, outcome=CheckOutcome.FAIL, kind="x", likely="l" * 3000, total=1)
    one = Checked(actual="a", golden="g", outcome=CheckOutcome.FAIL, results=(result,))
    report = CheckReport(checks=(one,) * 1000)
    for taken in (0, 600_000, github.LARGEST_SUMMARY):
        summary = text.summary(report, github.LARGEST_SUMMARY - taken)
        assert taken + len(summary.encode()) <= github.LARGEST_SUMMARY
        assert ("goldens more" in summary or "more; the log" in summary) == bool(summary)
    assert text.summary(report, 0) == ""


@pytest.mark.slow
@settings(max_examples=50)
@given(REPORTS)
def test_the_terminal_prints_only_what_is_printable_and_begins_with_the_outcome(report: CheckReport) -> None:
    stream = io.StringIO()
    print_lines(text.lines(report), stream)
    printed = stream.getvalue()
    assert all(line.isprintable() for line in printed.split("\n"))
    assert printed.startswith(report.outcome.value)


def test_colour_is_for_those_who_want_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = io.StringIO()
    print_lines(text.lines(failing(1)), stream)
    assert "\x1b[" in stream.getvalue()
    monkeypatch.setenv("NO_COLOR", "1")
    plain = io.StringIO()
    print_lines(text.lines(failing(1)), plain)
    assert "\x1b[3" not in plain.getvalue()


def test_only_the_gravest_goldens_are_printed_in_full() -> None:
    one = failing(1).checks[0]
    found = "".join(t for line in text.lines(CheckReport(checks=(one,) * 50)) for t, _ in line)
    assert "… and 30 more" in found


def test_values_are_written_as_people_read_them() -> None:
    assert [value(v) for v in (None, 3.0, 0.1, 1e20, nan, inf, "pass")] == [
        "nothing",
        "3",
        "0.1",
        "1e+20",
        "nan",
        "inf",
        "pass",
    ]
    assert len(value("x" * 1000)) == 60


def test_a_deviation_is_told_in_full() -> None:
    off = Deviation(place=7, how="worse", expected=2.0, got=2.5, error=0.5, relative=0.25, tolerance=0.1)
    assert at(off) == "step 7: expected 2, got 2.5 (abs 0.5 of 0.1 allowed, rel 25.00%)"
    gone = Deviation(place="moco", how="missing", expected=2.0)
    assert at(gone) == "moco: expected 2, got nothing"


def test_only_the_first_of_very_many_metrics_are_printed() -> None:
    results = tuple(
        MetricResult(metric=f"m{i}", outcome=CheckOutcome.FAIL, kind="out-of-tolerance", failed=1, total=1)
        for i in range(50)
    )
    checked = Checked(actual="a", golden="g", outcome=CheckOutcome.FAIL, results=results)
    stream = io.StringIO()
    print_lines(text.lines(CheckReport(checks=(checked,))), stream)
    assert "m19  " in stream.getvalue()
    assert "m20  " not in stream.getvalue()
    assert "… and 30 more (--json - lists all)" in stream.getvalue()


def test_findings_about_the_file_are_told_apart_from_those_of_metrics() -> None:
    result = MetricResult(metric="m", outcome=CheckOutcome.FAIL, kind="new-nan")
    findings = tuple(
        Finding(kind=kind, severity=Severity.FAIL, metric=metric, message="x")
        for kind, metric in (("new-nan", "m"), ("new-nan", "n"), ("truncated", "m"), ("empty", None))
    )
    checked = Checked(actual="a", golden="g", outcome=CheckOutcome.FAIL, results=(result,), findings=findings)
    assert checked.about_file() == list(findings[1:])


@pytest.mark.parametrize(
    ("sets", "line"),
    [
        ({"broken": 1, "failed": 1}, "1 of 9 steps has no finite value"),
        ({"missing": 2, "failed": 2}, "2 of 9 steps have no value"),
        ({"failed": 2, "check": "range"}, "2 of 9 steps out of bounds"),
        ({"outcome": CheckOutcome.PASS, "kind": "", "check": "range"}, "9 steps within bounds"),
        ({"metric": "(rows)", "total": 0}, "the golden has no rows"),
        ({"metric": "(unknown steps)"}, "9 steps without a golden: "),
    ],
)
def test_headlines(sets: dict[str, Any], line: str) -> None:
    usual = {"metric": "m", "outcome": CheckOutcome.FAIL, "kind": "out-of-tolerance", "total": 9}
    assert headline(MetricResult(**{**usual, **sets})) == line


@pytest.mark.parametrize("kind", ["cannot-read", "unreadable", "empty"])
@pytest.mark.parametrize(("outcome", "tag"), [(CheckOutcome.CANNOT_VERIFY, "error"), (CheckOutcome.FAIL, "failure")])
def test_only_what_cannot_be_verified_is_an_error_in_junit(kind: str, outcome: CheckOutcome, tag: str) -> None:
    found = Finding(kind=kind, severity=Severity.FAIL, message="x")
    checked = Checked(actual="a", golden="g", outcome=outcome, findings=(found,))
    root = ET.fromstring(text.render_junit(CheckReport(checks=(checked,))))  # noqa: S314 - our own
    assert [case[0].tag for case in root.iter("testcase")] == [tag]
