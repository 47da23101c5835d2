"""The shelf: facts of files, those that matter read first and the others when a name leads to them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from karat.findings import Finding, Severity
from karat.policy.scan_glance import Glance, parsed
from karat.policy.scan_modules import Modules, stem
from karat.policy.scan_shapes import FileFacts, Scope
from karat.policy.scan_vocabulary import is_check
from karat.policy.scan_wording import finding

_NOTHING = FileFacts(path="", scopes=(Scope(kind="module"),))


class Shelf:
    """The facts of files; those that did not matter at first are parsed when they turn out to."""

    def __init__(self, glances: Sequence[Glance], modules: Modules) -> None:
        self._modules = modules
        self._rooted = {g.path for g in glances if g.rooted}
        self.parsed = {g.path: g.facts for g in glances if g.facts is not None}
        self._marked = {g.path for g in glances if g.marked}
        self._others = {
            g.path: frozenset(g.imports) for g in glances if g.facts is None and not g.error
        }
        self._lost = [g for g in glances if g.error]

    def facts(self, path: str) -> FileFacts:
        """What a file says, read now if need be."""
        found = self.parsed.get(path)
        if found is None:
            found = self.parsed[path] = parsed(path)
            self._others.pop(path, None)
        if not found.scopes:
            # A file that cannot be read binds nothing.
            return _NOTHING
        return found

    def that_matter(self) -> list[str]:
        """Files that may hold op tests: those that name them, and whoever imports one that hands them on."""
        carriers = {p for p, facts in self.parsed.items() if p in self._rooted or _checks(facts)}
        fresh, asked = carriers, dict[str, frozenset[str]]()
        while fresh:
            words = {stem(path) for path in fresh}
            if any(path.endswith("__init__.py") for path in fresh):
                words.add(".")
            for path in [p for p, said in self._others.items() if not said.isdisjoint(words)]:
                asked[path] = imported_files(self.facts(path), self._modules)
            fresh = {
                p
                for p, files in asked.items()
                if p not in carriers and not files.isdisjoint(carriers)
            }
            carriers |= fresh
        return sorted(carriers | self._marked)

    def problems(self) -> Iterator[Finding]:
        """Files that could not be had, or not be understood."""
        for lost in self._lost:
            yield Finding(
                kind="cannot-read", severity=Severity.FAIL, path=lost.path,
                message=f"expected to read it, but: {lost.error}", next=f"ls -ld {shlex.quote(lost.path)}",
            )  # fmt: skip
        for path, facts in self.parsed.items():
            if facts.problem:
                # A file that names op tests and cannot be read may hold any number of unchecked ones.
                severity = Severity.FAIL if path in self._marked else Severity.WARN
                yield finding("unreadable", severity, path, facts.line, "",
                              f"expected Python, found: {facts.problem}; no op test of this file was seen",
                              next=f"python -m py_compile {shlex.quote(path)}")  # fmt: skip


def _checks(facts: FileFacts) -> bool:
    """Whether a class of the file checks gradients, so that its children may be op tests."""
    calls = (call for cls in facts.classes for method in cls.methods for call in method.calls)
    return any(is_check(call.name) for call in calls)


def imported_files(facts: FileFacts, modules: Modules) -> frozenset[str]:
    """The scanned files that a file imports."""
    found: set[str | None] = set()
    for binding in facts.bindings:
        if binding.kind in {"module", "from", "star"}:
            found.add(modules.find(binding.module, facts.path))
        if binding.kind == "from":
            dot = "" if binding.module.endswith(".") else "."
            found.add(modules.find(f"{binding.module}{dot}{binding.target}", facts.path))
    return frozenset(path for path in found if path is not None)
