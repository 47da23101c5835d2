"""The diff in a terminal: the answer, groups by likely cause, then single findings, then the gravest rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set as AbstractSet
from typing import IO

from karat.compare.change import Change, MetricChange, Verdict
from karat.diffs.report.data import ROW_TITLES, counts, ranked_tensors, row_cells, top_rows
from karat.diffs.result import Diff, FindingGroup, labels, told
from karat.findings import Severity
from karat.report.terminal import (
    COMMAND,
    STYLES,
    Line,
    aligned,
    finding_lines,
    lines_by_kind,
    print_lines,
    room_of,
    widths,
)
from karat.report.words import count, elide, few, printable, short_path, span

_WARNS_SHOWN = 3
_GROUPS_SHOWN = 12
_MEMBERS_SHOWN = 2
_NAME = 30
_CELL = 24
_WIDE = 110


def show(diff: Diff, stream: IO[str], *, top: int = 10) -> None:
    print_lines(lines(diff, top=top, width=room_of(stream)), stream)


def lines(diff: Diff, *, top: int = 10, width: int | None = None) -> Iterator[Line]:
    """The report; with a width, paths give way to it."""
    yield ((diff.answer(), "bold"),)
    yield (f"{diff.old} → {diff.new}", ""), (f"  {diff.root}/" if diff.root else "", "dim")
    yield ((counts(diff), "dim"),)
    for head, line in enumerate(diff.history_lines()):
        yield ("     " if head else "history: ", "dim"), (line, "")
    yield from group_lines(diff.groups, labels(diff.changes, diff.root))
    # All that fails, in full, and the warnings that no group of several goldens has told of.
    known, whole = told(diff.groups), [finding for finding in diff.findings if finding.severity is not Severity.FAIL]
    found = [f for f in diff.all_findings() if (f.kind, f.path, f.metric) not in known or f.severity is Severity.FAIL]
    fails = [finding for finding in found if finding.severity is Severity.FAIL]
    warns = [finding for finding in found if finding.severity is Severity.WARN and finding not in whole]
    if whole or fails or warns:
        yield ()
        yield (("Single findings", "bold"),)
    yield from lines_by_kind((*whole, *fails), diff.root)
    for finding in warns[:_WARNS_SHOWN]:
        yield from finding_lines(finding, diff.root)
    if len(warns) > _WARNS_SHOWN:
        yield from ((), _more(f"… and {len(warns) - _WARNS_SHOWN:,} more warn findings (--json - lists all)"))
    rows, total = top_rows(diff, top)
    if rows:
        yield ()
        yield (f"Worst {len(rows)} of {count(total, 'row')}", "bold"), (", change is new − old", "dim")
        table = [ROW_TITLES, *((m.verdict.value, printable(name), *row_cells(m, name)) for _, m, name in rows)]
        yield from _table(table, [row[:2] for row in rows], diff, width, left=2, dispensable={2, 6})
    # Those tensors that did not move are counted above.
    ranked = ranked_tensors(diff)
    if moved := ranked[:top]:
        from karat.tensors.report import TITLES, cells, type_text

        yield ()
        yield (f"Tensors that moved, {len(moved)} of {len(ranked)}", "bold"), (" (old is what is expected)", "dim")
        tensors = [(m.verdict.value, printable(m.metric), type_text(t), *cells(t.numbers)) for _, m, t in moved]
        tensors, of = [("verdict", "tensor", "of", *TITLES), *tensors], [row[:2] for row in moved]
        yield from _table(tensors, of, diff, width, left=3, dispensable={5, 6})
    if diff.changes and (diff.old, diff.new) == ("HEAD", "working tree"):
        yield from ((), (("to decide: ", "dim"), ("karat review", COMMAND)))


def style_of(verdict: Verdict) -> str:
    if verdict in {Verdict.NOISE, Verdict.SAME}:
        return "green"
    return STYLES[Severity.WARN if verdict in {Verdict.DRIFT, Verdict.NEW} else Severity.FAIL]


def _more(text: str) -> Line:
    return ((f"     {text}", "dim"),)


def group_lines(groups: Sequence[FindingGroup], names: dict[str, str]) -> Iterator[Line]:
    """The groups of more than one golden: what they have in common, and the first few of their members."""
    several = [g for g in groups if len(g.paths) > 1]
    worth = [g for g in several if g.severity is not Severity.INFO]
    if not worth:
        return
    yield ()
    yield (("Groups, one likely cause each", "bold"),)
    for group in worth[:_GROUPS_SHOWN]:
        by = span(group.low, group.high, "  by ")
        yield (f"{group.severity.value:<4} ", STYLES[group.severity]), (group.title, ""), (by, "dim")
        yield _more(few([elide(name, _NAME) for name in group.names(names)], _MEMBERS_SHOWN))
    if len(worth) > _GROUPS_SHOWN:
        yield _more(f"… and {count(len(worth) - _GROUPS_SHOWN, 'group')} more (--json - lists all)")
    if len(several) > len(worth):
        yield _more(f"and {count(len(several) - len(worth), 'group')} of info findings")


def _table(
    table: Sequence[Sequence[str]],
    of: Sequence[tuple[Change, MetricChange]],
    diff: Diff,
    width: int | None,
    *,
    left: int,
    dispensable: AbstractSet[int],
) -> Iterator[Line]:
    """The table, each row with the golden it is of; a narrow terminal has it below, and no `dispensable` columns."""
    narrow = width is not None and width < _WIDE
    if width is not None:
        table = [tuple(elide(cell, _CELL) for cell in row) for row in table]
    if narrow:
        table = [tuple(cell for i, cell in enumerate(row) if i not in dispensable) for row in table]
    columns, room = widths(table), None
    if width is not None:
        room = width - 5 if narrow else max(_NAME, width - sum(columns) - 2 * len(columns))
    names = labels(diff.changes, diff.root)
    head, *rows = (aligned(row, columns, left=left) for row in table)
    yield ((head if narrow else f"{head}  golden", "dim"),)
    for (change, metric), row in zip(of, rows, strict=True):
        # The whole path where there is room; else model and case; else their ends.
        path = printable(short_path(change.path, diff.root))
        if room is not None and len(path) > room:
            platform, name = change.identity.get("platform"), names[change.path]
            path = elide(printable(name if not platform or platform in name else f"{name} on {platform}"), room)
        style = style_of(metric.verdict)
        if narrow:
            yield ((row, style),)
            yield _more(path)
        else:
            yield (row, style), (f"  {path}", "")
