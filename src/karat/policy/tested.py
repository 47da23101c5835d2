"""What a gradient check really ran: the functions behind an op's name, and the files they stand in.

An op's name is what a test says. The functions are looked up in the compiled code: itself, and what it refers to by name
in files that are not installed packages. A name that is only computed while running is not found.
"""

from __future__ import annotations

import dis
import inspect
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from karat.system.hashes import sha256_file

_MOST = 200
_INSTALLED = re.compile(rf"{re.escape(sysconfig.get_path('stdlib'))}|.*[/\\](?:site|dist)-packages[/\\]|<")


def name_of(function: Any) -> str | None:
    """`module.qualified_name`; None for what cannot be told from others: a lambda, or what a function made."""
    function = function.func if isinstance(function, partial) else function
    owner = getattr(function, "__self__", None)
    home, name = (getattr(function, word, None) for word in ("__module__", "__qualname__"))
    if inspect.isclass(owner):  # `Softmax.apply` says where `apply` is from
        home, name = owner.__module__, f"{owner.__qualname__}.{getattr(function, '__name__', '')}"
    name = name or getattr(function, "__name__", None)
    return f"{home}.{name}".removeprefix("None.") if isinstance(name, str) and "<" not in name else None


def reached(function: Any) -> list[Any]:
    """The function and all that it refers to, nearest first; nothing beyond what is of an installed package."""
    found: dict[int, Any] = {}
    waiting = [function]
    for one in waiting:
        if id(one) not in found and len(found) < _MOST:
            found[id(one)] = one
            waiting += _referred(one, first=one is function)
    return list(found.values())


def _referred(one: Any, *, first: bool) -> Iterator[Any]:
    inner = one.func if isinstance(one, partial) else getattr(one, "tested_function", None)  # of an op test
    if inner is not None:
        yield inner
        return
    owner = getattr(one, "__self__", None)
    if inspect.isclass(owner):  # Function.apply
        yield from (getattr(owner, word) for word in ("forward", "backward") if hasattr(owner, word))
    function = _plain(one)
    if not isinstance(function, FunctionType):  # an instance: a Module, or whatever can be called
        found = (getattr(type(one), word, None) for word in ("forward", "__call__"))
        yield from (each for each in found if isinstance(each, FunctionType))
    elif first or not _INSTALLED.match(function.__code__.co_filename):
        names = dict(function.__globals__)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
            with suppress(ValueError):  # not filled yet
                names[name] = cell.cell_contents
        yield from (one for one in (function, *(function.__defaults__ or ())) if callable(one))
        yield from _named(function.__code__, names)


def _plain(one: Any) -> Any:
    """The function inside a method or a wrapper."""
    return inspect.unwrap(getattr(one, "__func__", one)) if callable(one) else one


def _named(code: CodeType, names: Mapping[str, Any]) -> Iterator[Any]:
    """What names in the code stand for: `softmax`, `ops.softmax`."""
    at: Any = None
    for step in dis.get_instructions(code):
        if step.opname in {"LOAD_ATTR", "LOAD_METHOD"} and isinstance(at, ModuleType | type):
            at = getattr(at, step.argval, None)
            continue
        if callable(at):
            yield at
        at = names.get(step.argval) if step.opname in {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF"} else None
        if isinstance(step.argval, CodeType):  # a lambda or a comprehension inside
            yield from _named(step.argval, names)


def names_and_files(
    functions: Iterable[Any], top: Path | None, test: Path | None
) -> tuple[tuple[str, ...], dict[str, str]]:
    """What functions reach, by name; and the files below `top` that it and the test stand in, with their digests."""
    every = [one for function in functions for one in reached(function)]
    paths = {path for path in (test, *map(_file, every)) if top and path and path.is_relative_to(top)}
    inside = [path for path in sorted(paths) if path.is_file() and not _INSTALLED.match(str(path))]
    names = tuple(sorted({name for one in every if (name := name_of(one))}))
    return names, {path.relative_to(top or path).as_posix(): digest(path) for path in inside}


def _file(one: Any) -> Path | None:
    code = getattr(_plain(one), "__code__", None)
    home = sys.modules.get(getattr(getattr(one, "__self__", one), "__module__", None) or "")
    named = code.co_filename if isinstance(code, CodeType) else getattr(home, "__file__", None)
    return Path(named) if named else None


@lru_cache(maxsize=1024)
def digest(path: Path) -> str:
    return sha256_file(path)
