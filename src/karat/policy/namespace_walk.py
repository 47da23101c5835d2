"""In a process of its own: imports modules and writes down the operators they hold. `karat.policy.namespaces` reads it."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import msgspec

from karat.policy.namespaces import Answer


def main(words: list[str]) -> int:
    """`ANSWER MODULE…`."""
    target, *modules = words
    names: dict[int, str] = {}
    errors: dict[str, str] = {}
    for module in modules:
        for name in _walk(module, errors):
            _note(name, module, names)
    answer = Answer(ops=tuple(sorted(set(names.values()))), errors=errors)
    Path(target).write_bytes(msgspec.json.encode(answer))
    return 0


def _walk(name: str, errors: dict[str, str]) -> Iterator[ModuleType]:
    """A module, and its public submodules."""
    try:
        module = importlib.import_module(name)
    except BaseException as error:  # noqa: BLE001 - sys.exit() in a module is its mistake, not ours
        errors[name] = f"{type(error).__name__}: {error}".splitlines()[0][:300]
        return
    yield module
    for one in pkgutil.iter_modules(getattr(module, "__path__", ())):
        if not one.name.startswith("_"):
            yield from _walk(f"{name}.{one.name}", errors)


def _note(module: ModuleType, root: str, names: dict[int, str]) -> None:
    """Every operator once, by its shortest name: packages offer again what their modules define."""
    for name in _public(module, root):
        value = getattr(module, name)
        full = f"{module.__name__}.{name}"
        known = names.setdefault(id(value), full)
        if (known.count("."), known) > (full.count("."), full):
            names[id(value)] = full


def _public(module: ModuleType, root: str) -> Iterator[str]:
    said = getattr(module, "__all__", None)
    for name in dir(module) if said is None else said:
        value = getattr(module, name, None)
        if _is_operator(value) and (said is not None or _is_own(name, value, root)):
            yield str(name)


def _is_operator(value: object) -> bool:
    return callable(value) and not inspect.isclass(value) and not inspect.ismodule(value)


def _is_own(name: str, value: object, root: str) -> bool:
    """Public, and not merely imported there; what has no home was made there."""
    home = getattr(value, "__module__", None)
    own = not isinstance(home, str) or home == root or home.startswith(f"{root}.")
    return own and not name.startswith("_")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
