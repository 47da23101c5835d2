"""Modules of a tree: which file an import means, without a `sys.path` to ask.

Test trees import their siblings by bare names, put folders on `sys.path`, and lie in packages. So a name is
looked for beside the file, then in every folder above it, then anywhere in the tree, nearest first.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator


class Modules:
    """Every Python file of the scan, by absolute path; parsed or not."""

    def __init__(self, paths: Iterable[tuple[str, str]]) -> None:
        """Take pairs of a path as shown and its absolute form."""
        self._shown: dict[str, str] = {}
        self._absolute: dict[str, str] = {}
        self._by_stem: dict[str, list[str]] = {}
        self._places: dict[str, list[str]] = {}
        for shown, absolute in paths:
            self._shown[absolute] = shown
            self._absolute.setdefault(shown, absolute)
            self._places.setdefault(shown, []).append(absolute)
            self._by_stem.setdefault(stem(absolute), []).append(absolute)
        self._found: dict[tuple[str, str], str | None] = {}

    def find(self, module: str, beside: str) -> str | None:
        """The path, as shown, of the file that `import module` means in the file `beside`."""
        folder = os.path.dirname(self._absolute.get(beside, beside))  # noqa: PTH120 - strings, by the million
        key = (module, folder)
        if key not in self._found:
            self._found[key] = self._find(module, folder)
        return self._found[key]

    def stems(self, shown: str) -> set[str]:
        """The last parts of the names by which a file is imported; several where links lead to it."""
        return {stem(place) for place in self._places.get(shown, ())}

    def packages(self, shown: str) -> Iterator[str]:
        """The packages that a file is a module of."""
        for place in self._places.get(shown, ()):
            folder, name = os.path.split(place)
            if name == "__init__.py":
                folder = os.path.dirname(folder)  # noqa: PTH120
            package = self._shown.get(os.path.join(folder, "__init__.py"))  # noqa: PTH118
            if package is not None and package != shown:
                yield package

    def _find(self, module: str, folder: str) -> str | None:
        name = module.lstrip(".")
        level = len(module) - len(name)
        parts = name.split(".") if name else []
        if level:
            for _ in range(level - 1):
                folder = os.path.dirname(folder)  # noqa: PTH120
            return self._at(folder, parts)
        return self._above(folder, parts) or self._nearest(folder, parts)

    def _above(self, folder: str, parts: list[str]) -> str | None:
        while True:
            found = self._at(folder, parts)
            if found is not None:
                return found
            up = os.path.dirname(folder)  # noqa: PTH120
            if up == folder:
                return None
            folder = up

    def _at(self, folder: str, parts: list[str]) -> str | None:
        base = os.path.join(folder, *parts)  # noqa: PTH118
        module = self._shown.get(f"{base}.py") if parts else None
        return self._shown.get(os.path.join(base, "__init__.py")) or module  # noqa: PTH118

    def _nearest(self, folder: str, parts: list[str]) -> str | None:
        if not parts or parts[0] in sys.stdlib_module_names:
            return None
        ends = (os.sep + os.path.join(*parts) + ".py", os.sep + os.path.join(*parts, "__init__.py"))  # noqa: PTH118
        fitting = [p for p in self._by_stem.get(parts[-1], ()) if p.endswith(ends)]
        if not fitting:
            return None
        best = min(fitting, key=lambda p: (-len(os.path.commonpath([p, folder])), len(p), p))
        return self._shown[best]


def stem(path: str) -> str:
    """The last part of the name by which a file is imported."""
    folder, name = os.path.split(path)
    if name == "__init__.py":
        return os.path.basename(folder)  # noqa: PTH119
    return name.removesuffix(".py")
