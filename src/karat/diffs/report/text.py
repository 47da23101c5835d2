"""The diff in a terminal: what must be looked at first, then groups, then the largest rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set as AbstractSet
from typing import IO

from karat.compare.change import Change, MetricChange, Verdict
from karat.diffs.report.data import labels, ranked_rows, ranked_tensors, row_cells, tensor_rows
from karat.diffs.result import Diff, FindingGroup, verdict_counts
from karat.findings import Severity
from karat.report.terminal import STYLES, Line, aligned, finding_lines, print_lines, room_of, widths
from karat.report.words import count, elide, printable, severity_counts, short_path, span

_FAILS_SHOWN = 12
_GROUPS_SHOWN = 12
_WIDE = 110


def show(diff: Diff, stream: IO[str], *, top: int = 10) -> None:
    """Print the whole report."""
    print_lines(lines(diff, top=top, width=room_of(stream)), stream)


def lines(diff: Diff, *, top: int = 10, width: int | None = None) -> Iterator[Line]:
    """The report; with a width, paths give way to it."""
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
    if severities := severity_counts(diff.all_findings()):
        parts.append(f"findings: {severities}")
    yield ((" · ".join(parts), ""),)
    for head, line in enumerate(diff.history_lines()):
        yield ("     " if head else "history: ", "dim"), (line, "")
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


def _more(text: str) -> Line:
    return ((f"     {text}", "dim"),)


def _groups(groups: Sequence[FindingGroup], diff: Diff) -> Iterator[Line]:
    worth = [g for g in groups if g.severity is not Severity.INFO]
    if not worth:
        return
    yield ()
    yield (("Grouped by likely cause", "bold"),)
    for group in worth[:_GROUPS_SHOWN]:
        by = span(group.low, group.high, "  by ")
        yield (f"{group.severity.value:<4} ", STYLES[group.severity]), (group.title, ""), (by, "dim")
        if len(group.members) == 1:
            # What the only finding of the group says, and where.
            ((path, metric),) = group.members
            findings = (f for change in diff.changes if change.path == path for f in change.findings)
            same = (group.kind, metric, group.severity)
            said = next((f.message for f in findings if (f.kind, f.metric, f.severity) == same), "")
            yield _more(f"{short_path(path, diff.root)}: {said}")
    if len(worth) > _GROUPS_SHOWN:
        yield _more(f"… and {count(len(worth) - _GROUPS_SHOWN, 'group')} more")
    if len(groups) > len(worth):
        yield _more(f"and {count(len(groups) - len(worth), 'group')} of info findings (--json - lists all)")


def _rows(diff: Diff, top: int, width: int | None) -> Iterator[Line]:
    ranked = ranked_rows(diff)[:top]
    if not ranked:
        return
    yield ()
    head = f"Largest {len(ranked)} rows by |avg_rel_diff|"
    yield (head, "bold"), (" (positive: the new value is smaller, for positive values)", "dim")
    rows = [(row.verdict.value, printable(row.metric), *row_cells(row)) for _, row in ranked]
    titles = ("verdict", "metric", "n", "avg", "mean |·|", "max |·|", "at")
    yield from _table([titles, *rows], ranked, diff, width, left=2, dispensable={2, 4})


def _tensors(diff: Diff, top: int, width: int | None) -> Iterator[Line]:
    """The tensors that moved most; those that did not are counted above."""
    ranked = ranked_tensors(diff)
    shown = ranked[:top]
    if not shown:
        return
    from karat.tensors.report import TITLES, cells, type_text

    yield ()
    yield (f"Tensors that moved, {len(shown)} of {len(ranked)}", "bold"), (" (old is what is expected)", "dim")
    rows = [(m.verdict.value, printable(m.metric), type_text(t), *cells(t.numbers)) for _, m, t in shown]
    table = [("verdict", "tensor", "of", *TITLES), *rows]
    yield from _table(table, [entry[:2] for entry in shown], diff, width, left=3, dispensable={5, 6})


def _table(
    table: Sequence[Sequence[str]],
    of: Sequence[tuple[Change, MetricChange]],
    diff: Diff,
    width: int | None,
    *,
    left: int,
    dispensable: AbstractSet[int],
) -> Iterator[Line]:
    """The table, each row with the golden it is of; a narrow terminal has no room for `dispensable` columns."""
    if width is not None and width < _WIDE:
        table = [tuple(cell for i, cell in enumerate(row) if i not in dispensable) for row in table]
    columns = widths(table)
    room = max(width - sum(columns) - 2 * len(columns), 12) if width else None
    names = labels(diff)
    head, *rows = (aligned(row, columns, left=left) for row in table)
    yield ((f"{head}  golden", "dim"),)
    for (change, metric), row in zip(of, rows, strict=True):
        # The whole path where there is room; else model, case and platform; else their ends.
        path = printable(short_path(change.path, diff.root))
        if room is not None and len(path) > room:
            platform, name = change.identity.get("platform"), names.get(change.path, path)
            path = elide(printable(f"{name} · {platform}" if platform else name), room)
        style = STYLES[Severity.WARN if metric.verdict in {Verdict.DRIFT, Verdict.NEW} else Severity.FAIL]
        if metric.verdict in {Verdict.NOISE, Verdict.SAME}:
            style = "green"
        yield (row, style), (f"  {path}", "")
