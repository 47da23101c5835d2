"""The shelf: facts of files, those that matter read first and the others when a name leads to them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from karat.findings import Finding, Severity
from karat.policy.scan_glance import Glance, parsed, spelled
from karat.policy.scan_importers import Importers
from karat.policy.scan_kin import Kin
from karat.policy.scan_shapes import FileFacts, Scope
from karat.policy.scan_wording import finding

_NOTHING = FileFacts(path="", scopes=(Scope(kind="module"),))


class Shelf:
    """The facts of files; those that did not matter at first are parsed when they turn out to."""

    def __init__(self, glances: Sequence[Glance], importers: Importers, kin: Kin) -> None:
        self._importers = importers
        self._kin = kin
        self.parsed = {g.path: g.facts for g in glances if g.facts is not None}
        self._marked = {g.path for g in glances if g.marked}
        self._lost = [g for g in glances if g.error]

    def facts(self, path: str) -> FileFacts:
        """What a file says, read now if need be."""
        found = self.parsed.get(path)
        if found is None:
            found = self.parsed[path] = parsed(path)
        if not found.scopes:
            # A file that cannot be read binds nothing.
            return _NOTHING
        return found

    def that_matter(self) -> list[str]:
        """Files that may hold op tests: those that name them, and whoever imports one and spells what is kin there."""
        mattering = set[str]()
        waiting: dict[str, frozenset[str] | None] = {}
        found = [*self.parsed]
        while found:
            mattering.update(found)
            waiting.update(dict.fromkeys(self._importers.ask(found) - mattering - waiting.keys()))
            for path in found:
                waiting.pop(path, None)
                self._kin.learn(path, self.facts(path))
            found = [path for path in waiting if self._spells_kin(path, waiting)]
        return sorted(mattering)

    def _spells_kin(self, path: str, waiting: dict[str, frozenset[str] | None]) -> bool:
        """Whether a file spells what means an op test in a file that it imports."""
        if not self._importers.seen_from(path) & self._kin.all:
            return False
        said = waiting[path]
        if said is None:
            said = waiting[path] = spelled(path)
        return self._kin.means(path, said & self._kin.words)

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
