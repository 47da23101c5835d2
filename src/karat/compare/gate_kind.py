"""The likely kind of a failure: what a person would say after looking at the two curves."""

from __future__ import annotations

import numpy as np

from karat.compare.gate import Gate
from karat.goldens.shapes import Steps, Values

_STEADY = 0.1
"""A shift is constant if it varies by less than this share of itself."""


def likely_kind(
    steps: Steps, expected: Values, got: Values, gate: Gate, *, timing: bool
) -> str | None:
    """One sentence, or None if the curves say nothing in particular."""
    absent = _absent(steps, gate)
    if absent is not None:
        return absent
    if gate.medians is not None:
        return _medians(gate, timing=timing)
    usable = gate.demanded & ~gate.missing & ~gate.broken
    bad = (gate.worse if gate.fails else gate.better)[usable]
    if not bad.any():
        return None
    return _shape(steps[usable], expected[usable], got[usable], bad)


def _absent(steps: Steps, gate: Gate) -> str | None:
    gone = gate.missing | gate.broken
    if not gone.any():
        return None
    demanded = gate.demanded
    if gone[demanded].all():
        return "not one value: it was never recorded, or never finite"
    first = int(np.flatnonzero(gone)[0])
    to_the_end = bool(gone[first:][demanded[first:]].all())
    if to_the_end and gate.broken[first:][demanded[first:]].all():
        return f"not finite from step {steps[first]} on: the run diverged, or died and left NaN"
    if to_the_end:
        last = int(steps[np.flatnonzero(demanded & ~gone)[-1]])
        end = int(steps[np.flatnonzero(demanded)[-1]])
        return f"ends at step {last} of {end}: the run was cut off"
    return f"{int(np.count_nonzero(gone))} step(s) without a value, the run goes on behind them"


def _medians(gate: Gate, *, timing: bool) -> str | None:
    pair = gate.medians
    if pair is None or not (pair.worse or pair.better) or not pair.expected:
        return None
    ratio = pair.got / pair.expected - 1
    word = ("slower" if ratio > 0 else "faster") if timing else ("higher" if ratio > 0 else "lower")
    return f"{abs(ratio):.1%} {word} over the whole window, by the median"


def _shape(steps: Steps, expected: Values, got: Values, bad: np.ndarray) -> str | None:
    error = got - expected
    at = np.flatnonzero(bad)
    constant = _constant(expected, got, error)
    if constant is not None:
        return constant
    if len(at) == 1:
        return f"a single step ({steps[at[0]]}) is off, the others are not"
    onset = int(at[0])
    if onset > 0 and bad[onset:].mean() >= 0.8:
        return f"leaves the golden at step {steps[onset]} and stays away"
    if bad.mean() <= 0.1:
        return f"spikes at {len(at)} of {len(steps)} steps, the others hold"
    ups = float((error[bad] > 0).mean())
    if 0.2 <= ups <= 0.8:
        return "off in both directions all along: noise that is wider than the tolerance"
    word = "higher" if ups > 0.5 else "lower"
    return f"{word} all along, by {np.median(np.abs(error[bad])):.3g} at the median"


def _constant(expected: Values, got: Values, error: Values) -> str | None:
    """A constant factor or a constant offset, if every value agrees on it."""
    if len(error) < 3:
        return None
    if (got == got[0]).all() and not (expected == expected[0]).all():
        return f"the same value ({got[0]:.6g}) at every step"
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        ratio = got / expected
    shift = ratio - 1
    if np.isfinite(shift).all() and _one_size(shift):
        return f"scaled by {np.median(ratio):.6g} at every step"
    if _one_size(error):
        return f"offset by {np.median(error):+.6g} at every step"
    return None


def _one_size(values: Values) -> bool:
    middle = float(np.median(values))
    if not np.isfinite(middle) or middle == 0:
        return False
    return bool((np.abs(values - middle) <= _STEADY * abs(middle)).all())
