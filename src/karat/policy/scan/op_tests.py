"""Every op test of the scanned files, those included that a factory makes, and which files can hold any.

A file can only hold op tests if it names what they are made of, or imports from a file that does; and whoever imports a
module must spell its name, or dots alone. What does neither is not parsed.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import chain

from msgspec.structs import replace

from karat.findings import Finding, Severity, fail
from karat.policy.scan.facts import FileFacts, Made, Scope
from karat.policy.scan.names import Class, Function, Lineage, Names, Outside, Place, short_name
from karat.policy.scan.source import words
from karat.policy.scan.syntax import facts_of
from karat.policy.scan.vocabulary import MARK, WRAPPERS
from karat.system.command import Command
from karat.system.foreign.limits import SOURCE, read_plain
from karat.system.forks import chunks_of, helpers_for, spread

_WORDS = re.compile(rb"[\w\x80-\xff]+")
_DOTS_ALONE = re.compile(rb"from\s*\.[.\s]*import")
_EMPTY_FILE = FileFacts(scopes=(Scope(kind="module"),))
_DEEPEST = 6  # Factories that call factories.
_CONSTANTS = {"True": True, "False": False, "None": False, "0": False, "1": True}

Progress = Callable[[int, int], None]


def look(
    paths: Sequence[str],
    at: Callable[[str], FileFacts | None],
    *,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> list[FileFacts | None]:
    """A glance at every file, in order; `jobs` None for as many processes as help."""
    chunks, helpers = chunks_of(paths), helpers_for(len(paths), jobs)
    work = nullcontext(lambda number: [at(path) for path in chunks[number]])

    def done(number: int) -> None:
        if progress is not None:
            progress((number + 1) * len(paths) // len(chunks), len(paths))

    return [*chain(*spread(len(chunks), lambda: work, list[FileFacts | None], helpers=helpers, done=done))]


def glance(path: str, matters: Callable[[bytes], object] = MARK.search) -> FileFacts | None:
    """Read a file, and parse it if its words matter; by default, if it names what op tests are made of."""
    try:
        source = read_plain(path, SOURCE)
    except OSError as error:
        return FileFacts(problem=error.strerror or str(error), lost=True)
    return facts_of(source) if matters(words(source)) else None


def _spells(names: Collection[str], source: bytes) -> bool:
    found = {word.decode("utf-8", "replace") for word in _WORDS.findall(source)}
    return not found.isdisjoint(names) or _DOTS_ALONE.search(source) is not None


@contextmanager
def no_collection() -> Iterator[None]:
    """Without the cyclic collector, a fifth faster: syntax trees have no cycles, and it would go over them again and again."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def finding(kind: str, severity: Severity, path: str, line: int, name: str, message: str) -> Finding:
    return Finding(
        kind=kind,
        severity=severity,
        message=message,
        path=path,
        where=f"line {line}" if line else None,
        numbers={"line": line, "class": name},
        next=Command("sed", "-n", f"{max(line, 1)},+9p", path),
    )


def cannot_read(path: str, why: str) -> Finding:
    """A file or folder whose bytes could not be had."""
    return fail("cannot-read", f"cannot be read: {why}", path=path, next=Command("ls", "-ld", path))


class ParsedFiles:
    """The facts of files; those that did not matter at first are parsed when they turn out to."""

    def __init__(
        self, found: Mapping[str, FileFacts | None], stems: Mapping[str, Collection[str]], roots: Collection[str] = ()
    ) -> None:
        self._stems = stems  # Path → the names by which it is imported.
        self._roots = {root.rpartition(".")[2] for root in roots}
        self.parsed = {path: facts for path, facts in found.items() if facts is not None}
        self._marked = {*self.parsed}
        self._waiting = [path for path, facts in found.items() if facts is None]

    def facts(self, path: str) -> FileFacts:
        """What a file says, read now if need be."""
        if path not in self.parsed:
            self.parsed[path] = glance(path, lambda _: True) or _EMPTY_FILE
        found = self.parsed[path]
        return found if found.scopes else _EMPTY_FILE  # one that cannot be read binds nothing

    def relevant(self, jobs: int | None) -> list[str]:
        """Files that may hold op tests: those that name them, and those that spell a module that does."""
        names, known = {*chain(*map(self._stems.__getitem__, self.parsed)), *self._roots}, set[str]()
        while self._waiting and names - known:
            matters = partial(_spells, names - known)
            found = look(self._waiting, partial(glance, matters=matters), jobs=jobs)
            fresh = {path: facts for path, facts in zip(self._waiting, found, strict=True) if facts is not None}
            self.parsed |= fresh
            self._waiting = [path for path in self._waiting if path not in fresh]
            names, known = names.union(*map(self._stems.__getitem__, fresh)), names
        return sorted(self.parsed)

    def problems(self) -> Iterator[Finding]:
        """Files that could not be had, or not be understood."""
        for path, facts in self.parsed.items():
            if facts.lost:
                yield cannot_read(path, facts.problem)
            elif facts.problem:
                # A file that names op tests and cannot be read may hold any number of unchecked ones.
                severity = Severity.FAIL if path in self._marked else Severity.WARN
                text = f"expected Python, found: {facts.problem}; no op test of this file was seen"
                found = finding("unreadable", severity, path, facts.line, "", text)
                yield replace(found, next=Command("python", "-m", "py_compile", path))


@dataclass(frozen=True, slots=True, kw_only=True)
class OpTestClass:
    cls: Class
    path: str
    line: int
    name: str  # `TestX`, or `TestFp16Case[TestX]` for one that a factory makes of TestX.
    collected: bool = True  # Whether a runner finds it: at module level, or handed out by a factory.
    shadowed: int = 0  # The line that binds its name again, so that it never runs.
    constants: tuple[tuple[str, bool], ...] = ()
    """Parameters of the factory that were given a constant, and whether it is true: `grad_check=False`."""
    assumed: str = ""  # The base that is believed to be an op test's by its name alone.


class World:
    """Finds op tests in files that are all known."""

    def __init__(self, names: Names, roots: Collection[str] = ()) -> None:
        self.names = names
        self.lineage = Lineage(names, roots)
        self._seen: set[tuple[Class, tuple[tuple[str, bool], ...], str, int]] = set()
        self._functions: dict[tuple[str, int], tuple[list[int], list[Made]]] = {}
        self._last: dict[str, dict[tuple[int, str], int]] = {}

    def op_tests(self, paths: Iterable[str]) -> Iterator[OpTestClass]:
        """Every op test of the files, in their order; roots themselves are none."""
        paths = list(paths)
        made: dict[tuple[str, int], list[OpTestClass]] = {}
        for path in paths:
            for call in self.names.facts(path).made:
                for found in self._expand(Place(path, call.scope, call.line), call):
                    made.setdefault((found.cls.path, found.cls.index), []).append(found)
        # A factory may stand in a file that holds nothing else of op tests.
        for path in sorted({*paths, *(path for path, _ in made)}):
            facts = self.names.facts(path)
            for index in range(len(facts.classes)):
                if not self.names.depends(path, index):
                    yield from self._class(path, facts, index)
                else:
                    instances = dict.fromkeys(made.get((path, index), ()))
                    yield from (one for one in instances if self.lineage.is_op_test(one.cls))

    def _class(self, path: str, facts: FileFacts, index: int) -> Iterator[OpTestClass]:
        cls = self.names.instance(path, index)
        if self.lineage.is_root(cls) or not self.lineage.is_op_test(cls):
            return
        order = self.lineage.order(cls)
        # A base from elsewhere that is called like an op test's, where no other base is one.
        sure = any(self.lineage.is_root(a) and not self.lineage.is_assumed(a) for a in order)
        # The line where the same scope defines the class's name again, neither under a condition.
        shadowed, here = 0, cls.facts
        if not here.when and facts.scopes[here.scope].kind != "function":
            if path not in self._last:
                self._last[path] = {(c.scope, c.name): n for n, c in enumerate(facts.classes) if not c.when}
            last = self._last[path][here.scope, here.name]
            shadowed = facts.classes[last].line if last > index else 0
        alike = (a.name for a in order if isinstance(a, Outside) and self.lineage.is_assumed(a))
        yield OpTestClass(
            cls=cls,
            path=path,
            line=here.line,
            name=here.qualname,
            assumed="" if sure else next(alike, ""),
            collected=self._collected(cls, facts),
            shadowed=shadowed,
        )

    def _collected(self, cls: Class, facts: FileFacts) -> bool:
        name, scope, line = cls.facts.name, cls.facts.scope, cls.facts.line
        if facts.scopes[scope].kind == "class":
            # A class in a class is how a base is hidden from the runner; XPU tests are the exception.
            outer = (self.names.instance(cls.path, i) for i, c in enumerate(facts.classes) if c.body == scope)
            return any(short_name(ancestor) in WRAPPERS for one in outer for ancestor in self.lineage.order(one))
        deleted = (b for b in facts.bindings if b.kind == "deleted")
        return not any((b.scope, b.name) == (scope, name) and b.line > line for b in deleted)

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
