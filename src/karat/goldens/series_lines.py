"""series-lines: JSON Lines, one record per step, as training logs have them.

    {"step": 1, "loss": 10.8, "optimizer": {"lr": 0.1}}

Numbers become metrics, nested names are joined with dots, and other fields are kept by step. Records
without any step are kept as a document, so that every JSON Lines file can be compared.
"""

from __future__ import annotations

import json
import math
from typing import Any

from karat.findings import Severity, UsageError
from karat.goldens import json_text, text_file
from karat.goldens.json_text import rewrite_text
from karat.goldens.line_records import (
    LineRecord,
    LinesRewrite,
    alike,
    ensure_held,
    fresh_lines,
    parse_line,
    records,
    step_key,
    step_of,
)
from karat.goldens.series_json import NO_SAMPLE, text_number
from karat.goldens.shapes import Document, Golden, Metric, Reading, Series, Shape


class SeriesLines:
    """One JSON object per line."""

    name = "series-lines"
    shape: Shape = "series"

    def claims(self, data: bytes) -> bool:
        start = data.removeprefix(text_file.BOM).lstrip()
        if not start.startswith(b"{") or text_file.check(data) is not None:
            return False
        first, _, rest = start.partition(b"\n")
        if rest.strip():
            return parse_line(first.decode()) is not None
        # One line alone is a log only if it says so; it may as well be a small document.
        record = json_text.look(data).value
        return isinstance(record, dict) and step_key([record], alone=True) is not None

    def read(self, data: bytes) -> Reading:
        if (hazard := text_file.check(data)) is not None:
            return Reading(None, (hazard,), self.name)
        odd = text_file.LimitedFindings()
        found = records(text_file.decode(data), odd)
        if not found:
            return Reading(None, odd.findings(), self.name)
        key = step_key([record.value for record in found])
        if key is None:
            return Reading(Document([record.value for record in found]), odd.findings(), self.name)
        return Reading(_series(found, key, odd), odd.findings(), self.name)

    def write(self, golden: Golden, like: bytes | None = None) -> bytes:
        if isinstance(golden, Document):
            return _write_document(golden, like)
        if not isinstance(golden, Series):
            raise UsageError(f"{self.name} holds series and lists of records, not a {golden.shape}")
        old = like if like is not None and self.claims(like) else None
        before = self.read(old).golden if old is not None else None
        if old is not None and before == golden:
            return old
        if old is not None and isinstance(before, Series):
            written = text_file.encode(LinesRewrite(golden, text_file.decode(old)).text(), old)
        else:
            written = fresh_lines(golden).encode()
        ensure_held(self.name, golden, self.read(written).golden if self.claims(written) else None)
        return written


def _series(found: list[LineRecord], key: str, odd: text_file.LimitedFindings) -> Series:
    """Fields gathered over records; a field is a metric if its values are numbers anywhere."""
    fields: dict[str, dict[int, tuple[Any, int]]] = {}
    scalars: dict[str, float] = {}
    others: dict[str, Any] = {}
    for record in found:
        step = step_of(record.value.get(key))
        for name, value in record.fields(key):
            line = record.line
            message = ""
            if step is not None:
                held = fields.setdefault(name, {})
                if step in held:
                    message = f"expected one value at step {step}, found two, on lines {held[step][1]} and {line}"
                held[step] = value, line
            elif name in scalars or name in others:
                message = f"expected {name} once outside the steps, found it again on line {line}"
            if message:
                odd.on_line("duplicate-key", line, f"{message}; the last one was read", metric=name)
            if step is not None:
                continue
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                scalars[name] = text_number(value) or 0.0
            else:
                others[name] = value
    metrics = {name: _metric(name, held, odd) for name, held in fields.items() if _is_metric(held)}
    rest = {name: sorted(held.items()) for name, held in fields.items() if name not in metrics}
    texts = {name: {str(step): value for step, (value, _) in held} for name, held in rest.items()}
    return Series(metrics, scalars, {**others, **texts})


def _metric(name: str, held: dict[int, tuple[Any, int]], odd: text_file.LimitedFindings) -> Metric:
    values: dict[int, float] = {}
    for step, (value, line) in sorted(held.items()):
        number = text_number(value)
        values[step] = math.nan if number is None else number
        if number is None and value is not None:
            message = f"expected a number, found {json.dumps(value)[:40]} on line {line}"
            odd.on_line("unreadable", line, message, metric=name)
        elif isinstance(value, str) and value.lower() != NO_SAMPLE:
            message = f'expected a number, found the text "{value[:40]}" on line {line}'
            odd.on_line("number-as-text", line, message, metric=name, severity=Severity.WARN)
    return Metric.of(values)


def _is_metric(held: dict[int, tuple[Any, int]]) -> bool:
    """True if one value at least is a number, or all that are not absent say there is none."""
    values = [value for value, _ in held.values() if value is not None]
    if any(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values):
        return True
    numbers = [text_number(value) for value in values]
    return bool(values) and all(n is not None and not math.isfinite(n) for n in numbers)


def _write_document(golden: Document, like: bytes | None) -> bytes:
    """A list of records, one per line; a record that is the same keeps its line."""
    if not isinstance(golden.value, list) or not all(isinstance(item, dict) for item in golden.value):
        raise UsageError("series-lines holds lists of records; this document is something else")
    if like is None:
        written = "".join(map(_record_line, golden.value)).encode()
    else:
        old = text_file.decode(like)
        found = records(old)
        places = {record.line: index for index, record in enumerate(found)}
        kept: list[str] = []
        for line, raw in enumerate(text_file.split(old), start=1):
            index = places.get(line)
            if index is None:
                kept.append(raw)
            elif index < len(golden.value):
                kept.append(rewrite_text(raw, golden.value[index]))
        added = golden.value[len(found) :]
        if added and kept and not kept[-1].endswith("\n"):
            kept[-1] += "\n"
        written = text_file.encode(text_file.join([*kept, *map(_record_line, added)], old), like)
    back = FORMAT.read(written).golden
    if not isinstance(back, Document) or not alike(back.value, golden.value):
        read = "nothing" if back is None else "records with steps, or other values"
        raise UsageError(
            f"series-lines cannot hold this document: expected {len(golden.value)} records without"
            f" steps to be read back, found {read}"
        )
    return written


def _record_line(record: dict[str, Any]) -> str:
    return json.dumps(record, ensure_ascii=False) + "\n"


FORMAT = SeriesLines()
