"""A result's table in the place of a golden's: what only a person writes stays as it was.

A benchmark leaves its numbers; how far each may move stands in a column of the golden that no
benchmark knows. Taking the result must not lose it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from msgspec import structs

from karat.findings import Finding
from karat.goldens.shapes import Table


def completed(new: Table, old: Table, tolerances: Collection[str]) -> Table:
    """The new table with the old one's columns of tolerances, where these are all that it lacks."""
    lost = [name for name in old.columns if name not in new.columns]
    if not lost or new.key != old.key or not set(lost) <= set(tolerances):
        return new
    columns = (*old.columns, *(name for name in new.columns if name not in old.columns))
    rows = {}
    for key, row in new.rows.items():
        before = old.rows.get(key)
        held = dict(zip(old.columns, before, strict=True)) if before is not None else {}
        held |= dict(zip(new.columns, row, strict=True))
        rows[key] = tuple(held.get(name, "") for name in columns)
    return structs.replace(new, columns=columns, rows=rows, header=old.header)


def renaming(findings: Iterable[Finding], form: str | None) -> str | None:
    """What to do where a column or metric is gone and another one new: it may have two names."""
    names: dict[str, str] = {}
    for finding in findings:
        if finding.metric:
            names.setdefault(finding.kind, finding.metric)
    lost, gained = names.get("lost-metric"), names.get("gained-metric")
    if lost is None or gained is None:
        return None
    table = "[check] columns" if form == "table-csv" else "[record] rename"
    return f'edit karat.toml  # {table} = {{ "{gained}" = "{lost}" }}, if the two are one'
