"""Importers: which files import a file, over however many others; only imports that may be meant are looked up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from karat.policy.scan_glance import Glance
from karat.policy.scan_modules import Modules
from karat.policy.scan_shapes import FileFacts


class Importers:
    """Which of the files that were asked about a file imports, over however many others: one bit each."""

    def __init__(self, glances: Sequence[Glance], modules: Modules) -> None:
        self._modules = modules
        self._by_stem: dict[str, list[tuple[str, str]]] = {}
        """Last part of a module's name → (file, module) of every import that ends so."""
        self._by_file: dict[str, set[str]] = {}
        """File → those that import it by dots alone: `from . import x`."""
        self._direct: dict[str, tuple[str, ...]] = {}
        self._bits: dict[str, int] = {}
        self._seen: dict[str, int] = {}
        for each in glances:
            named = imported_by(each.facts) if each.facts is not None else each.imports
            for module in named:
                self._note(each.path, module)

    def bit(self, path: str) -> int:
        """The bit of a file that was asked about."""
        return self._bits[path]

    def seen_from(self, path: str) -> int:
        """The bits of the files that a file imports, its own included."""
        return self._seen.get(path, 0)

    def ask(self, paths: Iterable[str]) -> set[str]:
        """Ask about more files; whoever imports one of them."""
        pending = dict.fromkeys(paths)
        for path in pending:
            self._bits[path] = 1 << len(self._bits)
            self._seen[path] = self.seen_from(path) | self._bits[path]
        told: set[str] = set()
        while pending:
            # First in, first out: what many ways lead to is gone through when most of them have.
            path = next(iter(pending))
            del pending[path]
            seen = self._seen[path]
            for importer in self._importers(path):
                before = self.seen_from(importer)
                if before | seen != before:
                    self._seen[importer] = before | seen
                    pending[importer] = None
                    told.add(importer)
        return told

    def has_any(self, path: str) -> bool:
        """Whether anyone imports a file."""
        return bool(self._importers(path))

    def _importers(self, path: str) -> tuple[str, ...]:
        if path not in self._direct:
            self._direct[path] = tuple(dict.fromkeys(self._found(path)))
        return self._direct[path]

    def _note(self, path: str, module: str) -> None:
        last = module.rpartition(".")[2]
        if last:
            self._by_stem.setdefault(last, []).append((path, module))
            return
        found = self._modules.find(module, path)
        if found is not None:
            self._by_file.setdefault(found, set()).add(path)

    def _found(self, path: str) -> Iterator[str]:
        for last in self._modules.stems(path):
            for importer, module in self._by_stem.get(last, ()):
                if self._modules.find(module, importer) == path:
                    yield importer
        yield from self._by_file.get(path, ())
        # A module is an attribute of its package for whoever has that.
        yield from self._modules.packages(path)


def imported_by(facts: FileFacts) -> Iterator[str]:
    """The modules that a parsed file imports."""
    for binding in facts.bindings:
        if binding.kind in {"module", "from", "star"}:
            yield binding.module
        if binding.kind == "from":
            dot = "" if binding.module.endswith(".") else "."
            yield f"{binding.module}{dot}{binding.target}"
