"""Examining: a problem at one point; every input against every output, first order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from karat.gradients import controls, cotangents, kinks, tolerances
from karat.gradients.comparing import (
    Expectation,
    Judged,
    Met,
    expectation,
    judge,
    meet,
    smallest_error,
)
from karat.gradients.cotangents import Mask
from karat.gradients.differences import unresolved
from karat.gradients.flattened import Vector
from karat.gradients.oracles import Ground, Probe, probes, weakest
from karat.gradients.report import Comparison, GradVerdict, Mode
from karat.gradients.scales import element_scales

NO_GRADIENT = (
    "no gradient: the backward gives none where the derivative is not zero; write it, or, if the op has none by "
    "nature, add an exemption of kind no-grad-op to exemptions.toml"
)
ZERO = "the gradient is zero everywhere it was looked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a check was asked to do, apart from the function."""

    rng: np.random.Generator
    rtol: float | None = None
    atol: float | None = None
    order: int = 1
    extra: Sequence[Vector | None] = ()
    """The caller's own cotangents, looked at beside the drawn ones."""
    outputs: frozenset[int] = frozenset()
    inputs: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Pair:
    """One input against one output: the comparison, and what a diagnosis needs."""

    input: int
    output: int
    comparison: Comparison
    cotangent: Vector | None = None
    gradient: Vector | None = None
    masked: int = 0
    zero: bool = False


@dataclass(slots=True)
class Seen:
    """All that the probes of one point know."""

    ground: Ground
    probes: list[list[Probe]]
    masks: list[Mask] = field(default_factory=list)
    """Output elements that the main comparison leaves out."""
    kinks: list[Mask] = field(default_factory=list)


def look(ground: Ground, asked: Asked) -> Seen:
    """Every probe's slopes, and which output elements they leave open."""
    flat = ground.flat
    found = [
        probes(ground, index, asked.rng) if index in asked.inputs and point.size else []
        for index, point in enumerate(flat.point)
    ]
    seen = Seen(ground, found)
    for k, base in enumerate(ground.base):
        open_ = ~np.isfinite(base)
        kink = np.zeros(base.size, np.bool_)
        for probe in (one for probes_ in found for one in probes_):
            open_ |= unresolved(probe.slopes[k], base, ground.precision)
            kink |= probe.slopes[k].kinked
        seen.masks.append(open_ | kink)
        seen.kinks.append(kink & ~open_)
    return seen


def examine(ground: Ground, asked: Asked) -> list[Pair]:
    """Every wanted pair of the point."""
    seen = look(ground, asked)
    found: list[Pair] = []
    for k in sorted(asked.outputs):
        found.extend(_of_output(seen, asked, k))
    return found


def _of_output(seen: Seen, asked: Asked, k: int) -> list[Pair]:
    ground = seen.ground
    everything = [one.slopes[k] for probes_ in seen.probes for one in probes_]
    rng = asked.rng
    base, mask = ground.base[k], seen.masks[k]
    drawn = [cotangents.drawn(base, everything, mask, rng) for _ in range(cotangents.DRAWN)]
    extra = asked.extra[k] if k < len(asked.extra) else None
    if extra is not None:
        drawn.append(np.where(mask, 0.0, extra))
    try:
        pulled = [pull(ground, k, one) for one in drawn]
        at_kinks = _pulled_at_kinks(seen, k, rng)
    except Exception as error:  # noqa: BLE001 - whatever a backward raises, it has no gradient
        return [_raised(seen, asked, i, k, error) for i in sorted(asked.inputs)]
    return [
        _of_pair(seen, asked, (i, k), drawn, [one[i] for one in pulled], at_kinks)
        for i in sorted(asked.inputs)
    ]


def pull(ground: Ground, k: int, cotangent: Vector) -> list[Vector | None]:
    """Jᵀv of every input for a cotangent of one output."""
    with np.errstate(all="ignore"):
        return ground.flat.vjp([cotangent if j == k else None for j in range(len(ground.base))])


_Kinks = tuple[Vector, list[Vector | None]] | None


def _pulled_at_kinks(seen: Seen, k: int, rng: np.random.Generator) -> _Kinks:
    if not seen.kinks[k].any():
        return None
    cotangent = np.where(seen.kinks[k], np.abs(cotangents.mixed(seen.kinks[k].size, rng)), 0.0)
    return cotangent, pull(seen.ground, k, cotangent)


def _raised(seen: Seen, asked: Asked, i: int, k: int, error: Exception) -> Pair:
    line = (str(error).strip().splitlines() or [""])[0][:300]
    reason = f"no gradient: the backward raised {type(error).__name__}: {line}"
    return Pair(i, k, _comparison(seen, asked, (i, k), GradVerdict.FAIL, reason))


def _of_pair(
    seen: Seen,
    asked: Asked,
    pair: tuple[int, int],
    drawn: Sequence[Vector],
    gradients: Sequence[Vector | None],
    at_kinks: _Kinks,
) -> Pair:
    i, k = pair
    probes_, precision = seen.probes[i], seen.ground.precision
    masked = int(seen.masks[k].sum())
    if not probes_ or not seen.ground.base[k].size:
        why = "nothing to compare: there are no elements"
        return Pair(i, k, _comparison(seen, asked, pair, GradVerdict.INCONCLUSIVE, why))
    expected = [[expectation(one, one.slopes[k], v) for one in probes_] for v in drawn]
    groups = [
        (
            _given(gradient, probes_),
            [meet(_given(gradient, probes_), one, precision) for one in some],
        )
        for gradient, some in zip(gradients, expected, strict=True)
    ]
    none = all(one is None for one in gradients)
    found = _Weighed(seen, asked, pair, groups, none=none).pair()
    found = replace(found, cotangent=drawn[0], gradient=gradients[0], masked=masked)
    return _with_kinks(seen, found, at_kinks)


def _given(gradient: Vector | None, probes_: Sequence[Probe]) -> Vector:
    return np.zeros(probes_[0].direction.size) if gradient is None else gradient


@dataclass(frozen=True, slots=True)
class _Weighed:
    """A pair on its way to a verdict."""

    seen: Seen
    asked: Asked
    which: tuple[int, int]
    groups: list[controls.Group]
    none: bool

    def pair(self) -> Pair:
        met = [one for _, some in self.groups for one in some]
        judged = judge(met)
        widened = self._widened(judged)
        if judged.failed and widened is not None:
            judged = judge(met, rtol=widened)
        verdict, reason = self._verdict(judged)
        zero = judged.zero and verdict is GradVerdict.PASS
        caught = {} if zero else self._controls(widened if judge(met).failed else None)
        vacuous = verdict is GradVerdict.PASS and (zero or not all(caught.values()))
        if vacuous and not zero:
            missed = ", ".join(name for name, seen in caught.items() if not seen)
            reason = f"a corrupted gradient would have passed, too ({missed})"
        return Pair(
            *self.which,
            self._comparison(judged, verdict, reason, caught, vacuous=vacuous, widened=widened),
            zero=zero,
        )

    def _widened(self, judged: Judged) -> float | None:
        rtol = self.asked.rtol
        return rtol if rtol is not None and rtol * judged.scale > judged.widest else None

    def _verdict(self, judged: Judged) -> tuple[GradVerdict, str]:
        worst, cap = judged.worst, tolerances.cap(self.seen.ground.precision)
        if not np.isfinite(judged.widest):
            return GradVerdict.INCONCLUSIVE, self._unknown()
        if judged.failed:
            return self._failed(judged)
        if judged.zero:
            if judged.widest > cap * self._size_of_output():
                return GradVerdict.INCONCLUSIVE, self._noisy(judged)
            return GradVerdict.PASS, f"{ZERO}; the framework gives None" if self.none else ZERO
        if worst.tolerance > cap * judged.scale and self.asked.rtol is None:
            return GradVerdict.INCONCLUSIVE, self._noisy(judged)
        return GradVerdict.PASS, ""

    def _failed(self, judged: Judged) -> tuple[GradVerdict, str]:
        worst = judged.worst
        cap = tolerances.cap(self.seen.ground.precision)
        if self.none:
            return GradVerdict.FAIL, NO_GRADIENT
        if not np.isfinite(worst.found):
            return self._not_finite()
        if worst.tolerance > cap * judged.scale and worst.deviation < 100 * worst.tolerance:
            return GradVerdict.INCONCLUSIVE, self._noisy(judged)
        gap = f"expected {worst.expected.value:.6g} along a probe, found {worst.found:.6g}"
        if self.asked.atol is not None and worst.deviation <= self.asked.atol:
            return (
                GradVerdict.INCONCLUSIVE,
                f"{gap}; only the absolute tolerance of {self.asked.atol:g} excuses it, and that proves nothing",
            )
        return GradVerdict.FAIL, gap

    def _not_finite(self) -> tuple[GradVerdict, str]:
        if self.seen.masks[self.which[1]].any():
            return (
                GradVerdict.INCONCLUSIVE,
                "the gradient is not finite, and neither are all slopes: the point is at the edge of the domain",
            )
        return GradVerdict.FAIL, "the gradient is not finite where the derivative is"

    def _size_of_output(self) -> float:
        return max(
            tolerances.norm(self.seen.ground.base[self.which[1]]),
            np.finfo(np.float64).tiny,
        )

    def _unknown(self) -> str:
        return "no slope is known: the function is not smooth, or not finite, near the point"

    def _noisy(self, judged: Judged) -> str:
        precision = self.seen.ground.precision
        share = judged.worst.tolerance / judged.scale if judged.scale else np.inf
        return (
            f"the expected derivative is known to {share:.1g} of its size only, and {precision} needs "
            f"{tolerances.cap(precision):g}: the forward is noisy, or not smooth near the point"
        )

    def _controls(self, rtol: float | None) -> dict[str, bool]:
        i = self.which[0]
        slot = self.seen.ground.flat.inputs[i]
        return dict(
            controls.controls(
                self.groups,
                (*slot.shape, 2) if slot.complex else slot.shape,
                element_scales(self.seen.ground.flat.point[i]),
                rtol=rtol,
                rng=self.asked.rng,
            )
        )

    def _comparison(
        self,
        judged: Judged,
        verdict: GradVerdict,
        reason: str,
        caught: dict[str, bool],
        *,
        vacuous: bool,
        widened: float | None,
    ) -> Comparison:
        scales = element_scales(self.seen.ground.flat.point[self.which[0]])
        return _comparison(
            self.seen,
            self.asked,
            self.which,
            verdict,
            reason,
            error=judged.worst.deviation,
            tolerance=judged.worst.tolerance,
            scale=judged.scale,
            smallest_error=smallest_error(judged, scales),
            probes=len(judged.met),
            controls=caught,
            vacuous=vacuous,
            widened=widened,
        )


def _with_kinks(seen: Seen, pair: Pair, at_kinks: _Kinks) -> Pair:
    """The gradient at kinks lies between the one-sided slopes, or is wrong."""
    if at_kinks is None:
        return pair
    cotangent, pulled = at_kinks
    i, k = pair.input, pair.output
    gradient = _given(pulled[i], seen.probes[i])
    count = int(max(np.sum(one.slopes[k].kinked) for one in seen.probes[i]))
    outside = next(
        (text for one in seen.probes[i] if (text := _outside(seen, one, k, cotangent, gradient))),
        "",
    )
    comparison = pair.comparison
    if outside:
        comparison = _changed(comparison, verdict=GradVerdict.FAIL, reason=outside, kinks=count)
    elif count:
        reason = (
            comparison.reason
            or f"at {count:,} kinks the gradient lies between the one-sided slopes"
        )
        comparison = _changed(comparison, reason=reason, kinks=count)
    return replace(pair, comparison=comparison)


def _outside(seen: Seen, probe: Probe, k: int, cotangent: Vector, gradient: Vector) -> str:
    slopes = probe.slopes[k]
    used = cotangent != 0
    low, high = kinks.interval(cotangent[used], slopes.value[used], slopes.jump[used])
    met: Met = meet(
        gradient,
        _as_expectation(probe, cotangent[used] * slopes.error[used], low, high),
        seen.ground.precision,
    )
    if low - met.tolerance <= met.found <= high + met.tolerance:
        return ""
    return (
        f"at a kink the one-sided slopes allow {low:.6g} to {high:.6g} along a probe, "
        f"the gradient says {met.found:.6g}"
    )


def _as_expectation(probe: Probe, errors: Vector, low: float, high: float) -> Expectation:
    return Expectation(
        probe.direction,
        dense=probe.dense,
        value=(low + high) / 2,
        error=tolerances.combined(errors),
        size=max(abs(low), abs(high)),
    )


def _changed(comparison: Comparison, **fields: object) -> Comparison:
    import msgspec  # noqa: PLC0415 - as light as it is, only kinks need it

    return msgspec.structs.replace(comparison, **fields)


def _comparison(
    seen: Seen,
    asked: Asked,
    which: tuple[int, int],
    verdict: GradVerdict,
    reason: str,
    **more: object,
) -> Comparison:
    flat = seen.ground.flat
    i, k = which
    fields: dict[str, object] = {
        "error": 0.0 if verdict is GradVerdict.PASS else np.inf,
        "tolerance": 0.0,
        "scale": 0.0,
        "smallest_error": np.inf,
        **more,
    }
    mode: Mode = "reverse"
    return Comparison(
        input=flat.inputs[i].name,
        output=flat.outputs[k].name,
        dtype=evidence_dtype(seen.ground, i),
        mode=mode,
        order=asked.order,
        verdict=verdict,
        reason=reason,
        oracle=weakest(seen.probes[i]) if seen.probes[i] else seen.ground.oracle,
        **fields,  # type: ignore[arg-type]
    )


def evidence_dtype(ground: Ground, i: int) -> str:
    """The precision that the gradient was really computed in."""
    wide = {"float64": "complex128", "float32": "complex64"}
    precision = ground.flat.problem.computes
    return wide.get(precision, precision) if ground.flat.inputs[i].complex else precision
