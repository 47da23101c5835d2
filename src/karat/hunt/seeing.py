"""Seeing: all attempts at one point, as a strategy sees them. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from karat.changes.series import Outcome
from karat.hunt.attempt import Attempt
from karat.hunt.metric_agreement import CRASH
from karat.hunt.searching import Seen


def seen_of(attempts: Iterable[Attempt]) -> Seen:
    """Samples of the attempts that were ok, and of a hunted crash those where it happened; every outcome."""
    values: dict[str, tuple[float, ...]] = {}
    listed = list(attempts)
    for attempt in listed:
        for metric, samples in attempt.samples.items():
            if attempt.outcome is Outcome.OK or metric == CRASH:
                values[metric] = (*values.get(metric, ()), *samples)
    return Seen(
        values=values,
        outcomes=tuple(attempt.outcome for attempt in listed),
        signatures=tuple(attempt.signature for attempt in listed),
    )
