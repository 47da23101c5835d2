"""Laws about cotangents: a backward is linear in them, whatever memory they lie in, and leaves them alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from karat.gradients.problem import Unsupported
from karat.gradients.properties_ground import Ground, apart, where
from karat.gradients.report import GradVerdict, Property

_MOST_OUTPUTS = 4


def zero_cotangent(ground: Ground) -> Property:
    """A zero cotangent gives a zero gradient, not NaN."""
    problem = ground.problem
    zeros = [np.zeros_like(one) for one in ground.cotangents]
    for slot, found, usual in zip(
        problem.inputs, problem.vjp(problem.point, zeros), ground.gradients, strict=True
    ):
        if found is None:
            continue
        # Where the derivative itself is infinite, zero times it is nobody's mistake.
        looked = found if usual is None else np.where(np.isfinite(usual), found, 0.0)
        if np.any(looked != 0):
            told = where(slot.name, looked, np.zeros_like(looked))
            return ground.property(
                "zero-cotangent",
                GradVerdict.FAIL,
                f"the cotangent is zero: {told}",
                apart(looked, np.zeros_like(looked)),
                0.0,
            )
    return ground.property("zero-cotangent", GradVerdict.PASS, measured=0.0, bound=0.0)


def linearity(ground: Ground) -> Property:
    """The gradient for a·v + b·w is a times that for v plus b times that for w."""
    problem, first = ground.problem, ground.gradients
    others = ground.draw()
    second = problem.vjp(problem.point, others)
    # Neither a power of two nor of one sign: a factor that is lost or squared shows.
    a, b = 1.37, -0.61
    mixed = [a * v + b * w for v, w in zip(ground.cotangents, others, strict=True)]
    found = problem.vjp(problem.point, mixed)
    expected = [
        None
        if g is None and h is None
        else a * (0.0 if g is None else g) + b * (0.0 if h is None else h)
        for g, h in zip(first, second, strict=True)
    ]
    return ground.equal(
        "linearity",
        found,
        [None if one is None else np.asarray(one) for one in expected],
        f"for {a}·v {b}·w",
        sizes=(first, second),
    )


def absent_cotangent(ground: Ground) -> Property | None:
    """An output that takes no part in the loss is one whose cotangent is zero."""
    problem = ground.problem
    if len(problem.outputs) < 2:
        return None
    last: Property | None = None
    for chosen in range(min(len(problem.outputs), _MOST_OUTPUTS)):
        absent = [one if n == chosen else None for n, one in enumerate(ground.cotangents)]
        zeros = [
            one if n == chosen else np.zeros_like(one) for n, one in enumerate(ground.cotangents)
        ]
        last = ground.equal(
            "absent-cotangent",
            problem.vjp(problem.point, absent),
            problem.vjp(problem.point, zeros),
            f"with {problem.outputs[chosen].name} alone in the loss",
            sizes=(ground.gradients,),
        )
        if last.verdict is not GradVerdict.PASS:
            break
    return last


def strided_cotangent(ground: Ground) -> Property | None:
    """A cotangent with gaps in its memory is the same cotangent."""
    return _laid_out(ground, "strided-cotangent", "cotangents with gaps in memory", _strided)


def expanded_cotangent(ground: Ground) -> Property | None:
    """A cotangent of one number over all elements (stride 0), as a sum has it, is an ordinary one."""
    return _laid_out(ground, "expanded-cotangent", "expanded cotangents (stride 0)", _expanded)


def _strided(ground: Ground, tensor: Any) -> tuple[Any, Any] | None:
    native = ground.native
    made = None if native is None else native.adapter.strided(tensor)
    return None if made is None else (made, tensor)


def _expanded(ground: Ground, tensor: Any) -> tuple[Any, Any] | None:
    native = ground.native
    made = None if native is None else native.adapter.expanded(tensor)
    if native is None or made is None:
        return None
    dense = native.adapter.from_numpy(
        native.adapter.to_numpy(made), native.adapter.dtype_of(tensor), tensor
    )
    return made, dense


def _laid_out(
    ground: Ground,
    name: str,
    what: str,
    lay: Callable[[Ground, Any], tuple[Any, Any] | None],
) -> Property | None:
    native = ground.native
    if native is None:
        return None
    with native.adapter.scope():
        ran = native.linearise(native.natives(native.point, None))
        given = native.native_cotangents(ran, ground.cotangents)
        pairs = [lay(ground, one) for one in given]
        if all(pair is None for pair in pairs):
            return None
        odd = [one if pair is None else pair[0] for one, pair in zip(given, pairs, strict=True)]
        plain = [one if pair is None else pair[1] for one, pair in zip(given, pairs, strict=True)]
        try:
            found = native.arrays(native.pull(ran, odd))
        except Unsupported:
            return None
        except Exception as error:  # noqa: BLE001 - a backward may raise anything
            return ground.property(name, GradVerdict.FAIL, f"{what}: {_told(error)}")
        again = native.linearise(native.natives(native.point, None))
        expected = native.arrays(native.pull(again, plain))
    return ground.equal(name, found, expected, what, sizes=(ground.gradients,))


def cotangents_unmodified(ground: Ground) -> Property | None:
    """A backward does not write to its cotangent, which others may still need."""
    native = ground.native
    if native is None:
        return None
    with native.adapter.scope():
        ran = native.linearise(native.natives(native.point, None))
        given = native.native_cotangents(ran, ground.cotangents)
        before = [native.adapter.to_numpy(one) for one in given]
        native.pull(ran, given)
        after = [native.adapter.to_numpy(one) for one in given]
    return unmodified(
        ground, "cotangents-unmodified", [slot.name for slot in native.outputs], before, after
    )


def unmodified(
    ground: Ground,
    name: str,
    labels: Sequence[str],
    before: Sequence[Any],
    after: Sequence[Any],
) -> Property:
    """Whether arrays are, bit for bit, what they were."""
    for label, old, new in zip(labels, before, after, strict=True):
        if not np.array_equal(old, new, equal_nan=True):
            return ground.property(
                name,
                GradVerdict.FAIL,
                f"{label} was written to: {where(label, new, old).partition(': ')[2]}",
                apart(new, old),
                0.0,
            )
    return ground.property(name, GradVerdict.PASS, measured=0.0, bound=0.0)


def _told(error: Exception) -> str:
    first = str(error).strip().splitlines()
    return f"{type(error).__name__}: {first[0][:200]}" if first else type(error).__name__
