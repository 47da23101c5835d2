"""Weighing: how a gradient met its expectations, and what that is worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from karat.gradients import tolerances
from karat.gradients.asked import Purpose
from karat.gradients.comparing import Judged, judge, smallest_error
from karat.gradients.controls import Group, controls, typical
from karat.gradients.report import Comparison, GradVerdict
from karat.gradients.scales import element_scales
from karat.gradients.seen import Seen

NO_GRAD_OP = (
    "; if the op has none by nature, add an exemption of kind no-grad-op to exemptions.toml"
)
NO_GRADIENT = f"no gradient: None, where the derivative is not zero; write the backward{NO_GRAD_OP}"
NO_SECOND = "no second-order gradient: None, where the derivative of the gradient is not zero; the backward cannot be differentiated"
ZERO = "the gradient is zero everywhere it was looked"
EDGE = "the gradient is not finite, and not every slope is: the point is at the edge of the domain"
UNKNOWN = "no slope is known: near the point the function is not smooth, or not finite"


@dataclass(frozen=True, slots=True)
class Weighed:
    """A pair on its way to a verdict."""

    seen: Seen
    pair: tuple[int, int]
    groups: Sequence[Group]
    none: bool
    """Whether the framework gave no gradient at all."""

    def comparison(self) -> tuple[Comparison, bool]:
        """The comparison, and whether the derivative is zero wherever it was looked."""
        met = [one for _, some in self.groups for one in some]
        judged = judge(met)
        asked = self.seen.asked.rtol
        wide = asked is not None and asked * judged.scale > judged.widest
        widened = judge(met, rtol=asked) if wide and judged.failed else judged
        # What is out of the wider tolerance, too, is judged by the one that was derived.
        used = asked if judged.failed and not widened.failed else None
        judged = judged if used is None else widened
        verdict, reason = self._verdict(judged, widened=used is not None)
        zero = judged.zero and verdict is GradVerdict.PASS
        caught = {} if zero or not np.isfinite(judged.widest) else self._controls(used)
        missed = [name for name, noticed in caught.items() if not noticed]
        vacuous = verdict is GradVerdict.PASS and (zero or bool(missed))
        if vacuous and not zero:
            reason = f"a corrupted gradient would have passed, too ({', '.join(missed)})"
        scale = judged.scale or 1.0
        made = self.seen.comparison(
            self.pair,
            verdict,
            reason,
            error=judged.worst.deviation / scale,
            tolerance=judged.worst.tolerance / scale,
            scale=judged.scale,
            smallest_error=self._smallest(used),
            probes=len(judged.met),
            controls=caught,
            vacuous=vacuous,
            widened=asked if wide else None,
        )
        return made, zero

    def _verdict(self, judged: Judged, *, widened: bool) -> tuple[GradVerdict, str]:
        if not judged.sees or not np.isfinite(judged.widest):
            return GradVerdict.INCONCLUSIVE, UNKNOWN
        if judged.failed:
            return self._failed(judged)
        cap = tolerances.cap(self.seen.ground.computes)
        size = judged.weight if judged.zero else judged.scale
        doubt = self.seen.lost(self.pair[1])
        if not doubt and judged.widest > max(cap * size, tolerances.NOTHING) and not widened:
            doubt = self._noisy(judged)
        if doubt:
            return GradVerdict.INCONCLUSIVE, doubt
        if not judged.zero:
            return GradVerdict.PASS, self.seen.left_out(self.pair[1])
        return GradVerdict.PASS, f"{ZERO}; the framework gives None" if self.none else ZERO

    def _failed(self, judged: Judged) -> tuple[GradVerdict, str]:
        worst, atol = judged.worst, self.seen.asked.atol
        if self.none:
            return GradVerdict.FAIL, NO_GRADIENT if self.seen.asked.order == 1 else NO_SECOND
        if not np.isfinite(worst.found):
            if self.seen.masks[self.pair[1]].any():
                return GradVerdict.INCONCLUSIVE, EDGE
            return GradVerdict.FAIL, "the gradient is not finite where the derivative is"
        cap = tolerances.cap(self.seen.ground.computes)
        # Beyond the cap the error estimate is itself in doubt; what is far out of it is wrong all the same.
        if worst.tolerance > cap * judged.scale and worst.deviation < 100 * worst.tolerance:
            return GradVerdict.INCONCLUSIVE, self._noisy(judged)
        gap = (
            f"off by {worst.deviation / (judged.scale or 1.0):.2g} of its size along a probe"
            f" (expected {worst.expected.value:.6g}, found {worst.found:.6g})"
        )
        if atol is not None and worst.deviation <= atol:
            why = f"{gap}; only the absolute tolerance {atol:g} excuses it, and that proves nothing"
            return GradVerdict.INCONCLUSIVE, why
        return GradVerdict.FAIL, gap

    def _noisy(self, judged: Judged) -> str:
        computes = self.seen.ground.computes
        share = judged.widest / judged.scale if judged.scale else np.inf
        return (
            f"the expected derivative is known to {share:.1g} of its size, and {computes} needs"
            f" {tolerances.cap(computes):g}: the forward is noisy, or not smooth near the point"
        )

    def _smallest(self, rtol: float | None) -> float:
        """By the cotangent that sees most; each has its own size of gradient."""
        scales = element_scales(self.seen.ground.flat.point[self.pair[0]])
        return min(
            smallest_error(judge(met, rtol=rtol), typical(gradient, scales))
            for gradient, met in self.groups
        )

    def _controls(self, rtol: float | None) -> dict[str, bool]:
        flat, i = self.seen.ground.flat, self.pair[0]
        slot = flat.inputs[i]
        return controls(
            self.groups,
            (*slot.shape, 2) if slot.complex else slot.shape,
            element_scales(flat.point[i]),
            rtol=rtol,
            rng=self.seen.asked.draw(Purpose.CONTROLS, *self.pair),
        )
