"""Is the new curve all there? Asked before anyone asks how far it moved.

A run that died leaves every metric without samples from some step on; a run that diverged leaves
one metric NaN while the others go on. The two need different words, so all metrics of a file are
looked at together.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite

import msgspec
import numpy as np

from karat.compare.judge import capped
from karat.compare.numbers import Numbers
from karat.compare.rules import Rule
from karat.findings import Finding, Severity
from karat.goldens.shapes import Metric, Steps


class Shared(msgspec.Struct, frozen=True, gc=False):
    """One metric that both sides have, with its numbers and rule."""

    name: str
    old: Metric
    new: Metric
    numbers: Numbers
    rule: Rule


def last_sample(metric: Metric) -> int | None:
    """The last step with a finite value."""
    if len(metric.values) and isfinite(metric.values[-1]):
        return int(metric.steps[-1])
    finite = np.flatnonzero(np.isfinite(metric.values))
    return int(metric.steps[finite[-1]]) if len(finite) else None


def declared_end(metric: Metric) -> int | None:
    """The last step that the block says it has: {start} ∪ multiples of the interval up to the end."""
    if metric.end is None:
        return int(metric.steps[-1]) if len(metric.steps) else None
    interval = metric.interval or 1
    last = metric.end - metric.end % interval if interval > 0 else metric.end
    return max(last, metric.start) if metric.start is not None else last


def _precedes(stop: int | None, end: int | None) -> bool:
    return end is not None and (stop is None or stop < end)


def truncation(shared: list[Shared]) -> tuple[Finding | None, int | None]:
    """The finding that the run stopped early, and the step it stopped at.

    It stopped if every metric that used to have later samples has none after some step.
    """
    ends: list[int] = []
    stops: list[int | None] = []
    sampled = []
    for s in shared:
        end = last_sample(s.old)
        if end is None:
            continue
        stop = last_sample(s.new)
        if not _precedes(stop, end):
            return None, None
        sampled.append(s)
        ends.append(end)
        stops.append(stop)
    if not sampled:
        return None, None
    stop = max((at for at in stops if at is not None), default=None)
    end = max(ends)
    complete_by_own_account = all(
        not _precedes(at, declared_end(s.new)) for at, s in zip(stops, sampled, strict=True)
    )
    if complete_by_own_account and stop is not None:
        message = (
            f"ends at step {stop}, the old golden at step {end}: a shorter run, or other settings"
        )
        return _stopped("lost-steps", message, stop, end), stop
    if stop is None:
        message = f"no metric has a single sample; the old golden goes to step {end}"
    else:
        message = f"stops at step {stop} of {end}: the run died or was cut off"
    return _stopped("truncated", message, stop, end), stop


def _stopped(kind: str, message: str, stop: int | None, end: int) -> Finding:
    return Finding(
        kind=kind,
        severity=Severity.FAIL,
        message=message,
        where=None if stop is None else f"step {stop}",
        numbers={"last_step": stop, "expected_last_step": end},
    )


def truncation_alone(metrics: Mapping[str, Metric], severity: Severity) -> Finding | None:
    """The finding that a golden stops before its own declared end, judged without an old side."""
    if not metrics or not all(_precedes(last_sample(m), declared_end(m)) for m in metrics.values()):
        return None
    stop = max((at for m in metrics.values() if (at := last_sample(m)) is not None), default=None)
    end = max(at for m in metrics.values() if (at := declared_end(m)) is not None)
    if stop is None:
        message = f"no metric has a single sample, though the file declares steps up to {end}"
    else:
        message = f"stops at step {stop}, though the file declares steps up to {end}"
    return Finding(
        kind="truncated",
        severity=severity,
        message=message,
        where=None if stop is None else f"step {stop}",
        numbers={"last_step": stop, "expected_last_step": end},
    )


def losses(s: Shared, stop: int | None, *, truncated: bool) -> list[Finding]:
    """What one metric lost, apart from what the end of a truncated run explains."""
    if not s.numbers.nan_gained and not s.numbers.steps_lost:
        return []
    sampled = s.old.steps[~np.isnan(s.old.values)]
    finite = s.old.steps[np.isfinite(s.old.values)]
    if truncated:
        last = s.old.steps[0] - 1 if stop is None else stop
        sampled, finite = sampled[sampled <= last], finite[finite <= last]
    present = np.isin(finite, s.new.steps)
    alive = np.isin(finite, s.new.steps[np.isfinite(s.new.values)])
    became_nan, gone = finite[present & ~alive], sampled[~np.isin(sampled, s.new.steps)]
    found = []
    if len(became_nan):
        what = "step(s) that had a finite value have none now"
        found.append(_lost("new-nan", s, became_nan, what))
    if len(gone):
        found.append(_lost("lost-steps", s, gone, "step(s) with a value are gone"))
    return found


def _lost(kind: str, s: Shared, steps: Steps, what: str) -> Finding:
    first = int(steps[0])
    return Finding(
        kind=kind,
        severity=Severity.INFO if _warming_up(s, steps) else Severity.FAIL,
        metric=s.name,
        where=f"step {first}",
        message=f"{s.name}: {len(steps)} {what}, first at step {first}",
        numbers={"steps": len(steps), "first_step": first},
    )


def _warming_up(s: Shared, steps: Steps) -> bool:
    """Timings often have no sample at the first steps, and their rule does not look there anyway."""
    if not s.rule.steady:
        return False
    warm = s.old.steps[: int(len(s.old.steps) * s.rule.warm_up)]
    return bool(np.isin(steps, warm).all())


def gains(s: Shared) -> list[Finding]:
    """What one metric gained, and placeholders it dropped: worth knowing, never a reason to object."""
    n, found = s.numbers, []
    if n.placeholders_lost:
        found.append(
            Finding(
                kind="dropped-placeholders",
                severity=Severity.INFO,
                metric=s.name,
                message=f'{s.name}: {n.placeholders_lost} step(s) that only held "nan" (no sample) are gone; no value was lost',
                numbers={"placeholders_lost": n.placeholders_lost},
            )
        )
    found.extend(_declared(s))
    more = n.steps_gained + n.nan_lost
    if more:
        found.append(
            Finding(
                kind="gained-steps",
                severity=Severity.INFO,
                metric=s.name,
                message=f"{s.name}: {more} step(s) have a value that had none before",
                numbers={"steps_gained": n.steps_gained, "nan_lost": n.nan_lost},
            )
        )
    return found


def _declared(s: Shared) -> list[Finding]:
    """What the block says of itself, where that changed."""
    fields = (
        ("start_step", s.old.start, s.new.start),
        ("end_step", s.old.end, s.new.end),
        ("step_interval", s.old.interval, s.new.interval),
        ("value_precision", s.old.precision, s.new.precision),
    )
    changed = [f"{name} {a} → {b}" for name, a, b in fields if a is not None and a != b]
    if not changed:
        return []
    message = f"{s.name}: declares {', '.join(changed)}"
    return [
        Finding(kind="structure-changed", severity=Severity.INFO, metric=s.name, message=message)
    ]


def precision(s: Shared) -> Finding | None:
    """The finding that the new values carry fewer digits (or declare to)."""
    n = s.numbers
    declared = (s.old.precision, s.new.precision)
    if declared[0] is not None and declared[1] is not None and declared[1] < declared[0]:
        return _precision_lost(s, declared[0], declared[1], "value_precision")
    before, after = n.decimals_old, n.decimals_new
    if before is None or after is None or after >= before:
        return None
    values = s.new.values[np.isfinite(s.new.values)]
    # A constant, or a handful of values, has few decimals by chance, not by rounding.
    if len(np.unique(values)) < 8 or not np.array_equal(np.round(values, after), values):
        return None
    return _precision_lost(s, before, after, "decimals in use")


def _precision_lost(s: Shared, before: int, after: int, what: str) -> Finding:
    shown = f"more than {before - 1}" if before >= 9 else str(before)
    return Finding(
        kind="precision-lost",
        severity=capped(Severity.WARN, s.rule),
        metric=s.name,
        message=f"{s.name}: {what} went from {shown} to {after}",
        numbers={"decimals_old": before, "decimals_new": after},
    )
