"""Metric values: one number read off one run, or why there is none.

In: a `Run` (what one measured command left). Out: a finite number, or `NoValue`. A number that is not finite is never one.
"""

from __future__ import annotations

import fnmatch
import json
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from math import inf, isfinite
from typing import Any

import msgspec

from karat.engines.job import Ran
from karat.hunt import json_paths, junit_values
from karat.hunt.metric_agreement import source
from karat.hunt.numbers_in_text import number
from karat.hunt.patterns import lines, matches
from karat.hunt.settings import MetricSettings


def _mean(values: Sequence[float]) -> float:
    try:
        return statistics.fmean(values)
    except OverflowError:
        return inf


_WHICH: Mapping[str, Callable[[Sequence[float]], float]] = {
    "first": lambda values: values[0],
    "last": lambda values: values[-1],
    "mean": _mean,
    "median": statistics.median,
    "min": min,
    "max": max,
}
# Every number is one with a fraction here; whole ones of thousands of digits would be refused otherwise.
_DECODER = json.JSONDecoder(parse_int=float)
_BEGINS = re.compile(r"^[ \t]*\{(?=\s*[\"}])", re.MULTILINE)
_ROOM = 1 << 12
_TOKEN = 16
"""Characters at the end of a piece that may be half a word: `-Infini`."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """What one measured command left."""

    ran: Ran
    files: Mapping[str, bytes]
    """By their names in the run's own folder, or in the command's."""


class NoValue(Exception):  # noqa: N818 - a state of knowledge
    """There is no value; the text is the signature: `no value for MLUPS`, `MLUPS is nan`."""


class Unverified(Exception):  # noqa: N818 - a state of knowledge
    """A golden or a result cannot be used; the text says why."""


def value_of(metric: MetricSettings, run: Run) -> float:
    """The metric's value of one run, for every source but a golden."""
    kind = source(metric)
    if kind == "exit_code":
        return 0.0 if run.ran.exit_code == 0 else 1.0
    found = run.ran.seconds if kind == "seconds" else _READERS[kind](metric, run)
    if found is None:
        raise NoValue(f"no value for {metric.name}")
    if not isfinite(found):
        raise NoValue(f"{metric.name} is {found:g}")
    return found


def file_of(metric: MetricSettings, run: Run) -> bytes | None:
    """The file that a metric is read from; of several that a glob matches, the last by name."""
    matching = sorted(name for name in run.files if fnmatch.fnmatchcase(name, metric.file))
    return run.files[matching[-1]] if matching else None


def _source_bytes(metric: MetricSettings, run: Run) -> bytes | None:
    return file_of(metric, run) if metric.file else run.ran.output


def _by_regex(metric: MetricSettings, run: Run) -> float | None:
    data = _source_bytes(metric, run)
    if data is None:
        return None
    texts = [found[1] for found in matches(metric.regex or "", lines(data)) if found[1]]
    if not texts:
        return None
    if metric.which in {"first", "last"}:
        texts = [texts[0 if metric.which == "first" else -1]]
    values = [_number(text, metric) for text in texts]
    odd = next((value for value in values if not isfinite(value)), None)
    # statistics.median sorts, and NaN has no place in an order.
    return odd if odd is not None else _WHICH[metric.which](values)


def _number(text: str, metric: MetricSettings) -> float:
    found = number(text, metric.unit)
    if found is None:
        raise NoValue(f"{metric.name} is no number: {text.strip()[:60]!r}")
    return found


def _by_json(metric: MetricSettings, run: Run) -> float | None:
    data = _source_bytes(metric, run)
    if data is None:
        return None
    text = data.decode("utf-8-sig", errors="replace")
    document = _whole(text) if metric.file else _last_object(text)
    if document is None:
        raise NoValue(
            f"no value for {metric.name}: no JSON object in {metric.file or 'the output'}"
        )
    try:
        found = json_paths.find(document, json_paths.parse(metric.json or ""))
    except LookupError as error:
        raise NoValue(f"no value for {metric.name}: {error}") from error
    if isinstance(found, int | float):
        return float(found)
    if isinstance(found, str):
        return _number(found, metric)
    raise NoValue(f"{metric.name} is no number: {json_paths.kind(found)}")


def _whole(text: str) -> Any:
    """A document; of JSON Lines the last line."""
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError):
        return _last_object(text)


def _last_object(text: str) -> Any:
    """The last JSON object that begins at the start of a line; None without one."""
    found, place = None, 0
    while (begin := _BEGINS.search(text, place)) is not None:
        whole, place = _object_at(text, begin.end() - 1)
        found = found if whole is None else whole
    return found


def _object_at(text: str, start: int) -> tuple[Any, int]:
    """The object that begins there, or None, and where to look on.

    An error of the decoder counts every line before it, so it is given no more than it needs.
    """
    room = _ROOM
    while True:
        piece = text[start : start + room]
        try:
            found, end = _DECODER.raw_decode(piece)
        except json.JSONDecodeError as error:
            cut = error.pos + _TOKEN > len(piece) or error.msg.startswith("Unterminated")
            if not cut or len(piece) < room:
                return None, start + 1
            room *= 4
        except RecursionError:
            return None, start + room
        else:
            return found, start + end


def _by_junit(metric: MetricSettings, run: Run) -> float | None:
    data = file_of(metric, run)
    if data is None:
        return None
    try:
        cases = junit_values.cases(data)
    except ValueError as error:
        raise NoValue(f"no value for {metric.name}: {error}") from error
    return junit_values.value(cases, metric.junit or "", metric.value)


_READERS: Mapping[str, Callable[[MetricSettings, Run], float | None]] = {
    "regex": _by_regex,
    "json": _by_json,
    "junit": _by_junit,
}
