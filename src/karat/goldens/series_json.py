"""series-json: metric → block of `values`, the way training frameworks keep loss curves.

    {"lm loss": {"start_step": 1, "end_step": 50, "step_interval": 1, "values": {"1": 10.8, …}}}

Nearly every file is regular, and is read by a decoder that knows the form. Whatever it refuses goes
the slow way, which reads more and says precisely what is odd.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from karat.findings import Finding, Severity, UsageError
from karat.goldens import hazards, json_rewrite, json_text
from karat.goldens.series_block import FIELDS, BlockReader, block_value, is_block, text_number
from karat.goldens.series_fast import read_fast
from karat.goldens.shapes import Golden, Metric, Reading, Series, Shape

_OPENING = re.compile(rb'(?:\xef\xbb\xbf)?[ \t\r\n]*[{"]')


class SeriesJSON:
    """Blocks of values by step, scalars beside them, the rest kept as it is."""

    name = "series-json"
    shape: Shape = "series"

    def claims(self, data: bytes) -> bool:
        if not _OPENING.match(data) or b"values" not in data:
            return False
        return _has_block(_unwrapped(json_text.look(data)).value)

    def read(self, data: bytes) -> Reading:
        series = read_fast(data)
        if series is not None:
            return Reading(series, (), self.name)
        parsed = _unwrapped(json_text.parse(data))
        if not parsed.ok:
            return Reading(None, parsed.findings, self.name)
        if not _has_block(parsed.value):
            return Reading(None, (*parsed.findings, _no_block()), self.name)
        series, findings = read_value(parsed.value)
        return Reading(series, hazards.few((*parsed.findings, *findings)), self.name)

    def write(self, golden: Golden, like: bytes | None = None) -> bytes:
        if not isinstance(golden, Series):
            raise UsageError(f"{self.name} holds series, not a {golden.shape}")
        if like is None:
            return json_text.fresh(series_value(golden, {}))
        before = self.read(like)
        if not isinstance(before.golden, Series):
            return json_text.fresh(series_value(golden, {}))
        if before.golden == golden:
            return like
        return _rewritten(golden, like)


def read_value(value: Mapping[str, Any]) -> tuple[Series, tuple[Finding, ...]]:
    """The series of a parsed JSON object, with what is odd about it."""
    reader = BlockReader()
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
        new[name] = block_value(name, metric, block if is_block(block) else None)
    for name, scalar in golden.scalars.items():
        before = old.get(name)
        whole = isinstance(before, int) and not isinstance(before, bool)
        new[name] = before if whole and text_number(before) == scalar else float(scalar)
    new.update(golden.others)
    return new


def _rewritten(golden: Series, like: bytes) -> bytes:
    outer = json_text.parse(like)
    if not isinstance(outer.value, str):
        return json_rewrite.rewrite(like, series_value(golden, outer.value))
    inner = json_rewrite.rewrite_text(
        outer.value, series_value(golden, json_text.parse_text(outer.value).value)
    )
    return json_rewrite.rewrite(like, inner)


def _unwrapped(parsed: json_text.Parsed) -> json_text.Parsed:
    """JSON that was dumped twice, read through; anything else as it is."""
    if isinstance(parsed.value, str) and parsed.value.lstrip().startswith("{"):
        inner = json_text.parse_text(parsed.value)
        if _has_block(inner.value):
            return inner
    return parsed


def _has_block(value: Any) -> bool:
    return isinstance(value, dict) and any(map(is_block, value.values()))


def _no_block() -> Finding:
    fields = json.dumps(FIELDS[0])
    return Finding(
        kind="unreadable",
        severity=Severity.FAIL,
        message=f"expected a metric with {fields} by step, found none",
        where="$",
    )


FORMAT = SeriesJSON()
