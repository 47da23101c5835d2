"""Old × new table → rows and findings: what vanished first, then outcomes, then numbers.

A column may hold numbers, outcomes, or both (an accuracy, or the reason why there is none), so each
pair of cells is judged for what it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite, isnan

from msgspec.structs import replace

from karat.compare.change import MetricChange, Verdict
from karat.compare.judge import ValueSample, judge_values
from karat.compare.rules import STATUS_ORDER, Rule, RuleBook, how_changed
from karat.findings import Finding, Severity, fail
from karat.goldens.shapes import RowKey, Table
from karat.report.words import count, few

_NAMES_SHOWN = 5
_Kind = tuple[str, Severity, str, str]  # Kind and severity of a finding, a noun, and what became of so many of them.


@dataclass(frozen=True, slots=True)
class _Cell:
    """One cell on both sides, as text and, where it is one, as a number."""

    key: RowKey
    old: str
    new: str
    old_number: float | None
    new_number: float | None

    def __str__(self) -> str:
        return f"{row_name(self.key)} {self.old or '(empty)'} → {self.new or '(empty)'}"


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    rule: Rule
    cells: Sequence[_Cell]
    margins: Sequence[float | None]  # Each row's own relative tolerance, where the rule names the column that holds it.
    numbers: Sequence[int]  # Places of the cells that are judged as numbers.
    equal: int  # How many of the other cells are equal.


def row_name(key: RowKey) -> str:
    return " / ".join(key)


def column_places(table: Table) -> dict[str, int]:
    """Column → its place, the first of that name: asking the tuple for each would take the square of their number."""
    places: dict[str, int] = {}
    for place, name in enumerate(table.columns):
        places.setdefault(name, place)
    return places


def compare_table(
    old: Table, new: Table, rules: RuleBook, path: str, status: Sequence[str] = STATUS_ORDER
) -> tuple[list[MetricChange], list[Finding]]:
    """Rows (one per column) and findings of two tables."""
    if old.key != new.key:
        message = f"the key columns changed: {', '.join(old.key)} → {', '.join(new.key)}; rows cannot be matched"
        return [], [fail("structure-changed", message)]
    findings = list(_lost_and_gained(old, new))
    rows: list[MetricChange] = []
    columns: list[_Column] = []
    places, new_places = column_places(old), column_places(new)
    keys = [key for key in old.rows if key in new.rows]
    key_columns = frozenset(old.key)
    for name in (c for c in places if c in new_places and c not in key_columns):
        rule = rules.rule_for(name, path, "table")
        i, j = places[name], new_places[name]
        pairs = [(key, old.rows[key][i], new.rows[key][j]) for key in keys]
        cells = [_Cell(key, a, b, _number(a), _number(b)) for key, a, b in pairs]
        margins: list[float | None] = [None] * len(keys)
        if rule.margin_column in places:
            k = places[rule.margin_column]
            margins = [_number(old.rows[key][k]) for key in keys]
        columns.append(_Column(name, rule, cells, margins, *_numbers(cells)))
    # All at once: each call has a price of its own, and a table may have thousands of columns.
    samples = []
    for column in columns:
        of = [column.cells[place] for place in column.numbers]
        old_side, new_side = ([float(text) for text in side] for side in ([c.old for c in of], [c.new for c in of]))
        samples += [ValueSample(column.name, old_side, new_side, [row_name(c.key) for c in of])] if of else []
    judged = iter(judge_values(samples, rules, path, "table"))
    for column in columns:
        row, found = _compare_column(column, next(judged) if column.numbers else None, status)
        rows.append(row)
        findings.extend(found)
    return rows, findings


def _numbers(cells: Sequence[_Cell]) -> tuple[Sequence[int], int]:
    """The places of the cells that are judged as numbers, and how many of the others are equal."""
    numbers = [place for place, cell in enumerate(cells) if _both(cell)]
    equal = sum(cell.old == cell.new for cell in cells if not _both(cell))
    if equal and not any(_differs(cells[n]) or isfinite(cells[n].old_number or 0.0) for n in numbers):
        # A few NaN among outcomes: the outcomes are the evidence.
        return (), equal + len(numbers)
    return numbers, equal


def _lost_and_gained(old: Table, new: Table) -> Iterator[Finding]:
    lost = [row_name(key) for key in old.rows if key not in new.rows]
    gained = [row_name(key) for key in new.rows if key not in old.rows]
    gone = f"{len(lost)} of {count(len(old.rows), 'row')} {'is' if len(lost) == 1 else 'are'} gone"
    for kind, severity, rows, what in (
        ("lost-rows", Severity.FAIL, lost, gone),
        ("gained-rows", Severity.INFO, gained, count(len(gained), "new row")),
    ):
        if rows:
            message, names = f"{what}: {few(rows, _NAMES_SHOWN)}", "\n".join(rows)
            numbers: dict[str, float | str | None] = {"count": len(rows), "rows": names}
            yield Finding(kind=kind, severity=severity, where=rows[0], message=message, numbers=numbers)
    places, new_places = column_places(old), column_places(new)
    for name in places:
        if name not in new_places:
            yield _about(name, "lost-metric", Severity.FAIL, "the column is gone")
    for name in new_places:
        if name not in places:
            yield _about(name, "gained-metric", Severity.INFO, "a new column")


def _about(column: str, kind: str, severity: Severity, what: str, cells: Sequence[_Cell] = ()) -> Finding:
    return Finding(
        kind=kind,
        severity=severity,
        metric=column,
        where=row_name(cells[0].key) if cells else None,
        message=f"{column}: {what}" + (f": {few(cells, _NAMES_SHOWN)}" if cells else ""),
        numbers={"cells": len(cells)} if cells else {},
    )


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _compare_column(
    column: _Column, judged: tuple[MetricChange, list[Finding]] | None, status: Sequence[str]
) -> tuple[MetricChange, list[Finding]]:
    """`judged` has what the numbers say, where there are some."""
    others = [c for c in column.cells if not _both(c) and c.old != c.new]
    findings: list[Finding] = []
    row = MetricChange(metric=column.name, verdict=Verdict.SAME, because="", rule=column.rule.pattern)
    if judged is not None:
        row, findings = judged
        numbers = [(column.cells[place], column.margins[place]) for place in column.numbers]
        # As a multiple of its row's margin, where rows have one.
        sizes = [(_relative(cell), margin) for cell, margin in numbers if margin and cell.old_number]
        ratios = [size / margin for size, margin in sizes if isfinite(size)]
        row = replace(row, tolerance_ratio=max(ratios, default=row.tolerance_ratio))
        moved = [cell for cell, _ in numbers if _differs(cell)]
        if column.rule.tolerance:
            row, findings = _tolerances(row, moved)
        else:
            # With the rows that moved, largest first: a table's reader thinks in rows.
            ranked = sorted(moved, key=_relative, reverse=True)
            what = f"{column.name}: {len(moved)} of {len(column.cells)} rows moved: {few(ranked, _NAMES_SHOWN)}"
            for at, f in enumerate(findings):
                if f.kind == "value-drift":
                    message = f"{what}; {f.message.split('; ', 1)[-1]}"
                    findings[at] = replace(f, message=message, numbers={**f.numbers, "rows_moved": len(moved)})
    # Cells that are not numbers on both sides: one finding per kind of change.
    by_kind: dict[_Kind, list[_Cell]] = {}
    for cell in others:
        by_kind.setdefault(_kind(cell, status), []).append(cell)
    for (kind, severity, noun, what), members in by_kind.items():
        findings.append(_about(column.name, kind, severity, what.format(count(len(members), noun)), members))
    first = next((row_name(cell.key) for cell in column.cells if _differs(cell)), None)
    # The verdict that the gravest finding deserves, if that is graver.
    verdict, because = row.verdict, row.because or f"all {len(column.cells)} cells are equal"
    for finding in findings:
        implied = Verdict.BREAK if finding.severity is Severity.FAIL else Verdict.DRIFT
        implied = Verdict.INCOMPLETE if finding.kind == "new-nan" else implied
        if implied.rank < verdict.rank:
            verdict, because = implied, finding.message
    row = replace(row, verdict=verdict, because=because, n_shared=len(column.cells), first_diff_step=first)
    return replace(row, bit_equal=row.bit_equal + column.equal), findings


def _both(cell: _Cell) -> bool:
    return cell.old_number is not None and cell.new_number is not None


def _differs(cell: _Cell) -> bool:
    """Whether the two sides say different things; two spellings of a number do not."""
    if cell.old_number is None or cell.new_number is None:
        return cell.old != cell.new
    both_nan = isnan(cell.old_number) and isnan(cell.new_number)
    return cell.old_number != cell.new_number and not both_nan


def _relative(cell: _Cell) -> float:
    old, new = cell.old_number or 0.0, cell.new_number or 0.0
    return abs(old - new) / abs(old) if old else float("inf")


def _tolerances(row: MetricChange, moved: Sequence[_Cell]) -> tuple[MetricChange, list[Finding]]:
    """A column of tolerances is not judged by how far it moved, but by which way."""
    wider = [c for c in moved if (c.new_number or 0.0) > (c.old_number or 0.0)]
    tighter = [c for c in moved if (c.new_number or 0.0) < (c.old_number or 0.0)]
    found = [
        _about(row.metric, kind, severity, f"{count(len(cells), 'row')} allowing {word} than before", cells)
        for kind, severity, word, cells in (
            ("tolerance-widened", Severity.WARN, "more", wider),
            ("tolerance-tightened", Severity.INFO, "less", tighter),
        )
        if cells
    ]
    return replace(row, verdict=Verdict.SAME, because=""), found


_OUTCOMES: dict[str, _Kind] = {
    "changed": ("status-changed", Severity.WARN, "outcome", "{} changed, order unknown"),
    "worse": ("status-regressed", Severity.FAIL, "outcome", "{} worse"),
    "better": ("status-improved", Severity.INFO, "outcome", "{} better"),
}


def _kind(cell: _Cell, status: Sequence[str]) -> _Kind:
    """The kind of a cell that changed and is not a number on both sides."""
    if cell.old_number is not None:
        if cell.new:
            return "type-changed", Severity.FAIL, "number", "{} became text"
        return "new-nan", Severity.FAIL, "number", "{} became empty"
    if cell.new_number is not None:
        if not isfinite(cell.new_number):
            return "new-nan", Severity.FAIL, "cell", "{} became NaN or infinite"
        if cell.old:
            return "type-changed", Severity.WARN, "text", "{} became a number"
        return "gained-steps", Severity.INFO, "number", "{} where there was none"
    if not cell.new:
        return "status-regressed", Severity.FAIL, "outcome", "{} gone"
    return _OUTCOMES[how_changed(cell.old, cell.new, status)]
