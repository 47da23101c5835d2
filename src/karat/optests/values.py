"""What an op test writes into `inputs` and `outputs`, read into slots of named arrays.

A slot holds an array, an array with its sequence lengths (`(array, lod)`), or a list of named arrays
(`[("x0", array), …]`), as in Paddle. uint16 stands for bfloat16, the upper half of a float32; cutting off the lower half
is what test files expect of the conversions here: their expected values were made by them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from karat.findings import UsageError

Array = np.ndarray[Any, np.dtype[Any]]


def copy_bits_from_float_to_uint16(f: float) -> int:
    """The upper 16 bits of a float32."""
    return int(convert_float_to_uint16(np.float32(f)))


def convert_float_to_uint16(float_list: Any, data_format: str = "NCHW") -> Array:  # noqa: ARG001 - Paddle's signature; where an element lies does not change it
    """Floats as bfloat16 bits, cut off rather than rounded."""
    narrow = np.asarray(float_list, dtype=np.float32)
    bits = np.ascontiguousarray(narrow).view(np.uint32) >> np.uint32(16)
    return bits.astype(np.uint16).reshape(narrow.shape)


def convert_uint16_to_float(in_list: Any) -> Array:
    """bfloat16 bits as float32, exactly."""
    bits = np.asarray(in_list, dtype=np.uint16)
    wide = np.ascontiguousarray(bits).astype(np.uint32) << np.uint32(16)
    return wide.view(np.float32).reshape(bits.shape)


class NamedArray(msgspec.Struct, frozen=True, kw_only=True):
    """One named array of a slot."""

    name: str
    array: Array  # with bfloat16 widened to float32, exactly
    dtype: str  # by karat's names

    @property
    def differentiable(self) -> bool:
        """Whether it may have a gradient: floats and complex numbers."""
        return self.array.dtype.kind in "fc" or self.dtype.startswith(("float", "bfloat"))


class ArraySlot(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of `inputs` or `outputs`."""

    name: str
    members: tuple[NamedArray, ...]
    listed: bool = False  # it was written as a list, so the function gets one


def read_slots(values: Any, where: str) -> tuple[ArraySlot, ...]:
    """Every slot that is there; None stands for one that is left out."""
    if not isinstance(values, Mapping):
        text = f"{where}: expected a dict of arrays, found {type(values).__name__}"
        raise UsageError(text, next_command="write self.inputs = {'X': array} in setUp")
    found = []
    for name, value in values.items():
        if value is None:
            continue
        named = value if isinstance(value, list) and value else None
        if named and all(isinstance(one, np.ndarray) for one in named):
            named = [(f"{name}.{n}", one) for n, one in enumerate(named)]
        if named and all(isinstance(one, (tuple, list)) and len(one) == 2 and isinstance(one[0], str) for one in named):
            inside = tuple(read_array(inner, one, where) for inner, one in named)
            found.append(ArraySlot(name=name, members=inside, listed=True))
        else:
            found.append(ArraySlot(name=name, members=(read_array(name, value, where),)))
    slots = tuple(found)
    names = Counter(one.name for one in members(slots))
    for name in (one for one, times in names.items() if times > 1):
        raise UsageError(
            f"{where}: expected names that differ, found {name!r} {names[name]} times",
            next_command="give each array of a list a name of its own: [('x0', array), ('x1', array)]",
        )
    return slots


def in_double(slots: tuple[ArraySlot, ...]) -> tuple[ArraySlot, ...]:
    """The same with low precision as float64."""

    def wide(one: NamedArray) -> NamedArray:
        return replace(one, array=one.array.astype(np.float64), dtype="float64") if is_low(one.dtype) else one

    return tuple(replace(slot, members=tuple(map(wide, slot.members))) for slot in slots)


def is_low(dtype: str) -> bool:
    """Whether it is a float of less than 32 bits."""
    return dtype.startswith(("float16", "bfloat16", "float8"))


def members(slots: tuple[ArraySlot, ...]) -> Iterator[NamedArray]:
    for slot in slots:
        yield from slot.members


def read_array(name: str, value: Any, where: str) -> NamedArray:
    """One array, by its name; an error says where it was written."""
    # Of an array and its sequence lengths, the array: ops that take the others cannot be called as a function.
    pair = isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], list)
    held = value[0] if pair else value
    array: Array | None = None  # rows of different lengths and several unnamed arrays are none
    if not (isinstance(held, tuple) and any(isinstance(one, np.ndarray) for one in held)):
        with suppress(ValueError):
            array = np.asarray(held)
    if array is None or array.dtype.kind not in "biufcV":
        found = "" if array is None else f" ({array.dtype})"
        text = f"{where}[{name!r}]: expected an array of numbers, found {type(held).__name__}{found}"
        raise UsageError(text, next_command="give a numpy array, (array, lod) or [(name, array), …]")
    if array.dtype == np.uint16:
        return NamedArray(name=name, array=convert_uint16_to_float(array), dtype="bfloat16")
    if array.dtype.kind == "V":  # ml_dtypes' small floats, which numpy does not count as numbers
        return NamedArray(name=name, array=array.astype(np.float32), dtype=str(array.dtype))
    return NamedArray(name=name, array=array, dtype=str(array.dtype))
