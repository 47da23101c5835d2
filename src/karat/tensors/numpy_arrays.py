"""numpy arrays and scalars as `Tensor`, and back: every dtype numpy has, and those ml_dtypes adds."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from karat.tensors.dtypes import TABLE, Field, UnknownDtype, dtype_named, field_size, fields_of
from karat.tensors.tensor import CannotStore, Tensor, layout_of


def tensor_of_numpy(value: NDArray[Any] | np.generic, device: str = "cpu") -> Tensor:
    if not isinstance(value, np.generic) and type(value) not in {np.ndarray, np.memmap}:
        kind = type(value)
        why = "a mask, units or methods" if kind is not np.ma.MaskedArray else "its mask"
        raise CannotStore(
            f"expected a plain numpy array, found {kind.__module__}.{kind.__qualname__}, and {why} would be"
            " lost; pass numpy.asarray(value), or the parts it is made of"
        )
    array = np.asarray(value)
    name = name_of(array.dtype)
    # Of a whole array; the fields of a structured dtype keep their order, and its name says it.
    swapped = array.dtype.names is None and array.dtype.newbyteorder("<") != array.dtype
    flat = np.ascontiguousarray(array).reshape(-1)
    bits = np.empty(0, np.uint8)
    if array.dtype.itemsize:
        bits = (flat.byteswap() if swapped else flat).view(np.uint8)
    mask = _meaning(array.dtype, name)
    if mask is not None and bits.size:
        # Bits that mean nothing are zero, so that equal values have equal digests.
        rows = bits.reshape(-1, mask.size)
        bits = (rows & mask).reshape(-1) if (rows & ~mask).any() else bits
    size, strides = array.dtype.itemsize, None
    if size and not array.flags.c_contiguous and not any(stride % size for stride in array.strides):
        strides = layout_of(array.shape, [stride // size for stride in array.strides])
    return Tensor(
        dtype=name,
        shape=array.shape,
        data=bits.data,
        strides=strides,
        framework="numpy-scalar" if isinstance(value, np.generic) else "numpy",
        big_endian=swapped,
        device=device,
    )


@lru_cache(256)
def name_of(dtype: np.dtype[Any]) -> str:
    if dtype.hasobject:
        raise CannotStore(
            f"expected an array of numbers, times or fixed-width text, found the dtype {dtype!s}, whose"
            " elements are objects; pass numbers, or a list"
        )
    if dtype.names is not None:
        return msgspec.json.encode(_described(dtype)).decode()
    if dtype.char in "gG" and dtype.itemsize > (8 if dtype.char == "g" else 16):
        formats = {63: ("float80", "complex160"), 112: ("float128", "complex256")}  # by bits of the mantissa
        names = formats.get(int(np.finfo(np.longdouble).nmant))
        if names is None or dtype.itemsize != TABLE[names[dtype.char == "G"]].itemsize:
            raise CannotStore(f"expected a long double of a known format, found {dtype!s}")
        return names[dtype.char == "G"]
    if (dtype.kind in "biufc" or dtype.type.__module__ == "ml_dtypes") and dtype.name in TABLE:
        return dtype.name
    if dtype.kind in "mMUSV" and dtype.type.__module__ == "numpy":
        return dtype.newbyteorder("<").str.replace("<V", "|V")
    raise CannotStore(f"expected a dtype that karat knows, found {dtype!s} of numpy")


def _described(dtype: np.dtype[Any]) -> list[Any]:
    """Like `descr`, which fails on fields that are out of order."""
    found: list[Any] = []
    fields: Any = dtype.fields
    at = 0
    for name in dtype.names or ():
        field, offset, *title = fields[name]
        if offset < at or title or not name:
            raise CannotStore(f"expected a structured dtype with fields in order and without titles, found {dtype!s}")
        if offset > at:
            found.append(["", f"|V{offset - at}"])
        base, shape = field.subdtype or (field, ())
        form = base.str.replace("<V", "|V") if base.names is None else _described(base)
        if base.names is None and base.type.__module__ != "numpy":
            raise CannotStore(f"expected a structured dtype of numpy's own types, found {dtype!s}")
        found.append([name, form, list(shape)] if shape else [name, form])
        at = offset + field.itemsize
    if dtype.itemsize > at:
        found.append(["", f"|V{dtype.itemsize - at}"])
    return found


def _meaning(dtype: np.dtype[Any], name: str) -> NDArray[np.uint8] | None:
    """The bits of an element that mean something; None for all of them."""
    if name in {"float80", "complex160"}:
        one = [0xFF] * 10 + [0] * 6
        return np.array(one if name == "float80" else one * 2, np.uint8)
    of = dtype_named(name)
    if of.kind in {"int", "float"} and 0 < of.width < 8:
        return np.array([(1 << of.width) - 1], np.uint8)
    if dtype.names is not None:
        mask = np.frombuffer(_marks(fields_of(name)), np.uint8)
        return None if mask.all() else mask
    return None


def _marks(form: str | list[Field]) -> bytes:
    """Of each byte of a field whether it means something."""
    if isinstance(form, str):
        return b"\xff" * field_size(form)
    return b"".join((_marks(inner) if name else bytes(field_size(inner))) * prod(shape) for name, inner, shape in form)


def numpy_dtype(name: str) -> np.dtype[Any] | None:
    """The numpy dtype of a name, little-endian; None if numpy, as installed, has none."""
    of = dtype_named(name)
    if name.startswith("["):
        return _structured(fields_of(name))
    if name not in TABLE:
        return np.dtype(name)
    if of.bits == "|V16":
        long = np.dtype("G" if name.startswith("complex") else "g")
        try:
            return long if name_of(long) == name else None
        except CannotStore:
            return None
    own = of.width in {16, 32, 64} and name.startswith(("float", "int", "uint"))
    if own or name in {"bool", "int8", "uint8", "complex64", "complex128"}:
        return np.dtype(name).newbyteorder("<")
    try:
        import ml_dtypes
    except ImportError:
        return None
    found = getattr(ml_dtypes, name, None)
    return None if found is None else np.dtype(found)


def _structured(fields: list[Field]) -> np.dtype[Any]:
    names, formats, offsets = [], [], []
    at = 0
    for name, form, shape in fields:
        base = np.dtype(form) if isinstance(form, str) else _structured(form)
        whole = np.dtype((base, shape)) if shape else base
        if whole.itemsize != field_size(form) * (whole.itemsize // max(1, base.itemsize)):
            raise UnknownDtype(f"expected a field of {field_size(form)} bytes, found {base!s}")
        if name:
            names.append(name)
            formats.append(whole)
            offsets.append(at)
        at += whole.itemsize
    try:
        return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": at})
    except (TypeError, ValueError) as error:
        raise UnknownDtype(f"expected a structured dtype, found {names}: {error}") from error


def array_of(tensor: Tensor, *, copy: bool = True) -> tuple[NDArray[Any], str | None]:
    """The tensor as a numpy array; its bits and a note if numpy does not know the dtype."""
    of = dtype_named(tensor.dtype)
    dtype, note = numpy_dtype(tensor.dtype), None
    if dtype is None:
        dtype = np.dtype(f"|V{of.itemsize}" if of.kind == "complex" or of.bits == "|V16" else of.bits)
        note = f"expected a numpy with {tensor.dtype} (pip install ml_dtypes), found none; the value is its bits"
    raw = np.frombuffer(tensor.data, np.uint8)
    if dtype.itemsize:
        flat = (raw.copy() if copy else raw).view(dtype).reshape(tensor.shape)
    else:
        flat = np.ndarray(tensor.shape, dtype)  # not zeros, which gives text a character
    if (
        dtype.itemsize
        and tensor.strides is not None
        and (strides := layout_of(tensor.shape, tensor.strides)) is not None
    ):
        held, flat = flat, np.ndarray(tensor.shape, dtype, strides=[dtype.itemsize * stride for stride in strides])
        flat[...] = held
    if tensor.big_endian:
        flat = flat.byteswap().view(dtype.newbyteorder(">"))
    return flat, note
