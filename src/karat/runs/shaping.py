"""Shaping: a run's own curves → the curves its golden holds: chosen, renamed, thinned, rounded."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from math import isfinite

import numpy as np
from msgspec import structs

from karat.findings import Finding, Severity
from karat.goldens.series_block import implied_steps
from karat.goldens.shapes import Metric, Series, Steps
from karat.runs.settings import RecordSettings

_MOST_STEPS = 10_000_000
"""A step that a counter got wrong must not fill the memory with NaN."""
EXPECTED = "--steps, or steps in [record]"
"""Where an expected last step comes from, unless an old golden gave it."""


def shaped(series: Series, settings: RecordSettings) -> tuple[Series, tuple[Finding, ...]]:
    """The series as a golden of it would be, and what was wrong with the names."""
    metrics, findings = _named(series.metrics, settings)
    # Asked before steps are left out: the last one may be among them.
    short = short_run(Series(metrics), settings.steps, EXPECTED)
    try:
        metrics = _thinned(metrics, settings)
    except _TooManyStepsError as error:
        return Series({}), (*findings, _too_many_steps(error.count))
    if settings.precision is not None:
        metrics = {name: _rounded(m, settings.precision) for name, m in metrics.items()}
    metrics = {name: _declared(m, settings.interval) for name, m in metrics.items()}
    return structs.replace(series, metrics=metrics), (*findings, *([short] if short else []))


def _named(
    metrics: Mapping[str, Metric], settings: RecordSettings
) -> tuple[dict[str, Metric], tuple[Finding, ...]]:
    taken = [name for name in metrics if any(fnmatchcase(name, tag) for tag in settings.tags)]
    if metrics and not taken:
        return {}, (_no_such_tags(list(metrics), settings),)
    named: dict[str, Metric] = {}
    origin: dict[str, str] = {}
    findings = []
    for tag in taken:
        name = settings.rename.get(tag, tag)
        if name in named:
            findings.append(_same_name(name, origin[name], tag))
        named[name], origin[name] = metrics[tag], tag
    return named, tuple(findings)


def _no_such_tags(found: list[str], settings: RecordSettings) -> Finding:
    shown = ", ".join(sorted(found)[:8]) + (f" and {len(found) - 8} more" if len(found) > 8 else "")
    return Finding(
        kind="empty",
        severity=Severity.FAIL,
        message=f"expected names that match {', '.join(settings.tags)}, found {shown}",
        next="karat config --show-origin",
    )


def _same_name(name: str, first: str, second: str) -> Finding:
    return Finding(
        kind="duplicate-key",
        severity=Severity.FAIL,
        message=f'expected one source of the metric "{name}", found {first} and {second}; the last one was read',
        metric=name,
        next="karat config --show-origin",
    )


def _thinned(metrics: Mapping[str, Metric], settings: RecordSettings) -> dict[str, Metric]:
    """Every metric on the same steps, as Megatron keeps them; NaN where one has no sample."""
    starts = [int(m.steps[0]) for m in metrics.values() if len(m.steps)]
    if not starts or (settings.interval is None and settings.start is None):
        return dict(metrics)
    start = min(starts) if settings.start is None else settings.start
    if settings.interval is None:
        return {name: _from(m, start) for name, m in metrics.items()}
    end = max(int(m.steps[-1]) for m in metrics.values() if len(m.steps))
    wanted = _every(start, end, settings.interval)
    return {name: _on(m, wanted) for name, m in metrics.items()}


class _TooManyStepsError(Exception):
    """A start, an end and an interval between which no golden has its steps."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.count = count


def _every(start: int, end: int, interval: int) -> Steps:
    """The start and the multiples of the interval up to the end."""
    if end < start:
        return np.empty(0, np.int64)
    first = (start // interval + 1) * interval
    count = max(0, (end - first) // interval + 1)
    if count > _MOST_STEPS:
        raise _TooManyStepsError(count)
    steps = np.full(1 + count, start, np.int64)
    steps[1:] = np.arange(count) * interval + first if count else 0
    return steps


def _too_many_steps(count: int) -> Finding:
    return Finding(
        kind="unreadable",
        severity=Severity.FAIL,
        message=f"expected at most {_MOST_STEPS:,} steps between the first and the last one to keep, found"
        f" {count:,}; a larger interval, or another start, makes them fewer",
        numbers={"steps": count},
        next="karat config --show-origin",
    )


def _from(metric: Metric, start: int) -> Metric:
    kept = metric.steps >= start
    return structs.replace(metric, steps=metric.steps[kept], values=metric.values[kept])


def _on(metric: Metric, wanted: Steps) -> Metric:
    values = np.full(len(wanted), np.nan)
    _, here, there = np.intersect1d(wanted, metric.steps, assume_unique=True, return_indices=True)
    values[here] = metric.values[there]
    return structs.replace(metric, steps=wanted, values=values)


def _rounded(metric: Metric, decimals: int) -> Metric:
    # Python rounds the decimal number; numpy scales, rounds and scales back, which can be off by one.
    values = [
        round(value, decimals) if isfinite(value) else value for value in metric.values.tolist()
    ]
    return structs.replace(metric, values=np.array(values, np.float64))


def _declared(metric: Metric, interval: int | None) -> Metric:
    """The metric with its first and last step and its interval, as a block declares them."""
    steps = metric.steps.tolist()
    if not steps:
        return metric
    guess = interval or (steps[-1] - steps[-2] if len(steps) > 1 else 1)
    fits = implied_steps(len(steps), steps[0], guess) == steps
    return structs.replace(metric, start=steps[0], end=steps[-1], interval=guess if fits else 1)


def last_step(series: Series) -> int | None:
    """The last step at which any metric has a finite value."""
    ends = []
    for metric in series.metrics.values():
        finite = np.flatnonzero(np.isfinite(metric.values))
        if len(finite):
            ends.append(int(metric.steps[finite[-1]]))
    return max(ends, default=None)


def short_run(series: Series, expected: int | None, because: str) -> Finding | None:
    """The finding that a run ended before its expected last step, or None."""
    last = last_step(series)
    if expected is None or not series.metrics:
        return None
    # A golden that keeps every tenth step of 1,005 ends at 1,000, and is whole.
    expected -= expected % min(metric.interval or 1 for metric in series.metrics.values())
    if last is not None and last >= expected:
        return None
    found = "no finite value at all" if last is None else f"the last finite value at step {last}"
    return Finding(
        kind="short-run",
        severity=Severity.FAIL,
        message=f"expected a run up to step {expected} ({because}), found {found}: it died or was cut off",
        where=None if last is None else f"step {last}",
        numbers={"last_step": last, "expected_last_step": expected},
    )


def ends_behind(last: int | None, furthest: int | None) -> Finding | None:
    """The finding that a text of steps, some of them twice, ends before a step that it had reached."""
    if last is None or furthest is None or last >= furthest:
        return None
    return Finding(
        kind="superseded",
        severity=Severity.WARN,
        message=f"expected the last step at the end, found that it went to step {furthest}, then back, and ends at"
        f" step {last}: if it was restarted, the steps behind are of the run before",
        where=f"step {last}",
        numbers={"last_step": last, "furthest_step": furthest},
    )
