"""Writing JSON Lines back: a line whose record is the same keeps its bytes."""

from __future__ import annotations

import copy
import json
import math
from typing import Any

from karat.goldens import lines
from karat.goldens.json_rewrite import rewrite_text
from karat.goldens.line_records import Record, flat, records, step_key, step_of
from karat.goldens.series_block import text_number
from karat.goldens.shapes import Series


def fresh_lines(golden: Series) -> str:
    """A series that no file holds yet, one record per step, then what has no step."""
    by_step = _by_step(golden)
    found = [{"step": step, **fields} for step, fields in sorted(by_step.items())]
    found.extend({name: value} for name, value in _stepless(golden).items())
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in found)


def rewrite_lines(golden: Series, old: str) -> str:
    """The old lines with the new series in them."""
    return _Rewrite(golden, old).text()


def _by_step(golden: Series) -> dict[int, dict[str, Any]]:
    found: dict[int, dict[str, Any]] = {}
    for name, metric in golden.metrics.items():
        for step, value in zip(metric.steps.tolist(), metric.values.tolist(), strict=True):
            found.setdefault(step, {})[name] = value if math.isfinite(value) else str(value)
    for name, held in golden.others.items():
        if _is_by_step(held):
            for step, value in held.items():
                found.setdefault(int(step), {})[name] = value
    return found


def _is_by_step(held: Any) -> bool:
    return isinstance(held, dict) and bool(held) and all(_whole(step) for step in held)


def _whole(text: str) -> bool:
    return text.removeprefix("-").isdecimal() and text.isascii() and len(text) < 19


def _stepless(golden: Series) -> dict[str, Any]:
    others = {name: held for name, held in golden.others.items() if not _is_by_step(held)}
    return {**golden.scalars, **others}


class _Rewrite:
    """One series to be written over the text of another."""

    def __init__(self, golden: Series, old: str) -> None:
        self.old = old
        self.found = records(old)
        self.key = step_key([record.value for record in self.found]) or "step"
        self.by_step = _by_step(golden)
        self.stepless = _stepless(golden)
        self.last = {
            (self.step(record), name): record.line
            for record in self.found
            for name, _ in record.fields(self.key)
        }
        self.last_line = {self.step(record): record.line for record in self.found}

    def step(self, record: Record) -> int | None:
        return step_of(record.value.get(self.key))

    def text(self) -> str:
        by_line = {record.line: record for record in self.found}
        kept: list[tuple[int | None, str]] = []
        for line, raw in enumerate(lines.split(self.old), start=1):
            record = by_line.get(line)
            if record is not None:
                kept.append((self.step(record), self.line(record, raw)))
            elif not raw.strip():  # a line that is no record is not carried into a new series
                kept.append((None, raw))
        kept = [(step, raw) for step, raw in kept if raw]
        self.add(kept)
        return lines.join([raw for _, raw in kept], self.old)

    def line(self, record: Record, raw: str) -> str:
        """The line as it shall stand; empty where nothing of the record is left."""
        step = self.step(record)
        wanted = self.stepless if step is None else self.by_step.get(step, {})
        value = copy.deepcopy(record.value)
        for name, held in record.fields(self.key):
            if name not in wanted:
                _remove(value, name)
            elif self.last[step, name] == record.line and not _same(held, wanted[name]):
                _put(value, name, wanted[name])
        if self.last_line[step] == record.line:
            for name, item in wanted.items():
                if (step, name) not in self.last:
                    _put(value, name, item)
        if not [name for name in value if name != self.key] and len(record.value) > len(value):
            return ""
        return rewrite_text(raw, value) if value != record.value or _has_nan(value) else raw

    def add(self, kept: list[tuple[int | None, str]]) -> None:
        """Puts new steps at their sorted place, in the style of the first record."""
        model = lines.split(self.old)[self.found[0].line - 1]
        model += "" if model.endswith("\n") else "\n"
        records_to_add: list[tuple[int | None, dict[str, Any]]] = [
            (step, {self.key: step, **fields})
            for step, fields in sorted(self.by_step.items())
            if step not in self.last_line
        ]
        if None not in self.last_line and self.stepless:
            records_to_add.append((None, dict(self.stepless)))
        for step, value in records_to_add:
            at = self.place(kept, step)
            if at and not kept[at - 1][1].endswith("\n"):
                kept[at - 1] = (kept[at - 1][0], kept[at - 1][1] + "\n")
            kept.insert(at, (step, rewrite_text(model, self.nested(value))))

    def nested(self, value: dict[str, Any]) -> dict[str, Any]:
        """The fields of a new record, nested where the first record nests them."""
        shape = copy.deepcopy(self.found[0].value)
        for name, _ in list(flat(shape)):
            if name not in value:
                _remove(shape, name)
        for name, item in value.items():
            _put(shape, name, item)
        return shape

    def place(self, kept: list[tuple[int | None, str]], step: int | None) -> int:
        if step is None:
            return len(kept)
        below = [
            index for index, (other, _) in enumerate(kept) if other is not None and other < step
        ]
        above = [
            index for index, (other, _) in enumerate(kept) if other is not None and other > step
        ]
        return below[-1] + 1 if below else (above[0] if above else len(kept))


def _has_nan(value: dict[str, Any]) -> bool:
    return any(isinstance(item, float) and math.isnan(item) for _, item in flat(value))


def _same(raw: Any, value: Any) -> bool:
    """True if the raw field says what the series says, whatever its spelling."""
    if isinstance(value, bool) or isinstance(raw, bool):
        return raw is value
    number = math.nan if raw is None else text_number(raw)
    wanted = text_number(value)
    if number is None or wanted is None:
        return bool(raw == value)
    return number == wanted or (math.isnan(number) and math.isnan(wanted))


def _holder(value: dict[str, Any], name: str) -> tuple[dict[str, Any], str]:
    """The innermost object that holds, or would hold, a dotted name, and the name in it."""
    if name not in value:
        for at, char in enumerate(name):
            inner = value.get(name[:at]) if char == "." else None
            if isinstance(inner, dict) and inner:
                return _holder(inner, name[at + 1 :])
    return value, name


def _put(value: dict[str, Any], name: str, item: Any) -> None:
    holder, last = _holder(value, name)
    holder[last] = item


def _remove(value: dict[str, Any], name: str) -> None:
    """Takes a dotted name out, and the objects that are empty without it."""
    holder, last = _holder(value, name)
    holder.pop(last, None)
    if holder is not value and not holder:
        _drop_empty(value)


def _drop_empty(value: dict[str, Any]) -> None:
    for name, item in list(value.items()):
        if isinstance(item, dict):
            _drop_empty(item)
            if not item:
                del value[name]
