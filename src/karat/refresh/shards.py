"""Shards: one table from the parts that several jobs made of it.

All shards of a table or none: a missing one would silently drop its rows. Pure: readings in,
a reading of the whole table out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice

import msgspec

from karat.findings import Finding, Severity
from karat.goldens.shapes import Reading, RowKey, Table
from karat.refresh.settings import TableSettings

_SHOWN = 5


class Shard(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a table."""

    number: int
    of: int
    reading: Reading
    where: str
    """Which artifact it came from, for people."""


def missing_shards(shards: Sequence[Shard], path: str) -> list[Finding]:
    """What speaks against putting these shards together; empty if all are there."""
    totals = {shard.of for shard in shards}
    if len(totals) > 1:
        counts = ", ".join(map(str, sorted(totals)))
        return [_finding("missing-shard", path, f"shards disagree on how many there are: {counts}")]
    total = totals.pop()
    numbers = [shard.number for shard in shards]
    found = []
    # Counted rather than listed: the total is a name's word, and may be anything.
    absent = total - len({n for n in numbers if 1 <= n <= total})
    if absent:
        some = islice((n for n in range(1, total + 1) if n not in numbers), _SHOWN)
        which = ", ".join(map(str, some)) + (" …" if absent > _SHOWN else "")
        message = f"{absent:,} of {total:,} shards did not come in ({which}), so their rows would be dropped"
        found.append(_finding("missing-shard", path, message))
    for shard in shards:
        if not 1 <= shard.number <= total:
            message = f"{shard.where} says it is shard {shard.number} of {total}"
            found.append(_finding("missing-shard", path, message))
    for number in sorted({n for n in numbers if numbers.count(n) > 1}):
        names = ", ".join(s.where for s in shards if s.number == number)
        found.append(_finding("claimed-twice", path, f"shard {number} came in twice: {names}"))
    return found


def assemble(shards: Sequence[Shard], settings: TableSettings, path: str) -> Reading:
    """The whole table; a row that two shards have is a `duplicate-row`."""
    ordered = sorted(shards, key=lambda shard: shard.number)
    findings: list[Finding] = []
    tables: list[tuple[Shard, Table]] = []
    for shard in ordered:
        findings += [_placed(f, shard) for f in shard.reading.findings]
        golden = shard.reading.golden
        if isinstance(golden, Table):
            tables.append((shard, golden))
        elif golden is not None:
            message = f"expected a table in {shard.where}, found a {golden.shape}"
            findings.append(_finding("unreadable", path, message))
    if len(tables) < len(ordered):
        return Reading(None, tuple(findings))
    columns = settings.columns or tables[0][1].columns
    findings += _lacking(tables, columns, path)
    if any(f.kind == "lost-metric" for f in findings):
        return Reading(None, tuple(findings))
    rows: dict[RowKey, tuple[str, ...]] = {}
    origin: dict[RowKey, str] = {}
    for shard, table in tables:
        for key, cells in table.rows.items():
            row = _row(dict(zip(table.columns, cells, strict=False)), columns, settings)
            if key in rows:
                findings.append(_twice(key, rows[key] == row, origin[key], shard.where, path))
            else:
                rows[key], origin[key] = row, shard.where
    key_columns = tables[0][1].key
    return Reading(Table(tuple(columns), key_columns, rows), tuple(findings), "table-csv")


def _row(
    cells: Mapping[str, str], columns: Sequence[str], settings: TableSettings
) -> tuple[str, ...]:
    return tuple(_cell(name, cells.get(name, ""), settings) for name in columns)


def _cell(name: str, text: str, settings: TableSettings) -> str:
    if name in settings.fill and text.casefold() in {"", "nan"}:
        return settings.fill[name]
    if name in settings.integers:
        whole, dot, rest = text.partition(".")
        return whole if dot and not rest.strip("0") and whole else text
    return text


def _lacking(
    tables: Sequence[tuple[Shard, Table]], columns: Sequence[str], path: str
) -> list[Finding]:
    found = []
    for shard, table in tables:
        for name in columns:
            if name not in table.columns:
                message = (
                    f"column {name} is missing in {shard.where}; it has {', '.join(table.columns)}"
                )
                found.append(_finding("lost-metric", path, message))
        if not set(table.key) <= set(columns):
            message = f"the key of {shard.where} is {', '.join(table.key)}, which [refresh.tables] columns leaves out"
            found.append(_finding("lost-metric", path, message))
    return found


def _twice(key: RowKey, same: bool, first: str, second: str, path: str) -> Finding:  # noqa: FBT001 - a fact, not a switch
    how = "the same way" if same else "differently"
    message = f"row {' / '.join(key)} stands {how} in {first} and in {second}"
    return _finding("duplicate-row", path, message)


def _placed(finding: Finding, shard: Shard) -> Finding:
    return replace(finding, message=f"{shard.where}: {finding.message}")


def _finding(kind: str, path: str, message: str) -> Finding:
    return Finding(kind=kind, severity=Severity.FAIL, path=path, message=message)
