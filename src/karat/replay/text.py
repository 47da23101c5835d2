"""The replay in a terminal: a table of cases with their worst numbers, then what a person should know."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import IO

from karat.findings import Finding, Severity
from karat.replay.outcome import Outcome, Replayed, ReplayReport
from karat.report.tensor_rows import TITLES, cells, worst
from karat.report.terminal import Line, finding_lines, print_lines, room_of
from karat.report.words import count, elide, printable

_STYLES = {
    Outcome.DAMAGED: "bold red",
    Outcome.FAILED: "bold red",
    Outcome.MISMATCH: "bold red",
    Outcome.NOT_COMPARED: "yellow",
    Outcome.MATCH: "green",
}
_ROWS_SHOWN = 40
_FINDINGS_SHOWN = 30
_WIDE = 110
_SHORTEST_NAME = 24


def show(report: ReplayReport, stream: IO[str]) -> None:
    """Print the whole report."""
    print_lines(lines(report, width=room_of(stream)), stream)


def lines(report: ReplayReport, *, width: int | None = None) -> Iterator[Line]:
    """The report: cases gravest first, findings, and the outcome of the whole last.

    With a width, paths of cases give way to it.
    """
    yield (report.bundle, "bold"), (f"  run by {report.runner}", "dim")
    if report.cases:
        yield ()
        yield from _table(sorted(report.cases, key=lambda c: (c.outcome.rank, c.path)), width)
    yield from _findings(report)
    yield ()
    yield _last(report)


def _table(cases: Sequence[Replayed], width: int | None) -> Iterator[Line]:
    shown = cases[:_ROWS_SHOWN]
    rows = [_row(case) for case in shown]
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


def _row(case: Replayed) -> tuple[str, ...]:
    at_worst = worst(case.comparisons)
    numbers = cells(at_worst.numbers if at_worst else None)
    tensors = str(len(case.comparisons)) if case.comparisons else ""
    return printable(case.path), case.outcome.value, tensors, *numbers


def _narrow(row: tuple[str, ...]) -> tuple[str, ...]:
    """The cells that a narrow terminal has room for: without values, the largest relative difference and ULP."""
    return (*row[:2], *row[3:5], row[7])


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    cells_ = (
        value.ljust(width) if i < 2 else value.rjust(width)
        for i, (value, width) in enumerate(zip(row, widths, strict=True))
    )
    return "  ".join(cells_)


def _findings(report: ReplayReport) -> Iterator[Line]:
    """What concerns the whole, then what is grave, then everything else in a line per kind."""
    yield from (line for finding in report.findings for line in finding_lines(finding))
    own = [f for case in report.cases for f in case.findings]
    loud = sorted(
        (f for f in own if f.severity is not Severity.INFO), key=lambda f: f.severity.rank
    )
    for finding in loud[:_FINDINGS_SHOWN]:
        yield from finding_lines(finding)
    if len(loud) > _FINDINGS_SHOWN:
        yield ()
        yield (
            (f"… and {len(loud) - _FINDINGS_SHOWN:,} more findings (--json - lists all)", "dim"),
        )
    yield from _quiet([f for f in own if f.severity is Severity.INFO])


def _quiet(findings: Sequence[Finding]) -> Iterator[Line]:
    tally = Counter(f.kind for f in findings)
    for kind, n in sorted(tally.items()):
        example = next(f for f in findings if f.kind == kind)
        more = f" ({n - 1:,} more like it)" if n > 1 else ""
        yield ()
        yield ("info ", "dim"), (f"{kind}  ", "bold"), (example.path, "")
        yield ((f"     {example.message}{more}", ""),)


def _last(report: ReplayReport) -> Line:
    tally = Counter(case.outcome for case in report.cases)
    parts = ", ".join(f"{tally[o]:,} {o.value}" for o in Outcome if tally[o])
    gravest = min((case.outcome for case in report.cases), key=lambda o: o.rank, default=None)
    style = _STYLES[gravest] if gravest is not None else "yellow"
    what = f"{count(len(report.cases), 'case')}: {parts}" if parts else "no case was replayed"
    compared = sum(len(case.comparisons) for case in report.cases)
    return (what, style), (f"; {count(compared, 'value')} compared", "")
