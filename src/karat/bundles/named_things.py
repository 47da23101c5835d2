"""Things of a framework that have a name rather than content: dtypes, devices, layouts, sizes."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

from karat.tensors.dtypes import UnknownDtype
from karat.tensors.tensor import Damaged

_BY_NAME = ("dtype", "layout", "memory_format")
NAMED = ("numpy.dtype", "torch.Size", "torch.device", *(f"torch.{kind}" for kind in _BY_NAME))


def named_thing(value: Any) -> Any:
    """The JSON of a dtype, device, layout, memory format or Size; None for what is none of them.

    CannotStore for a dtype of numpy that has no name in karat.
    """
    kind = type(value)
    if kind.__module__ == "torch" and f"torch.{kind.__name__}" in NAMED:
        if kind.__name__ == "Size":
            return {"torch.Size": [int(length) for length in value]}
        return {f"torch.{kind.__name__}": str(value).removeprefix("torch.")}
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(value, numpy.dtype):
        return None
    from karat.tensors.numpy_arrays import name_of  # noqa: PLC0415 - imports numpy

    swapped = value.names is None and value.newbyteorder("<") != value
    return {"numpy.dtype": [name_of(value), "big" if swapped else "little"]}


def make_named(kind: str, name: Any) -> tuple[Any] | None:
    """The thing, in a tuple; None where its framework is not installed. ValueError if there is none."""
    check_named(kind, name)
    if kind == "numpy.dtype":
        return (_numpy_dtype(*name),)
    if importlib.util.find_spec("torch") is None:
        return None
    return (_torch_thing(kind.removeprefix("torch."), name),)


def check_named(kind: str, name: Any) -> None:
    """ValueError unless the name has the form that such a thing's has."""
    if kind == "torch.Size":
        if not isinstance(name, list) or not all(type(n) is int and n >= 0 for n in name):
            raise ValueError("a Size is a list of lengths")
    elif kind == "numpy.dtype":
        if not isinstance(name, list) or [type(part) for part in name] != [str, str]:
            raise ValueError("a dtype is a name and an order")
    elif not isinstance(name, str):
        raise ValueError("it goes by a name")


def _torch_thing(kind: str, name: Any) -> Any:
    import torch  # noqa: PLC0415 - an extra, for those who captured it

    if kind == "Size":
        return torch.Size(name)
    if kind == "device":
        try:
            return torch.device(name)
        except RuntimeError:
            raise ValueError("no device has that name") from None
    found = vars(torch).get(name)
    if type(found).__name__ != kind or type(found).__module__ != "torch":
        raise ValueError("torch has none of that name")
    return found


def _numpy_dtype(name: str, order: str) -> Any:
    from karat.tensors.numpy_arrays import numpy_dtype  # noqa: PLC0415 - imports numpy

    if order not in {"big", "little"}:
        raise ValueError("a dtype is big-endian or little-endian")
    try:
        found = numpy_dtype(name)
    except UnknownDtype:
        raise ValueError("no dtype has that name") from None
    if found is None:
        raise Damaged(f"expected a numpy with {name} (pip install ml_dtypes), found none")
    return found.newbyteorder(">") if order == "big" else found
