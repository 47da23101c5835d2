"""The report of a replay: text for a terminal, JSON (`karat.replay/1`) and JUnit XML."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import IO, Any, Literal

import msgspec

from karat.findings import Finding, Severity
from karat.replays.outcome import ReplayedCase, ReplayOutcome, ReplayReport
from karat.report import junit
from karat.report.json import encode, finding_json
from karat.report.junit import TestCase, TestProblem
from karat.report.terminal import Line, finding_lines, print_lines, room_of
from karat.report.words import count, elide, printable
from karat.tensors.comparison import Comparison
from karat.tensors.report import TITLES, cells, comparison_json, type_text, worst

SCHEMA = "karat.replay/1"
_STYLES = {
    **dict.fromkeys((ReplayOutcome.DAMAGED, ReplayOutcome.FAILED, ReplayOutcome.MISMATCH), "bold red"),
    ReplayOutcome.NOT_COMPARED: "yellow",
    ReplayOutcome.MATCH: "green",
}
_ROWS_SHOWN = 40
_FINDINGS_SHOWN = 30
_WIDE = 110
_SHORTEST_NAME = 24


def print_report(report: ReplayReport, stream: IO[str]) -> None:
    print_lines(text_lines(report, width=room_of(stream)), stream)


def text_lines(report: ReplayReport, *, width: int | None = None) -> Iterator[Line]:
    """The report: cases worst first, findings, and the outcome of the whole last.

    With a width, paths of cases give way to it.
    """
    yield (report.bundle, "bold"), (f"  run by {report.runner}", "dim")
    if report.cases:
        yield ()
        cases = sorted(report.cases, key=lambda c: (c.outcome.rank, c.path))
        shown = cases[:_ROWS_SHOWN]
        worsts = [worst(case.comparisons) for case in shown]
        rows = [
            (printable(c.path), c.outcome.value, str(len(c.comparisons) or ""), *cells(w.numbers if w else None))
            for c, w in zip(shown, worsts, strict=True)
        ]
        titles: tuple[str, ...] = ("case", "outcome", "values", *TITLES)
        if width is not None and width < _WIDE:
            titles, rows = _narrow(titles), [_narrow(row) for row in rows]
        widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
        if width is not None:
            rest = sum(widths[1:]) + 2 * (len(widths) - 1)
            widths[0] = min(widths[0], max(width - rest, _SHORTEST_NAME))
            rows = [(elide(row[0], widths[0]), *row[1:]) for row in rows]
        yield ((_aligned(titles, widths), "dim"),)
        for case, row in zip(shown, rows, strict=True):
            yield ((_aligned(row, widths), _STYLES[case.outcome]),)
        if len(cases) > len(shown):
            yield ((f"… and {len(cases) - len(shown):,} more (--json - lists all)", "dim"),)
    yield from _findings(report)
    yield ()
    parts = report.outcomes()
    worst_outcome = min((case.outcome for case in report.cases), key=lambda o: o.rank, default=None)
    style = _STYLES[worst_outcome] if worst_outcome is not None else "yellow"
    what = f"{count(len(report.cases), 'case')}: {parts}" if parts else "no case was replayed"
    compared = sum(len(case.comparisons) for case in report.cases)
    yield (what, style), (f"; {count(compared, 'value')} compared", "")


def _narrow(row: tuple[str, ...]) -> tuple[str, ...]:
    """The cells that fit into a narrow terminal: without values, the largest relative difference and ULP."""
    return (*row[:2], *row[3:5], row[7])


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    left = [value.ljust(width) for value, width in zip(row[:2], widths[:2], strict=True)]
    return "  ".join([*left, *(value.rjust(width) for value, width in zip(row[2:], widths[2:], strict=True))])


def _findings(report: ReplayReport) -> Iterator[Line]:
    """What concerns the whole, then warnings and failures, then the rest in a line per kind."""
    yield from (line for finding in report.findings for line in finding_lines(finding))
    own = [f for case in report.cases for f in case.findings]
    loud = sorted((f for f in own if f.severity is not Severity.INFO), key=lambda f: f.severity.rank)
    for finding in loud[:_FINDINGS_SHOWN]:
        yield from finding_lines(finding)
    if len(loud) > _FINDINGS_SHOWN:
        yield ()
        yield ((f"… and {len(loud) - _FINDINGS_SHOWN:,} more findings (--json - lists all)", "dim"),)
    quiet: dict[str, list[Finding]] = {}
    for finding in own:
        if finding.severity is Severity.INFO:
            quiet.setdefault(finding.kind, []).append(finding)
    for kind, (example, *others) in sorted(quiet.items()):
        more = f" ({len(others):,} more like it)" if others else ""
        yield ()
        yield ("info ", "dim"), (f"{kind}  ", "bold"), (example.path, "")
        yield ((f"     {example.message}{more}", ""),)


def json_document(report: ReplayReport) -> dict[str, Any]:
    outcomes = Counter(case.outcome for case in report.cases)
    severities = Counter(f.severity for f in report.all_findings())
    return {
        "schema": SCHEMA,
        "bundle": report.bundle,
        "runner": report.runner,
        "exit_code": int(report.exit_code),
        "totals": {
            "cases": len(report.cases),
            "compared": sum(len(case.comparisons) for case in report.cases),
            "outcomes": {o.value: outcomes[o] for o in ReplayOutcome},
            "findings": {s.value: severities[s] for s in Severity},
        },
        "findings": [finding_json(f) for f in report.findings],
        "cases": [
            {
                "path": case.path,
                **msgspec.structs.asdict(case.identity),
                "outcome": case.outcome.value,
                "seconds": round(case.seconds, 3),
                "work": case.work,
                "findings": [finding_json(f) for f in case.findings],
                "tensors": [{"name": c.name, **comparison_json(c)} for c in case.comparisons],
            }
            for case in report.cases
        ],
    }


def render_json(report: ReplayReport) -> bytes:
    return encode(json_document(report))


def render_junit(report: ReplayReport) -> bytes:
    """JUnit XML with one test case per case: a mismatch is a failure, a case that did not run is an error."""
    suites: dict[str, list[TestCase]] = {}
    for case in report.cases:
        suite = f"{case.identity.suite}/{case.identity.flow}"
        suites.setdefault(suite, []).append(_test_case(suite, case))
    about_all = [
        TestCase(classname="karat replay", name=f.kind, problem=TestProblem("error", f.message, f.kind, f.next or ""))
        for f in report.findings
        if f.severity is Severity.FAIL
    ]
    return junit.render("karat replay", [*suites.items(), ("karat replay", about_all)])


def _test_case(suite: str, case: ReplayedCase) -> TestCase:
    identity = case.identity
    failures = [f for f in case.findings if f.severity is Severity.FAIL]
    mismatch = case.outcome is ReplayOutcome.MISMATCH
    tag: Literal["failure", "error"] = "failure" if mismatch else "error"
    body = "".join(f"{f.kind}: {f.message}\n" for f in failures)
    others = [f"{f.kind}: {f.message}" for f in case.findings if f.severity is not Severity.FAIL]
    return TestCase(
        classname=suite,
        name=f"{identity.test} ({identity.subtest})" if identity.subtest else identity.test,
        seconds=case.seconds,
        problem=TestProblem(tag, failures[0].message, failures[0].kind, body) if failures else None,
        # How close each tensor was, also if it matches.
        printed="\n".join([case.path, *map(comparison_line, case.comparisons), *others]),
    )


def comparison_line(comparison: Comparison) -> str:
    named = zip(TITLES, cells(comparison.numbers), strict=True)
    numbers = ", ".join(f"{title} {value}" for title, value in named if value)
    return f"{comparison.name} {type_text(comparison)}: {numbers or 'compared exactly'}"
