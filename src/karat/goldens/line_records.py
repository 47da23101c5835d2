"""Files of lines: the records of JSON Lines, and what all formats of lines share when they are written back.

A line that is the same keeps its bytes, and a new one comes to its place.
"""

from __future__ import annotations

import copy
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from msgspec.structs import replace

from karat.findings import UsageError
from karat.goldens import json_text, text_file
from karat.goldens.json_text import rewrite_text, same
from karat.goldens.series_json import FIELDS, text_number
from karat.goldens.shapes import Golden, Series

STEP_KEYS = ("step", "iteration", "iter", "global_step", "_step", "epoch")
"""Fields that count steps, the most telling first; an epoch counts only if nothing else does."""

_INT64 = 2**63


@dataclass(frozen=True, slots=True)
class LineRecord:
    """One object and the line it stands on."""

    value: dict[str, Any]
    line: int

    def fields(self, key: str) -> Iterator[tuple[str, Any]]:
        """Every field but the step, nested names joined with dots."""
        yield from flat({name: item for name, item in self.value.items() if name != key})


def flat(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of nested objects, by their dotted names."""
    for name, item in value.items():
        if isinstance(item, dict) and item:
            yield from flat(item, f"{prefix}{name}.")
        else:
            yield prefix + name, item


def parse_line(raw: str) -> dict[str, Any] | None:
    """The object on a line, or None."""
    parsed = json_text.parse_text(raw)
    return parsed.value if parsed.ok and isinstance(parsed.value, dict) else None


def records(text: str, odd: text_file.LimitedFindings | None = None) -> list[LineRecord]:
    """The records of a text; `odd` gathers a finding for every line that holds none."""
    found: list[LineRecord] = []
    odd = odd or text_file.LimitedFindings()
    raws = text_file.split(text)
    for line, raw in enumerate(raws, start=1):
        if not raw.strip():
            continue
        parsed = json_text.parse_text(raw)
        for finding in parsed.findings if parsed.ok else ():
            message, numbers = f"line {line} of the file: {finding.message}", {**finding.numbers, "line": line}
            odd.add(replace(finding, message=message, where=f"line {line}", numbers=numbers))
        if parsed.ok and isinstance(parsed.value, dict):
            found.append(LineRecord(parsed.value, line))
            continue
        kind, message = "unreadable", f"expected an object on line {line}, found "
        if parsed.ok:
            message += f"a {type(parsed.value).__name__}"
        elif line == len(raws) and not raw.endswith("\n"):
            kind = "truncated"
            message = f"expected a whole record, but the file ends inside line {line}"
        else:
            message += "text that is not JSON"
        odd.on_line(kind, line, message)
    return found


def step_of(value: Any) -> int | None:
    """The step that a field holds, or None if it is no whole number of 64 bits."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if isinstance(value, float) and not value.is_integer():
        return None
    return int(value) if -_INT64 <= value < _INT64 else None


def step_key(found: Sequence[Mapping[str, Any]], *, alone: bool = False) -> str | None:
    """The field that counts the steps: the first known one that half of the records have."""
    counts = Counter(key for value in found for key in STEP_KEYS if step_of(value.get(key)) is not None)
    keys = STEP_KEYS[:-1] if alone else STEP_KEYS
    return next((key for key in keys if counts[key] and 2 * counts[key] >= len(found)), None)


_Line = TypeVar("_Line")


def merge(kept: Sequence[_Line], keys: Sequence[Any | None], added: Mapping[Any, _Line]) -> list[_Line]:
    """The kept lines with new ones among them, by key.

    A new line comes behind the last one whose key is smaller, or before the first that has a key.
    Lines that have none (comments, blank lines) stay where they are.
    """
    held = sorted((key, index) for index, key in enumerate(keys) if key is not None)
    first = min((index for _, index in held), default=len(kept))
    merged: list[_Line] = []
    taken = passed = 0
    behind = -1
    for key in sorted(added):
        while passed < len(held) and held[passed][0] < key:
            behind = max(behind, held[passed][1])
            passed += 1
        at = behind + 1 if passed else first
        merged.extend(kept[taken:at])
        merged.append(added[key])
        taken = at
    return [*merged, *kept[taken:]]


def ended(raws: Sequence[str]) -> list[str]:
    """The lines, each but the last with a line ending."""
    return [raw if raw.endswith("\n") else raw + "\n" for raw in raws[:-1]] + list(raws[-1:])


def ensure_held(name: str, golden: Series, written: Golden | None) -> None:
    """Refuses a series that the format cannot hold: `written` is what would be read back."""
    if not isinstance(written, Series):
        found = "nothing" if written is None else f"a {written.shape}"
        raise UsageError(f"{name} cannot hold this series: expected it to be read back, found {found}")
    for what, expected, back in _differences(golden, written):
        raise UsageError(f"{name} cannot hold this series: expected {what} to be read back as {expected}, found {back}")


def _differences(golden: Series, written: Series) -> Iterator[tuple[str, str, str]]:
    """What is not the same in two series: its name, and how it stands in each."""
    for name in {**golden.metrics, **written.metrics}:
        old, new = golden.metrics.get(name), written.metrics.get(name)
        if old is None or new is None:
            there = [f"{len(m.steps)} steps" if m is not None else "absent" for m in (old, new)]
            yield f"the metric {name}", there[0], there[1]
            continue
        before, after = (
            (metric.start, metric.end, metric.interval, metric.precision, dict(metric.extra) or None)
            for metric in (old, new)
        )
        for what, was, now in zip((*FIELDS[1:], "extra fields"), before, after, strict=True):
            if not alike(was, now):
                yield f"the {what} of {name}", _shown(was), _shown(now)
        if not np.array_equal(old.steps, new.steps):
            yield f"{name}", f"{len(old.steps)} sorted steps", f"{len(new.steps)} other ones"
        elif not np.array_equal(old.values, new.values, equal_nan=True):
            yield f"{name}", "its values", "other ones"
    for kind, ones, others in (("number", golden.scalars, written.scalars), ("field", golden.others, written.others)):
        for name in {**ones, **others}:
            one, other = ones.get(name), others.get(name)
            both = name in ones and name in others
            if not both or not (one == other or alike(one, other)):
                yield f"the {kind} {name}", _shown(one), _shown(other)


def _shown(value: Any) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= 40 else text[:36] + "…"


def alike(one: Any, other: Any) -> bool:
    """True for two JSON values of one type and value; NaN is NaN, and a tuple is a list."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(alike(one[name], other[name]) for name in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(alike, one, other))
    return same(one, other)


def fresh_lines(golden: Series) -> str:
    """A series that no file holds yet, one record per step, then what has no step."""
    found = [{"step": step, **fields} for step, fields in sorted(_by_step(golden).items())]
    if stepless := _stepless(golden):
        found.append(stepless)
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in found)


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
    return (
        isinstance(held, dict)
        and bool(held)
        and all(step.isascii() and step.removeprefix("-").isdecimal() and len(step) < 19 for step in held)
    )


def _stepless(golden: Series) -> dict[str, Any]:
    others = {name: held for name, held in golden.others.items() if not _is_by_step(held)}
    return {**golden.scalars, **others}


class LinesRewrite:
    """One series to be written over the text of another."""

    def __init__(self, golden: Series, old: str) -> None:
        self.old = old
        self.found = records(old)
        self.key = step_key([record.value for record in self.found]) or "step"
        self.by_step = _by_step(golden)
        self.stepless = _stepless(golden)
        self.others = golden.others
        self.last = {(self.step(r), name): r.line for r in self.found for name, _ in r.fields(self.key)}
        self.last_line = {self.step(record): record.line for record in self.found}

    def step(self, record: LineRecord) -> int | None:
        return step_of(record.value.get(self.key))

    def text(self) -> str:
        by_line = {record.line: record for record in self.found}
        kept: list[tuple[int | None, str]] = []
        for line, raw in enumerate(text_file.split(self.old), start=1):
            record = by_line.get(line)
            if record is not None:
                kept.append((self.step(record), self.line(record, raw)))
            elif not raw.strip():  # a line that is no record is not carried into a new series
                kept.append((None, raw))
        kept = [(step, raw) for step, raw in kept if raw]
        return text_file.join(ended(self.with_added(kept)), self.old)

    def line(self, record: LineRecord, raw: str) -> str:
        """The line as it shall stand; empty where nothing of the record is left."""
        step = self.step(record)
        wanted = self.stepless if step is None else self.by_step.get(step, {})
        value = copy.deepcopy(record.value)
        for name, held in record.fields(self.key):
            if name not in wanted:
                _remove(value, name)
            elif self.last[step, name] == record.line:
                # Only of a number the spelling does not matter.
                unchanged = alike if name in self.others else _same
                if not unchanged(held, wanted[name]):
                    self.put(value, name, wanted[name])
        if self.last_line[step] == record.line:
            for name, item in wanted.items():
                if (step, name) not in self.last:
                    self.put(value, name, item)
        if not [name for name in value if name != self.key] and len(record.value) > len(value):
            return ""
        nan = any(isinstance(item, float) and math.isnan(item) for _, item in flat(value))
        return rewrite_text(raw, value) if value != record.value or nan else raw

    @staticmethod
    def put(value: dict[str, Any], name: str, item: Any) -> None:
        holder, last = _holder(value, name)
        holder[last] = item

    def with_added(self, kept: list[tuple[int | None, str]]) -> list[str]:
        """The lines with new steps at their sorted place, in the style of the first record."""
        model = text_file.split(self.old)[self.found[0].line - 1]
        model += "" if model.endswith("\n") else "\n"
        added = {
            step: rewrite_text(model, self.nested({self.key: step, **fields}))
            for step, fields in self.by_step.items()
            if step not in self.last_line
        }
        merged = merge([raw for _, raw in kept], [step for step, _ in kept], added)
        if None not in self.last_line and self.stepless:
            merged.append(rewrite_text(model, self.nested(dict(self.stepless))))
        return merged

    def nested(self, value: dict[str, Any]) -> dict[str, Any]:
        """The fields of a new record, nested where the first record nests them."""
        shape = copy.deepcopy(self.found[0].value)
        for name, _ in list(flat(shape)):
            if name not in value:
                _remove(shape, name)
        for name, item in value.items():
            self.put(shape, name, item)
        return shape


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
