"""Laws about form: what gradients look like, memory layouts of inputs, and forward mode against reverse mode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from karat.gradients.problem import Unsupported
from karat.gradients.properties_ground import MARGIN, Ground, apart, size_of, where
from karat.gradients.report import GradVerdict, Property

if TYPE_CHECKING:
    from karat.gradients.problem import Array

_MOST_INPUTS = 4


def gradient_form(ground: Ground) -> Property | None:
    """A gradient has the shape, the dtype and the place of its input."""
    native = ground.native
    if native is None:
        return None
    adapter = native.adapter
    with adapter.scope():
        inputs = native.natives(native.point, None)
        ran = native.linearise(inputs)
        found = native.pull(ran, native.native_cotangents(ran, ground.cotangents))
        for slot, one, like in zip(native.inputs, found, inputs, strict=True):
            if one is None or not adapter.owns(one):
                continue
            for what, have, want in (
                ("shape", adapter.shape_of(one), adapter.shape_of(like)),
                ("dtype", adapter.dtype_of(one), adapter.dtype_of(like)),
                ("device", adapter.device_of(one), adapter.device_of(like)),
            ):
                if have != want:
                    return ground.property(
                        "gradient-form",
                        GradVerdict.FAIL,
                        f"gradient of {slot.name}: expected {what} {want}, as the input has, found {have}",
                    )
    return ground.property("gradient-form", GradVerdict.PASS)


def finite(ground: Ground) -> Property | None:
    """Where the outputs are finite the gradient is no NaN; an infinite one may be right."""
    problem = ground.problem
    if all(one is None or np.isfinite(one).all() for one in ground.gradients):
        return ground.property("finite", GradVerdict.PASS)
    if not all(np.isfinite(out).all() for out in problem.forward(problem.point)):
        return None
    for slot, one in zip(problem.inputs, ground.gradients, strict=True):
        if one is not None and np.isnan(one).any():
            at = tuple(int(n) for n in np.argwhere(np.isnan(one))[0])
            return ground.property(
                "finite",
                GradVerdict.FAIL,
                f"gradient of {slot.name}{list(at)}: expected a number, as the outputs are finite, found NaN",
            )
    return ground.property(
        "finite", GradVerdict.INCONCLUSIVE, "a gradient is infinite where the outputs are finite"
    )


def strided_inputs(ground: Ground) -> Property | None:
    """Inputs with gaps in their memory are the same inputs. A function may refuse them, but aloud."""
    native = ground.native
    if native is None:
        return None
    adapter = native.adapter
    with adapter.scope():
        plain = native.natives(native.point, None)
        gapped = [adapter.strided(one) for one in plain]
        if all(one is None for one in gapped):
            return None
        odd = [one if gap is None else gap for one, gap in zip(plain, gapped, strict=True)]
        try:
            outputs = [adapter.to_numpy(out) for out in native.run(odd, None)]
        except Exception:  # noqa: BLE001 - a refusal is no wrong answer
            return None
        expected = native.forward(native.point)
        told = _outputs_differ(ground, outputs, expected)
        if told is not None:
            return told
        try:
            ran = native.linearise(odd)
            given = native.native_cotangents(ran, ground.cotangents)
            found = native.arrays(native.pull(ran, given))
        except Exception as error:  # noqa: BLE001 - a backward may raise anything
            first = (str(error).strip().splitlines() or [""])[0][:200]
            return ground.property(
                "strided-inputs",
                GradVerdict.FAIL,
                f"the forward takes inputs with gaps in memory, the backward does not: {type(error).__name__}: {first}",
            )
    return ground.equal(
        "strided-inputs",
        found,
        ground.gradients,
        "for inputs with gaps in memory",
        recomputed=True,
    )


def _outputs_differ(
    ground: Ground, found: list[Array], expected: tuple[Array, ...]
) -> Property | None:
    problem = ground.problem
    step = ground.eps * 2.0**12
    moved = [one + step * ground.signs(one) * np.abs(one) for one in problem.point]
    trembling = [
        apart(one, usual) * 2.0**-12
        for one, usual in zip(problem.forward(moved), expected, strict=True)
    ]
    count = sum(one.size for one in (*problem.point, *expected))
    for slot, one, usual, shaken in zip(problem.outputs, found, expected, trembling, strict=True):
        bound = MARGIN * (ground.eps * size_of(usual) * float(np.sqrt(count)) + shaken)
        off = apart(one, usual) if one.shape == usual.shape else float("inf")
        if off > bound:
            told = where(slot.name, one, usual) if one.shape == usual.shape else "another shape"
            return ground.property(
                "strided-inputs",
                GradVerdict.FAIL,
                f"for inputs with gaps in memory: output {told.removeprefix('gradient of ')}",
                off,
                bound,
            )
    return None


def subset(ground: Ground) -> Property | None:
    """The gradient of one input alone is the one computed along with the others'."""
    native = ground.native
    if native is None or native.backward is not None or len(native.inputs) < 2:
        return None
    found: list[Any] = list(ground.gradients)
    for chosen in range(min(len(native.inputs), _MOST_INPUTS)):
        wanted = [n == chosen for n in range(len(native.inputs))]
        with native.adapter.scope():
            ran = native.linearise(native.natives(native.point, None), wanted=wanted)
            alone = native.pull(ran, native.native_cotangents(ran, ground.cotangents))
            found[chosen] = native.arrays(alone, [native.inputs[chosen]])[0]
    return ground.equal("subset", found, ground.gradients, "asked for alone")


def forward_reverse(ground: Ground) -> Property | None:
    """⟨J·u, v⟩ by forward mode is ⟨u, Jᵀv⟩ by reverse mode."""
    problem = ground.problem
    along = [ground.normal(one.shape, is_complex=np.iscomplexobj(one)) for one in problem.point]
    try:
        pushed = problem.jvp(problem.point, along)
    except Unsupported:
        return None
    forward = [_products(one, v) for one, v in zip(pushed, ground.cotangents, strict=True)]
    reverse = [
        _products(u, g) for u, g in zip(along, ground.gradients, strict=True) if g is not None
    ]
    terms = np.concatenate([np.zeros(1), *forward, *reverse])
    if not np.isfinite(terms).all():
        return None
    left, right = (float(sum(np.sum(one) for one in side)) for side in (forward, reverse))
    # Both sides are sums: what their terms may be off by adds up, and so does what the gradient trembles by.
    shaken = sum(
        tremor * float(np.sum(np.abs(u))) for tremor, u in zip(ground.trembling, along, strict=True)
    )
    bound = MARGIN * (ground.eps * float(np.sum(np.abs(terms))) + shaken) + sum(
        noise * float(np.sum(np.abs(u))) for noise, u in zip(ground.noise, along, strict=True)
    )
    failed = abs(left - right) > bound
    return ground.property(
        "forward-reverse",
        GradVerdict.FAIL if failed else GradVerdict.PASS,
        f"expected the same from both modes, found ⟨J·u, v⟩ = {left:.9g} and ⟨u, Jᵀv⟩ = {right:.9g}"
        if failed
        else "",
        abs(left - right),
        bound,
    )


def _products(one: Array, other: Array) -> Array:
    """The terms of Re⟨one, other⟩."""
    return np.asarray((np.conj(one) * other).real, np.float64).reshape(-1)
