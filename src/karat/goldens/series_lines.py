"""series-lines: JSON Lines, one record per step, as training logs have them.

    {"step": 1, "loss": 10.8, "optimizer": {"lr": 0.1}}

Numbers become metrics, nested names are joined with dots, and other fields are kept by step. Records
without any step are kept as a document, so that every JSON Lines file can be compared.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from karat.findings import Severity, UsageError
from karat.goldens import json_text, text_file
from karat.goldens.json_text import rewrite_text
from karat.goldens.series_json import NO_SAMPLE, text_number
from karat.goldens.shapes import Document, Golden, Metric, Reading, Series, Shape, alike, ensure_held

STEP_KEYS = ("step", "iteration", "iter", "global_step", "_step", "epoch")
"""Fields that count steps, the most telling first; an epoch counts only if nothing else does."""

_INT64 = 2**63
_STEP = re.compile(r"-?[0-9]{1,18}")


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
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value % 1 != 0:
        return None
    return int(value) if -_INT64 <= value < _INT64 else None


def step_key(found: Sequence[Mapping[str, Any]], *, alone: bool = False) -> str | None:
    """The field that counts the steps: the first known one that half of the records have."""
    counts = Counter(key for value in found for key in STEP_KEYS if step_of(value.get(key)) is not None)
    keys = STEP_KEYS[:-1] if alone else STEP_KEYS
    return next((key for key in keys if counts[key] and 2 * counts[key] >= len(found)), None)


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
            return isinstance(json_text.parse_text(first.decode()).value, dict)
        # One line alone is a log only if it says so; it may as well be a small document.
        record = json_text.parse(data).value
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
        return Reading(series_of(found, key, odd), odd.findings(), self.name)

    def write(self, golden: Golden, like: bytes | None = None) -> bytes:
        if not isinstance(golden, (Series, Document)):
            raise UsageError(f"{self.name} holds series and lists of records, not a {golden.shape}")
        old = like if like is not None and self.claims(like) else None
        before = self.read(old).golden if old is not None else None
        if old is not None and before == golden:
            return old
        text = "" if old is None else text_file.decode(old)
        if isinstance(golden, Document):
            value, raws = golden.value, text_file.split(text)
            if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
                raise UsageError("series-lines holds lists of records; this document is something else")
            held = [raws[record.line - 1] for record in records(text)]  # of a record that changed, only that changes
            lines = [*map(rewrite_text, held, value), *map(_record_line, value[len(held) :])]
            written = text_file.join(text_file.ended(lines), text or "\n")
        else:
            written = _rewritten(golden, text) if isinstance(before, Series) else fresh_lines(golden)
        data = text_file.encode(written, old or b"")
        claimed = self.claims(data) or isinstance(golden, Document)
        ensure_held(self.name, golden, self.read(data).golden if claimed else None)
        return data


def series_of(found: Sequence[LineRecord], key: str, odd: text_file.LimitedFindings) -> Series:
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


def fresh_lines(golden: Series) -> str:
    """A series that no file holds yet, one record per step, then what has no step."""
    found = _by_step(golden)
    stepless = found.pop(None)
    lines = [{"step": step, **fields} for step, fields in found.items()]
    return "".join(map(_record_line, [*lines, stepless] if stepless else lines))


def _by_step(golden: Series) -> dict[int | None, dict[str, Any]]:
    """The fields of each step in order; those of none come first."""
    found: dict[int, dict[str, Any]] = {}
    for name, metric in golden.metrics.items():
        for step, value in zip(metric.steps.tolist(), metric.values.tolist(), strict=True):
            found.setdefault(step, {})[name] = value if math.isfinite(value) else str(value)
    stepless: dict[str, Any] = {**golden.scalars}
    for name, held in golden.others.items():
        if isinstance(held, dict) and held and all(_STEP.fullmatch(step) for step in held):
            for step, value in held.items():
                found.setdefault(int(step), {})[name] = value
        else:
            stepless[name] = held
    return {None: stepless, **dict(sorted(found.items()))}


def _rewritten(golden: Series, old: str) -> str:
    """The lines with the new series in them: changed in place, removed, or added at their step's place."""
    found, raws = records(old), text_file.split(old)
    key = step_key([record.value for record in found]) or "step"
    by_step, exact = _by_step(golden), {key, *golden.others}
    by_line = {record.line: (step_of(record.value.get(key)), record) for record in found}
    last = {step: line for line, (step, _) in by_line.items()}
    placed = {(step, name) for step, record in by_line.values() for name, _ in record.fields(key)}
    kept: list[str] = []
    steps: list[int | None] = []
    for line, raw in enumerate(raws, start=1):
        step, record = by_line.get(line, (None, None))
        value: dict[str, Any] = {}
        if record is not None:
            fields = by_step.get(step, {})
            value = _filled(record.value, {key: record.value.get(key), **fields}, exact)
            if last[step] == line:
                value |= {name: item for name, item in fields.items() if (step, name) not in placed}
        if value.keys() - {key}:
            kept.append(raw if record and value == record.value else rewrite_text(raw, value))
        elif not raw.strip():  # a line that is no record is not carried into a new series
            kept.append(raw)
        else:
            continue
        steps.append(step)
    # New records are nested where the first one nests its fields.
    shape, model = found[0].value, raws[found[0].line - 1].rstrip("\n") + "\n"
    outside = {name for name, _ in found[0].fields(key)}
    added = {}
    for step, fields in by_step.items():
        if fields and step not in last:
            head = {} if step is None else {key: step}
            rest = {name: item for name, item in fields.items() if name not in outside}
            added[step] = rewrite_text(model, _filled(shape, head | fields, exact) | rest)
    stepless = added.pop(None, "")
    return text_file.join(text_file.ended([*text_file.merge(kept, steps, added), *filter(None, [stepless])]), old)


def _filled(
    shape: Mapping[str, Any], wanted: Mapping[str, Any], exact: Collection[str], prefix: str = ""
) -> dict[str, Any]:
    """The wanted fields that a record has, nested as it nests them; what says the same keeps its spelling.

    Only of what is not `exact` the spelling of a number does not matter.
    """
    found: dict[str, Any] = {}
    for name, item in shape.items():
        full = prefix + name
        if isinstance(item, dict) and item:
            if inner := _filled(item, wanted, exact, f"{full}."):
                found[name] = inner
        elif full in wanted:
            unchanged = alike if full in exact else _same_number
            found[name] = item if unchanged(item, wanted[full]) else wanted[full]
    return found


def _same_number(raw: Any, value: Any) -> bool:
    number, wanted = (math.nan if item is None else text_number(item) for item in (raw, value))
    if number is None or wanted is None:
        return bool(raw == value)
    return number == wanted or (math.isnan(number) and math.isnan(wanted))


def _record_line(record: dict[str, Any]) -> str:
    return json.dumps(record, ensure_ascii=False) + "\n"


FORMAT = SeriesLines()
