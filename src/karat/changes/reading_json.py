"""JSON and JSON Lines: a list of records, an object of values, lists side by side, plain numbers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from karat.changes.columns import Columns
from karat.findings import Finding, Severity
from karat.goldens.hazards import BOM, Few

_ASSIGNED = re.compile(rb"(?:(?:var|let|const)\s+)?[A-Za-z_][\w.]{0,100}\s*=\s*(?=[{\[])")
"""What stands before the document in a script: github-action-benchmark keeps `window.BENCHMARK_DATA = {…}`."""
_DEEPEST = 6
_MOST = 400
"""Columns; whoever has more names those that count."""


def read_json(data: bytes, source: str) -> tuple[Columns, ...]:
    """The tables in a JSON document, or in a script that assigns one; none if it is none."""
    text = data.removeprefix(BOM).strip()
    script = _ASSIGNED.match(text[:200])
    if script:
        text = text[script.end() :].rstrip(b" \t\r\n;")
    if text[:1] not in {b"{", b"["}:
        return ()
    value = parsed(text)
    table = table_of(value, source)
    if table is not None:
        return (table,)
    return tuple(_inner_tables(value, source)) if isinstance(value, dict) else ()


def _inner_tables(document: dict[str, Any], source: str) -> Iterator[Columns]:
    """The lists of records in a document around them, at the depth at which there are any: {"results": [...]}."""
    level: list[tuple[str, Any]] = [("", document)]
    for _ in range(_DEEPEST):
        level = [
            (f"{path}.{key}" if path else key, item)
            for path, held in level
            if isinstance(held, dict)
            for key, item in held.items()
        ]
        lists = [(path, item) for path, item in level if _is_records(item)]
        for path, item in lists:
            table = _of_records(item, source if len(lists) == 1 else f"{source} {path}")
            if table is not None:
                yield table
        if lists:
            return


def _is_records(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(v, dict) for v in value)


def parsed(data: bytes) -> Any:
    """The JSON value in the bytes; None if there is none."""
    try:
        return msgspec.json.decode(data.removeprefix(BOM))
    except (ValueError, RecursionError):
        pass
    try:
        # What Python writes for NaN and Infinity is no JSON, and stands in many files.
        return json.loads(data.removeprefix(BOM))
    except (ValueError, RecursionError):
        return None


def read_lines(data: bytes, source: str) -> Columns | None:
    """The table in JSON Lines; None unless most lines are objects."""
    odd = Few()
    records: list[Any] = []
    lines: list[int] = []
    bad = 0
    for line, raw in enumerate(data.removeprefix(BOM).splitlines(), 1):
        if not raw.strip():
            continue
        record = _record(raw)
        if record is None:
            bad += 1
            odd.note("unreadable", Severity.WARN, partial(_no_record, source, line, raw))
            if bad > 20 and bad > len(records):
                return None
            continue
        records.append(record)
        lines.append(line)
    if not records or bad > len(records):
        return None
    return _of_records(records, source, lines=lines, findings=odd.findings())


def _record(raw: bytes) -> Any:
    value = parsed(raw)
    return value if isinstance(value, dict) else None


def table_of(value: Any, source: str) -> Columns | None:
    """The table that a JSON value is."""
    if isinstance(value, dict):
        return _of_object(value, source)
    if not isinstance(value, list) or not value:
        return None
    if _is_records(value):
        return _of_records(value, source)
    if all(isinstance(item, list) and len(item) == 2 for item in value):
        return Columns(source=source, names=("label", "value"), rows=value)
    if not any(isinstance(item, dict | list) for item in value):
        return Columns(source=source, names=("value",), rows=[(item,) for item in value])
    return None


def _of_object(value: dict[str, Any], source: str) -> Columns | None:
    """Label → value, label → record, or name → list."""
    if not value:
        return None
    items = list(value.values())
    lists = {name: item for name, item in value.items() if isinstance(item, list)}
    if len(lists) == len(items) and len({len(item) for item in items}) == 1 and _flat(items):
        rows = list(zip(*lists.values(), strict=True))
        return Columns(source=source, names=tuple(lists), rows=rows) if rows else None
    if all(isinstance(item, dict) for item in items) and len(items) > 1:
        return _of_records([{"label": label, **item} for label, item in value.items()], source)
    if not any(isinstance(item, dict | list) for item in items):
        return Columns(source=source, names=("label", "value"), rows=list(value.items()))
    return None


def _flat(lists: Sequence[Sequence[Any]]) -> bool:
    return not any(isinstance(cell, dict | list) for held in lists for cell in held[:100])


def _of_records(
    records: Sequence[Mapping[str, Any]],
    source: str,
    *,
    lines: Sequence[int] = (),
    findings: tuple[Finding, ...] = (),
) -> Columns | None:
    units: dict[str, str] = {}
    flat = [dict(_fields(record, units)) for record in records]
    names = list(dict.fromkeys(name for record in flat for name in record))[:_MOST]
    rows = [tuple(record.get(name) for name in names) for record in flat]
    if not names:
        return None
    return Columns(
        source=source, names=tuple(names), rows=rows, lines=lines, units=units, findings=findings
    )


def _fields(
    value: Mapping[str, Any], units: dict[str, str], prefix: str = "", depth: int = 0
) -> Iterator[tuple[str, Any]]:
    """Fields by their path; a list of {name, value, unit} is a metric each."""
    for key, item in value.items():
        name = f"{prefix}{key}"
        if isinstance(item, dict) and depth < _DEEPEST:
            yield from _fields(item, units, "" if key == "metrics" else f"{name}.", depth + 1)
        elif isinstance(item, list) and item and all(_is_named(entry) for entry in item):
            for entry in item:
                if isinstance(entry.get("unit"), str):
                    units[str(entry["name"])] = entry["unit"]
                yield str(entry["name"]), entry["value"]
        else:
            yield name, item


def _is_named(entry: Any) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("name"), str) and "value" in entry


def _no_record(source: str, line: int, raw: bytes) -> Finding:
    shown = raw[:40].decode("utf-8", "replace")
    return Finding(
        kind="unreadable",
        severity=Severity.WARN,
        message=f"expected a JSON object on line {line}, found {shown!r}; it was left out",
        path=source,
        where=f"line {line}",
    )
