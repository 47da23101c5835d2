"""A result's table as its golden would write it: rows named by the same columns, columns by the same names.

Benchmarks write their results without a header, or with more columns than the golden keeps; neither
is a reason to call the two tables different.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import structs

from karat.compare.gate_judging import Judging
from karat.goldens.shapes import Reading, Table
from karat.goldens.table_csv import read_table


def like_golden(
    data: bytes, reading: Reading, golden: Table, judging: Judging, renamed: Mapping[str, str]
) -> Reading:
    """The result's table read again in the golden's terms, where they fit."""
    table = reading.golden
    if not isinstance(table, Table):
        return reading
    names = _names(table, golden, judging, renamed)
    if not set(golden.key) <= set(names) or len(set(names)) != len(names):
        return reading
    back = dict(zip(names, table.columns, strict=True))
    again = read_table(data, [back[name] for name in golden.key])
    if not isinstance(again.golden, Table) or again.golden.columns != table.columns:
        return reading
    return structs.replace(
        again, golden=structs.replace(again.golden, columns=names, key=golden.key)
    )


def _names(
    table: Table, golden: Table, judging: Judging, renamed: Mapping[str, str]
) -> tuple[str, ...]:
    """The golden's names for the result's columns."""
    if table.header and golden.header:
        return tuple(renamed.get(name, name) for name in table.columns)
    # Without names, order is all there is; a result need not carry the golden's tolerances.
    for names in (golden.columns, _without_tolerances(golden, judging)):
        if len(names) == len(table.columns):
            return names
    return tuple(renamed.get(name, name) for name in table.columns)


def _without_tolerances(golden: Table, judging: Judging) -> tuple[str, ...]:
    margins = {judging.rule(name).margin_column for name in golden.columns}
    return tuple(
        name for name in golden.columns if name not in margins and not judging.rule(name).tolerance
    )
