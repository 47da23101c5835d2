"""series-json: metric → block of `values`, the way training frameworks keep loss curves.

    {"lm loss": {"start_step": 1, "end_step": 50, "step_interval": 1, "values": {"1": 10.8, …}}}

Nearly every file is regular, and is read by a decoder that knows the form (`series_fast`). Whatever it
refuses goes the slow way here, which reads more and says precisely what is odd.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from karat.findings import Finding, Severity, UsageError, fail
from karat.goldens import json_text, text_file
from karat.goldens.json_text import path_text
from karat.goldens.series_fast import read_fast
from karat.goldens.shapes import Golden, Metric, Reading, Series, Shape, Steps, Values

FIELDS = ("values", "start_step", "end_step", "step_interval", "value_precision")
"""The fields of a block that karat understands."""

NO_SAMPLE = "nan"  # What stands in the file where a step has no sample.

_STEP = re.compile(r"[+-]?[0-9]{1,19}")
_INT64 = 2**63


def is_block(value: Any) -> bool:
    """True for an object whose `values` are numbers by step, or a list of them."""
    if not isinstance(value, dict):
        return False
    values = value.get("values")
    if isinstance(values, list):
        return not values or _numbers(values)
    if not isinstance(values, dict):
        return False
    return not values or (any(map(_STEP.fullmatch, values)) and _numbers(list(values.values())))


def _numbers(values: list[Any]) -> bool:
    """True for scalars of which one at least is a number, or says that there is none."""
    if any(isinstance(value, (dict, list)) for value in values):
        return False
    return any(text_number(value) is not None for value in values)


def text_number(value: Any) -> float | None:
    """The number that a JSON scalar is, or spells, as a float; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    if isinstance(value, str) and ("_" in value or not value.isascii()):
        return None
    try:
        return float(value)
    except ValueError:
        return None
    except OverflowError:  # an integer beyond the largest float
        return math.inf if int(value) > 0 else -math.inf


def implied_steps(count: int, start: int, interval: int) -> list[int]:
    """The steps of a list of values: the start, then the multiples of the interval above it."""
    interval = max(interval, 1)
    first = (start // interval + 1) * interval
    return ([start] + [first + n * interval for n in range(count - 1)])[:count]


class MetricReader:
    """Reads blocks one by one and gathers what is odd about them."""

    def __init__(self) -> None:
        self.odd = text_file.LimitedFindings()

    def metric(self, name: str, block: Mapping[str, Any]) -> Metric:
        fields = {field: self.field(name, field, block.get(field)) for field in FIELDS[1:]}
        extra = {
            key: value
            for key, value in block.items()
            if key != "values" and (key not in fields or (fields[key] is None and value is not None))
        }
        steps, values = self.values(name, block["values"], fields)
        start, end, interval, precision = (fields[field] for field in FIELDS[1:])
        return Metric(steps, values, start, end, interval, precision, extra, isinstance(block["values"], list))

    def field(self, name: str, field: str, value: Any) -> int | None:
        """A whole number beside the values; anything else is kept as it is, and not understood."""
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value == value // 1:
            return int(value)
        if value is not None:
            self.add("unreadable", (name, field), "a whole number", value, Severity.WARN)
        return None

    def values(self, name: str, held: Any, fields: Mapping[str, int | None]) -> tuple[Steps, Values]:
        if isinstance(held, list):
            start, interval = fields["start_step"], fields["step_interval"]
            steps = implied_steps(len(held), start or 0, 1 if interval is None else interval)
            numbered = enumerate(zip(steps, held, strict=True))
            found = {step: self.value((name, "values", index), value) for index, (step, value) in numbered}
        else:
            found = dict(self.by_step(name, held))
        ordered = sorted(found)
        steps_array = np.array(ordered, np.int64)
        values = np.array([found[step] for step in ordered], np.float64)
        steps_array.flags.writeable = values.flags.writeable = False
        return steps_array, values

    def by_step(self, name: str, held: Mapping[str, Any]) -> Iterator[tuple[int, float]]:
        seen: dict[int, str] = {}
        for key, value in held.items():
            path = (name, "values", key)
            step = step_of(key)
            if step is None:
                self.add("unreadable", path, "a step, a whole number", key, Severity.FAIL)
                continue
            if step in seen:
                self.odd.note("duplicate-key", Severity.FAIL, partial(_duplicate, path, step, seen[step]))
            seen[step] = key
            yield step, self.value(path, value)

    def value(self, path: tuple[str | int, ...], value: Any) -> float:
        number = text_number(value)
        if number is None:
            if value is not None:
                self.add("unreadable", path, 'a number or "nan"', value, Severity.FAIL)
            return math.nan
        if isinstance(value, str) and value != NO_SAMPLE and not math.isnan(number):
            self.add("number-as-text", path, "a number", value, Severity.WARN)
        elif isinstance(value, int) and math.isinf(number):
            self.add("non-finite-literal", path, "a finite number", value, Severity.WARN)
        return number

    def add(self, kind: str, path: tuple[str | int, ...], expected: str, found: Any, severity: Severity) -> None:
        self.odd.note(kind, severity, partial(_finding, kind, path, expected, found, severity))


def _duplicate(path: tuple[str | int, ...], step: int, before: str) -> Finding:
    where = path_text(path)
    message = f"expected step {step} once, found it as {json.dumps(before)} and at {where}; the last one was read"
    return fail("duplicate-key", message, metric=str(path[0]), where=where, numbers={"step": step})


def _finding(kind: str, path: tuple[str | int, ...], expected: str, found: Any, severity: Severity) -> Finding:
    where = path_text(path)
    shown = json.dumps(found, ensure_ascii=False)
    shown = shown if len(shown) <= 40 else shown[:36] + "…"
    message = f"expected {expected}, found {shown} at {where}"
    return Finding(kind=kind, severity=severity, message=message, metric=str(path[0]), where=where)


def step_of(key: str) -> int | None:
    """The step that a key names, or None if it names none that fits 64 bits."""
    if not _STEP.fullmatch(key):
        return None
    step = int(key)
    return step if -_INT64 <= step < _INT64 else None


def block_value(metric: Metric, old: Mapping[str, Any] | None) -> dict[str, Any]:
    """The JSON value of a metric; what is the same as in the old block keeps its spelling there."""
    fields = zip(FIELDS[1:], (metric.start, metric.end, metric.interval, metric.precision), strict=True)
    nulls = {field for field, value in (old or {}).items() if value is None}
    new: dict[str, Any] = {field: value for field, value in fields if value is not None or field in nulls}
    new.update(metric.extra)
    new["values"] = _new_values(metric, old)
    if "value_precision" in new:  # behind the values is where writers put it
        new["value_precision"] = new.pop("value_precision")
    return new


def _new_values(metric: Metric, old: Mapping[str, Any] | None) -> Any:
    pairs = dict(zip(metric.steps.tolist(), metric.values.tolist(), strict=True))
    held = old["values"] if old is not None else {}
    numbers = held if isinstance(held, list) else list(held.values())
    numbers = [raw for raw in numbers if isinstance(raw, (int, float))]
    whole = bool(numbers) and all(isinstance(number, int) for number in numbers)

    def spelled(value: float) -> Any:
        """What is not finite as text, a whole number as its neighbours have it."""
        if not math.isfinite(value):
            return str(value)
        return int(value) if whole and value.is_integer() else value

    if isinstance(held, list):
        interval = 1 if metric.interval is None else metric.interval
        if implied_steps(len(pairs), metric.start or 0, interval) == list(pairs):
            padded = [*held, *[None] * len(pairs)]
            both = zip(padded, pairs.values(), strict=False)
            return [raw if _same(raw, value) else spelled(value) for raw, value in both]
        held = {}
    keys = {step_of(key): key for key in held}
    new = {key: raw for key, raw in held.items() if step_of(key) is None}  # what is no step is not karat's to drop
    for step, value in pairs.items():
        key = keys.get(step, str(step))
        new[key] = held[key] if step in keys and _same(held[key], value) else spelled(value)
    return new


def _same(raw: Any, value: float) -> bool:
    number = None if raw is None else text_number(raw)
    return number == value or ((number is None or math.isnan(number)) and math.isnan(value))


_OPENING = re.compile(rb'(?:\xef\xbb\xbf)?[ \t\r\n]*[{"]')


class SeriesJSON:
    """Blocks of values by step, scalars beside them, the rest kept as it is."""

    name = "series-json"
    shape: Shape = "series"

    def claims(self, data: bytes) -> bool:
        if not _OPENING.match(data) or b"values" not in data:
            return False
        return _has_block(_unwrapped(json_text.parse(data)).value)

    def read(self, data: bytes) -> Reading:
        if (series := read_fast(data)) is not None:
            return Reading(series, (), self.name)
        parsed = _unwrapped(json_text.parse(data))
        if not parsed.ok:
            return Reading(None, parsed.findings, self.name)
        if not _has_block(parsed.value):
            message = 'expected a metric with "values" by step, found none'
            return Reading(None, (*parsed.findings, fail("unreadable", message, where="$")), self.name)
        series, findings = read_value(parsed.value)
        return Reading(series, (*parsed.findings, *findings), self.name)

    def write(self, golden: Golden, like: bytes | None = None) -> bytes:
        if not isinstance(golden, Series):
            raise UsageError(f"{self.name} holds series, not a {golden.shape}")
        before = self.read(like) if like is not None else None
        if like is None or before is None or not isinstance(before.golden, Series):
            return json_text.fresh(series_value(golden, {}))
        if before.golden == golden:
            return like
        outer = json_text.parse(like).value
        if not isinstance(outer, str):
            return json_text.rewrite(like, series_value(golden, outer))
        inner = series_value(golden, json_text.parse_text(outer).value)
        return json_text.rewrite(like, json_text.rewrite_text(outer, inner))


def read_value(value: Mapping[str, Any]) -> tuple[Series, tuple[Finding, ...]]:
    """The series of a parsed JSON object, with what is odd about it."""
    reader = MetricReader()
    metrics: dict[str, Metric] = {}
    scalars: dict[str, float] = {}
    others: dict[str, Any] = {}
    for name, item in value.items():
        if is_block(item):
            metrics[name] = reader.metric(name, item)
        elif isinstance(item, (int, float)) and not isinstance(item, bool):
            scalars[name] = text_number(item) or 0.0
        else:
            others[name] = item
    return Series(metrics, scalars, others), reader.odd.findings()


def series_value(golden: Series, old: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON value of a series; what is the same as in `old` keeps its type and spelling there."""
    new: dict[str, Any] = {}
    for name, metric in golden.metrics.items():
        block = old.get(name)
        new[name] = block_value(metric, block if is_block(block) else None)
    for name, scalar in golden.scalars.items():
        before = old.get(name)
        whole = isinstance(before, int) and not isinstance(before, bool)
        new[name] = before if whole and text_number(before) == scalar else float(scalar)
    new.update(golden.others)
    return new


def _unwrapped(parsed: json_text.Parsed) -> json_text.Parsed:
    """JSON that was dumped twice, read through; anything else as it is."""
    if isinstance(parsed.value, str) and parsed.value.lstrip().startswith("{"):
        inner = json_text.parse_text(parsed.value)
        if _has_block(inner.value):
            return inner
    return parsed


def _has_block(value: Any) -> bool:
    return isinstance(value, dict) and any(map(is_block, value.values()))


FORMAT = SeriesJSON()
