"""Forward mode: J·u of the framework against the oracle's, element by element."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from karat.gradients import tolerances
from karat.gradients.asked import Purpose
from karat.gradients.controls import OFF
from karat.gradients.cotangents import Mask
from karat.gradients.flattened import Vector
from karat.gradients.oracles import Probe
from karat.gradients.problem import Unsupported
from karat.gradients.report import Comparison, GradVerdict
from karat.gradients.scales import natural_sizes, some
from karat.gradients.seen import Seen
from karat.gradients.weighing import UNKNOWN
from karat.gradients.wording import said

PROBES = 3
_ROOM = 8.0  # one element's error estimate may be small by chance; sums of many are not


@dataclass(frozen=True, slots=True)
class Tangent:
    """One output along one direction: what came out, what was expected, what may differ."""

    found: Vector
    expected: Vector
    allowed: Vector

    def fails(self, found: Vector) -> bool:
        """Whether other values would be refused."""
        with np.errstate(all="ignore"):
            return not bool(np.all(np.abs(found - self.expected) <= self.allowed))


@dataclass(frozen=True, slots=True)
class Pushed:
    """J·u along the first probes of an input, or why there is none."""

    along: Sequence[tuple[Probe, list[Vector]]] = ()
    absent: str = ""
    """The framework has no forward mode for it."""
    raised: str = ""
    """There is one, and it ends in an error."""


def push(seen: Seen, i: int) -> Pushed:
    """J·u along the first probes of an input."""
    found: list[tuple[Probe, list[Vector]]] = []
    try:
        for probe in seen.probes[i][:PROBES]:
            with np.errstate(all="ignore"):
                found.append((probe, seen.ground.flat.jvp(i, probe.direction)))
    except Unsupported as why:
        return Pushed(absent=said(why))
    except Exception as error:  # noqa: BLE001 - whatever a jvp raises, there is no tangent
        return Pushed(raised=said(error))
    return Pushed(found)


def missing(seen: Seen, pair: tuple[int, int], pushed: Pushed) -> Comparison | None:
    """A pair without tangents: wrong where forward mode raises; without it, unknown if it was all that was asked for."""
    if pushed.raised:
        why = f"no tangent: forward mode raised {pushed.raised}"
        return seen.comparison(pair, GradVerdict.FAIL, why, mode="forward")
    if pushed.absent and seen.asked.forward_alone:
        why = f"forward mode was asked for, and there is none: {pushed.absent}"
        return seen.comparison(pair, GradVerdict.INCONCLUSIVE, why, mode="forward")
    return None


def compare(seen: Seen, pair: tuple[int, int], pushed: Pushed) -> Comparison | None:
    """The forward mode of one pair; None where the derivative is zero and so is what came out."""
    k = pair[1]
    keep = ~seen.masks[k]
    tangents = [_tangent(seen, probe, k, given[k], keep) for probe, given in pushed.along]
    if not keep.any():
        return seen.comparison(pair, GradVerdict.INCONCLUSIVE, UNKNOWN, mode="forward")
    scale = max(_rms(one.expected) for one in tangents)
    failed = any(one.fails(one.found) for one in tangents)
    asked = seen.asked.rtol if failed else None
    if asked is not None:
        # As for gradients: what a test asks for beyond what is derived is used, and recorded.
        wider = [replace(one, allowed=np.maximum(one.allowed, asked * scale)) for one in tangents]
        if not any(one.fails(one.found) for one in wider):
            tangents, failed = wider, False
    used = asked if not failed else None
    if (
        not failed
        and used is None
        and all(np.all(np.abs(one.expected) <= one.allowed) for one in tangents)
    ):
        return None
    verdict, reason = _verdict(seen, tangents, scale, failed=failed, widened=used is not None)
    if verdict is GradVerdict.PASS and seen.lost(k):
        verdict, reason = GradVerdict.INCONCLUSIVE, seen.lost(k)
    caught = _controls(seen, pair, tangents)
    missed = [name for name, noticed in caught.items() if not noticed]
    vacuous = verdict is GradVerdict.PASS and bool(missed)
    if vacuous:
        reason = f"a corrupted tangent would have passed, too ({', '.join(missed)})"
    error, tolerance = _worst(tangents)
    unit = scale or 1.0
    return seen.comparison(
        pair,
        verdict,
        reason,
        mode="forward",
        error=error / unit,
        tolerance=tolerance / unit,
        scale=scale,
        smallest_error=min(float(np.max(2 * one.allowed)) for one in tangents) / unit,
        probes=len(tangents),
        controls=caught,
        vacuous=vacuous,
        widened=used,
    )


def _tangent(seen: Seen, probe: Probe, k: int, found: Vector, keep: Mask) -> Tangent:
    slopes = probe.slopes[k]
    value = slopes.value[keep]
    sizes = natural_sizes(value) if value.any() else np.abs(value)
    unit = tolerances.unit(seen.ground.computes)
    depth = 1.0 + np.log2(max(2, probe.direction.size))
    floor = 16 * depth * unit * (sizes + np.abs(seen.ground.base[k][keep]))
    return Tangent(found[keep], value, _ROOM * slopes.error[keep] + floor)


def _verdict(
    seen: Seen, tangents: Sequence[Tangent], scale: float, *, failed: bool, widened: bool
) -> tuple[GradVerdict, str]:
    cap = tolerances.cap(seen.ground.computes)
    typical = max(float(np.median(some(one.allowed))) for one in tangents)
    error, tolerance = _worst(tangents)
    if typical > cap * scale and not error > 100 * tolerance and not widened:
        return GradVerdict.INCONCLUSIVE, "the forward is too noisy to judge tangents by"
    if not failed:
        return GradVerdict.PASS, ""
    gap = f"J·u by forward mode is off by {error / (scale or 1.0):.2g} of its size at an element, {tolerance / (scale or 1.0):.2g} is explained"
    return GradVerdict.FAIL, gap


def _worst(tangents: Sequence[Tangent]) -> tuple[float, float]:
    """The deviation and the tolerance of the element that is furthest out."""
    worst = (0.0, 0.0, -1.0)
    for one in tangents:
        with np.errstate(all="ignore"):
            gap = np.abs(one.found - one.expected)
            gap = np.where(np.isfinite(gap), gap, np.inf)
            ratio = np.where(gap == 0, 0.0, gap / np.maximum(one.allowed, tolerances.TINY))
        place = int(np.argmax(ratio))
        worst = max(
            worst,
            (float(gap[place]), float(one.allowed[place]), float(ratio[place])),
            key=_by_ratio,
        )
    return worst[0], worst[1]


def _by_ratio(one: tuple[float, float, float]) -> float:
    return one[2]


def _controls(seen: Seen, pair: tuple[int, int], tangents: Sequence[Tangent]) -> dict[str, bool]:
    rng = seen.asked.draw(Purpose.CONTROLS, *pair, 1)
    first = tangents[0]
    drawn = int(rng.integers(0, first.found.size))
    worst = int(np.argmax(first.allowed))
    changed: dict[str, Callable[[Vector], Vector]] = {
        "zero": np.zeros_like,
        "x1.01": lambda one: (1 + OFF) * one,
        "sign": lambda one: -one,
        "one element": lambda one: _off(one, drawn),
        "worst element": lambda one: _off(one, worst),
    }
    return {
        name: any(one.fails(change(one.found)) for one in tangents)
        for name, change in changed.items()
    }


def _off(found: Vector, place: int) -> Vector:
    """One element off by one per cent of itself, or of a typical one."""
    other = found.copy()
    other[place] += OFF * max(abs(float(found[place])), _rms(found))
    return other


def _rms(values: Vector) -> float:
    return tolerances.norm(values[np.isfinite(values)]) / float(np.sqrt(max(1, values.size)))
