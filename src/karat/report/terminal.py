"""The diff in a terminal: what must be looked at first, then groups, then the largest rows.

In: a Diff. Out: lines with rich markup styles through a Console that the caller made, so that
colour, width and NO_COLOR are decided in one place.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from karat.compare.change import Change, Diff
from karat.findings import Finding, Severity
from karat.report.csv_rows import ranked_rows
from karat.report.words import (
    count,
    elide,
    number,
    printable,
    severity_counts,
    short_path,
    signed,
    verdict_counts,
)

_STYLE = {Severity.FAIL: "bold red", Severity.WARN: "yellow", Severity.INFO: "dim"}
_FAILS_SHOWN = 12
_GROUPS_SHOWN = 12


def show(diff: Diff, console: Console, *, top: int = 10) -> None:
    """Print the whole report."""
    _head(diff, console)
    for finding in diff.findings:
        _finding(finding, diff.root, console)
    _fails(diff, console)
    _groups(diff, console)
    _rows(diff, console, top)


def _line(console: Console, *parts: tuple[str, str]) -> None:
    text = Text()
    for content, style in parts:
        text.append(printable(content), style=style or "")
    console.print(text, soft_wrap=True, highlight=False)


def _head(diff: Diff, console: Console) -> None:
    _line(
        console,
        (f"{diff.old} → {diff.new}", "bold"),
        (f"  {diff.root}/" if diff.root else "", "dim"),
    )
    rows = sum(row.in_csv for change in diff.changes for row in change.metrics)
    changed = f"{count(len(diff.changes), 'golden')} compared"
    parts = [f"{changed} ({verdict_counts(diff.changes)})" if diff.changes else "no golden changed"]
    if diff.unchanged:
        parts.append(f"{diff.unchanged:,} unchanged")
    if rows:
        parts.append(count(rows, "row"))
    if severities := severity_counts(diff):
        parts.append(f"findings: {severities}")
    _line(console, (" · ".join(parts), ""))


def _finding(finding: Finding, root: str, console: Console) -> None:
    style = _STYLE[finding.severity]
    where = short_path(finding.path, root)
    _line(console, ("", ""))
    _line(
        console,
        (f"{finding.severity.value:<4} ", style),
        (f"{finding.kind}  ", "bold"),
        (where, ""),
    )
    _line(console, ("     ", ""), (finding.message, ""))
    if finding.next:
        _line(console, ("     next: ", "dim"), (finding.next, "cyan"))


def _fails(diff: Diff, console: Console) -> None:
    fails = [f for c in diff.changes for f in c.findings if f.severity is Severity.FAIL]
    for finding in fails[:_FAILS_SHOWN]:
        _finding(finding, diff.root, console)
    if len(fails) > _FAILS_SHOWN:
        console.print()
        _line(
            console,
            (
                f"     … and {len(fails) - _FAILS_SHOWN:,} more fail findings (--json - lists all)",
                "dim",
            ),
        )


def _groups(diff: Diff, console: Console) -> None:
    fails = sum(len(g.members) for g in diff.groups if g.severity is Severity.FAIL)
    # Fail findings that all stand above need no second mention.
    groups = [g for g in diff.groups if g.severity is not Severity.FAIL or fails > _FAILS_SHOWN]
    worth = [g for g in groups if g.severity is not Severity.INFO]
    if not worth:
        return
    console.print()
    _line(console, ("One decision each", "bold"))
    for group in worth[:_GROUPS_SHOWN]:
        span = ""
        if group.low is not None and group.high is not None:
            low, high = number(group.low), number(group.high)
            span = f"  |avg| {low}" if low == high else f"  |avg| {low} … {high}"
        _line(
            console,
            (f"{group.severity.value:<4} ", _STYLE[group.severity]),
            (group.title, ""),
            (span, "dim"),
        )
    info = len(groups) - len(worth)
    hidden = len(worth) - _GROUPS_SHOWN
    if hidden > 0:
        _line(console, (f"     … and {count(hidden, 'group')} more", "dim"))
    if info:
        _line(
            console,
            (f"     and {count(info, 'group')} of info findings (--json - lists all)", "dim"),
        )


def _rows(diff: Diff, console: Console, top: int) -> None:
    ranked = ranked_rows(diff)[:top]
    if not ranked:
        return
    console.print()
    head = f"Largest {len(ranked)} rows by |avg_rel_diff|"
    _line(console, (head, "bold"), (" (positive: the new value is smaller)", "dim"))
    cells = [
        (
            row.verdict.value,
            printable(row.metric),
            str(row.n_steps),
            signed(row.avg_rel_diff),
            number(row.mean_abs_rel_diff),
            number(row.max_abs_rel_diff),
            "" if row.max_step is None else str(row.max_step),
        )
        for _, row in ranked
    ]
    titles = ("verdict", "metric", "n", "avg", "mean |·|", "max |·|", "at")
    widths = [max(map(len, column)) for column in zip(titles, *cells, strict=True)]
    _line(console, (_cells(titles, widths) + "  file", "dim"))
    # The path gives way, from its middle: model and platform stand at its ends.
    room = max(console.width - sum(widths) - 2 * len(widths), 24)
    for (change, _), row_cells in zip(ranked, cells, strict=True):
        path = elide(printable(short_path(change.path, diff.root)), room)
        _line(console, (_cells(row_cells, widths), _verdict_style(change)), (f"  {path}", ""))


def _cells(values: Sequence[str], widths: Sequence[int]) -> str:
    text = [
        v.ljust(w) if i < 2 else v.rjust(w)
        for i, (v, w) in enumerate(zip(values, widths, strict=True))
    ]
    return "  ".join(text)


def _verdict_style(change: Change) -> str:
    return _STYLE[change.severity] if change.severity else "green"
