"""Golden × result, both tables: are all rows there, then column by column."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import cast

from msgspec import structs

from karat.compare.gate.result import ROWS, CheckOutcome, Deviation, Judging, MetricResult, Value, unknown
from karat.compare.gate.values import GateCell, gate_cells, missing_result
from karat.compare.table import column_places, row_name
from karat.findings import Finding, fail, warn
from karat.goldens.shapes import Reading, RowKey, Table
from karat.goldens.table_csv import read_table
from karat.report.words import few


def gate_table(
    golden: Table, actual: Table, judging: Judging, fill: Mapping[str, str] | None = None, rows: Sequence[str] = ()
) -> tuple[list[MetricResult], list[Finding]]:
    """Results of the rows and of every column; `fill` says what an empty cell of the result means.

    `rows` are globs of the rows that the result has to have, if it is one shard of several: those of other shards are
    none of its business.
    """
    if golden.key != actual.key:
        ours, theirs = ", ".join(golden.key), ", ".join(actual.key)
        message = f"expected rows that are named by {ours}, found {theirs}; the two tables cannot be compared"
        return [], [fail("structure-changed", message)]
    if rows:
        mine = [k for k in golden.rows if k in actual.rows or any(fnmatchcase(row_name(k), g) for g in rows)]
        golden = structs.replace(golden, rows={key: golden.rows[key] for key in mine})
    results = list(_rows(golden, actual, judging))
    findings: list[Finding] = []
    places, got_places = column_places(golden), column_places(actual)
    key_columns = frozenset(golden.key)
    values = [name for name in places if name not in key_columns]
    for name in values:
        rule = judging.rule(name)
        if rule.tolerance:
            if name in got_places:
                findings += _widened(name, golden, actual, places[name], got_places[name])
        elif name not in got_places:
            results.append(missing_result(name, rule, len(golden.rows), judging.exempt(name, None), noun="row"))
        else:
            i, j, k = places[name], got_places[name], places.get(rule.margin_column or "")
            empty = (fill or {}).get(name, "")
            cells = []
            for key, row in golden.rows.items():
                if key in actual.rows:
                    margin = None if k is None else _value(row[k])
                    margin = margin if isinstance(margin, float) else None
                    got = _value(actual.rows[key][j] or empty)
                    cells.append(GateCell(row_name(key), _value(row[i]), got, margin))
            results += gate_cells(name, cells, judging)
    extra = [name for name in actual.columns if name not in places]
    if extra:
        results.append(unknown("column", extra))
    return results, findings


def _rows(golden: Table, actual: Table, judging: Judging) -> Iterator[MetricResult]:
    """Whether every row is there; rows of one exemption make a result of their own."""
    parts: dict[int | None, list[RowKey]] = {None: []}
    for key in golden.rows:
        parts.setdefault(judging.exempt(ROWS, row_name(key)), []).append(key)
    for exemption, keys in parts.items():
        if not keys and len(parts) > 1:
            continue
        lost = [row_name(key) for key in keys if key not in actual.rows]
        deviations = tuple(Deviation(place=name, how="missing") for name in lost)
        outcome, kind = (CheckOutcome.FAIL, "lost-rows") if lost else (CheckOutcome.PASS, "")
        if not keys:
            outcome, kind = CheckOutcome.NOTHING_COMPARED, "nothing-compared"
        likely = "removed on purpose, or crashed before it could say so, or a shard is missing" if lost else None
        if lost and len(lost) == len(keys):
            likely = "every row is missing: the wrong file, or a run that never began"
        yield MetricResult(
            metric=ROWS,
            outcome=outcome,
            kind=kind,
            check="rows",
            noun="row",
            total=len(keys),
            compared=len(keys) - len(lost),
            failed=len(lost),
            missing=len(lost),
            first=deviations[0] if deviations else None,
            deviations=deviations,
            likely=likely,
            exemption=exemption,
        )
    gained = [row_name(key) for key in actual.rows if key not in golden.rows]
    if gained:
        yield unknown("row", gained)


def _value(text: str) -> Value:
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        return text


def _widened(name: str, golden: Table, actual: Table, i: int, j: int) -> Iterator[Finding]:
    """A result that brings a wider tolerance along does not get to use it, and that is said."""
    wider = []
    for key, row, other in ((key, row, actual.rows[key]) for key, row in golden.rows.items() if key in actual.rows):
        old, new = _value(row[i]), _value(other[j])
        if isinstance(old, float) and isinstance(new, float) and new > old:
            wider.append(f"{row_name(key)} {row[i]} → {other[j]}")
    if wider:
        said = (
            f"{name}: the result asks for more tolerance than the golden allows, and does not get it: {few(wider, 5)}"
        )
        yield warn("tolerance-widened", said, metric=name, where=wider[0])


def like_golden(data: bytes, reading: Reading, golden: Table, judging: Judging, renamed: Mapping[str, str]) -> Reading:
    """The result's table read again as its golden would write it, where that fits.

    Benchmarks write their results without a header, or with more columns than the golden keeps; neither is a reason
    to call the two tables different.
    """
    table = reading.golden
    if not isinstance(table, Table):
        return reading
    names = tuple(renamed.get(name, name) for name in table.columns)
    if not (table.header and golden.header):
        # Without names, order is all there is; a result need not carry the golden's tolerances.
        rules = {name: judging.rule(name) for name in golden.columns}
        margins = {rule.margin_column for rule in rules.values()}
        plain = tuple(name for name, rule in rules.items() if name not in margins and not rule.tolerance)
        names = next((n for n in (golden.columns, plain) if len(n) == len(table.columns)), names)
    if not set(golden.key) <= set(names) or len(set(names)) != len(names):
        return reading
    back = dict(zip(names, table.columns, strict=True))
    again = read_table(data, [back[name] for name in golden.key])
    if not isinstance(again.golden, Table) or again.golden.columns != table.columns:
        return reading
    return structs.replace(again, golden=structs.replace(again.golden, columns=names, key=golden.key))


def join_shards(shards: Sequence[tuple[str, Reading]]) -> Reading:
    """One table of the tables of several shards, each with its name; of what does not fit, the finding."""
    first = shards[0][1]
    if any(not isinstance(reading.golden, Table) for _, reading in shards) or not isinstance(first.golden, Table):
        return next(reading for _, reading in shards if not isinstance(reading.golden, Table))
    rows: dict[RowKey, tuple[str, ...]] = {}
    owners: dict[RowKey, str] = {}
    findings = [finding for _, reading in shards for finding in reading.findings]
    for name, reading in shards:
        table = cast("Table", reading.golden)
        if (table.columns, table.key) != (first.golden.columns, first.golden.key):
            what = f"expected the columns of {shards[0][0]} in all shards, found {', '.join(table.columns)} in {name}"
            findings.append(fail("structure-changed", what, path=name))
            continue
        for key, row in table.rows.items():
            if rows.setdefault(key, row) != row:
                what = f"{row_name(key)} is in two shards with different values: {owners[key]} and {name}"
                findings.append(fail("duplicate-row", what, where=row_name(key)))
            owners.setdefault(key, name)
    return structs.replace(first, golden=structs.replace(first.golden, rows=rows), findings=tuple(findings))
