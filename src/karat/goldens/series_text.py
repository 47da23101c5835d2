"""series-text: plain lines of `step value`, one metric, comments after `#`."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from karat.findings import Severity, UsageError, fail
from karat.goldens import text_file
from karat.goldens.line_records import ended, ensure_held, merge
from karat.goldens.shapes import Golden, Metric, Reading, Series, Shape

METRIC = "value"  # The name of the only metric; the file has no place for one.

_NUMBER = r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|nan|inf(?:inity)?)"
_SAMPLE = re.compile(
    rf"(?P<lead>[ \t]*)(?P<step>[+-]?[0-9]{{1,18}})(?P<gap>[ \t]+)(?P<value>{_NUMBER})"
    r"(?P<tail>[ \t]*(?:#[^\n]*)?\r?\n?)",
    re.IGNORECASE,
)
_SPOKEN = re.compile(r"^(?![^\S\n]*#)[^\n]*\S[^\n]*\n?", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class _Sample:
    """One line that holds a step and a value."""

    raw: str
    step: int
    token: str
    span: tuple[int, int]  # Where the value's token stands in the line.

    @property
    def value(self) -> float:
        return float(self.token)

    def with_step(self, step: int, value: float) -> str:
        """A new line in the style of this one."""
        found = _SAMPLE.fullmatch(self.raw)
        lead, gap = (found["lead"], found["gap"]) if found else ("", " ")
        return f"{lead}{step}{gap}{value!r}{text_file.ending(self.raw) or chr(10)}"


class SeriesText:
    """Step and value, separated by white space."""

    name = "series-text"
    shape: Shape = "series"

    def claims(self, data: bytes) -> bool:
        if text_file.check(data) is not None:
            return False
        text = text_file.decode(data)
        # The first line that speaks nearly always answers, and costs no list of all lines.
        first = _SPOKEN.search(text)
        if first is None or not _SAMPLE.fullmatch(first.group()):
            return False
        content = [raw for raw in text_file.split(text) if not _silent(raw)]
        return 2 * sum(map(bool, map(_SAMPLE.fullmatch, content))) > len(content)

    def read(self, data: bytes) -> Reading:
        hazard = text_file.check(data)
        if hazard is not None:
            return Reading(None, (hazard,), self.name)
        raws = text_file.split(text_file.decode(data))
        samples = [_sample(raw) for raw in raws]
        odd = text_file.LimitedFindings()
        seen: dict[int, int] = {}
        for line, (raw, sample) in enumerate(zip(raws, samples, strict=True), start=1):
            if sample is None:
                if not _silent(raw):
                    message = f"expected a step and a value on line {line}, found {raw.strip()[:40]!r}"
                    odd.on_line("ragged-row", line, message, metric=METRIC)
                continue
            if (before := seen.get(sample.step)) is not None:
                lines = f"lines {before} and {line}"
                message = f"expected step {sample.step} once, found it on {lines}; the last one was read"
                odd.on_line("duplicate-key", line, message, metric=METRIC)
            if math.isinf(sample.value) and "inf" not in sample.token.lower():
                message = f"expected a finite number on line {line}, found {sample.token[:24]}"
                odd.on_line("non-finite-literal", line, message, metric=METRIC, severity=Severity.WARN)
            seen[sample.step] = line
        findings = odd.findings()
        found = {sample.step: sample.value for sample in samples if sample}
        if not found:
            message = "expected lines of step and value, found only comments"
            nothing = fail("empty", message, where="line 1")
            return Reading(None, findings or (nothing,), self.name)
        return Reading(Series({METRIC: Metric.of(found)}), findings, self.name)

    def write(self, golden: Golden, like: bytes | None = None) -> bytes:
        old = like if like is not None and self.claims(like) else None
        if old is not None and self.read(old).golden == golden:
            return old
        names = [*golden.metrics, *golden.scalars, *golden.others] if isinstance(golden, Series) else []
        if not isinstance(golden, Series) or names != [METRIC] or METRIC not in golden.metrics:
            found = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
            found = found if isinstance(golden, Series) else f"a {golden.shape}"
            raise UsageError(f'series-text holds one metric, "{METRIC}", and nothing else, found {found or "none"}')
        metric = golden.metrics[METRIC]
        samples = dict(zip(metric.steps.tolist(), metric.values.tolist(), strict=True))
        if old is None:
            written = "".join(f"{step} {value!r}\n" for step, value in samples.items()).encode()
        else:
            written = text_file.encode(_rewritten(text_file.decode(old), samples), old)
        ensure_held(self.name, golden, self.read(written).golden)
        return written


def _sample(raw: str) -> _Sample | None:
    found = _SAMPLE.fullmatch(raw)
    return _Sample(raw, int(found["step"]), found["value"], found.span("value")) if found else None


def _silent(raw: str) -> bool:
    text = raw.strip()
    return not text or text.startswith("#")


def _rewritten(old: str, samples: dict[int, float]) -> str:
    """The lines with the new samples: changed in place, removed, or added at their step's place."""
    raws = text_file.split(old)
    found = [_sample(raw) for raw in raws]
    last = {sample.step: index for index, sample in enumerate(found) if sample}
    kept: list[str] = []
    steps: list[int | None] = []
    for index, (raw, sample) in enumerate(zip(raws, found, strict=True)):
        if sample is None:
            if _silent(raw):  # a line that does not fit is not carried into a new series
                kept.append(raw)
                steps.append(None)
        elif sample.step in samples:
            # Of two lines with one step the last is read, so only that one has to change.
            old_value, value = sample.value, samples[sample.step]
            same = old_value == value or (math.isnan(old_value) and math.isnan(value))
            start, end = sample.span
            kept.append(raw if same or index != last[sample.step] else f"{raw[:start]}{value!r}{raw[end:]}")
            steps.append(sample.step)
    model = next(sample for sample in found if sample)
    added = {step: model.with_step(step, value) for step, value in samples.items() if step not in last}
    return text_file.join(ended(merge(kept, steps, added)), old)


FORMAT = SeriesText()
