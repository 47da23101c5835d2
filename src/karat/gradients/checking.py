"""Checking: `karat.gradcheck`, from a function and its inputs to a report."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from karat.gradients import (
    asking,
    diagnosing,
    lower,
    reference as references,
    seeds,
    user_gradients,
)
from karat.gradients.asked import Asked, Purpose
from karat.gradients.directions import mixed
from karat.gradients.events import Checked, tell
from karat.gradients.examining import Pair
from karat.gradients.flattened import Array, Flat, shaped, size
from karat.gradients.opened import OpenedProblem
from karat.gradients.opening import open_problem
from karat.gradients.points import Examined, examined
from karat.gradients.problem import Problem, Slot, Unsupported
from karat.gradients.properties import NAMES, check_properties
from karat.gradients.replaying import Focus, overrides
from karat.gradients.report import (
    Comparison,
    Diagnosis,
    Excluded,
    GradReport,
    GradVerdict,
    Mode,
    Property,
)
from karat.gradients.verdicts import verdict_of


def gradcheck(  # noqa: PLR0913 - all but two are optional, and each is a word of its own
    fn: Callable[..., Any],
    inputs: Any,
    *,
    op: str | None = None,
    names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    wrt: Sequence[str | int] | str | int | None = None,
    outputs: Sequence[str] | str | None = None,
    backward: Callable[..., Any] | None = None,
    reference: Callable[..., Any] | None = None,
    grads: Any = None,
    dtypes: Sequence[str] | None = None,
    order: int = 1,
    modes: Sequence[Mode] = ("reverse", "forward"),
    properties: Sequence[str] | None = None,
    in_place: Callable[..., Any] | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    delta: float | None = None,
    cotangents: Sequence[Any] | None = None,
    nondeterminism_bound: float = 0.0,
    seed: int | None = None,
    identity: str | None = None,
    framework: str | None = None,
) -> GradReport:
    """Whether a function's gradient is right, and what that was tried by.

    The function may be torch's, jax's, paddle's, or numpy's with a `backward(inputs, outputs, cotangents)`. The
    gradient is compared in double precision with slopes of the function itself (or of `reference`, a float64 numpy
    twin), then in each of `dtypes` with the double gradient. The cost is a few dozen forwards, whatever the size.

    `rtol` wider than what the check derives is used and recorded; `atol` may excuse, never certify. `grads` are the
    author's own gradients: weak evidence. `order=2` checks the gradient's gradient, too. Reverse mode is always
    checked; `modes` says whether forward mode is, too: beside "reverse" where there is one, and without it must be one,
    or the check is inconclusive. What comes back is true for PASS alone; `.require()` raises the whole story for
    anything else.
    """
    started = time.perf_counter()
    sizes = {"rtol": rtol, "atol": atol, "delta": delta}
    sizes["nondeterminism_bound"] = nondeterminism_bound
    asking.refuse(order=order, modes=modes, seed=seed, sizes=sizes)
    problem = open_problem(
        fn,
        inputs,
        op=op,
        names=names,
        output_names=output_names,
        kwargs=kwargs,
        wrt=wrt,
        backward=backward,
        framework=framework,
    )
    asking.refuse_without_backward(problem.framework, backward)
    whole = seeds.identity_of(problem, identity)
    asked = Asked(
        seed=_seed(seed, whole),
        inputs=frozenset(range(len(problem.inputs))),
        outputs=asking.wanted(problem.outputs, outputs),
        forward="forward" in modes,
        forward_alone="forward" in modes and "reverse" not in modes,
        rtol=rtol,
        atol=atol,
        delta=delta,
        extra=asking.vectors(cotangents, problem.outputs),
    )
    check = _Check(problem, asked, overrides().focus)
    if "reverse" not in modes:
        check.notes.append("reverse mode was checked, too: it always is")
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        # What a function says at steps that karat chose is not its caller's concern.
        warnings.simplefilter("ignore")
        check.first_order(reference)
        if grads is not None:
            check.weak(grads)
        if order == 2:
            check.second_order()
        check.low(dtypes)
        check.laws(properties, in_place=in_place, bound=nondeterminism_bound)
    report = check.report(whole, started)
    tell(Checked(report=report, test=identity or ""))
    return report


@dataclass(slots=True)
class _Check:
    """A check on its way: what has been found so far."""

    problem: OpenedProblem
    asked: Asked
    focus: Focus | None
    pairs: list[Pair] = field(default_factory=list)
    rest: list[Comparison] = field(default_factory=list)
    properties: list[Property] = field(default_factory=list)
    diagnoses: list[Diagnosis] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.focus is None:
            return
        inputs = _named(self.problem.inputs, self.focus.input)
        outputs = _named(self.problem.outputs, self.focus.output) & self.asked.outputs
        if inputs and (outputs or self.focus.output.startswith("grad(")):
            self.asked = replace(self.asked, inputs=inputs, outputs=outputs or self.asked.outputs)
            self.notes.append(f"focus: {self.focus}; the rest was not looked at")
        else:
            self.focus = None

    def first_order(self, reference: Callable[..., Any] | None) -> None:
        found = examined(self.problem, self.asked, reference)
        self.pairs = found.pairs
        self.notes += found.notes
        if reference is not None:
            self._same_forward(found)
        self._diagnose(self.problem, self.asked, found.pairs)

    def _same_forward(self, found: Examined) -> None:
        flat = found.here.flat
        ours = flat.base()
        self.properties.append(
            references.same_forward(ours, found.here.base, self.problem.computes)
        )

    def _diagnose(self, problem: Problem, asked: Asked, pairs: Sequence[Pair]) -> None:
        done = {(one.input, one.output) for one in self.diagnoses}
        for pair in pairs:
            one = pair.comparison
            if one.verdict is not GradVerdict.FAIL or len(self.diagnoses) >= diagnosing.MOST:
                continue
            if (one.input, one.output) not in done:
                self.diagnoses.append(diagnosing.diagnosis_of(problem, asked, pair))
                done.add((one.input, one.output))

    def weak(self, grads: Any) -> None:
        self.rest += user_gradients.compare(Flat(self.problem), self.asked, grads)

    def second_order(self) -> None:
        """The gradient for one drawn cotangent, checked like any function."""
        if any(one.comparison.verdict is GradVerdict.FAIL for one in self.pairs):
            self.notes.append("second order was not looked at: the first is wrong")
            return
        given: list[Array | None] = [
            shaped(mixed(size(slot), self.asked.draw(Purpose.SECOND_ORDER, k)), slot)
            if k in self.asked.outputs
            else None
            for k, slot in enumerate(self.problem.outputs)
        ]
        try:
            problem = self.problem.gradient_problem(given)
        except Exception as error:  # noqa: BLE001 - frameworks refuse in many ways
            self._no_second_order(error)
            return
        asked = replace(
            self.asked,
            order=2,
            forward=False,
            forward_alone=False,
            extra=(),
            outputs=_all(problem.inputs),
        )
        found = examined(problem, asked, None)
        self.notes += [f"second order: {note}" for note in found.notes]
        self._diagnose(problem, asked, found.pairs)
        self._count(problem)
        alive = [one.comparison for one in found.pairs if not one.zero]
        if not alive:
            self.notes.append("the second derivative is zero everywhere it was looked")
        self.rest += alive

    def _count(self, other: OpenedProblem) -> None:
        self.problem.forwards += other.forwards
        self.problem.backwards += other.backwards

    def _no_second_order(self, error: Exception) -> None:
        missing = isinstance(error, Unsupported)
        line = (str(error).strip().splitlines() or [""])[0][:300]
        for i in sorted(self.asked.inputs):
            slot = self.problem.inputs[i]
            self.rest.append(
                Comparison(
                    input=slot.name,
                    output=f"grad({slot.name})",
                    dtype=self.problem.computes,
                    order=2,
                    verdict=GradVerdict.INCONCLUSIVE if missing else GradVerdict.FAIL,
                    reason=f"no second-order gradient: {type(error).__name__}: {line}",
                    oracle="differences",
                    error=np.inf,
                    tolerance=0.0,
                    scale=0.0,
                    smallest_error=np.inf,
                )
            )

    def low(self, dtypes: Sequence[str] | None) -> None:
        """Lower precisions, unless the double gradient is wrong: then there is nothing to compare with."""
        names = lower.wanted(self.problem, dtypes)
        if self.focus is not None:
            names = tuple(one for one in names if one == self.focus.dtype)
        reverse = [one for one in self.pairs if one.comparison.mode == "reverse"]
        if names and any(one.comparison.verdict is GradVerdict.FAIL for one in reverse):
            self.notes.append(f"{', '.join(names)} not looked at: the double gradient is wrong")
            return
        for name in names:
            for comparison, cotangent in lower.compare(self.problem, self.asked, name, reverse):
                self.rest.append(comparison)
                if comparison.verdict is GradVerdict.FAIL:
                    self._diagnose_low(comparison, cotangent, reverse)

    def _diagnose_low(
        self, comparison: Comparison, cotangent: Array | None, pairs: Sequence[Pair]
    ) -> None:
        if len(self.diagnoses) >= diagnosing.MOST:
            return
        which = (comparison.input, comparison.output)
        pair = next(one for one in pairs if (one.comparison.input, one.comparison.output) == which)
        failed = replace(pair, comparison=comparison)
        self.diagnoses.append(diagnosing.diagnosis_of(self.problem, self.asked, failed, cotangent))

    def laws(
        self,
        which: Sequence[str] | None,
        *,
        in_place: Callable[..., Any] | None,
        bound: float,
    ) -> None:
        if (which is not None and not which) or self.focus is not None:
            return
        if which is None and not self.asked.forward:
            which = [name for name in NAMES if name != "forward-reverse"]
        self.properties += check_properties(
            self.problem,
            rng=self.asked.draw(Purpose.PROPERTIES),
            nondeterminism_bound=bound,
            in_place=in_place,
            which=which,
        )

    def report(self, identity: str, started: float) -> GradReport:
        comparisons = (*(one.comparison for one in self.pairs), *self.rest)
        verdict, reason = verdict_of(comparisons, self.properties)
        problem = self.problem
        return GradReport(
            op=problem.op,
            framework=problem.framework,
            device=problem.device,
            seed=self.asked.seed,
            identity=identity,
            verdict=verdict,
            reason=reason,
            comparisons=comparisons,
            properties=tuple(self.properties),
            diagnoses=tuple(self.diagnoses),
            excluded=(*problem.excluded, *_not_asked(problem, self.asked)),
            notes=(*problem.notes, *self.notes),
            forwards=problem.forwards,
            backwards=problem.backwards,
            seconds=time.perf_counter() - started,
        )


def _seed(given: int | None, identity: str) -> int:
    override = overrides().seed
    if override is not None:
        return override
    return seeds.seed_of(identity) if given is None else given


def _all(slots: Sequence[Slot]) -> frozenset[int]:
    return frozenset(range(len(slots)))


def _named(slots: Sequence[Slot], name: str) -> frozenset[int]:
    return frozenset(index for index, slot in enumerate(slots) if slot.name == name)


def _not_asked(problem: Problem, asked: Asked) -> list[Excluded]:
    return [
        Excluded(name=slot.name, why="not asked for")
        for k, slot in enumerate(problem.outputs)
        if k not in asked.outputs
    ]
