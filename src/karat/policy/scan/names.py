"""Names across the files of a scan: which file an import means, which class a name means, and what a class inherits.

There is no `sys.path` to ask. Test trees import their siblings by bare names, put folders on `sys.path`, and lie in
packages; so a module is looked for beside the file, then in every folder above it, then anywhere, nearest first.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from karat.policy.scan.facts import Binding, ClassFacts, Expression, FileFacts
from karat.policy.scan.vocabulary import PLAIN, ROOT_SUFFIX, ROOTS, is_test


class Modules:
    """Every Python file of the scan, by absolute path; parsed or not."""

    def __init__(self, paths: Iterable[tuple[str, str]]) -> None:
        """Take pairs of a path as shown and its absolute form."""
        self._shown: dict[str, str] = {}
        self._absolute: dict[str, str] = {}
        self._by_stem: dict[str, list[str]] = {}
        self.stems: dict[
            str, set[str]
        ] = {}  # A path as shown → the names by which it is imported: links have their own.
        for shown, absolute in paths:
            self._shown[absolute] = shown
            self._absolute.setdefault(shown, absolute)
            self._by_stem.setdefault(stem(absolute), []).append(absolute)
            self.stems.setdefault(shown, set()).add(stem(absolute))
        self._found: dict[tuple[str, str], str | None] = {}

    def find(self, module: str, beside: str) -> str | None:
        """The path, as shown, of the file that `import module` means in the file `beside`."""
        folder = os.path.dirname(self._absolute.get(beside, beside))  # noqa: PTH120 - strings, by the million
        key = (module, folder)
        if key not in self._found:
            self._found[key] = self._find(module, folder)
        return self._found[key]

    def _find(self, module: str, folder: str) -> str | None:
        name = module.lstrip(".")
        level = len(module) - len(name)
        parts = name.split(".") if name else []
        if level:
            for _ in range(level - 1):
                folder = os.path.dirname(folder)  # noqa: PTH120
            return self._at(folder, parts)
        above, here = "", folder
        while here != above:
            found = self._at(here, parts)
            if found is not None:
                return found
            above, here = here, os.path.dirname(here)  # noqa: PTH120
        if not parts or parts[0] in sys.stdlib_module_names:
            return None
        ends = (os.sep + os.path.join(*parts) + ".py", os.sep + os.path.join(*parts, "__init__.py"))  # noqa: PTH118
        fitting = [p for p in self._by_stem.get(parts[-1], ()) if p.endswith(ends)]
        if not fitting:
            return None
        best = min(fitting, key=lambda p: (-len(os.path.commonpath([p, folder])), len(p), p))
        return self._shown[best]

    def _at(self, folder: str, parts: list[str]) -> str | None:
        base = os.path.join(folder, *parts)  # noqa: PTH118
        module = self._shown.get(f"{base}.py") if parts else None
        return self._shown.get(os.path.join(base, "__init__.py")) or module  # noqa: PTH118


def stem(path: str) -> str:
    """The last part of the name by which a file is imported."""
    folder, name = os.path.split(path)
    if name == "__init__.py":
        return os.path.basename(folder)  # noqa: PTH119
    return name.removesuffix(".py")


_DEEPEST = 60  # Names that lead to names that lead to names: more than this is a circle.


@dataclass(frozen=True, slots=True)
class Outside:
    """A name of a module that is not among the scanned files."""

    name: str


@dataclass(frozen=True, slots=True)
class Computed:
    """An expression that only running it would tell."""

    name: str  # As it is written.


@dataclass(frozen=True, slots=True)
class Module:
    path: str


@dataclass(frozen=True, slots=True)
class Function:
    """A function of a scanned file, with what is known of the parameters around it."""

    path: str
    scope: int
    environment: Environment


@dataclass(frozen=True, slots=True)
class Class:
    """A class, or one of the classes that a factory makes of it."""

    path: str
    index: int
    environment: Environment = ()
    facts: ClassFacts = field(compare=False, repr=False, kw_only=True)


def short_name(target: Target) -> str:
    """What a class is called, wherever it is from."""
    if isinstance(target, Class):
        return target.facts.name
    return target.name.rpartition(".")[2] if isinstance(target, Outside) else "?"


Target: TypeAlias = Outside | Computed | Module | Function | Class
Environment: TypeAlias = tuple[tuple[tuple[int, str], "Target"], ...]  # (scope, parameter) → what it was called with.
_T = TypeVar("_T")


class Place(NamedTuple):
    """Where an expression stands; what a module binds from the line on does not count there, unless that is 0."""

    path: str
    scope: int = 0
    line: int = 0
    environment: Environment = ()


class Memo(Generic[_T]):
    """Answers worked out once, each from others, to a limited depth.

    An answer that the limit cut short is worked out again for whoever asks with more room.
    """

    def __init__(self, deepest: int, nothing: _T) -> None:
        self._nothing = nothing
        self._deepest = deepest
        self._depth = 0
        self._cut = False  # The limit was hit: what is found now may be only a part.
        self._known: dict[Hashable, tuple[_T, int]] = {}
        """An answer, and the depth at which it was cut short; 0 for a whole one."""

    def once(self, key: Hashable, work: Callable[[], _T]) -> _T:
        if key in self._known:
            found, cut_at = self._known[key]
            # Again only with twice the room: else it would be worked out anew from every depth.
            if cut_at <= 2 * self._depth:
                self._cut |= cut_at > 0
                return found
        elif self._depth > self._deepest:
            self._cut = True
            return self._nothing
        self._known[key] = self._nothing, 0  # whoever comes here in a circle finds nothing
        before, self._cut = self._cut, False
        self._depth += 1
        found = work()
        self._depth -= 1
        self._known[key] = found, self._depth if self._cut else 0
        self._cut |= before
        return found


class Names:
    """Resolves dotted names; files are read when a name leads there."""

    def __init__(self, modules: Modules, load: Callable[[str], FileFacts]) -> None:
        self._modules = modules
        self.facts = load
        self._tables: dict[str, dict[tuple[int, str], list[Binding]]] = {}
        self._memo: Memo[list[Target]] = Memo(_DEEPEST, [])
        self._needs: dict[tuple[str, int], frozenset[tuple[int, str]]] = {}

    def refer(self, place: Place, reference: Expression) -> list[Target]:
        """Everything that an expression may mean; never nothing."""
        found: list[Target] = []
        for name in reference.names:
            found += self.resolve(place, name)
        for function in self.resolve(place, reference.function) if reference.function else ():
            if isinstance(function, Function):
                for bound in self.environments(place, reference, function):
                    found += self._returned(Place(function.path, function.scope, environment=bound))
            elif isinstance(function, Outside):
                # What a stranger is handed, where it is one.
                handed = chain.from_iterable(self.refer(place, argument) for argument in reference.arguments)
                found += [target for target in handed if isinstance(target, Class)]
        # Each once: `x = f(x, y)` in a row would double them with every line.
        return list(dict.fromkeys(found)) or [Computed(reference.text)]

    def _returned(self, inside: Place) -> list[Target]:
        """What a function returns, where that is a class; once, because one with two returns may call itself in both."""
        returns = self.facts(inside.path).scopes[inside.scope].returns
        return self._memo.once(inside, lambda: [*chain(*(self.refer(inside, each) for each in returns))])

    def resolve(self, place: Place, name: str) -> list[Target]:
        """Everything that a dotted name may mean."""
        parts = name.split(".")
        for end in range(len(parts), 1, -1):
            whole = ".".join(parts[:end])
            if (0, whole) in self._table(place.path):
                found = self._modules.find(whole, place.path)
                if found is not None:
                    return self._attributes([Module(found)], parts[end:])
        return self._attributes(self._first(place, parts[0]), parts[1:])

    def _first(self, place: Place, name: str) -> list[Target]:
        path, here, line, environment = place
        scopes = self.facts(path).scopes
        while here >= 0:
            what = scopes[here]
            if what.kind != "class" or here == place.scope:
                found = self._in_scope(path, here, name, line, environment)
                if found:
                    return found
            if what.kind == "function":
                line = 0  # by the time it runs, all of the module has
                if name in what.parameters:
                    for bound, target in environment:
                        if bound == (here, name):
                            return [target]
                    default = what.defaults.get(name)
                    return self.refer(Place(path), default) if default is not None else [Computed(name)]
            here = what.parent
        return [Outside(name)]

    def _in_scope(self, path: str, scope: int, name: str, line: int, environment: Environment) -> list[Target]:
        table = self._table(path)
        bound = table.get((scope, name), [])
        stars = table.get((scope, "*"))
        if stars:
            # Whatever is bound last wins, by name or by star.
            bound = sorted([*bound, *stars], key=lambda binding: binding.line)
        best: list[Target] = []
        for binding in reversed(bound):
            if binding.kind == "deleted" or (line and binding.line >= line + (binding.kind == "loop")):
                continue
            if binding.kind != "star":
                found = self._bound(path, binding, environment)
            else:
                module = self._modules.find(binding.module, path)
                hidden = module is None or module == path or name.startswith("_")
                found = [] if hidden or module is None else self.member(module, name)
            if any(isinstance(target, Class | Function | Module) for target in found):
                return found
            if not best or all(isinstance(target, Computed) for target in best):
                best = found
        return best

    def _bound(self, path: str, binding: Binding, environment: Environment) -> list[Target]:
        match binding.kind:
            case "class":
                return [self.instance(path, binding.index, environment)]
            case "function":
                return [Function(path, binding.index, environment)]
            case "module":
                found = self._modules.find(binding.module, path)
                return [Module(found) if found is not None else Outside(binding.module)]
            case "from":
                module = self._modules.find(binding.module, path)
                targets = self.member(module, binding.target) if module is not None and module != path else []
                if targets:
                    return targets
                # One that is dots alone stands for a folder above.
                dot = "." if binding.module.strip(".") else ""
                inner = self._modules.find(f"{binding.module}{dot}{binding.target}", path)
                name = f"{binding.module.lstrip('.')}.{binding.target}".lstrip(".")
                return [Module(inner) if inner is not None else Outside(name)]
            case "alias" | "loop" if (reference := binding.reference) is not None:
                # Worked out once: `x = f(x)` in a row doubles the ways with each line.
                place = Place(path, binding.scope, binding.line, environment)
                return self._memo.once((path, id(binding), environment), lambda: self.refer(place, reference))
        return []

    def instance(self, path: str, index: int, environment: Environment = ()) -> Class:
        """A class, with what is bound of those parameters that its bases depend on, and of no others."""
        needed = self.depends(path, index)
        kept = tuple(item for item in environment if item[0] in needed)
        return Class(path, index, kept, facts=self.facts(path).classes[index])

    def depends(self, path: str, index: int) -> frozenset[tuple[int, str]]:
        """The (scope, parameter) pairs of functions around a class that decide what its bases are."""
        key = (path, index)
        if key not in self._needs:
            self._needs[key] = frozenset()
            facts = self.facts(path).classes[index]
            if facts.scope > 0:
                self._needs[key] = frozenset(
                    pair for base in facts.bases for pair in self._needed(path, facts.scope, base, set())
                )
        return self._needs[key]

    def _needed(
        self, path: str, scope: int, reference: Expression, seen: set[tuple[int, str]]
    ) -> Iterator[tuple[int, str]]:
        scopes = self.facts(path).scopes
        for whole in (*reference.names, reference.function):
            name, here = whole.partition(".")[0], scope
            while here > 0 and (here, name) not in seen:
                seen.add((here, name))  # `parent = wrap(parent)` needs what it needs
                for binding in self._table(path).get((here, name), ()):
                    if binding.kind == "class":
                        yield from self.depends(path, binding.index)
                    elif binding.reference is not None:
                        yield from self._needed(path, here, binding.reference, seen)
                if name in scopes[here].parameters:
                    yield here, name
                here = scopes[here].parent
        for inner in (*reference.arguments, *reference.keywords.values()):
            yield from self._needed(path, scope, inner, seen)

    def member(self, path: str, name: str) -> list[Target]:
        """What a module has under a name; nothing if it does not bind it."""
        return self._memo.once((path, name), lambda: self._in_scope(path, 0, name, 0, ()))

    def _attributes(self, targets: list[Target], names: list[str]) -> list[Target]:
        for name in names:
            targets = [after for target in targets for after in self._attribute(target, name)]
        return targets

    def _attribute(self, target: Target, name: str) -> list[Target]:
        match target:
            case Module(path):
                found = self.member(path, name)
                if found:
                    return found
                inner = self._modules.find(f".{name}", path) if path.endswith("__init__.py") else None
                return [Module(inner)] if inner is not None else [Outside(name)]
            case Class(path, _, environment):
                return self._in_scope(path, target.facts.body, name, 0, environment) or [Computed(name)]
            case Outside(whole):
                return [Outside(f"{whole}.{name}")]
        return [Computed(name)]

    def environments(self, place: Place, call: Expression, function: Function) -> list[Environment]:
        """What a call binds a function's parameters to; several where a loop goes over classes."""
        callee = self.facts(function.path).scopes[function.scope]
        given = [*zip(callee.parameters, call.arguments, strict=False), *call.keywords.items()]
        left = callee.defaults.keys() - {name for name, _ in given}
        made = [function.environment]
        for name in callee.parameters:
            if name in left:
                target = self.refer(Place(function.path), callee.defaults[name])[0]
                made = [(*made[0], ((function.scope, name), target))]
        for name, argument in given:
            if name in callee.parameters:
                targets = self.refer(place, argument)
                made = [(*e, ((function.scope, name), t)) for e in made for t in targets][:1000]
        return made

    def _table(self, path: str) -> dict[tuple[int, str], list[Binding]]:
        if path not in self._tables:
            table = self._tables[path] = {}
            for binding in self.facts(path).bindings:
                table.setdefault((binding.scope, binding.name), []).append(binding)
        return self._tables[path]


Ancestor: TypeAlias = Class | Outside | Computed
_MOST_ANCESTORS = 400


class Lineage:
    """Bases and method resolution orders, each worked out once."""

    def __init__(self, names: Names, roots: Collection[str] = ()) -> None:
        self._names = names
        self._roots = ROOTS | {root.rpartition(".")[2] for root in roots}
        self._orders: dict[Class, tuple[Ancestor, ...]] = {}
        self._values: dict[Class, dict[str, object]] = {}

    def order(self, cls: Class) -> tuple[Ancestor, ...]:
        """The class and its ancestors in the order of Python's own C3 linearisation."""
        if cls in self._orders:
            return self._orders[cls]
        # Without recursion: a line of hundreds of classes over as many files would end the interpreter's stack.
        pending, begun = [cls], dict[Class, list[Ancestor]]()
        while pending:
            top = pending[-1]
            if top not in begun and top not in self._orders:
                bases = begun[top] = self.bases(top)
                pending += [b for b in bases if isinstance(b, Class) and b not in begun]
                continue
            pending.pop()
            if top in self._orders:
                continue
            # A base whose order is not there yet stands in a circle, which ends here.
            orders = [list(self._orders.get(b, (b,)) if isinstance(b, Class) else (b,)) for b in begun[top]]
            if len(orders) == 1:  # nearly all there are
                (merged,) = orders
            else:
                # Python would refuse a class without an order; whoever reads the report still wants its ancestors.
                linear = _merge([*orders, begun[top]])
                merged = (list(dict.fromkeys(chain(*orders))) if linear is None else linear)[:_MOST_ANCESTORS]
            self._orders[top] = (top, *(a for a in merged if a != top))
        return self._orders[cls]

    def bases(self, cls: Class) -> list[Ancestor]:
        """One ancestor per base expression; of several it may mean, the one that is an op test."""
        found: list[Ancestor] = []
        place = Place(cls.path, cls.facts.scope, cls.facts.line, cls.environment)
        for base in cls.facts.bases:
            targets = self._names.refer(place, base)
            possible = [t for t in targets if isinstance(t, Class | Outside | Computed)] or [Computed(base.text)]
            chosen = possible[0]
            if len(possible) > 1:
                op_tests = (t for t in possible if (self.is_op_test(t) if isinstance(t, Class) else self.is_root(t)))
                chosen = next(op_tests, chosen)
            if chosen not in found and chosen != cls:
                found.append(chosen)
        return found

    def is_root(self, ancestor: Ancestor) -> bool:
        name = short_name(ancestor)
        return name in self._roots or (isinstance(ancestor, Outside) and name.endswith(ROOT_SUFFIX))

    def is_assumed(self, ancestor: Ancestor) -> bool:
        """Whether only its name says that a base from elsewhere is an op test."""
        return isinstance(ancestor, Outside) and self.is_root(ancestor) and short_name(ancestor) not in self._roots

    def is_op_test(self, cls: Class) -> bool:
        return any(self.is_root(ancestor) for ancestor in self.order(cls))

    def values(self, cls: Class) -> dict[str, object]:
        """`self.x` → what it is when a test begins, where that is plain: what class bodies set, then what setUp does."""
        if cls in self._values:
            return self._values[cls]
        order = [a.facts for a in self.order(cls) if isinstance(a, Class)]
        said: dict[str, object] = {}
        for facts in reversed(order):
            # A method that nobody is seen to call is taken for called, where it says one thing.
            sets = {*facts.values.items(), *(one for method in facts.methods for one in method.sets)}
            times = Counter(name for name, _ in sets)
            said |= {name: value if times[name] == 1 else "?" for name, value in sets}

        runs = iter(range(100))  # hooks that call each other end

        def run(name: str, start: int = 0) -> None:
            found = (
                (at, one) for at, facts in enumerate(order[start:], start) for one in facts.methods if one.name == name
            )
            for at, method in islice(found, 1) if next(runs, None) is not None else ():
                for what, value in method.sets:
                    above, _, called = what[:-2].rpartition(".")
                    if what.endswith("()"):
                        run(called, at + 1 if above else 0)
                    else:
                        said[what] = value

        run("setUpClass")
        run("setUp")
        tests = (method for facts in order for method in facts.methods if is_test(method.name))
        said |= {what: "?" for method in tests for what, _ in method.sets}
        self._values[cls] = {f"self.{name}": value for name, value in said.items() if value != "?"}
        return self._values[cls]

    def open_ends(self, cls: Class) -> list[Outside | Computed]:
        """Ancestors of which nothing is known."""
        outside = [a for a in self.order(cls) if isinstance(a, Outside | Computed)]
        return [a for a in outside if not self.is_root(a) and not PLAIN.fullmatch(short_name(a))]


def _merge(orders: list[list[Ancestor]]) -> list[Ancestor] | None:
    """C3: take the first head that is in no other tail; None where there is none."""
    merged: list[Ancestor] = []
    rest = [order for order in orders if order]
    while rest:
        for order in rest:
            head = order[0]
            if not any(head in other[1:] for other in rest):
                break
        else:
            return None
        merged.append(head)
        rest = [kept for kept in ([a for a in order if a != head] for order in rest) if kept]
    return merged
