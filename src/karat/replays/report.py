"""The report of a replay: text for a terminal, a page, JSON (`karat.replay/1`) and JUnit XML."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Literal

import msgspec

from karat.findings import Severity
from karat.replays.judge import ReplayedCase, ReplayOutcome, ReplayReport
from karat.report import html, junit
from karat.report.json import encode, finding_json
from karat.report.junit import TestCase, TestProblem
from karat.report.terminal import Line, aligned, lines_by_kind, widths
from karat.report.words import count, elide, printable
from karat.tensors.comparison import Comparison
from karat.tensors.report import TITLES, cells, comparison_json, type_text, worst

SCHEMA = "karat.replay/1"
_STYLES = {
    **dict.fromkeys((ReplayOutcome.DAMAGED, ReplayOutcome.FAILED, ReplayOutcome.MISMATCH), "bold red"),
    ReplayOutcome.NOT_COMPARED: "yellow",
    ReplayOutcome.MATCH: "green",
}
_TONES = {ReplayOutcome.NOT_COMPARED: "warn", ReplayOutcome.MATCH: "good"}
_ROWS_SHOWN = 40
_FINDINGS_SHOWN = 30
_WIDE = 110
_SHORTEST_NAME = 24


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
        columns = widths([titles, *rows])
        if width is not None:
            rest = sum(columns[1:]) + 2 * (len(columns) - 1)
            columns[0] = min(columns[0], max(width - rest, _SHORTEST_NAME))
            rows = [(elide(row[0], columns[0]), *row[1:]) for row in rows]
        yield ((aligned(titles, columns), "dim"),)
        for case, row in zip(shown, rows, strict=True):
            yield ((aligned(row, columns), _STYLES[case.outcome]),)
        if len(cases) > len(shown):
            yield ((f"… and {len(cases) - len(shown):,} more (--json - lists all)", "dim"),)
    told = sorted(report.all_findings(), key=lambda finding: finding.severity.rank)
    yield from lines_by_kind(told, "", _FINDINGS_SHOWN)
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


def render_json(report: ReplayReport) -> bytes:
    outcomes = Counter(case.outcome for case in report.cases)
    severities = Counter(f.severity for f in report.all_findings())
    told = {
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
    return encode(told)


def render_html(report: ReplayReport, command: str) -> str:
    """The page: findings, a row per case, and the numbers of each tensor of a case that does not match."""
    parts = []
    for case in report.cases:
        if case.comparisons and case.outcome is not ReplayOutcome.MATCH:
            rows = [(c.name, type_text(c), *cells(c.numbers)) for c in case.comparisons]
            shown = html.plain_table(("tensor", "type", *TITLES), rows)
            parts.append(f"<details><summary><code>{html.text(case.path)}</code></summary>{shown}</details>")
    told, tones = [*report.all_findings()], {o.value: _TONES.get(o, "grave") for o in ReplayOutcome}
    below = f"<section><h2>Tensors of cases that do not match</h2>{''.join(parts)}</section>" if parts else ""
    about = f"Replay of {report.bundle} by {report.runner}"
    answer = f"{count(len(report.cases), 'case')}: {report.outcomes() or 'none was run'}"
    return html.result_page(
        report,
        told,
        about=about,
        noun="cases",
        state="outcome",
        tones=tones,
        command=command,
        answer=answer,
        below=below,
    )


def render_junit(report: ReplayReport) -> bytes:
    """JUnit XML with one test case per case: a mismatch is a failure, a case that did not run is an error."""
    suites: dict[str, list[TestCase]] = {}
    for case in report.cases:
        suite = f"{case.identity.suite}/{case.identity.flow}"
        suites.setdefault(suite, []).append(_test_case(suite, case))
    about_all = [junit.case_of("karat replay", f, "error") for f in report.findings if f.severity is Severity.FAIL]
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
