"""Old × new table → rows and findings: what vanished first, then outcomes, then numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import isfinite

import numpy as np
from msgspec import structs

from karat.compare.change import MetricChange, Verdict
from karat.compare.judge import Judgement, capped, drift_finding, judge, metric_change
from karat.compare.numbers import score
from karat.compare.rules import STATUS_ORDER, Rule, RuleBook
from karat.findings import Finding, Severity
from karat.goldens.shapes import Metric, RowKey, Table

_NAMES_SHOWN = 5


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    rule: Rule
    keys: Sequence[RowKey]
    old: Sequence[str]
    new: Sequence[str]


def row_name(key: RowKey) -> str:
    """A row key as people write it."""
    return " / ".join(key)


def _named(keys: Sequence[RowKey]) -> str:
    shown = ", ".join(row_name(k) for k in keys[:_NAMES_SHOWN])
    return shown + (f" and {len(keys) - _NAMES_SHOWN} more" if len(keys) > _NAMES_SHOWN else "")


def compare_table(
    old: Table, new: Table, rules: RuleBook, path: str, status: Sequence[str] = STATUS_ORDER
) -> tuple[list[MetricChange], list[Finding]]:
    """Rows (one per column) and findings of two tables."""
    if old.key != new.key:
        message = f"the key columns changed: {', '.join(old.key)} → {', '.join(new.key)}; rows cannot be matched"
        return [], [Finding(kind="structure-changed", severity=Severity.FAIL, message=message)]
    findings = [*_rows_lost_and_gained(old, new), *_columns_lost_and_gained(old, new)]
    keys = [key for key in old.rows if key in new.rows]
    rows: list[MetricChange] = []
    for name in (c for c in old.columns if c in new.columns and c not in old.key):
        i, j = old.columns.index(name), new.columns.index(name)
        column = _Column(
            name, rules.rule_for(name, path), keys,
            [old.rows[k][i] for k in keys], [new.rows[k][j] for k in keys],
        )  # fmt: skip
        row, found = _compare_column(column, _margins(column, old, keys), status)
        rows.append(row)
        findings.extend(found)
    return rows, findings


def _rows_lost_and_gained(old: Table, new: Table) -> Iterator[Finding]:
    lost = [key for key in old.rows if key not in new.rows]
    gained = [key for key in new.rows if key not in old.rows]
    if lost:
        message = f"{len(lost)} of {len(old.rows)} rows are gone: {_named(lost)}"
        numbers: dict[str, float | int | str | None] = {
            "rows_lost": len(lost),
            "rows": _names(lost),
        }
        yield Finding(
            kind="lost-rows",
            severity=Severity.FAIL,
            where=row_name(lost[0]),
            message=message,
            numbers=numbers,
        )
    if gained:
        message = f"{len(gained)} new rows: {_named(gained)}"
        numbers = {"rows_gained": len(gained), "rows": _names(gained)}
        yield Finding(
            kind="gained-rows",
            severity=Severity.INFO,
            where=row_name(gained[0]),
            message=message,
            numbers=numbers,
        )


def _names(keys: Sequence[RowKey]) -> str:
    return "\n".join(row_name(key) for key in keys)


def _columns_lost_and_gained(old: Table, new: Table) -> Iterator[Finding]:
    for name in old.columns:
        if name not in new.columns:
            yield Finding(
                kind="lost-metric",
                severity=Severity.FAIL,
                metric=name,
                message=f"{name}: the column is gone",
            )
    for name in new.columns:
        if name not in old.columns:
            yield Finding(
                kind="gained-metric",
                severity=Severity.INFO,
                metric=name,
                message=f"{name}: a new column",
            )


def _margins(column: _Column, old: Table, keys: Sequence[RowKey]) -> list[float | None]:
    """Each row's own relative tolerance, where the rule names the column that holds it."""
    name = column.rule.margin_column
    if name is None or name not in old.columns:
        return [None] * len(keys)
    i = old.columns.index(name)
    return [_number(old.rows[key][i]) for key in keys]


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _compare_column(
    column: _Column, margins: Sequence[float | None], status: Sequence[str]
) -> tuple[MetricChange, list[Finding]]:
    old = [_number(cell) for cell in column.old]
    new = [_number(cell) for cell in column.new]
    if any(v is not None for v in old) or any(v is not None for v in new):
        return _numeric(column, old, new, margins)
    return _outcomes(column, status)


def _numeric(
    column: _Column,
    old: Sequence[float | None],
    new: Sequence[float | None],
    margins: Sequence[float | None],
) -> tuple[MetricChange, list[Finding]]:
    rule, name = column.rule, column.name
    steps = np.arange(len(column.keys), dtype=np.int64)
    before = Metric(steps, np.array([np.nan if v is None else v for v in old], dtype=float))
    after = Metric(steps, np.array([np.nan if v is None else v for v in new], dtype=float))
    (n,) = score([(before, after, rule)])
    judgement = judge(n, rule)
    row = metric_change(name, n, rule, judgement)
    row = structs.replace(
        row,
        max_step=None if n.max_step is None else row_name(column.keys[n.max_step]),
        first_diff_step=None
        if n.first_diff_step is None
        else row_name(column.keys[n.first_diff_step]),
        tolerance_ratio=_worst_ratio(old, new, margins)
        if any(m is not None for m in margins)
        else n.tolerance_ratio,
    )
    findings = [*_cells_lost(column, old, new)]
    if any(f.severity is Severity.FAIL for f in findings):
        row = structs.replace(row, verdict=Verdict.INCOMPLETE, because=findings[0].message)
    if rule.tolerance:
        findings.extend(_widened(column, old, new))
    else:
        drift = _movers(column, old, new, drift_finding(row, judgement))
        findings.extend([drift] if drift else [])
    return row, findings


def _movers(
    column: _Column, old: Sequence[float | None], new: Sequence[float | None], drift: Finding | None
) -> Finding | None:
    """The drift finding with the rows that moved, largest first: a table's reader thinks in rows."""
    if drift is None:
        return None
    moved = [
        (abs(a - b) / abs(a) if a else abs(b), key, x, y)
        for key, a, b, x, y in zip(column.keys, old, new, column.old, column.new, strict=True)
        if a is not None and b is not None and a != b
    ]
    moved.sort(key=lambda item: -item[0])
    shown = ", ".join(f"{row_name(key)} {x} → {y}" for _, key, x, y in moved[:_NAMES_SHOWN])
    more = f" and {len(moved) - _NAMES_SHOWN} more" if len(moved) > _NAMES_SHOWN else ""
    message = f"{column.name}: {len(moved)} of {len(column.keys)} rows moved: {shown}{more}; {drift.message.split('; ', 1)[-1]}"
    return replace(drift, message=message, numbers={**drift.numbers, "rows_moved": len(moved)})


def _worst_ratio(
    old: Sequence[float | None], new: Sequence[float | None], margins: Sequence[float | None]
) -> float | None:
    """Largest |old − new| as a multiple of its row's margin."""
    ratios = [
        0.0 if a == b else abs(a - b) / (m * abs(a))
        for a, b, m in zip(old, new, margins, strict=True)
        if a is not None and b is not None and m and a and isfinite(a) and isfinite(b)
    ]
    return max(ratios, default=None)


def _cells_lost(
    column: _Column, old: Sequence[float | None], new: Sequence[float | None]
) -> Iterator[Finding]:
    pairs = list(zip(column.keys, old, new, column.new, strict=True))
    gone = [
        key
        for key, a, b, cell in pairs
        if a is not None
        and isfinite(a)
        and (b is None or not isfinite(b))
        and not (b is None and cell)
    ]
    typed = [key for key, a, b, cell in pairs if a is not None and b is None and cell]
    if gone:
        message = f"{column.name}: {len(gone)} cell(s) that held a number are empty or not finite now: {_named(gone)}"
        yield Finding(
            kind="new-nan",
            severity=Severity.FAIL,
            metric=column.name,
            where=row_name(gone[0]),
            message=message,
        )
    if typed:
        message = (
            f"{column.name}: {len(typed)} cell(s) that held a number hold text now: {_named(typed)}"
        )
        yield Finding(
            kind="type-changed",
            severity=Severity.FAIL,
            metric=column.name,
            where=row_name(typed[0]),
            message=message,
        )


def _widened(
    column: _Column, old: Sequence[float | None], new: Sequence[float | None]
) -> Iterator[Finding]:
    wider = [
        (key, a, b)
        for key, a, b in zip(column.keys, old, new, strict=True)
        if a is not None and b is not None and b > a
    ]
    if wider:
        shown = ", ".join(f"{row_name(key)} {a:g} → {b:g}" for key, a, b in wider[:_NAMES_SHOWN])
        yield Finding(
            kind="tolerance-widened",
            severity=capped(Severity.WARN, column.rule),
            metric=column.name,
            where=row_name(wider[0][0]),
            message=f"{column.name}: {len(wider)} row(s) now allow more: {shown}",
        )


def _outcomes(column: _Column, status: Sequence[str]) -> tuple[MetricChange, list[Finding]]:
    order = {outcome: rank for rank, outcome in enumerate(status)}
    moved: dict[str, list[tuple[RowKey, str, str]]] = {}
    for key, a, b in zip(column.keys, column.old, column.new, strict=True):
        if a != b:
            moved.setdefault(_direction(order.get(a), order.get(b)), []).append((key, a, b))
    findings = [_outcome_finding(column, kind, rows) for kind, rows in moved.items()]
    changed = sum(len(rows) for rows in moved.values())
    equal = len(column.keys) - changed
    first = min((column.keys.index(rows[0][0]) for rows in moved.values()), default=None)
    return MetricChange(
        metric=column.name,
        verdict=_outcome_verdict(moved.keys(), len(column.keys)).verdict,
        because=_outcome_verdict(moved.keys(), len(column.keys)).because,
        n_shared=len(column.keys),
        bit_equal=equal,
        first_diff_step=None if first is None else row_name(column.keys[first]),
        rule=column.rule.pattern,
    ), findings


def _direction(before: int | None, after: int | None) -> str:
    if before is None or after is None:
        return "status-changed"
    return "status-regressed" if after > before else "status-improved"


def _outcome_verdict(kinds: object, rows: int) -> Judgement:
    names = set(kinds)  # type: ignore[call-overload]
    if "status-regressed" in names:
        return Judgement(Verdict.BREAK, "an outcome got worse")
    if names:
        return Judgement(Verdict.DRIFT, "outcomes changed, none for the worse")
    return Judgement(Verdict.SAME, f"all {rows} outcomes are equal")


def _outcome_finding(
    column: _Column, kind: str, rows: Sequence[tuple[RowKey, str, str]]
) -> Finding:
    severity = {"status-regressed": Severity.FAIL, "status-improved": Severity.INFO}.get(
        kind, Severity.WARN
    )
    shown = ", ".join(
        f"{row_name(key)} {a or '(empty)'} → {b or '(empty)'}" for key, a, b in rows[:_NAMES_SHOWN]
    )
    more = f" and {len(rows) - _NAMES_SHOWN} more" if len(rows) > _NAMES_SHOWN else ""
    word = {"status-regressed": "worse", "status-improved": "better"}.get(
        kind, "different, order unknown"
    )
    return Finding(
        kind=kind,
        severity=severity,
        metric=column.name,
        where=row_name(rows[0][0]),
        message=f"{column.name}: {len(rows)} outcome(s) {word}: {shown}{more}",
        numbers={"rows": len(rows)},
    )
