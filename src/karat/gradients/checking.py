"""Checking: `karat.gradcheck`, from a function and its inputs to a report."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from karat.findings import UsageError, suggest
from karat.gradients import kinks, seeds
from karat.gradients.events import Checked, tell
from karat.gradients.examining import Asked, Pair, examine
from karat.gradients.flattened import Flat, Vector, vector
from karat.gradients.opening import open_problem
from karat.gradients.oracles import ground
from karat.gradients.problem import Problem
from karat.gradients.replaying import overrides
from karat.gradients.report import Comparison, Excluded, GradReport, GradVerdict, Mode
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
    """Whether a function's gradient is right, with the evidence."""
    started = time.perf_counter()
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
    whole = seeds.identity_of(problem, identity)
    if seed is None:
        seed = overrides().seed
    seed = seeds.seed_of(whole) if seed is None else seed
    rng = seeds.generator(seed)
    asked = Asked(
        rng=rng,
        rtol=rtol,
        atol=atol,
        inputs=frozenset(range(len(problem.inputs))),
        outputs=_wanted(problem, outputs),
        extra=_vectors(cotangents),
    )
    pairs, notes = _pairs(problem, asked, delta)
    comparisons = tuple(one.comparison for one in pairs)
    verdict, reason = verdict_of(comparisons, ())
    report = GradReport(
        op=problem.op,
        framework=problem.framework,
        device=problem.device,
        seed=seed,
        identity=whole,
        verdict=verdict,
        reason=reason,
        comparisons=comparisons,
        excluded=_excluded(problem),
        notes=(*problem.notes, *notes),
        forwards=problem.forwards,
        backwards=problem.backwards,
        seconds=time.perf_counter() - started,
    )
    tell(Checked(report=report, test=identity or ""))
    return report


def _wanted(problem: Problem, outputs: Sequence[str] | str | None) -> frozenset[int]:
    if outputs is None:
        return frozenset(range(len(problem.outputs)))
    known = [slot.name for slot in problem.outputs]
    wanted = [outputs] if isinstance(outputs, str) else outputs
    for name in wanted:
        if name not in known:
            raise UsageError(
                f"outputs: expected one of {', '.join(known)}, found {name!r}{suggest(name, known)}",
                next_command="python -c 'import karat; help(karat.gradcheck)'",
            )
    return frozenset(known.index(name) for name in wanted)


def _vectors(cotangents: Sequence[Any] | None) -> list[Vector | None]:
    return [None if one is None else vector(np.asarray(one)) for one in cotangents or ()]


def _excluded(problem: Problem) -> tuple[Excluded, ...]:
    found: tuple[Excluded, ...] = getattr(problem, "excluded", ())
    return found


def _pairs(problem: Problem, asked: Asked, delta: float | None) -> tuple[list[Pair], list[str]]:
    """The pairs at the given point; at points nearby where it says too little."""
    flat = Flat(problem)
    pairs = examine(ground(flat, problem.computes, delta=delta), asked)
    notes: list[str] = []
    for attempt in range(kinks.ATTEMPTS):
        pending = [one for one in pairs if _says_too_little(one)]
        if not pending:
            break
        moved = Flat(problem, kinks.nearby(flat.point, attempt, asked.rng))
        there = ground(moved, problem.computes, delta=delta)
        if not all(np.isfinite(one).all() for one in there.base):
            continue
        again = {(one.input, one.output): one for one in examine(there, asked)}
        pairs = [
            _settled(one, again[one.input, one.output]) if one in pending else one for one in pairs
        ]
    return pairs, notes


def _says_too_little(pair: Pair) -> bool:
    comparison = pair.comparison
    if comparison.verdict is GradVerdict.FAIL:
        return False
    return not comparison.counts and (pair.masked > 0 or pair.zero)


def _settled(old: Pair, new: Pair) -> Pair:
    better: Comparison = new.comparison
    return new if better.counts or better.verdict is GradVerdict.FAIL else old
