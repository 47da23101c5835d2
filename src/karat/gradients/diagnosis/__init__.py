"""Diagnosis: where a wrong gradient is wrong, and what it looks like."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np

from karat.gradients import roundoff, session, slopes
from karat.gradients.comparison import expectation
from karat.gradients.diagnosis.cause import diagnose
from karat.gradients.diagnosis.experiments import KnownSlope
from karat.gradients.draws import CheckPlan, Purpose
from karat.gradients.examine import Pair
from karat.gradients.oracles import ForwardBaseline, Probe, slopes_along
from karat.gradients.problem import Array, Problem, Vector, shaped, vector
from karat.gradients.report import Diagnosis
from karat.gradients.roundoff import element_scales

MOST = 4  # diagnoses per report: one cause fails many pairs
MOST_FORWARDS = 110  # per diagnosis: after these no more questions are asked; what is under way is brought to its end
_AGREED = 1e-6  # the relative error up to which four forwards are believed; a kink between their steps is far above it


def diagnosis_of(problem: Problem, plan: CheckPlan, pair: Pair, cotangent: Array | None = None) -> Diagnosis:
    """What is wrong with a failed pair.

    A cotangent is given for a low precision, which was compared with its own.
    """
    at, failed, given = pair.baseline, pair.comparison, cotangent
    replay = session.replay_command(seed=plan.seed, focus=failed)
    if given is None and pair.cotangent is not None:
        given = shaped(pair.cotangent, problem.outputs[pair.output])
    hint = ""
    if at is not None and given is not None:
        oracle, slot = _PairOracle(at, pair, vector(given)), problem.inputs[pair.input]
        probes, there = [] if cotangent is not None else pair.probes, problem
        here = [vector(one) for one in problem.point]
        if not all(np.array_equal(a, b, equal_nan=True) for a, b in zip(here, at.flat.point, strict=True)):
            # The problem where the pair was compared.
            there = copy.copy(problem)
            there.point = tuple(shaped(one, slot) for one, slot in zip(at.flat.point, problem.inputs, strict=True))
        try:
            return diagnose(
                there,
                failed,
                cotangent=given,
                gradient=None if pair.gradient is None else shaped(pair.gradient, slot),
                oracle=oracle.along,
                rng=plan.draw(Purpose.DIAGNOSIS, pair.input, pair.output),
                replay=replay,
                given=[KnownSlope(one.direction, *oracle.of_probe(one)) for one in probes],
                # Complex steps cost less than a central difference.
                rough=None if failed.oracle == "complex-step" else oracle.roughly,
                most_forwards=MOST_FORWARDS,
            )
        except Exception as error:  # noqa: BLE001 - a function that is wrong may also raise; the failure stands
            hint = f"the search for it ended in {type(error).__name__}: {str(error)[:200]}"
    return Diagnosis(input=failed.input, output=failed.output, dtype=failed.dtype, hint=hint, replay=replay)


@dataclass(frozen=True, slots=True)
class _PairOracle:
    """⟨v, J·u⟩ of a failed pair along any direction, for its cotangent v."""

    at: ForwardBaseline
    pair: Pair
    cotangent: Vector

    def along(self, direction: Array) -> tuple[float, float]:
        """The slope along a direction, and how far it may be off."""
        u, reach = self._natural(direction)
        if not reach:
            return 0.0, 0.0
        value, error = self._slope(u)
        return value / reach, error / reach

    def roughly(self, direction: Array) -> float:
        """The slope by one central difference alone."""
        u, reach = self._natural(direction)
        return self._central(self._step**2, u) / reach if reach else 0.0

    def of_probe(self, probe: Probe) -> tuple[float, float]:
        """What a probe of the check says of the pair."""
        known = np.isfinite(probe.slopes[self.pair.output].error) | (self.cotangent == 0)
        v, base = np.where(known, self.cotangent, 0.0), self.at.base[self.pair.output]
        made = expectation(probe, self.pair.output, v, base)
        return made.value, made.error if known.all() else np.inf

    def _natural(self, direction: Array) -> tuple[Vector, float]:
        """The direction, as long as the largest of its steps is natural for its element; and by how much it was stretched."""
        u, scales = vector(direction), element_scales(self.at.flat.point[self.pair.input])
        moved = (u != 0) & (scales > 0)
        reach = float(np.min(scales[moved] / np.abs(u[moved]))) if moved.any() else 0.0
        return reach * np.where(moved, u, 0.0), reach

    @property
    def _step(self) -> float:
        """Where the truncation and the round-off of a central difference are about equal, extrapolated once."""
        return float(2.0 ** round(np.log2(roundoff.unit(self.at.precision)) / 6))

    def _central(self, step: float, direction: Vector) -> float:
        pair, v = self.pair, self.cotangent
        ends = [self.at.source.moved(pair.input, sign * step * direction) for sign in (1.0, -1.0)]
        change = (ends[0][pair.output] - ends[1][pair.output])[v != 0]
        return float(np.sum(v[v != 0] * change)) / (2 * step)

    def _slope(self, direction: Vector) -> tuple[float, float]:
        at, index = self.at, self.pair.input
        found = None
        if self.pair.comparison.oracle == "complex-step":
            found = slopes.complex_slopes(at.source, index, direction, at.base, at.precision)
        if found is None:
            # Four forwards, if they agree far better than what failed; else the whole ladder is needed.
            step, v = self._step, self.cotangent
            coarse, fine = (self._central(one, direction) for one in (step, step / 2))
            value = (4 * fine - coarse) / 3
            noise = roundoff.norm(v * np.where(v != 0, self.at.noise[self.pair.output], 0.0))
            error = abs(value - fine) / 16 + 4 * noise / step
            gradient = 0.0 if self.pair.gradient is None else self.pair.gradient
            size = max(abs(value), roundoff.norm((gradient * direction)[direction != 0]))
            if error <= min(_AGREED, self.pair.comparison.error / 64) * size and np.isfinite(error):
                return value, error
            found = slopes_along(at, index, direction)
        return self.of_probe(Probe(direction, found, at.oracle, sees_kinks=True))
