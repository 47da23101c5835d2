"""Metric values: one number read off one run, or why there is none.

In: a `Run` (what one measured command left). Out: a finite number, or `NoValue`. A number that is not finite is never one.
"""

from __future__ import annotations

import fnmatch
import json
import re
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isfinite
from typing import Any

import msgspec

from karat.changes.signature_words import plain
from karat.engines.job import Ran
from karat.hunt import json_paths, junit_values
from karat.hunt.metric_agreement import source
from karat.hunt.numbers_in_text import number
from karat.hunt.settings import MetricSettings

_WHICH: Mapping[str, Callable[[Sequence[float]], float]] = {
    "first": lambda values: values[0],
    "last": lambda values: values[-1],
    "mean": statistics.fmean,
    "median": statistics.median,
    "min": min,
    "max": max,
}


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


def lines(output: bytes) -> Iterator[str]:
    """The lines of an output without colours, also those that a bar overwrote; bounded, so that no pattern takes forever."""
    for line in output.decode("utf-8", errors="replace").replace("\r", "\n").split("\n"):
        yield plain(line)


def _source_bytes(metric: MetricSettings, run: Run) -> bytes | None:
    return file_of(metric, run) if metric.file else run.ran.output


def _by_regex(metric: MetricSettings, run: Run) -> float | None:
    data, pattern = _source_bytes(metric, run), re.compile(metric.regex or "")
    if data is None:
        return None
    texts = [found[1] for line in lines(data) for found in pattern.finditer(line) if found[1]]
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
    text = data.decode("utf-8", errors="replace")
    document = _whole(text) if metric.file else _last_object(text)
    try:
        found = json_paths.find(document, json_paths.parse(metric.json or ""))
    except LookupError as error:
        raise NoValue(f"no value for {metric.name}: {error}") from error
    if isinstance(found, int | float):
        return _real(found)
    if isinstance(found, str):
        return _number(found, metric)
    raise NoValue(f"{metric.name} is no number: {str(found)[:60]!r}")


def _real(found: float) -> float:
    try:
        return float(found)
    except OverflowError:  # an integer of hundreds of digits
        return float("inf")


def _whole(text: str) -> Any:
    """A document; of JSON Lines the last line."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return _last_object(text)


def _last_object(text: str) -> Any:
    """The last JSON object that begins at the start of a line; None without one."""
    decoder, found, place = json.JSONDecoder(), None, 0
    while 0 <= place < len(text):
        begin = re.compile(r"^[ \t]*\{", re.MULTILINE).search(text, place)
        if begin is None:
            break
        try:
            found, place = decoder.raw_decode(text, begin.end() - 1)
        except (ValueError, RecursionError):
            place = begin.end()
    return found


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
