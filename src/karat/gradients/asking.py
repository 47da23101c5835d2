"""Asking: `gradcheck`'s arguments, refused where they mean nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from karat.findings import UsageError, suggest
from karat.gradients.flattened import Array, Vector, vector
from karat.gradients.problem import Slot

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
