"""`karat.gradcheck`: from a function and its inputs to a report."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import msgspec
import numpy as np

from karat.findings import UsageError, suggest
from karat.gradients import diagnosis, draws, low_precision, roundoff
from karat.gradients.adapters.framework_problem import FrameworkProblem, open_problem
from karat.gradients.deep import HIGHEST, Derivative, available, boundary, function_of, gradient_of, tangent_of
from karat.gradients.draws import CheckPlan, Purpose
from karat.gradients.examine import Pair, examine
from karat.gradients.laws import LAWS, NAMES, ON_REQUEST, check_properties, wanted_laws
from karat.gradients.oracles import baseline, same_forward, same_slopes
from karat.gradients.problem import FlatProblem, Unsupported, Vector, error_line, misuse, size, vector
from karat.gradients.references import KernelProblem, NumpyReference, open_reference
from karat.gradients.report import (
    Diagnosis,
    Excluded,
    GradComparison,
    GradReport,
    GradVerdict,
    Level,
    Mode,
    Property,
    gradient_name,
    ordinal,
)
from karat.gradients.session import GradChecked, notify, requested_seed
from karat.report.words import count, few

_MODES: tuple[Mode, ...] = ("reverse", "forward")
_LEVELS: tuple[Level, ...] = ("quick", "default", "deep")
_NUMBER = int | float | np.integer | np.floating


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
    level: Level = "default",
    order: int = 1,
    modes: Sequence[Mode] | None = None,
    properties: Sequence[str] | None = None,
    in_place: Callable[..., Any] | None = None,
    twins: Callable[..., Any] | Mapping[str, Callable[..., Any]] | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    strict: bool = False,
    cotangents: Sequence[Any] | None = None,
    nondeterminism_bound: float = 0.0,
    seed: int | None = None,
    identity: str | None = None,
    framework: str | None = None,
) -> GradReport:
    """Check a function's gradient, and report how.

    The function may be torch's, jax's, paddle's, or numpy's with a `backward(inputs, outputs, cotangents)`. The
    gradient is compared in double precision with slopes of the function itself (or of `reference`, the same function in
    float64, of the framework or of numpy), then in each of `dtypes` with the double gradient. A kernel that knows no
    double precision is compared with the reference's gradient. The cost is a few dozen forwards, whatever the size.

    An `rtol` wider than what the check derives is used and recorded; `atol` may excuse, never certify. `grads` are the
    author's own gradients: weak evidence. A double gradient that is right to about nine digits, but not to round-off, is
    INACCURATE, which fails only if `strict`. `order=2` checks the gradient's gradient, too. Reverse mode is always
    checked; "forward" in `modes` checks forward mode where the framework has one, and `modes=("forward",)` is
    inconclusive where it has none.

    `twins` are the same function in another form, compiled or jitted, by name: their outputs and gradients must agree.

    `level="quick"` checks the gradient in double precision and in reverse mode; the rest (forward mode, low precision,
    laws) only where `modes`, `dtypes` and `properties` name it. The report's `looked` says what was looked at. It is
    true for PASS and INACCURATE; `.require()` raises AssertionError with the whole report for anything else.
    """
    started = time.perf_counter()
    sizes = {"rtol": rtol, "atol": atol, "nondeterminism_bound": nondeterminism_bound}
    _refuse_wrong(level, order, modes, seed, sizes)
    if modes is None:
        modes = _MODES[:1] if level == "quick" else _MODES
    if level == "quick":
        variants = (*(("in-place",) if in_place else ()), *(("twin",) if twins else ()))
        dtypes, properties = dtypes or (), properties or variants
    others = {"twin": twins} if callable(twins) else dict(twins or {})
    for name, one in [("in_place", in_place or fn), *(("twins", one) for one in others.values())]:
        if not callable(one):
            raise _refused(name, "a function", type(one).__name__)
    problem = open_problem(
        fn,
        inputs,
        op=op,
        names=names,
        output_names=output_names,
        kwargs=kwargs,
        wrt=wrt,
        backward=backward,
        # A reference, gradients or a variant that somebody wrote are of the arguments.
        parameters=reference is None and grads is None and in_place is None and not others,
        framework=framework,
    )
    if problem.framework == "numpy" and backward is None:
        raise misuse(
            "backward: expected the gradient of a numpy function, written by hand, found none",
            "backward=f with f(inputs, outputs, cotangents) -> gradients;"
            " or framework='jax' (torch, paddle) if the function is one of theirs",
        )
    whole, seed_asked = draws.identity_of(problem, identity), requested_seed()
    seed = seed if seed_asked is None else seed_asked
    plan = CheckPlan(
        seed=draws.seed_of(whole) if seed is None else seed,
        inputs=frozenset(range(len(problem.inputs))),
        outputs=_wanted_outputs(problem, outputs),
        forward="forward" in modes,
        forward_alone="forward" in modes and "reverse" not in modes,
        rtol=rtol,
        atol=atol,
        strict=strict,
        probes=1 if level == "quick" else draws.PROBES,
        # A low precision is held against the elements of the double run.
        sums=level == "quick" and not (dtypes or cotangents or rtol),
        extra=_given_cotangents(problem, cotangents),
    )
    check = _Check(problem, plan, every=outputs is None)
    if "reverse" not in modes:
        check.notes.append("reverse mode was checked as well: it always is")
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        # Warnings at steps that karat chose are not the caller's concern.
        warnings.simplefilter("ignore")
        check.first_order(reference)
        if grads is not None:
            check.rest += _compare_with_author(FlatProblem(problem), check.plan, grads)
        check.orders(order, deep=level == "deep")
        if level == "deep" and check.derivatives:
            check.boundary()
        check.low(dtypes)
        check.laws(properties, deep=level == "deep", in_place=in_place, others=others, bound=nondeterminism_bound)
    report = check.report(whole, level, started)
    laws, known = wanted_laws(properties), check.plan.outputs | check.undifferentiable
    unasked = [slot.name for k, slot in enumerate(problem.outputs) if k not in known]
    event = GradChecked(
        report=report,
        test=identity or "",
        functions=(fn,) if backward is None else (fn, backward),
        elements={slot.name: size(slot) for slot in problem.inputs},
        unasked=(*unasked, *getattr(fn, "unasked", ())),
        nondeterminism_bound=float(nondeterminism_bound),
        untried=tuple(name for name in LAWS if name not in laws),
    )
    notify(event)
    return report


@dataclass(slots=True)
class _Check:
    """A check on its way: what has been found so far."""

    problem: FrameworkProblem
    plan: CheckPlan
    every: bool = True  # whether outputs were not selected: then those that the framework excludes are excluded
    pairs: list[Pair] = field(default_factory=list)
    rest: list[GradComparison] = field(default_factory=list)
    properties: list[Property] = field(default_factory=list)
    diagnoses: list[Diagnosis] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    derivatives: list[Derivative] = field(default_factory=list)  # at level deep: those that are right so far
    visited: tuple[str, ...] = ()  # points of the check's own choice
    undifferentiable: frozenset[int] = frozenset()
    kernel: KernelProblem | None = None  # the problem with its reference, where it knows no double precision
    verified: list[Pair] = field(default_factory=list)  # what lower precisions are held against

    def first_order(self, reference: Callable[..., Any] | None) -> None:
        source = None if reference is None else open_reference(self.problem, reference)
        if source is not None and self.problem.computes != "float64":
            self._of_kernel(source)
            return
        found = examine(self.problem, self.plan, source)
        wrong = [one for one in found.pairs if one.comparison.verdict is GradVerdict.FAIL]
        none = {one.output for one in wrong if one.gradient is None}
        if none and self.every and len(self.plan.outputs) > 1:
            with self.problem.adapter.scope():
                graph = self.problem.linearise(self.problem.natives(self.problem.point, None)).graph
            self.undifferentiable = frozenset(k for k in none if k < len(graph) and graph[k].grad_fn is None)
            if self.undifferentiable and self.plan.outputs - self.undifferentiable:
                self.plan = replace(self.plan, outputs=self.plan.outputs - self.undifferentiable)
                found = examine(self.problem, self.plan, source)
        self.pairs, self.notes = found.pairs, [*self.notes, *found.notes]
        self.verified = [one for one in self.pairs if one.comparison.mode == "reverse"]
        if source is not None:
            ours = found.here.flat.base()
            self.properties.append(same_forward(ours, found.here.base))
            probes = {one.input: (one.baseline or found.here, one.probes[0]) for one in found.pairs if one.probes}
            self.properties += same_slopes(probes)
        self._diagnose(self.problem, self.plan, found.pairs)

    def _of_kernel(self, reference: FrameworkProblem) -> None:
        """The reference in place of a double run: its own gradient is checked, its forward is compared."""
        self.kernel, plan = KernelProblem(self.problem, reference), replace(self.plan, forward=False, extra=())
        if not isinstance(reference, NumpyReference):
            found = examine(reference, plan, None)
            self.verified = found.pairs
            self.notes += [f"reference: {note}" for note in found.notes]
        else:
            at = baseline(FlatProblem(reference))
            for i, k in product(sorted(plan.inputs), sorted(plan.outputs)):
                made = GradComparison(
                    input=reference.inputs[i].name,
                    output=reference.outputs[k].name,
                    dtype="float64",
                    verdict=GradVerdict.PASS,
                    oracle="reference",
                )
                self.verified.append(Pair(i, k, made, gradient=at.flat.point[i], baseline=at))
        self.properties.append(low_precision.reference_forward(self.kernel, plan, self.problem.computes))

    def _diagnose(self, problem: FrameworkProblem, plan: CheckPlan, pairs: Sequence[Pair]) -> None:
        done = {(one.input, one.output) for one in self.diagnoses}
        for pair in pairs:
            one = pair.comparison
            fresh = one.verdict is GradVerdict.FAIL and (one.input, one.output) not in done
            if fresh and len(self.diagnoses) < diagnosis.MOST:
                self.diagnoses.append(diagnosis.diagnosis_of(problem, plan, pair))
                done.add((one.input, one.output))

    def orders(self, order: int, *, deep: bool) -> None:
        """The gradient's gradient and so on; if deep, the modes composed as well."""
        highest = max(order, 3) if deep else order
        failed = {one.comparison.mode for one in self.pairs if one.comparison.verdict is GradVerdict.FAIL}
        if highest > 1 and self.pairs and all(one.zero and one.comparison.counts for one in self.pairs):
            self.notes.append("higher orders were not checked: the function is flat, and they are zero")
            return
        if "reverse" in failed and highest > 1:
            self.notes.append("higher orders were not checked: the first order is wrong")
            return
        plan = replace(self.plan, forward=self.plan.forward and "forward" not in failed)
        made = first = function_of(self.problem, plan)
        ready = available(first)[0] if deep else None
        self.derivatives = [] if ready is None else [ready.checked(self.pairs)]
        for n in range(2, highest + 1):
            try:
                made = gradient_of(made, forward=deep and n == 2)
            except Exception as error:  # noqa: BLE001 - frameworks refuse in many ways
                if n > order:
                    self.notes.append(f"order {n} was not looked at: {error_line(error)}")
                    break
                verdict = GradVerdict.INCONCLUSIVE if isinstance(error, Unsupported) else GradVerdict.FAIL
                self.rest += [
                    GradComparison(
                        input=name,
                        output=f"grad{n - 1 if n > 2 else ''}({name})",
                        dtype=self.problem.computes,
                        order=n,
                        verdict=verdict,
                        reason=f"no {ordinal(n)}-order gradient: {error_line(error)}",
                        oracle="differences",
                    )
                    for name in (self.problem.inputs[i].name for i in sorted(self.plan.inputs))
                ]
                break
            if not self._derivative(made, asked=n <= order):
                break
        if deep and plan.forward:
            try:
                made = tangent_of(first)
            except Exception as error:  # noqa: BLE001 - as above
                self.notes.append(f"forward mode was not composed: {error_line(error)}")
            else:
                self._derivative(made, asked=False)

    def _derivative(self, made: Derivative, *, asked: bool) -> bool:
        """Check a derivative like any function; whether it may be differentiated once more."""
        order = made.plan.order
        if not asked:
            found, notes = available(made)
            self.notes += notes
            if found is None:
                return False
            made = found
        seen = examine(made.problem, made.plan, None)
        self.notes += [f"{ordinal(order)} order: {note}" for note in seen.notes]
        # Where an input does not matter, its gradient is all rounding, of which nothing can be told, nor need be.
        flat = {one.comparison.input for one in self.pairs if one.zero and one.comparison.counts}
        nothing = flat | {f"grad({name})" for name in flat}
        alive = []
        for pair in seen.pairs:
            of = pair.comparison
            idle = of.verdict is GradVerdict.INCONCLUSIVE and nothing & {of.input, of.output}
            alive += [] if pair.zero or of.mode not in made.modes or idle else [pair]
        self._diagnose(made.problem, made.plan, alive)
        self.problem.forwards += made.problem.forwards
        self.problem.backwards += made.problem.backwards
        compared = [msgspec.structs.replace(one.comparison, mode=made.modes[one.comparison.mode]) for one in alive]
        if not any(one.input < made.own for one in alive):
            self.notes.append(f"the {ordinal(order)} derivative is zero everywhere it was checked")
        kept = [one for one in compared if asked or one.counts or one.verdict is GradVerdict.FAIL]
        self.rest += kept
        self.notes += [f"not judged: {gradient_name(one)}: {one.reason}" for one in compared if one not in kept]
        right = not any(one.verdict is GradVerdict.FAIL for one in compared)
        self.derivatives += [made.checked(alive)] if right and order == 2 else []
        return right

    def boundary(self) -> None:
        """Points that the check chooses itself: only what is wrong there is reported."""
        asked: dict[str, bool] = {}
        for where, made, wrong in boundary.visit(self.derivatives):
            asked[where] = asked.get(where, False) or wrong is not None
            if wrong:
                self._diagnose(made.problem, made.plan, wrong)
                told = [one.comparison for one in wrong]
                self.rest += [msgspec.structs.replace(one, mode=made.modes[one.mode]) for one in told]
        self.visited = tuple(where for where, answered in asked.items() if answered)

    def low(self, dtypes: Sequence[str] | None) -> None:
        """Lower precisions, unless the double gradient is wrong: then there is nothing to compare with."""
        names = low_precision.wanted_precisions(self.problem, dtypes)
        problem: FrameworkProblem = self.problem
        if self.kernel is not None:
            problem, names = self.kernel, tuple(dict.fromkeys([self.problem.computes, *names]))
        wrong = next((one.comparison for one in self.verified if one.comparison.verdict is GradVerdict.FAIL), None)
        if names and wrong is not None:
            whose = "double gradient" if self.kernel is None else f"reference's own gradient ({wrong.reason})"
            self.notes.append(f"{', '.join(names)} not checked: the {whose} is wrong")
            return
        pairs = {(one.comparison.input, one.comparison.output): one for one in self.verified}
        for name in names:
            compared = low_precision.compare_precision(problem, self.plan, name, pairs)
            judged = {(one.input, one.output) for one, _ in compared}
            alive = (key for key, one in pairs.items() if not one.zero and one.gradient is not None)
            lost = [" → ".join(key) for key in alive if key not in judged]
            if lost and roundoff.coarseness(name) > roundoff.coarseness(problem.computes):
                self.notes.append(f"not judged in {name}, where nothing but rounding is left of it: {few(lost, 4)}")
            for comparison, cotangent in compared:
                self.rest.append(comparison)
                if comparison.verdict is GradVerdict.FAIL and len(self.diagnoses) < diagnosis.MOST:
                    pair = replace(pairs[comparison.input, comparison.output], comparison=comparison)
                    self.diagnoses.append(diagnosis.diagnosis_of(problem, self.plan, pair, cotangent))

    def laws(self, which: Sequence[str] | None, *, deep: bool, bound: float, **variants: Any) -> None:
        if which is not None and not which:
            return
        if which is None:
            left = (set() if deep else ON_REQUEST) | (set() if self.plan.forward else {"forward-reverse"})
            which = [name for name in NAMES if name not in left]
        rng = self.plan.draw(Purpose.PROPERTIES)
        self.properties += check_properties(
            self.problem, rng=rng, nondeterminism_bound=bound, which=which, strict=self.plan.strict, **variants
        )

    def report(self, identity: str, level: Level, started: float) -> GradReport:
        problem, comparisons = self.problem, (*(one.comparison for one in self.pairs), *self.rest)
        verdict, reason = GradReport.verdict_of(comparisons, self.properties)
        why = dict.fromkeys(self.undifferentiable, f"{problem.framework} declares it non-differentiable")
        left = [(k, slot.name) for k, slot in enumerate(problem.outputs) if k not in self.plan.outputs]
        left_out = [Excluded(name=name, why=why.get(k, "not asked for")) for k, name in left]
        # In the order in which it was looked at; what nothing could be asked of is not in it.
        order = {one.order: f" of order {one.order}" if one.order > 1 else "" for one in comparisons}
        looked = [f"{one.mode} mode{order[one.order]} in {one.dtype}" for one in comparisons if not one.at]
        looked += [count(len(self.properties), "law")] if self.properties else []
        return GradReport(
            op=problem.op,
            framework=problem.framework,
            device=problem.device,
            seed=self.plan.seed,
            identity=identity,
            verdict=verdict,
            reason=reason,
            comparisons=comparisons,
            properties=tuple(self.properties),
            diagnoses=tuple(self.diagnoses),
            excluded=(*problem.excluded, *left_out),
            notes=(*problem.notes, *self.notes),
            level=level,
            looked=(*dict.fromkeys(looked), *self.visited),
            forwards=problem.forwards,
            backwards=problem.backwards,
            seconds=time.perf_counter() - started,
        )


def _refuse_wrong(level: Any, order: Any, modes: Any, seed: Any, sizes: Mapping[str, Any]) -> None:
    if level not in _LEVELS:
        raise _refused("level", ", ".join(_LEVELS), repr(level), suggest(str(level), _LEVELS))
    if order not in range(1, HIGHEST + 1):
        raise _refused("order", f"1 to {HIGHEST}", repr(order))
    for mode in [modes] if isinstance(modes, str) else modes or ():
        if mode not in _MODES:
            raise _refused("modes", "reverse or forward", repr(mode), suggest(str(mode), _MODES))
    if seed is not None and not (isinstance(seed, int | np.integer) and seed >= 0):
        raise _refused("seed", "a non-negative integer", repr(seed))
    for name, value in sizes.items():
        if value is not None and not (isinstance(value, _NUMBER) and 0 <= value < np.inf):
            raise _refused(name, "a non-negative number", repr(value))


def _refused(what: str, expected: str, found: str, hint: str = "") -> UsageError:
    help_command = "python -c 'import karat; help(karat.gradcheck)'"
    return misuse(f"{what}: expected {expected}, found {found}{hint}", help_command)


def _wanted_outputs(problem: FrameworkProblem, outputs: Any) -> frozenset[int]:
    known = [slot.name for slot in problem.outputs]
    if outputs is None:
        return frozenset(range(len(known)))
    names = list(outputs) if isinstance(outputs, list | tuple | set | frozenset) else [outputs]
    for name in names:
        if name not in known:
            raise _refused("outputs", f"one of {', '.join(known)}", repr(name), suggest(str(name), known))
    return frozenset(known.index(name) for name in names)


def _given_cotangents(problem: FrameworkProblem, cotangents: Sequence[Any] | None) -> list[Vector | None]:
    """The caller's own cotangents, one per output or None."""
    slots = problem.outputs
    if cotangents is None:
        return []
    if len(cotangents) != len(slots):
        raise _refused("cotangents", f"one for each of {len(slots)} outputs", f"{len(cotangents)}")
    found: list[Vector | None] = []
    for one, slot in zip(cotangents, slots, strict=True):
        array = np.zeros(slot.shape) if one is None else np.asarray(one)
        if array.shape != slot.shape:
            raise _refused("cotangents", f"shape {slot.shape} for {slot.name}", f"{array.shape}")
        given = vector(array.astype(np.complex128 if slot.complex else np.float64))
        found.append(None if one is None else given)
        if not np.isfinite(given).all():
            raise _refused("cotangents", f"finite numbers for {slot.name}", "infinity or NaN")
    return found


def _compare_with_author(flat: FlatProblem, plan: CheckPlan, grads: Any) -> list[GradComparison]:
    """Each input's gradient against the author's: weak evidence, as nothing checked that one.

    They are taken for those of the given cotangents; without, of the mean loss, as Paddle's tests have it: the mean over
    outputs of their means.
    """
    given: list[Vector | None] = list(plan.extra) or [None] * len(flat.outputs)
    for k in plan.outputs if not plan.extra else ():
        slot = flat.outputs[k]
        width = 2 if slot.complex else 1
        given[k] = mean = np.zeros(size(slot))
        mean[::width] = 1.0 / (max(1, size(slot) // width) * len(plan.outputs))
    try:
        found = flat.vjp(given)
    except Exception:  # noqa: BLE001 - the double run has reported it already
        return []
    made = []
    for i, theirs in _author_gradients(flat, plan, grads):
        # In bfloat16 an author's gradients may be further off than what certifies.
        both = flat.problem.computes, flat.inputs[i].dtype
        cap = max(max(roundoff.cap(one), 4 * roundoff.unit(one)) for one in both)
        tolerance, ours = max(cap, plan.rtol or 0.0), found[i]
        scale = float(np.max(np.abs(theirs), initial=0.0))
        error = float(np.max(np.abs(theirs if ours is None else ours - theirs), initial=0.0)) / (scale or 1.0)
        fine = error <= tolerance
        made += [
            GradComparison(
                input=flat.inputs[i].name,
                output=flat.outputs[k].name,
                dtype=flat.problem.computes,
                order=plan.order,
                verdict=GradVerdict.PASS if fine else GradVerdict.FAIL,
                reason="" if fine else f"differs from the given gradient by {error:.2g} of its size",
                oracle="user",
                strength="weak",
                error=error,
                tolerance=tolerance,
                scale=scale,
                smallest_error=tolerance,
                probes=1,
                widened=plan.rtol if tolerance > cap else None,
            )
            for k in sorted(plan.outputs)
        ]
    return made


def _author_gradients(flat: FlatProblem, plan: CheckPlan, grads: Any) -> Iterator[tuple[int, Vector]]:
    """The author's gradient of each input that has one."""
    listed = list(grads) if isinstance(grads, list | tuple) else [grads]
    if len(listed) != len(plan.inputs):
        said = f"grads: expected a gradient for each of {len(plan.inputs)} inputs, found {len(listed)}"
        raise misuse(said, "grads=(…) in the order of the inputs, None for those without")
    for one, i in zip(listed, sorted(plan.inputs), strict=True):
        slot, array = flat.inputs[i], np.asarray(one)
        if one is not None and array.shape != slot.shape:
            # As many elements in another order would be compared with those of other places.
            turned = ", which is transposed" if array.shape == slot.shape[::-1] else ""
            said = f"grads: expected shape {slot.shape} for {slot.name}, found {array.shape}{turned}"
            raise misuse(said, "grads=(…) with the shapes of the inputs")
        if one is not None:
            yield i, vector(array.astype(np.complex128) if slot.complex else array)
