"""Kin: the words by which an op test may be meant, file by file.

A name means an op test because it is a root's, or because a class statement, an assignment, an import or a function
derives it from a name that does, in the same file or in one that this file imports, over however many others; and
whoever uses it must spell it. So a word that is not derived from a root's, in the file or in any that it imports,
leads to no op test there, and need not be looked up.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from karat.policy.scan_importers import Importers
from karat.policy.scan_shapes import ClassFacts, FileFacts, Reference
from karat.policy.scan_vocabulary import ROOT_SUFFIX, ROOTS, is_check


class Kin:
    """Words that may mean an op test, or a function that makes one, and the files in which they do."""

    def __init__(self, importers: Importers, roots: Collection[str] = ()) -> None:
        self._importers = importers
        self._roots = ROOTS | {root.rpartition(".")[2] for root in roots}
        self._leads: dict[str, dict[str, set[str]]] = {}
        """Word → file → the words that this file derives from it."""
        self._files: dict[str, int] = {}
        """Word → the files in which it is kin, one bit each."""
        self.words = self._files.keys()
        """Those that files derive; roots are kin in any case."""
        self.all = 0
        """The files in which any word is."""

    def means(self, path: str, words: Iterable[str]) -> bool:
        """Whether one of the words may mean an op test in a file."""
        seen = self._importers.seen_from(path)
        return any(self._files.get(word, 0) & seen or self._is_root(word) for word in words)

    def _is_root(self, word: str) -> bool:
        return word in self._roots or word.endswith(ROOT_SUFFIX)

    def learn(self, path: str, facts: FileFacts) -> None:
        """What a file derives from what."""
        fresh = [c.name for c in facts.classes if self._is_root(c.name) or _checks(c)]
        for word, derived in set(_derived(facts)):
            self._leads.setdefault(word, {}).setdefault(path, set()).add(derived)
            if self.means(path, (word,)):
                fresh.append(derived)
        pending = [(path, word) for word in fresh]
        while pending:
            pending += self._add(*pending.pop())

    def _add(self, path: str, word: str) -> Iterator[tuple[str, str]]:
        """Take a word of a file for kin; what follows from it."""
        bit = self._importers.bit(path)
        known = self._files.get(word, 0)
        if known & bit:
            return
        self._files[word] = known | bit
        self.all |= bit
        leads = self._leads.get(word, {})
        # The same names stand in thousands of files, of which hardly any is imported.
        for other in leads if self._importers.has_any(path) else leads.keys() & {path}:
            if self._importers.seen_from(other) & bit:
                yield from ((other, derived) for derived in leads[other])


def words_of(reference: Reference) -> Iterator[str]:
    """Every name that an expression spells, as far as names are looked up in it."""
    for name in reference.names:
        yield from name.split(".")
    if reference.function:
        yield from reference.function.split(".")
    for inner in (*reference.arguments, *reference.keywords.values()):
        yield from words_of(inner)


def _checks(cls: ClassFacts) -> bool:
    """Whether a class checks gradients, so that its children may be op tests whatever their root is."""
    return any(is_check(call.name) for method in cls.methods for call in method.calls)


def _derived(facts: FileFacts) -> Iterator[tuple[str, str]]:
    """(a word, a word that is derived from it)."""
    for binding in facts.bindings:
        if binding.kind == "class":
            yield facts.classes[binding.index].name, binding.name
        elif binding.kind == "from" and binding.target != binding.name:
            yield binding.target, binding.name
        elif binding.reference is not None:
            yield from ((word, binding.name) for word in words_of(binding.reference))
    for cls in facts.classes:
        yield from ((word, cls.name) for base in cls.bases for word in words_of(base))
    for scope in facts.scopes:
        for parameter, default in scope.defaults.items():
            yield from ((word, parameter) for word in words_of(default))
    around = _around(facts)
    for index, reference in _in_functions(facts):
        yield from ((word, name) for word in words_of(reference) for name in around[index])


def _in_functions(facts: FileFacts) -> Iterator[tuple[int, Reference]]:
    """(scope, expression) of whatever may make a function hand on a class, or make one."""
    for cls in facts.classes:
        yield from ((cls.scope, base) for base in cls.bases)
    for index, scope in enumerate(facts.scopes):
        yield from ((index, each) for each in (*scope.defaults.values(), *scope.returns))
    for made in facts.made:
        yield made.scope, made.call


def _around(facts: FileFacts) -> list[tuple[str, ...]]:
    """For each scope the functions that it is, or stands in."""
    found: list[tuple[str, ...]] = []
    for scope in facts.scopes:  # a scope is opened after the one it stands in
        outer = found[scope.parent] if scope.parent >= 0 else ()
        found.append((*outer, scope.name) if scope.kind == "function" else outer)
    return found
