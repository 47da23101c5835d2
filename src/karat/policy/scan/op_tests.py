"""Every op test of the scanned files, those included that a factory makes, and which files can hold any.

A name means an op test because it is a root's, or because a class statement, an assignment, an import or a function
derives it from a name that does, in the same file or in one that this file imports, over however many others; and
whoever uses it must spell it. So a word that is not derived from a root's, in the file or in any that it imports,
leads to no op test there, and need not be looked up.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from karat.findings import Finding, Severity
from karat.policy.scan.facts import Expression, FileFacts, Made, Scope
from karat.policy.scan.names import Class, Function, Lineage, Modules, Names, Outside, Place, below, short_name
from karat.policy.scan.prefilter import Glance, parsed, spelled
from karat.policy.scan.report import cannot_read, finding
from karat.policy.scan.vocabulary import ROOT_SUFFIX, ROOTS, WRAPPERS, is_check
from karat.system.command import Command

_EMPTY_FILE = FileFacts(path="", scopes=(Scope(kind="module"),))
_DEEPEST = 6  # Factories that call factories.
_CONSTANTS = {"True": True, "False": False, "None": False, "0": False, "1": True}


class Importers:
    """Which of the files that were asked about a file imports, over however many others: one bit each."""

    def __init__(self, glances: Sequence[Glance], modules: Modules) -> None:
        self._modules = modules
        self._by_stem: dict[str, list[tuple[str, str]]] = {}
        """Last part of a module's name → (file, module) of every import that ends so."""
        self._by_file: dict[str, set[str]] = {}  # File → those that import it by dots alone: `from . import x`.
        self._direct: dict[str, tuple[str, ...]] = {}
        self.bits: dict[str, int] = {}  # The bit of each file that was asked about.
        self._seen: dict[str, int] = {}
        for each in glances:
            for module in imported_by(each.facts) if each.facts is not None else each.imports:
                last = module.rpartition(".")[2]
                if last:
                    self._by_stem.setdefault(last, []).append((each.path, module))
                elif (found := modules.find(module, each.path)) is not None:
                    self._by_file.setdefault(found, set()).add(each.path)

    def seen_from(self, path: str) -> int:
        """The bits of the files that a file imports, its own included."""
        return self._seen.get(path, 0)

    def ask(self, paths: Iterable[str]) -> set[str]:
        """Ask about more files; whoever imports one of them."""
        pending = dict.fromkeys(paths)
        for path in pending:
            self.bits[path] = 1 << len(self.bits)
            self._seen[path] = self.seen_from(path) | self.bits[path]
        importers: set[str] = set()
        while pending:
            # First in, first out: what many ways lead to is gone through when most of them have.
            path = next(iter(pending))
            del pending[path]
            seen = self._seen[path]
            for importer in self.direct(path):
                before = self.seen_from(importer)
                if before | seen != before:
                    self._seen[importer] = before | seen
                    pending[importer] = None
                    importers.add(importer)
        return importers

    def direct(self, path: str) -> tuple[str, ...]:
        """Files that import a file themselves."""
        if path not in self._direct:
            fitting = (pair for last in self._modules.stems(path) for pair in self._by_stem.get(last, ()))
            found = [importer for importer, module in fitting if self._modules.find(module, importer) == path]
            # A module is an attribute of its package for whoever has that.
            found += [*self._by_file.get(path, ()), *self._modules.packages(path)]
            self._direct[path] = tuple(dict.fromkeys(found))
        return self._direct[path]


def imported_by(facts: FileFacts) -> Iterator[str]:
    for binding in facts.bindings:
        if binding.kind in {"module", "from", "star"}:
            yield binding.module
        if binding.kind == "from":
            yield below(binding.module, binding.target)


class Kin:
    """Words that may mean an op test, or a function that makes one, and the files in which they do."""

    def __init__(self, importers: Importers, roots: Collection[str] = ()) -> None:
        self._importers = importers
        self._roots = ROOTS | {root.rpartition(".")[2] for root in roots}
        self._leads: dict[str, dict[str, set[str]]] = {}  # Word → file → the words that this file derives from it.
        self._files: dict[str, int] = {}  # Word → the files in which it is kin, one bit each.
        self.words = self._files.keys()  # Those that files derive; roots are kin in any case.
        self.all = 0  # The files in which any word is.

    def means(self, path: str, words: Iterable[str]) -> bool:
        """Whether one of the words may mean an op test in a file."""
        seen = self._importers.seen_from(path)
        return any(self._files.get(word, 0) & seen or self._is_root(word) for word in words)

    def _is_root(self, word: str) -> bool:
        return word in self._roots or word.endswith(ROOT_SUFFIX)

    def learn(self, path: str, facts: FileFacts) -> None:
        """What a file derives from what."""
        # A class that checks gradients: its children may be op tests whatever their root is.
        fresh = [
            cls.name
            for cls in facts.classes
            if self._is_root(cls.name) or any(is_check(call.name) for method in cls.methods for call in method.calls)
        ]
        for word, derived in set(_derived(facts)):
            self._leads.setdefault(word, {}).setdefault(path, set()).add(derived)
            if self.means(path, (word,)):
                fresh.append(derived)
        pending = [(path, word) for word in fresh]
        while pending:
            pending += self._add(*pending.pop())

    def _add(self, path: str, word: str) -> Iterator[tuple[str, str]]:
        """Take a word of a file for kin; what follows from it."""
        bit = self._importers.bits[path]
        known = self._files.get(word, 0)
        if known & bit:
            return
        self._files[word] = known | bit
        self.all |= bit
        leads = self._leads.get(word, {})
        # The same names stand in thousands of files, of which hardly any is imported.
        for other in leads if self._importers.direct(path) else leads.keys() & {path}:
            if self._importers.seen_from(other) & bit:
                yield from ((other, derived) for derived in leads[other])


def words_of(reference: Expression) -> Iterator[str]:
    """Every name that an expression spells, as far as names are looked up in it."""
    for name in reference.names:
        yield from name.split(".")
    if reference.function:
        yield from reference.function.split(".")
    for inner in (*reference.arguments, *reference.keywords.values()):
        yield from words_of(inner)


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
    around: list[tuple[str, ...]] = []  # For each scope the functions that it is, or stands in.
    for scope in facts.scopes:  # a scope is opened after the one it stands in
        outer = around[scope.parent] if scope.parent >= 0 else ()
        around.append((*outer, scope.name) if scope.kind == "function" else outer)
    # Whatever may make a function hand on a class, or make one.
    inside = [(cls.scope, base) for cls in facts.classes for base in cls.bases]
    for index, scope in enumerate(facts.scopes):
        inside += [(index, each) for each in (*scope.defaults.values(), *scope.returns)]
    inside += [(made.scope, made.call) for made in facts.made]
    for index, reference in inside:
        yield from ((word, name) for word in words_of(reference) for name in around[index])


class ParsedFiles:
    """The facts of files; those that did not matter at first are parsed when they turn out to."""

    def __init__(self, glances: Sequence[Glance], importers: Importers, kin: Kin) -> None:
        self._importers = importers
        self._kin = kin
        self.parsed = {g.path: g.facts for g in glances if g.facts is not None}
        self._marked = {g.path for g in glances if g.marked}
        self._lost = [g for g in glances if g.error]

    def facts(self, path: str) -> FileFacts:
        """What a file says, read now if need be."""
        if path not in self.parsed:
            self.parsed[path] = parsed(path)
        found = self.parsed[path]
        return found if found.scopes else _EMPTY_FILE  # one that cannot be read binds nothing

    def relevant(self) -> list[str]:
        """Files that may hold op tests: those that name them, and whoever imports one and spells what is kin there."""
        relevant = set[str]()
        waiting: dict[str, frozenset[str] | None] = {}
        found = [*self.parsed]
        while found:
            relevant.update(found)
            waiting.update(dict.fromkeys(self._importers.ask(found) - relevant - waiting.keys()))
            for path in found:
                waiting.pop(path, None)
                self._kin.learn(path, self.facts(path))
            found = []
            for path, words in waiting.items():
                # Whether it spells what means an op test in a file that it imports.
                if self._importers.seen_from(path) & self._kin.all:
                    if words is None:
                        words = waiting[path] = spelled(path)  # noqa: PLW2901
                    if self._kin.means(path, words & self._kin.words):
                        found.append(path)
        return sorted(relevant)

    def problems(self) -> Iterator[Finding]:
        """Files that could not be had, or not be understood."""
        yield from (cannot_read(lost.path, lost.error) for lost in self._lost)
        for path, facts in self.parsed.items():
            if facts.problem:
                # A file that names op tests and cannot be read may hold any number of unchecked ones.
                severity = Severity.FAIL if path in self._marked else Severity.WARN
                text = f"expected Python, found: {facts.problem}; no op test of this file was seen"
                found = finding("unreadable", severity, path, facts.line, "", text)
                yield replace(found, next=Command("python", "-m", "py_compile", path))


@dataclass(frozen=True, slots=True, kw_only=True)
class OpTestClass:
    """An op test: a class, and where it is made."""

    cls: Class
    path: str
    line: int
    name: str  # `TestX`, or `TestFp16Case[TestX]` for one that a factory makes of TestX.
    collected: bool = True  # Whether a runner finds it: at module level, or handed out by a factory.
    shadowed: int = 0  # The line that binds its name again, so that it never runs.
    constants: tuple[tuple[str, bool], ...] = ()
    """Parameters of the factory that were given a constant, and whether it is true: `grad_check=False`."""
    assumed: str = ""  # The base that is only believed to be an op test's, and why.


class World:
    """Finds op tests in files that are all known."""

    def __init__(self, names: Names, kin: Kin, roots: Collection[str] = ()) -> None:
        self.names = names
        self._kin = kin
        self.lineage = Lineage(names, roots)
        self._seen: set[tuple[Class, tuple[tuple[str, bool], ...], str, int]] = set()
        self._functions: dict[tuple[str, int], tuple[list[int], list[Made]]] = {}
        self._last: dict[str, dict[tuple[int, str], int]] = {}
        self.unbound: list[tuple[str, int]] = []  # Classes of factories that nobody calls: (path, index).

    def op_tests(self, paths: Iterable[str]) -> Iterator[OpTestClass]:
        """Every op test of the files, in their order; roots themselves are none."""
        paths = list(paths)
        made: dict[tuple[str, int], list[OpTestClass]] = {}
        for path in paths:
            for call in self.names.facts(path).made:
                if not self._kin.means(path, words_of(call.call)):
                    continue
                for found in self._expand(Place(path, call.scope, call.line), call):
                    made.setdefault((found.cls.path, found.cls.index), []).append(found)
        # A factory may stand in a file that holds nothing else of op tests.
        for path in sorted({*paths, *(path for path, _ in made)}):
            facts = self.names.facts(path)
            for index in range(len(facts.classes)):
                if not self.names.depends(path, index):
                    yield from self._class(path, facts, index)
                elif instances := dict.fromkeys(made.get((path, index), ())):
                    yield from (one for one in instances if self.lineage.is_op_test(one.cls))
                else:
                    self.unbound.append((path, index))

    def _class(self, path: str, facts: FileFacts, index: int) -> Iterator[OpTestClass]:
        if not self._kin.means(path, (facts.classes[index].name,)):
            return
        cls = self.names.instance(path, index)
        assumed = self._assumed(cls)
        if self.lineage.is_root(cls) or (not assumed and not self.lineage.is_op_test(cls)):
            return
        yield OpTestClass(
            cls=cls,
            path=path,
            line=cls.facts.line,
            name=cls.facts.qualname,
            assumed=assumed,
            collected=self._collected(cls, facts),
            shadowed=self._again(path, facts, index),
        )

    def _assumed(self, cls: Class) -> str:
        """A base from elsewhere that behaves like an op test's."""
        order = self.lineage.order(cls)
        if any(self.lineage.is_root(a) and not self.lineage.is_assumed(a) for a in order):
            return ""
        named = [a.name for a in order if isinstance(a, Outside) and self.lineage.is_assumed(a)]
        if named:
            return f"{named[0]}, by its name"
        ends = self.lineage.open_ends(cls)
        if not ends:
            return ""
        methods = [method for a in order if isinstance(a, Class) for method in a.facts.methods]
        defined = {method.name for method in methods}
        for call in (call for method in methods for call in method.calls):
            if call.receiver == "self" and is_check(call.name) and call.name not in defined:
                return f"{ends[0].name}, because self.{call.name} is called"
        return ""

    def _collected(self, cls: Class, facts: FileFacts) -> bool:
        name, scope, line = cls.facts.name, cls.facts.scope, cls.facts.line
        if facts.scopes[scope].kind == "class":
            # A class in a class is how a base is hidden from the runner; XPU tests are the exception.
            outer = (self.names.instance(cls.path, i) for i, c in enumerate(facts.classes) if c.body == scope)
            return any(short_name(ancestor) in WRAPPERS for one in outer for ancestor in self.lineage.order(one))
        deleted = (b for b in facts.bindings if b.kind == "deleted")
        return not any((b.scope, b.name) == (scope, name) and b.line > line for b in deleted)

    def _again(self, path: str, facts: FileFacts, index: int) -> int:
        """The line where the same scope defines the class's name again, neither under a condition."""
        cls = facts.classes[index]
        if cls.when or facts.scopes[cls.scope].kind == "function":
            return 0
        if path not in self._last:
            self._last[path] = {(c.scope, c.name): n for n, c in enumerate(facts.classes) if not c.when}
        last = self._last[path][cls.scope, cls.name]
        return facts.classes[last].line if last > index else 0

    def _expand(self, place: Place, made: Made, depth: int = 0) -> Iterator[OpTestClass]:
        """What a call makes of the classes it is handed."""
        targets = self.names.resolve(place, made.call.function) if depth <= _DEEPEST else ()
        for function in (target for target in targets if isinstance(target, Function)):
            classes, calls = self._parts(function.path, function.scope)
            scope = self.names.facts(function.path).scopes[function.scope]
            given = dict([*zip(scope.parameters, made.call.arguments, strict=False), *made.call.keywords.items()])
            known = {name: value for name, value in scope.constants.items() if name not in given}
            known |= {name: _CONSTANTS[value.text] for name, value in given.items() if value.text in _CONSTANTS}
            constants = tuple(sorted(known.items()))
            for environment in self.names.environments(place, made.call, function):
                if not any(
                    isinstance(target, Class) or (isinstance(target, Outside) and self.lineage.is_root(target))
                    for _, target in environment
                ):
                    continue
                for index in classes:
                    needed = self.names.depends(function.path, index)
                    cls = self.names.instance(function.path, index, environment)
                    key = (cls, constants, place.path, made.line)
                    if needed and len(cls.environment) >= len(needed) and key not in self._seen:
                        self._seen.add(key)
                        shown = ", ".join(short_name(target) for _, target in cls.environment)
                        name = f"{cls.facts.name}[{shown}]"
                        yield OpTestClass(cls=cls, path=place.path, line=made.line, name=name, constants=constants)
                for inner in calls:
                    there = Place(function.path, inner.scope, inner.line, environment)
                    yield from self._expand(there, inner, depth + 1)

    def _parts(self, path: str, scope: int) -> tuple[list[int], list[Made]]:
        """The classes of a function, and the calls in it that may make more; once, however often it is called."""
        key = (path, scope)
        if key not in self._functions:
            facts = self.names.facts(path)
            inside = {scope}
            for index in range(scope + 1, len(facts.scopes)):  # they are numbered in the order of the file
                if facts.scopes[index].parent in inside:
                    inside.add(index)
            classes = [index for index, cls in enumerate(facts.classes) if cls.scope in inside]
            self._functions[key] = classes, [m for m in facts.made if m.scope in inside]
        return self._functions[key]
