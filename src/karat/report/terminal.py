"""The diff in a terminal: what must be looked at first, then groups, then the largest rows.

In: a Diff. Out: lines of (text, style) pieces. `show` prints them through rich on a terminal, where
colour and NO_COLOR are rich's business, and plainly into a pipe, where rich is not even imported.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, TypeAlias

from karat.compare.change import Change, Diff, Group, Verdict
from karat.diffs.report.rows import ranked_rows
from karat.findings import Finding, Severity
from karat.report.words import (
    count,
    elide,
    labels,
    number,
    printable,
    severity_counts,
    short_path,
    signed,
    verdict_counts,
)
from karat.tensors.report import TITLES, cells, ranked_tensors, tensor_rows, type_text

Line: TypeAlias = tuple[tuple[str, str], ...]
"""Pieces of text with a rich style each; no style is the empty text."""

_STYLE = {Severity.FAIL: "bold red", Severity.WARN: "yellow", Severity.INFO: "dim"}
_FAILS_SHOWN = 12
_GROUPS_SHOWN = 12
_WIDE = 110


def show(diff: Diff, stream: IO[str], *, top: int = 10) -> None:
    """Print the whole report."""
    print_lines(lines(diff, top=top, width=room_of(stream)), stream)


def room_of(stream: IO[str]) -> int | None:
    """The columns of a terminal; None for a pipe or a file, which takes any line."""
    return shutil.get_terminal_size().columns if _colourful(stream) else None


def _colourful(stream: IO[str]) -> bool:
    return stream.isatty() or bool(os.environ.get("FORCE_COLOR"))


def print_lines(report: Iterable[Line], stream: IO[str]) -> None:
    """Print lines of styled pieces: through rich on a terminal, plainly elsewhere."""
    if not _colourful(stream):
        for line in report:
            stream.write("".join(printable(text) for text, _ in line).rstrip() + "\n")
        return
    from rich.console import Console  # noqa: PLC0415 - only a terminal is worth the wait
    from rich.text import Text  # noqa: PLC0415

    console = Console(file=stream, highlight=False)
    for line in report:
        pieces = [(printable(text), style) for text, style in line]
        console.print(Text.assemble(*pieces), soft_wrap=True)


def lines(diff: Diff, *, top: int = 10, width: int | None = None) -> Iterator[Line]:
    """The report; with a width, paths give way to it."""
    yield from _head(diff)
    fails = [f for c in diff.changes for f in c.findings if f.severity is Severity.FAIL]
    for finding in (*diff.findings, *fails[:_FAILS_SHOWN]):
        yield from finding_lines(finding, diff.root)
    if len(fails) > _FAILS_SHOWN:
        yield ()
        yield _more(f"… and {len(fails) - _FAILS_SHOWN:,} more fail findings (--json - lists all)")
    # Fail findings that all stand above need no second mention.
    shown = [g for g in diff.groups if g.severity is not Severity.FAIL or len(fails) > _FAILS_SHOWN]
    yield from _groups(shown, diff)
    yield from _rows(diff, top, width)
    yield from _tensors(diff, top, width)


def _head(diff: Diff) -> Iterator[Line]:
    yield (f"{diff.old} → {diff.new}", "bold"), (f"  {diff.root}/" if diff.root else "", "dim")
    rows = sum(row.in_csv for change in diff.changes for row in change.metrics)
    changed = f"{count(len(diff.changes), 'golden')} compared"
    parts = [f"{changed} ({verdict_counts(diff.changes)})" if diff.changes else "no golden changed"]
    if diff.unchanged:
        parts.append(f"{diff.unchanged:,} unchanged")
    if rows:
        parts.append(count(rows, "row"))
    if tensors := sum(1 for _ in tensor_rows(diff)):
        parts.append(count(tensors, "tensor"))
    if severities := severity_counts(diff):
        parts.append(f"findings: {severities}")
    yield ((" · ".join(parts), ""),)


def finding_lines(finding: Finding, root: str = "") -> Iterator[Line]:
    """A finding in full: severity, kind and place, the sentence, the next command."""
    where = short_path(finding.path, root)
    severity = finding.severity
    yield ()
    yield (f"{severity.value:<4} ", _STYLE[severity]), (f"{finding.kind}  ", "bold"), (where, "")
    yield ((f"     {finding.message}", ""),)
    if finding.next:
        yield ("     next: ", "dim"), (finding.next, "cyan")


def _more(text: str) -> Line:
    return ((f"     {text}", "dim"),)


def _groups(groups: Sequence[Group], diff: Diff) -> Iterator[Line]:
    worth = [g for g in groups if g.severity is not Severity.INFO]
    if not worth:
        return
    yield ()
    yield (("One decision each", "bold"),)
    for group in worth[:_GROUPS_SHOWN]:
        yield (
            (f"{group.severity.value:<4} ", _STYLE[group.severity]),
            (group.title, ""),
            (_span(group), "dim"),
        )
        if len(group.members) == 1:
            yield _more(_sentence(group, diff))
    if len(worth) > _GROUPS_SHOWN:
        yield _more(f"… and {count(len(worth) - _GROUPS_SHOWN, 'group')} more")
    if len(groups) > len(worth):
        yield _more(
            f"and {count(len(groups) - len(worth), 'group')} of info findings (--json - lists all)"
        )


def _sentence(group: Group, diff: Diff) -> str:
    """What the only finding of a group says, and where."""
    ((path, metric),) = group.members
    messages = (
        f.message
        for change in diff.changes
        if change.path == path
        for f in change.findings
        if (f.kind, f.metric, f.severity) == (group.kind, metric, group.severity)
    )
    return f"{short_path(path, diff.root)}: {next(messages, '')}"


def _span(group: Group) -> str:
    if group.low is None or group.high is None:
        return ""
    low, high = number(group.low), number(group.high)
    return f"  by {low}" if low == high else f"  by {low} … {high}"


def _rows(diff: Diff, top: int, width: int | None) -> Iterator[Line]:
    ranked = ranked_rows(diff)[:top]
    if not ranked:
        return
    cells: list[tuple[str, ...]] = [
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
    titles: tuple[str, ...] = ("verdict", "metric", "n", "avg", "mean |·|", "max |·|", "at")
    if width is not None and width < _WIDE:
        titles, cells = _narrow(titles), [_narrow(row) for row in cells]
    widths = [max(map(len, column)) for column in zip(titles, *cells, strict=True)]
    room = max(width - sum(widths) - 2 * len(widths), 12) if width else None
    names = labels(diff)
    yield ()
    head = f"Largest {len(ranked)} rows by |avg_rel_diff|"
    yield (head, "bold"), (" (positive: the new value is smaller, for positive values)", "dim")
    yield ((f"{_cells(titles, widths)}  golden", "dim"),)
    for (change, row), row_cells in zip(ranked, cells, strict=True):
        name = _name(change, names, diff.root, room)
        yield (_cells(row_cells, widths), _style(row.verdict)), (f"  {name}", "")


def _tensors(diff: Diff, top: int, width: int | None) -> Iterator[Line]:
    """The tensors that moved most; those that did not are counted above."""
    ranked = ranked_tensors(diff)
    if not ranked[:top]:
        return
    titles: tuple[str, ...] = ("verdict", "tensor", "of", *TITLES)
    rows: list[tuple[str, ...]] = [
        (row.verdict.value, printable(row.metric), type_text(tensor), *cells(tensor.numbers))
        for _, row, tensor in ranked[:top]
    ]
    if width is not None and width < _WIDE:
        titles, rows = _narrow_tensor(titles), [_narrow_tensor(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
    room = max(width - sum(widths) - 2 * len(widths), 12) if width else None
    yield ()
    yield (
        (f"Tensors that moved, {len(rows)} of {len(ranked)}", "bold"),
        (" (old is what is expected)", "dim"),
    )
    yield ((f"{_cells(titles, widths, left=3)}  golden", "dim"),)
    for (change, row, _), row_cells in zip(ranked, rows, strict=False):
        name = _name(change, {}, diff.root, room)
        yield (_cells(row_cells, widths, left=3), _style(row.verdict)), (f"  {name}", "")


def _narrow(row: tuple[str, ...]) -> tuple[str, ...]:
    """The cells that a narrow terminal has room for: without n and mean |·|."""
    return (*row[:2], row[3], *row[5:])


def _narrow_tensor(row: tuple[str, ...]) -> tuple[str, ...]:
    """The same for tensors: without the largest relative difference and ULP."""
    return (*row[:5], row[7])


def _name(change: Change, names: dict[str, str], root: str, room: int | None) -> str:
    """The whole path where there is room; else model, case and platform; else their ends."""
    path = printable(short_path(change.path, root))
    if room is None or len(path) <= room:
        return path
    platform = change.identity.get("platform")
    name = names.get(change.path, path)
    return elide(printable(f"{name} · {platform}" if platform else name), room)


def _cells(values: Sequence[str], widths: Sequence[int], *, left: int = 2) -> str:
    text = (
        value.ljust(width) if i < left else value.rjust(width)
        for i, (value, width) in enumerate(zip(values, widths, strict=True))
    )
    return "  ".join(text)


def _style(verdict: Verdict) -> str:
    if verdict in {Verdict.NOISE, Verdict.SAME}:
        return "green"
    return _STYLE[Severity.WARN if verdict in {Verdict.DRIFT, Verdict.NEW} else Severity.FAIL]
