"""Points: the given one first; where it says too little, a few nearby."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np

from karat.gradients import kinks
from karat.gradients.asked import Asked, Purpose
from karat.gradients.examining import Pair, examine
from karat.gradients.flattened import Flat, Vector
from karat.gradients.oracles import Ground, ground
from karat.gradients.problem import Problem
from karat.gradients.reference import ReferenceFlat
from karat.gradients.report import GradVerdict

_ZERO_ATTEMPTS = 1
"""A derivative that is zero here may be zero by chance (x² at 0); one more look tells that from floor(x)."""


@dataclass(frozen=True, slots=True)
class Examined:
    """All pairs, each at the point that said most."""

    pairs: list[Pair]
    here: Ground
    """The given point."""
    notes: tuple[str, ...]


def examined(problem: Problem, asked: Asked, reference: Callable[..., Any] | None) -> Examined:
    """Every pair, at the given point or one nearby."""
    here = _ground(problem, asked, reference, None)
    pairs = examine(here, asked)
    moved = 0
    for attempt in range(kinks.ATTEMPTS):
        if not any(_says_too_little(one, attempt) for one in pairs):
            break
        again = _again(problem, asked.at_attempt(attempt + 1), reference, here.flat.point)
        settled = [_settled(one, again, attempt) for one in pairs]
        moved += sum(new is not old for new, old in zip(settled, pairs, strict=True))
        pairs = settled
    notes = (
        f"{moved} comparisons were made at a point nearby, where the given one says too little",
    )
    return Examined(_without_doubles(pairs), here, notes if moved else ())


def _ground(
    problem: Problem,
    asked: Asked,
    reference: Callable[..., Any] | None,
    at: Sequence[Vector] | None,
) -> Ground:
    flat = Flat(problem, at)
    source = None if reference is None else ReferenceFlat(problem, reference, at)  # type: ignore[arg-type]
    return ground(flat, source, delta=asked.delta)


def _again(
    problem: Problem,
    asked: Asked,
    reference: Callable[..., Any] | None,
    point: Sequence[Vector],
) -> dict[tuple[int, int, str], Pair]:
    at = kinks.nearby(point, asked.attempt - 1, asked.draw(Purpose.NEARBY))
    try:
        there = _ground(problem, asked, reference, at)
    except Exception:  # noqa: BLE001 - a point of our own choice may be outside the domain
        return {}
    if not all(np.isfinite(one).all() for one in there.base):
        return {}
    return {one.key: one for one in examine(there, asked)}


def _says_too_little(pair: Pair, attempt: int) -> bool:
    comparison = pair.comparison
    if comparison.verdict is GradVerdict.FAIL:
        return False
    if comparison.counts:
        # Elements that were left out here are looked at once elsewhere.
        return pair.masked and attempt == 0
    return pair.masked or (pair.zero and attempt < _ZERO_ATTEMPTS)


def _settled(old: Pair, again: dict[tuple[int, int, str], Pair], attempt: int) -> Pair:
    new = again.get(old.key)
    if new is None or not _says_too_little(old, attempt):
        return old
    wrong = new.comparison.verdict is GradVerdict.FAIL
    if old.comparison.counts and not wrong:
        return old
    if not (new.comparison.counts or wrong):
        return old
    kept = max(old.comparison.kinks, new.comparison.kinks)
    return replace(new, comparison=msgspec.structs.replace(new.comparison, kinks=kept))


def _without_doubles(pairs: list[Pair]) -> list[Pair]:
    """Pairs that do not depend on each other are no evidence; they are listed only for inputs that have no other."""
    alive = {one.input for one in pairs if not one.zero}
    return [one for one in pairs if not one.zero or one.input not in alive]
