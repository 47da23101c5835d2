"""The world of a scan: every op test there is, those included that a factory makes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from karat.policy.scan_kin import Kin, words_of
from karat.policy.scan_lineage import Lineage
from karat.policy.scan_names import Class, Environment, Function, Names, Outside, Target
from karat.policy.scan_shapes import FileFacts, Made, Reference, Scope
from karat.policy.scan_vocabulary import WRAPPERS, is_check

_DEEPEST = 6
_CONSTANTS = {"True": True, "False": False, "None": False, "0": False, "1": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class OpTestClass:
    """An op test: a class, and where it comes to be."""

    cls: Class
    path: str
    line: int
    name: str
    """`TestX`, or `TestFp16Case[TestX]` for one that a factory makes of TestX."""
    collected: bool = True
    """Whether a runner finds it: at module level, or handed out by a factory."""
    shadowed: int = 0
    """The line that binds its name again, so that it never runs."""
    constants: tuple[tuple[str, bool], ...] = ()
    """Parameters of the factory that were given a constant, and whether it is true: `grad_check=False`."""
    assumed: str = ""
    """The base that is only believed to be an op test's, and why."""


class World:
    """Finds op tests in files that are all known."""

    def __init__(self, names: Names, kin: Kin, roots: Collection[str] = ()) -> None:
        self.names = names
        self._kin = kin
        self.lineage = Lineage(names, roots)
        self._seen: set[tuple[str, int, Environment]] = set()
        self._functions: dict[tuple[str, int], tuple[list[int], list[Made]]] = {}
        self._last: dict[str, dict[tuple[int, str], int]] = {}
        self.unbound: list[tuple[str, int]] = []
        """Classes of factories that nobody calls: (path, index)."""

    def op_tests(self, paths: Iterable[str]) -> Iterator[OpTestClass]:
        """Every op test of the files, in their order; roots themselves are none."""
        paths = list(paths)
        made: dict[tuple[str, int], list[OpTestClass]] = {}
        for path in paths:
            for call in self.names.facts(path).made:
                if not self._kin.means(path, words_of(call.call)):
                    continue
                for found in self._expand(path, call, (), 0):
                    made.setdefault((found.cls.path, found.cls.index), []).append(found)
        # A factory may stand in a file that holds nothing else of op tests.
        for path in sorted({*paths, *(path for path, _ in made)}):
            facts = self.names.facts(path)
            for index in range(len(facts.classes)):
                yield from self._class(path, facts, index, made)

    def _class(
        self, path: str, facts: FileFacts, index: int, made: dict[tuple[str, int], list[OpTestClass]]
    ) -> Iterator[OpTestClass]:  # fmt: skip
        if self.names.depends(path, index):
            instances = dict.fromkeys(made.get((path, index), ()))
            if not instances:
                self.unbound.append((path, index))
            yield from (one for one in instances if self.lineage.is_op_test(one.cls))
            return
        if not self._kin.means(path, (facts.classes[index].name,)):
            return
        cls = self.names.instance(path, index)
        assumed = self._assumed(cls)
        if self.lineage.is_root(cls) or (not assumed and not self.lineage.is_op_test(cls)):
            return
        again = self._again(path, facts, index)
        yield OpTestClass(
            cls=cls, path=path, line=cls.facts.line, name=cls.facts.qualname, assumed=assumed,
            collected=self._collected(cls, facts), shadowed=again,
        )  # fmt: skip

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
        defined = {m.name for a in order if isinstance(a, Class) for m in a.facts.methods}
        for ancestor in order:
            for method in ancestor.facts.methods if isinstance(ancestor, Class) else ():
                for call in method.calls:
                    if call.receiver == "self" and is_check(call.name) and call.name not in defined:
                        end = ends[0]
                        shown = end.name if isinstance(end, Outside) else getattr(end, "text", "?")
                        return f"{shown}, because self.{call.name} is called"
        return ""

    def _collected(self, cls: Class, facts: FileFacts) -> bool:
        scope = facts.scopes[cls.facts.scope]
        if scope.kind == "class":
            # A class in a class is how a base is hidden from the runner; XPU tests are the exception.
            return self._is_wrapper(cls, facts)
        deleted = (b for b in facts.bindings if b.kind == "deleted" and b.scope == cls.facts.scope)
        return not any(b.name == cls.facts.name and b.line > cls.facts.line for b in deleted)

    def _is_wrapper(self, cls: Class, facts: FileFacts) -> bool:
        for index, outer in enumerate(facts.classes):
            if outer.body == cls.facts.scope:
                for ancestor in self.lineage.order(self.names.instance(cls.path, index)):
                    name = (
                        ancestor.facts.name
                        if isinstance(ancestor, Class)
                        else getattr(ancestor, "last", "")
                    )
                    if name in WRAPPERS:
                        return True
        return False

    def _again(self, path: str, facts: FileFacts, index: int) -> int:
        """The line where the same scope defines the class's name again, neither under a condition."""
        cls = facts.classes[index]
        if cls.when or facts.scopes[cls.scope].kind == "function":
            return 0
        if path not in self._last:
            self._last[path] = {
                (c.scope, c.name): n for n, c in enumerate(facts.classes) if not c.when
            }
        last = self._last[path][cls.scope, cls.name]
        return facts.classes[last].line if last > index else 0

    def _expand(
        self, path: str, made: Made, around: Environment, depth: int
    ) -> Iterator[OpTestClass]:
        """What a call makes of the classes it is handed."""
        names = self.names
        if depth > _DEEPEST:
            return
        for function in names.resolve(path, made.scope, made.call.function, environment=around):
            if not isinstance(function, Function):
                continue
            for environment in names.environments(
                path, made.scope, made.call, function, environment=around
            ):
                if any(self._is_class(target) for _, target in environment):
                    yield from self._instances(path, made, function, environment, depth)

    def _is_class(self, target: Target) -> bool:
        return isinstance(target, Class) or (
            isinstance(target, Outside) and self.lineage.is_root(target)
        )

    def _instances(
        self, path: str, made: Made, function: Function, environment: Environment, depth: int
    ) -> Iterator[OpTestClass]:
        facts = self.names.facts(function.path)
        classes, calls = self._parts(function.path, function.scope)
        constants = _constants(facts.scopes[function.scope], made.call)
        for index in classes:
            needed = self.names.depends(function.path, index)
            instance = self.names.instance(function.path, index, environment)
            if not needed or len(instance.environment) < len(needed):
                continue
            key = (function.path, index, instance.environment)
            if key not in self._seen:
                self._seen.add(key)
                yield OpTestClass(cls=instance, path=path, line=made.line, name=_label(instance), constants=constants)  # fmt: skip
        for inner in calls:
            yield from self._expand(function.path, inner, environment, depth + 1)

    def _parts(self, path: str, scope: int) -> tuple[list[int], list[Made]]:
        """The classes of a function, and the calls in it that may make more; once, however often it is called."""
        key = (path, scope)
        if key not in self._functions:
            facts = self.names.facts(path)
            inside = _inside(facts, scope)
            classes = [index for index, cls in enumerate(facts.classes) if cls.scope in inside]
            self._functions[key] = classes, [m for m in facts.made if m.scope in inside]
        return self._functions[key]


def _inside(facts: FileFacts, scope: int) -> set[int]:
    """A scope and all scopes in it; they are numbered in the order of the file."""
    found = {scope}
    for index in range(scope + 1, len(facts.scopes)):
        if facts.scopes[index].parent in found:
            found.add(index)
    return found


def _constants(scope: Scope, call: Reference) -> tuple[tuple[str, bool], ...]:
    given = dict([*zip(scope.parameters, call.arguments, strict=False), *call.keywords.items()])
    known = {name: value for name, value in scope.constants.items() if name not in given}
    for name, argument in given.items():
        if argument.text in _CONSTANTS:
            known[name] = _CONSTANTS[argument.text]
    return tuple(sorted(known.items()))


def _label(cls: Class) -> str:
    shown = [
        t.facts.name if isinstance(t, Class) else getattr(t, "last", "?")
        for _, t in cls.environment
    ]
    return f"{cls.facts.name}[{', '.join(shown)}]"
