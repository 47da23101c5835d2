"""series-text: plain lines of `step value`, one metric, comments after `#`."""

from __future__ import annotations

import math
import re

from karat.findings import Severity, UsageError, fail
from karat.goldens import text_file
from karat.goldens.shapes import Golden, Metric, Reading, Series, Shape, ensure_held

METRIC = "value"  # The name of the only metric; the file has no place for one.

_NUMBER = r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|nan|inf(?:inity)?)"
_SAMPLE = re.compile(
    rf"(?P<lead>[ \t]*)(?P<step>[+-]?[0-9]{{1,18}})(?P<gap>[ \t]+)(?P<value>{_NUMBER})"
    r"(?P<tail>[ \t]*(?:#[^\n]*)?\r?\n?)",
    re.IGNORECASE,
)


class SeriesText:
    """Step and value, separated by white space."""

    name = "series-text"
    shape: Shape = "series"

    def claims(self, data: bytes) -> bool:
        if text_file.check(data) is not None:
            return False
        content = [raw for raw in text_file.split(text_file.decode(data)) if not _silent(raw)]
        if not content or not _SAMPLE.fullmatch(content[0]):
            return False
        return 2 * sum(map(bool, map(_SAMPLE.fullmatch, content))) > len(content)

    def read(self, data: bytes) -> Reading:
        hazard = text_file.check(data)
        if hazard is not None:
            return Reading(None, (hazard,), self.name)
        odd = text_file.LimitedFindings()
        found: dict[int, float] = {}
        lines: dict[int, int] = {}
        for line, raw in enumerate(text_file.split(text_file.decode(data)), start=1):
            if (sample := _SAMPLE.fullmatch(raw)) is None:
                if not _silent(raw):
                    message = f"expected a step and a value on line {line}, found {raw.strip()[:40]!r}"
                    odd.on_line("ragged-row", line, message, metric=METRIC)
                continue
            step, token = int(sample["step"]), sample["value"]
            if (before := lines.get(step)) is not None:
                message = f"expected step {step} once, found it on lines {before} and {line}; the last one was read"
                odd.on_line("duplicate-key", line, message, metric=METRIC)
            found[step], lines[step] = float(token), line
            if math.isinf(found[step]) and "inf" not in token.lower():
                message = f"expected a finite number on line {line}, found {token[:24]}"
                odd.on_line("non-finite-literal", line, message, metric=METRIC, severity=Severity.WARN)
        findings = odd.findings()
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


def _silent(raw: str) -> bool:
    text = raw.strip()
    return not text or text.startswith("#")


def _rewritten(old: str, samples: dict[int, float]) -> str:
    """The lines with the new samples: changed in place, removed, or added at their step's place."""
    found = [(raw, _SAMPLE.fullmatch(raw)) for raw in text_file.split(old)]
    model = next(sample for _, sample in found if sample)

    def fresh(step: int) -> str:
        return f"{model['lead']}{step}{model['gap']}{samples[step]!r}{text_file.ending(model.string) or chr(10)}"

    last = {int(sample["step"]): raw for raw, sample in found if sample}  # of two lines with one step the last is read
    kept: list[str] = []
    steps: list[int | None] = []
    for raw, sample in found:
        step = int(sample["step"]) if sample else None
        if sample is None and _silent(raw):  # a line that does not fit is not carried into a new series
            kept.append(raw)
        elif sample is not None and step in samples and raw is last[step]:
            value, old_value = samples[step], float(sample["value"])
            same = old_value == value or (math.isnan(old_value) and math.isnan(value))
            start, end = sample.span("value")
            kept.append(raw if same else f"{raw[:start]}{value!r}{raw[end:]}")
        else:
            continue
        steps.append(step)
    added = {step: fresh(step) for step in samples if step not in last}
    return text_file.join(text_file.ended(text_file.merge(kept, steps, added)), old)


FORMAT = SeriesText()
