"""In a process of its own: imports modules and writes down the operators they hold. `karat.policy.gate.operators` reads it."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NewType, get_origin

import msgspec

from karat.policy.gate.operators import Answer


def main(words: list[str]) -> int:
    """`ANSWER MODULE…`."""
    target, *modules = words
    found: dict[int, list[Any]] = {}
    errors: dict[str, str] = {}
    for module in modules:
        for one in _walk(module, errors):
            _note(one, module, found, errors)
    each = sorted(sorted(set(names), key=_length) for _, *names in found.values())
    answer = Answer(ops={name: tuple(others) for name, *others in each}, errors=errors)
    Path(target).write_bytes(msgspec.json.encode(answer))
    return 0


def _walk(name: str, errors: dict[str, str]) -> Iterator[ModuleType]:
    """A module, and its public submodules."""
    try:
        module = importlib.import_module(name)
    except BaseException as error:  # noqa: BLE001 - sys.exit() in a module is its mistake, not ours
        errors[name] = _said(error)
        return
    yield module
    for one in pkgutil.iter_modules(getattr(module, "__path__", ())):
        if not one.name.startswith("_"):
            yield from _walk(f"{name}.{one.name}", errors)


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:300]


def _note(
    module: ModuleType, root: str, found: dict[int, list[Any]], errors: dict[str, str]
) -> None:
    """Every operator once, with all of its names: packages offer again what their modules define."""
    said = getattr(module, "__all__", None)
    for name in map(str, dir(module) if said is None else said):
        full = f"{module.__name__}.{name}"
        try:
            value = getattr(module, name, None)
            wanted = _is_operator(value) and (said is not None or _is_own(name, value, root))
        except BaseException as error:  # noqa: BLE001 - a lazy module imports when it is asked
            errors[full] = _said(error)
            continue
        if wanted:
            # With itself: what a lazy module makes anew each time must not have the address of what is gone.
            found.setdefault(id(value), [value]).append(full)


def _length(name: str) -> tuple[int, str]:
    return name.count("."), name


def _is_operator(value: object) -> bool:
    """Classes are no operators, nor are names of types that can be called: `Array = list[float]`."""
    a_type = inspect.isclass(value) or get_origin(value) or isinstance(value, NewType)
    return callable(value) and not a_type


def _is_own(name: str, value: object, root: str) -> bool:
    """Public, and not merely imported there: what is not to be found where it says it is from, was made here."""
    if name.startswith("_"):
        return False
    home = getattr(value, "__module__", None)
    if not isinstance(home, str) or home == root or home.startswith(f"{root}."):
        return True
    # A partial, a ufunc or `Function.apply` says where its class is from, and is not there.
    words = {name, *(getattr(value, word, name) for word in ("__name__", "__qualname__"))}
    return not any(_is_same(value, home, str(word)) for word in words)


def _is_same(value: object, home: str, path: str) -> bool:
    found: object = sys.modules.get(home)
    for part in path.split("."):
        found = getattr(found, part, None)
    # A method is made anew whenever it is asked for.
    return found is value or (inspect.ismethod(value) and found == value)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
