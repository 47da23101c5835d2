"""Seen: what the probes of one point know, and which output elements they leave open."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from karat.gradients.asked import Asked, Purpose
from karat.gradients.cotangents import Mask
from karat.gradients.differences import Slopes, unresolved
from karat.gradients.oracles import Ground, Probe, probes, shift, weakest
from karat.gradients.report import Comparison, GradVerdict, Mode

_COMPLEX = {"float64": "complex128", "float32": "complex64"}


@dataclass(frozen=True, slots=True)
class Seen:
    """All that the probes of one point know."""

    ground: Ground
    asked: Asked
    probes: list[list[Probe]]
    """Per input; none for those that were not asked for or hold nothing."""
    masks: list[Mask]
    """Per output, elements that the main comparison leaves out: no slope, or two."""
    kinks: list[Mask]
    """Per output, elements that have two slopes."""
    shift: tuple[float, list[Slopes]] | None = None
    """Where there are kinks: the slopes when all inputs move together (see `oracles.shift`)."""

    def slopes(self, output: int) -> list[Slopes]:
        """Of one output, along every direction of every input."""
        return [one.slopes[output] for of_input in self.probes for one in of_input]

    def lost(self, output: int) -> str:
        """What is to be said of an output that is not finite; nothing for others."""
        count = int(np.sum(~np.isfinite(self.ground.base[output])))
        places = "1 place" if count == 1 else f"{count:,} places"
        return f"the forward itself is infinite or NaN in {places}" if count else ""

    def left_out(self, output: int) -> str:
        """What is to be said where an output has elements without any known slope."""
        count = int(np.sum(self.masks[output] & ~self.kinks[output]))
        elements = "1 output element was" if count == 1 else f"{count:,} output elements were"
        return f"{elements} left out: no slope is known there" if count else ""

    def comparison(
        self,
        pair: tuple[int, int],
        verdict: GradVerdict,
        reason: str,
        *,
        mode: Mode = "reverse",
        **more: Any,
    ) -> Comparison:
        """A comparison of one input and one output, with what is the same for all."""
        flat = self.ground.flat
        i, k = pair
        computes = self.ground.computes
        fields = {"error": np.inf, "tolerance": 0.0, "scale": 0.0, "smallest_error": np.inf, **more}
        return Comparison(
            input=flat.inputs[i].name,
            output=flat.outputs[k].name,
            dtype=_COMPLEX.get(computes, computes) if flat.inputs[i].complex else computes,
            mode=mode,
            order=self.asked.order,
            verdict=verdict,
            reason=reason,
            oracle=weakest(self.probes[i]) if self.probes[i] else self.ground.oracle,
            **fields,
        )


def look(ground: Ground, asked: Asked) -> Seen:
    """Every probe's slopes, and what they leave open."""
    found = [
        probes(ground, index, asked.draw(Purpose.DIRECTIONS, index), whole=asked.order == 1)
        if index in asked.inputs and point.size
        else []
        for index, point in enumerate(ground.flat.point)
    ]
    seen = Seen(ground, asked, found, [], [])
    for k, base in enumerate(ground.base):
        unknown = ~np.isfinite(base)
        kink = np.zeros(base.size, np.bool_)
        for probe in (one for of_input in found for one in of_input):
            slopes = probe.slopes[k]
            kink |= slopes.kinked
            # What complex steps leave open at a kink is known from differences.
            excused = kink if not probe.sees_kinks else np.False_
            unknown |= unresolved(slopes, base, ground.precision) & ~excused
        seen.masks.append(unknown | kink)
        seen.kinks.append(kink & ~unknown)
    if any(one.any() for one in seen.kinks):
        return replace(seen, shift=shift(ground))
    return seen
