"""Asking: `gradcheck`'s arguments, refused where they mean nothing."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from karat.findings import UsageError, suggest
from karat.gradients import diagnosis, draws, low_precision, oracles as references, roundoff
from karat.gradients.adapters.framework_problem import OpenedProblem, open_problem
from karat.gradients.draws import Asked, Purpose, mixed
from karat.gradients.examine import Examined, Pair, examined
from karat.gradients.laws import NAMES, check_properties
from karat.gradients.problem import (
    Flat,
    FlattenedArray as Array,
    Problem,
    Slot,
    Unsupported,
    Vector,
    shaped,
    size,
    vector,
)
from karat.gradients.report import (
    Comparison,
    Diagnosis,
    Excluded,
    GradReport,
    GradVerdict,
    Mode,
    Property,
    verdict_of,
)
from karat.gradients.session import Checked, Focus, overrides, tell

_HELP = "python -c 'import karat; help(karat.gradcheck)'"
_MODES = ("reverse", "forward")
_WHOLE = int | np.integer
_NUMBER = int | float | np.integer | np.floating


def refused(what: str, expected: str, found: str, hint: str = "") -> UsageError:
    """An argument that is not what it should be."""
    return UsageError(
        f"gradcheck: {what}: expected {expected}, found {found}{hint}", next_command=_HELP
    )


def refuse(*, order: Any, modes: Any, seed: Any, sizes: Mapping[str, Any]) -> None:
    """Raise for what no check can be made of."""
    if order not in {1, 2}:
        raise refused("order", "1 or 2", repr(order))
    for mode in [modes] if isinstance(modes, str) else modes:
        if mode not in _MODES:
            raise refused("modes", "reverse or forward", repr(mode), suggest(str(mode), _MODES))
    if seed is not None and not (isinstance(seed, _WHOLE) and seed >= 0):
        raise refused("seed", "a whole number that is not negative", repr(seed))
    for name, value in sizes.items():
        if value is not None and not (isinstance(value, _NUMBER) and 0 <= value < np.inf):
            raise refused(name, "a number that is not negative", repr(value))
    if sizes["delta"] == 0:
        raise refused("delta", "a step that goes somewhere", "0")


def refuse_without_backward(framework: str, backward: object) -> None:
    """Raise for numpy functions whose gradient nobody wrote: there is nothing that could be right or wrong."""
    if framework == "numpy" and backward is None:
        raise UsageError(
            "gradcheck: backward: expected the gradient of a numpy function, written by hand, found none",
            next_command="backward=f with f(inputs, outputs, cotangents) -> gradients;"
            " or framework='jax' (torch, paddle) if the function is one of theirs",
        )


def wanted(slots: Sequence[Slot], outputs: Any) -> frozenset[int]:
    """Which outputs are looked at, by name."""
    if outputs is None:
        return frozenset(range(len(slots)))
    known = [slot.name for slot in slots]
    names = list(outputs) if isinstance(outputs, list | tuple | set | frozenset) else [outputs]
    for name in names:
        if name not in known:
            hint = suggest(str(name), known)
            raise refused("outputs", f"one of {', '.join(known)}", repr(name), hint)
    return frozenset(known.index(name) for name in names)


def vectors(cotangents: Sequence[Any] | None, slots: Sequence[Slot]) -> list[Vector | None]:
    """The caller's own cotangents, one per output or None."""
    if cotangents is None:
        return []
    if len(cotangents) != len(slots):
        expected = f"one for each of {len(slots)} outputs"
        raise refused("cotangents", expected, f"{len(cotangents)}")
    return [
        None if one is None else _fitting(np.asarray(one), slot)
        for one, slot in zip(cotangents, slots, strict=True)
    ]


def _fitting(array: Array, slot: Slot) -> Vector:
    if array.shape != slot.shape:
        raise refused("cotangents", f"shape {slot.shape} for {slot.name}", f"{array.shape}")
    found = vector(array.astype(np.complex128 if slot.complex else np.float64))
    if not np.isfinite(found).all():
        raise refused("cotangents", f"finite numbers for {slot.name}", "infinity or NaN")
    return found


# DOC-HERE user_gradients: User gradients: what the author of a test says the gradient is; weak evidence, for nobody checked it.


def compare(flat: Flat, asked: Asked, grads: Any) -> list[Comparison]:
    """Each input's gradient against the author's.

    A function is asked for a drawn cotangent; arrays are taken for those of the mean loss, as the original has it:
    the mean over outputs of their means.
    """
    wanted = sorted(asked.outputs)
    given = _cotangents(flat, asked, mean=not callable(grads))
    try:
        found = flat.vjp(given)
    except Exception:  # noqa: BLE001 - the double leg has said so already
        return []
    expected = _expected(flat, asked, grads, given)
    return [
        _comparison(flat, asked, i, k, found[i], theirs)
        for i, theirs in zip(sorted(asked.inputs), expected, strict=True)
        if theirs is not None
        for k in wanted
    ]


def _cotangents(flat: Flat, asked: Asked, *, mean: bool) -> list[Vector | None]:
    given: list[Vector | None] = []
    for k, slot in enumerate(flat.outputs):
        if k not in asked.outputs:
            given.append(None)
        elif mean:
            width = 2 if slot.complex else 1
            one = np.zeros(size(slot))
            one[::width] = 1.0 / (max(1, size(slot) // width) * len(asked.outputs))
            given.append(one)
        else:
            given.append(mixed(size(slot), asked.draw(Purpose.COTANGENTS, k, 1)))
    return given


def _expected(
    flat: Flat, asked: Asked, grads: Any, given: Sequence[Vector | None]
) -> list[Vector | None]:
    if callable(grads):
        cotangents = tuple(
            None if one is None else shaped(one, slot)
            for one, slot in zip(given, flat.outputs, strict=True)
        )
        point = tuple(shaped(one, slot) for one, slot in zip(flat.point, flat.inputs, strict=True))
        grads = grads(point, cotangents)
    listed = list(grads) if isinstance(grads, list | tuple) else [grads]
    wanted = sorted(asked.inputs)
    if len(listed) != len(wanted):
        raise UsageError(
            f"gradcheck: grads: expected a gradient for each of {len(wanted)} inputs, found {len(listed)}",
            next_command="grads=(…) in the order of the inputs, None for those without",
        )
    return [_fitting_user_gradients(one, flat, i) for one, i in zip(listed, wanted, strict=True)]


def _fitting_user_gradients(one: Any, flat: Flat, i: int) -> Vector | None:
    if one is None:
        return None
    slot, array = flat.inputs[i], np.asarray(one)
    if array.shape != slot.shape:
        # As many elements in another order would be compared with those of other places.
        turned = ", which is transposed" if array.shape == slot.shape[::-1] else ""
        raise UsageError(
            f"gradcheck: grads: expected shape {slot.shape} for {slot.name}, found {array.shape}{turned}",
            next_command="grads=(…) with the shapes of the inputs",
        )
    return vector(array.astype(np.complex128) if slot.complex else array)


def _comparison(
    flat: Flat, asked: Asked, i: int, k: int, found: Vector | None, theirs: Vector
) -> Comparison:
    computes = flat.problem.computes
    scale = float(np.max(np.abs(theirs), initial=0.0))
    tolerance = max(roundoff.cap(computes), asked.rtol or 0.0)
    gap = float(np.max(np.abs((0.0 if found is None else found) - theirs), initial=0.0))
    error = gap / scale if scale else gap
    fine = error <= tolerance
    return Comparison(
        input=flat.inputs[i].name,
        output=flat.outputs[k].name,
        dtype=computes,
        order=asked.order,
        verdict=GradVerdict.PASS if fine else GradVerdict.FAIL,
        reason="" if fine else f"differs from the given gradient by {error:.2g} of its size",
        oracle="user",
        strength="weak",
        error=error,
        tolerance=tolerance,
        scale=scale,
        smallest_error=tolerance,
        probes=1,
        widened=asked.rtol if tolerance > roundoff.cap(computes) else None,
    )


# DOC-HERE checking: Checking: `karat.gradcheck`, from a function and its inputs to a report.


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
    refuse(order=order, modes=modes, seed=seed, sizes=sizes)
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
    refuse_without_backward(problem.framework, backward)
    whole = draws.identity_of(problem, identity)
    asked = Asked(
        seed=_seed(seed, whole),
        inputs=frozenset(range(len(problem.inputs))),
        outputs=wanted(problem.outputs, outputs),
        forward="forward" in modes,
        forward_alone="forward" in modes and "reverse" not in modes,
        rtol=rtol,
        atol=atol,
        delta=delta,
        extra=vectors(cotangents, problem.outputs),
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
            if one.verdict is not GradVerdict.FAIL or len(self.diagnoses) >= diagnosis.MOST:
                continue
            if (one.input, one.output) not in done:
                self.diagnoses.append(diagnosis.diagnosis_of(problem, asked, pair))
                done.add((one.input, one.output))

    def weak(self, grads: Any) -> None:
        self.rest += compare(Flat(self.problem), self.asked, grads)

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
        names = low_precision.wanted(self.problem, dtypes)
        if self.focus is not None:
            names = tuple(one for one in names if one == self.focus.dtype)
        reverse = [one for one in self.pairs if one.comparison.mode == "reverse"]
        if names and any(one.comparison.verdict is GradVerdict.FAIL for one in reverse):
            self.notes.append(f"{', '.join(names)} not looked at: the double gradient is wrong")
            return
        for name in names:
            for comparison, cotangent in low_precision.compare(
                self.problem, self.asked, name, reverse
            ):
                self.rest.append(comparison)
                if comparison.verdict is GradVerdict.FAIL:
                    self._diagnose_low(comparison, cotangent, reverse)

    def _diagnose_low(
        self, comparison: Comparison, cotangent: Array | None, pairs: Sequence[Pair]
    ) -> None:
        if len(self.diagnoses) >= diagnosis.MOST:
            return
        which = (comparison.input, comparison.output)
        pair = next(one for one in pairs if (one.comparison.input, one.comparison.output) == which)
        failed = replace(pair, comparison=comparison)
        self.diagnoses.append(diagnosis.diagnosis_of(self.problem, self.asked, failed, cotangent))

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
    return draws.seed_of(identity) if given is None else given


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
