"""Frameworks: which one a function is of, without importing any."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import FunctionType, ModuleType
from typing import Any

from karat.findings import UsageError

KNOWN = ("paddle", "torch", "jax", "numpy")
_DEPTH = 3
"""How many calls deep a function's own helpers are looked into."""
_WRAPPED = 20


def framework_of(
    function: Callable[..., Any], *, backward: object = None, original: bool = False
) -> str:
    """The framework of a function: where it is defined, else what it calls, else what its file imports.

    What hints at nothing computes with what it is given, numpy's arrays; in a test that is written in the original's
    manner (`original`), it is Paddle's, where that is imported at all.
    """
    if backward is not None:
        return "numpy"
    layers = list(_layers(function))
    plain = layers[-1]
    for hints in (_made_by(layers), _used(plain, _DEPTH)):
        found = set(map(_known, hints))
        for name in KNOWN:
            if name in found:
                return name
    named = {_known(_module_of(value)) for value in _scope(plain).values()}
    imported = [name for name in KNOWN[:3] if name in named]
    if len(imported) == 1:
        return imported[0]
    if original and "paddle" in sys.modules:  # the original's tests are Paddle's
        return "paddle"
    if not imported:
        return "numpy"
    raise UsageError(
        f"cannot tell which framework {getattr(function, '__qualname__', function)!r} is of: it calls none of "
        f"{', '.join(KNOWN)}, and its file imports {' and '.join(imported)}",
        next_command=f"set framework = {imported[0]!r} (or another) in the class or the spec",
    )


def _known(module: str) -> str:
    first = module.partition(".")[0]
    first = {"jaxlib": "jax"}.get(first, first)
    return first if first in KNOWN else ""


def _layers(function: Any) -> Iterator[Any]:
    """A function and what it wraps, the innermost last."""
    for _ in range(_WRAPPED):  # some objects have every attribute, and so wrap without end
        yield function
        if isinstance(function, partial):
            function = function.func
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        elif hasattr(function, "__func__"):
            function = function.__func__
        else:
            return


def _made_by(layers: Iterable[Any]) -> Iterator[str]:
    """Modules that a function is of: its own, and those of what it is or is bound to, `jit` and `Function.apply`."""
    for layer in layers:
        yield _module_of(layer)
        bound = getattr(layer, "__self__", None)
        for owner in (layer, *((bound,) if bound is not None else ())):
            kind = owner if isinstance(owner, type) else type(owner)
            yield from (base.__module__ for base in kind.__mro__)


def _used(function: Any, depth: int) -> Iterator[str]:
    """Modules that a function's own code refers to, and that of the helpers it calls."""
    for value in _referred(function):
        yield _module_of(value)
        if depth > 1 and isinstance(value, FunctionType) and not _known(_module_of(value)):
            yield from _used(list(_layers(value))[-1], depth - 1)


def _referred(function: Any) -> Iterator[Any]:
    code = getattr(function, "__code__", None)
    names, scope = getattr(code, "co_names", ()), _scope(function)
    values = [scope[name] for name in names if name in scope]
    for cell in getattr(function, "__closure__", None) or ():
        try:
            values.append(cell.cell_contents)
        except ValueError:
            continue  # a name that is not bound yet
    for value in values:
        yield value
        if isinstance(value, ModuleType) and not _known(value.__name__):
            yield from (vars(value)[name] for name in names if name in vars(value))


def _scope(function: Any) -> dict[str, Any]:
    scope = getattr(function, "__globals__", None)
    return scope if isinstance(scope, dict) else {}


def _module_of(value: object) -> str:
    name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    return name if isinstance(name, str) else ""
