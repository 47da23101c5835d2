"""Precision: in which one a double-precision run really computes.

A kernel may take float64 and work in float32 inside. It is found by what it does: a tiny step of the input, far
above float64's resolution and far below float32's, must move the output by as much as a larger step foretells;
and outputs that all happen to be numbers of float32 do not happen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from karat.tensors.dtypes import TABLE

if TYPE_CHECKING:
    from karat.gradients.opened import OpenedProblem
    from karat.gradients.problem import Array

TINY, SMALL, LARGE = 2.0**-30, 2.0**-17, 2.0**-6
"""Relative steps: below float32's resolution, above it, and above bfloat16's."""
_BENT = {SMALL: 0.5, LARGE: 2.0}
_QUANTUM = 2.0**-6
"""What is rounded jumps by no more than this, relatively; what jumps further does so by design."""
_EPS = float(np.finfo(np.float64).eps)


def coarseness(dtype: str) -> int:
    """How few bits the mantissa has: larger is coarser."""
    of = TABLE.get(dtype)
    return -of.layout.mantissa if of is not None and of.layout is not None else -52


def eps_of(dtype: str) -> float:
    """The distance from 1 to the next number."""
    return float(2.0 ** coarseness(dtype))


def computes(problem: OpenedProblem) -> str:
    """The precision of a double-precision run, by karat's name for the real type."""
    if not problem.double:
        return _real(problem.lowest)
    with problem.adapter.scope():
        outputs = problem.run(problem.natives(problem.point, None), None)
        named = [_real(problem.adapter.dtype_of(out)) for out in outputs]
        base = [problem.adapter.to_numpy(out) for out in outputs]
    coarsest = max(named, key=coarseness, default="float64")
    if coarsest != "float64":
        return coarsest
    return _by_steps(problem, base)


def _by_steps(problem: OpenedProblem, base: list[Array]) -> str:
    """A few more runs: no change where one was foretold means that it was rounded away."""
    try:
        tiny = _Step(problem, TINY)
        small = _Step(problem, SMALL)
        if any(_is_narrow(one) for one in tiny.ahead):
            return "float32"
        narrow = _rounded_away(base, tiny, small)
        if _mostly_differ(base, small) and not narrow:
            return "float64"
        # It rounds, perhaps more coarsely still; or hardly anything moved: that, or it is flat.
        large = _Step(problem, LARGE)
    except Exception:  # noqa: BLE001 - a point beside this one may be outside of the domain
        return "float64"
    if _mostly_differ(base, large) and _rounded_away(base, small, large):
        return "bfloat16"
    return "float32" if narrow else "float64"


class _Step:
    """The outputs a step ahead and a step back, and half of what differs: curvature is gone from that."""

    def __init__(self, problem: OpenedProblem, size: float) -> None:
        self.size = size
        self.ahead, self.back = _moved(problem, size), _moved(problem, -size)
        with np.errstate(all="ignore"):
            self.change = [np.abs(a - b) / 2 for a, b in zip(self.ahead, self.back, strict=True)]


def _mostly_differ(base: list[Array], step: _Step) -> bool:
    return any(
        np.mean(one != here) > 0.5 for one, here in zip(step.ahead, base, strict=True) if one.size
    )


def _is_narrow(output: Array) -> bool:
    """Whether no number needs more than float32's mantissa, and most need nearly all of it: that is no chance."""
    flat = output.reshape(-1)
    parts = np.concatenate([flat.real, flat.imag]) if np.iscomplexobj(flat) else flat
    with np.errstate(all="ignore"):
        parts = parts[np.isfinite(parts) & (np.abs(parts) > 1e-30) & (np.abs(parts) < 1e30)]
        if not parts.size or np.any(parts.astype(np.float32) != parts):
            return False
        mantissas = np.frexp(parts)[0] * 2.0**16
    return bool(np.mean(mantissas != np.rint(mantissas)) > 0.5)


def _moved(problem: OpenedProblem, step: float) -> tuple[Array, ...]:
    rng = np.random.default_rng(5)
    at = []
    for one in problem.point:
        sign = rng.integers(0, 2, one.shape) * 2 - 1
        at.append(one + step * sign * np.where(one == 0, 1.0, np.abs(one)))
    return problem.forward(at)


def _rounded_away(base: list[Array], near: _Step, far: _Step) -> bool:
    return any(_is_rounded(one, k, near, far) for k, one in enumerate(base))


def _is_rounded(base: Array, k: int, near: _Step, far: _Step) -> bool:
    seen, foretold = near.change[k], far.change[k] * (near.size / far.size)
    with np.errstate(all="ignore"):
        # What moves by less than float64 can show says nothing; nor do whole numbers, which are rounded on purpose.
        telling = np.isfinite(foretold) & (foretold > 256 * _EPS * np.abs(base))
        whole = (base == np.rint(base.real)) & (far.ahead[k] == np.rint(far.ahead[k].real))
        telling &= ~whole | (np.abs(base) > 1e6)
        # What bends on the way foretells nothing; rounding to bfloat16 bends a little by itself.
        bent = np.abs(far.ahead[k] + far.back[k] - 2 * base) > _BENT[far.size] * far.change[k]
        off = (np.abs(seen - foretold) > 0.25 * foretold) & (seen < _QUANTUM * np.abs(base))
        off = (off & (~bent | (seen == 0)))[telling]
    return bool(off.size and np.mean(off) > 0.5)


def _real(dtype: str) -> str:
    return {"complex128": "float64", "complex64": "float32", "complex32": "float16"}.get(
        dtype, dtype
    )
