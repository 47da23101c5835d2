"""Names in Python files of a commit: what an alias stands for, and what a constant is worth, without running anything.

Names are followed into other files of the same commit, which are read when a name leads there, each once. Where several
values are possible, all of them count.
"""

from __future__ import annotations

import ast
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from math import isfinite
from pathlib import Path
from typing import TypeAlias, TypeVar

from karat.findings import CannotVerify
from karat.policy.scan.names import Modules, stem
from karat.policy.scan.source import Unreadable, dotted, parse
from karat.policy.scan.syntax import import_bindings
from karat.policy.scan.vocabulary import ANYWHERE, IN_CHECKS, SKIP_RULE
from karat.system import git

Definition: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
_DEEPEST = 8
_MOST_ORIGINS = 60
_LARGEST_POWER = 400
_NUMBERS = frozenset({"float", "int", "float16", "float32", "float64", "abs"})

Parameters: TypeAlias = Mapping[str, Definition]
"""The parameters that may be meant at a place, and whose they are."""
Import: TypeAlias = Callable[[str, bool], "FileNames | None"]
"""Module, as a file says it, and whether only skips are looked for → its names, if it is a file of the same tree."""
_T = TypeVar("_T")
_GRANTS = r"check_grad|gradcheck|check_grads|OpSpec|max_relative_error|skip_check_grad"
_ROUNDS = 3
_PLAIN = re.compile(r"\w+", re.ASCII)
_ENTRANCES = frozenset({"__new__", "__init__", "__call__", "__init_subclass__"})
"""Methods that run when a class is called, or inherited from."""


class Bindings:
    """Everything that a name of the file may stand for, wherever it is bound; `.name` is an attribute of anything."""

    def __init__(self, tree: ast.Module) -> None:
        self.aliases: dict[str, set[str]] = defaultdict(set)
        self.values: dict[str, list[ast.expr]] = defaultdict(list)
        self.functions: dict[str, list[Definition]] = defaultdict(list)
        self.imports: dict[str, set[tuple[str, str]]] = defaultdict(set)
        """Name → modules, with a dot in front for every level up, and names there; none for the module itself."""
        self.stars: list[str] = []
        self.bodies: list[tuple[str, frozenset[str]]] = []
        """What is called → the names that its body mentions."""
        self.bases: list[ast.expr] = []
        """What classes inherit from."""
        self.calls: dict[str, list[ast.Call]] = defaultdict(list)
        for node in ast.walk(tree):
            self._note(node)

    def _note(self, node: ast.AST) -> None:
        match node:
            case ast.Call(func=function):
                self.calls[bound_name(function).removeprefix(".")].append(node)
            case ast.ImportFrom() | ast.Import():
                for binding in import_bindings(node):
                    if binding.kind == "star":
                        self.stars.append(binding.module)
                    elif "." not in binding.name:
                        self.imports[binding.name].add((binding.module, binding.target))
                        means = binding.target or binding.module.rpartition(".")[2]
                        self._alias(binding.name, means)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self.functions[node.name].append(node)
                self.bodies.append((node.name, _mentioned(node.body)))
            case ast.ClassDef(name=name, bases=bases, body=body):
                self.bases += bases
                self._class(name, body)
            case _:
                self._assignment(node)

    def _assignment(self, node: ast.AST) -> None:
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._bind(target, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value) | ast.NamedExpr(target=target, value=value):
                self._bind(target, value)
            case ast.AugAssign(target=target, op=op, value=value):
                self._bind(target, ast.BinOp(left=target, op=op, right=value))
            case ast.For() | ast.AsyncFor() | ast.comprehension():
                for each in node.iter.elts if isinstance(node.iter, ast.Tuple | ast.List | ast.Set) else (node.iter,):
                    self._bind(node.target, each)

    def _class(self, name: str, body: Sequence[ast.stmt]) -> None:
        """What a class body binds is read as an attribute."""
        for statement in body:
            match statement:
                case ast.Assign(targets=targets, value=value):
                    names = [target for target in targets if isinstance(target, ast.Name)]
                    for target in names:
                        self.values[f".{target.id}"].append(value)
                case ast.AnnAssign(target=ast.Name(id=target), value=ast.expr() as value):
                    self.values[f".{target}"].append(value)
                case ast.FunctionDef() if statement.name in _ENTRANCES:
                    self.bodies.append((name, _mentioned(statement.body)))

    def _bind(self, target: ast.AST, value: ast.expr) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            known = isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts)
            for i, one in enumerate(target.elts):
                self._bind(one, value.elts[i] if known else value)  # type: ignore[attr-defined]
            return
        name = bound_name(target)
        if not name:
            return
        self.values[name].append(value)
        inner = value.value if isinstance(value, ast.NamedExpr) else value
        if isinstance(target, ast.Name) and isinstance(inner, ast.Name):
            self._alias(name, inner.id)
        elif isinstance(target, ast.Name) and isinstance(inner, ast.Attribute):
            self._alias(name, inner.attr)

    def _alias(self, name: str, means: str) -> None:
        if name != means:
            self.aliases[name].add(means)


def bound_name(node: ast.AST) -> str:
    """`TOL`, or `.tol` for an attribute of anything."""
    if isinstance(node, ast.Attribute):
        return f".{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def returned(function: Definition) -> Iterator[ast.expr]:
    for node in ast.walk(function):
        if isinstance(node, ast.Return | ast.Yield) and node.value is not None:
            yield node.value


def arguments(function: Definition) -> list[ast.arg]:
    """Every parameter, also those that take all the rest."""
    given = function.args
    found = [*given.posonlyargs, *given.args, given.vararg, *given.kwonlyargs, given.kwarg]
    return [argument for argument in found if argument is not None]


def _mentioned(body: Iterable[ast.stmt]) -> frozenset[str]:
    names = (bound_name(node) for statement in body for node in ast.walk(statement))
    return frozenset(name for name in names if name)


class FileNames:
    """Names of one file: aliases and constants; a name that is bound several times may be worth any of its values."""

    def __init__(self, tree: ast.Module, load: Import = lambda _module, _skips: None) -> None:
        self.bound = Bindings(tree)
        self._load = load
        self._skips: set[str] = set()
        self._searched = False
        self._foreign: dict[tuple[str, ...], bool] = {}
        self._depth = 0

    def canonical(self, node: ast.AST) -> str:
        """The last part of the name that an expression means: `skip_check_grad_ci` for `op_test.skip_check_grad_ci`."""
        return next(iter(self._canonical(node, 0)), "")

    def is_skip(self, node: ast.AST) -> bool:
        """Whether an expression means the skip decorator, or what this file or another made of it."""
        if any(name == SKIP_RULE or name in self._carriers for name in self._canonical(node, 0)):
            return True
        return self._comes_as_skip(node)

    def numbers(self, node: ast.AST, parameters: Parameters) -> tuple[float, ...]:
        """Every number that an expression may be worth; none where that is unknown."""
        found = self._numbers(node, parameters, 0)
        return tuple(found) if found and all(map(isfinite, found)) else ()

    def text(self, node: ast.AST, depth: int = 0) -> str | None:
        """The text that an expression is worth: a literal, several joined, or a name for one."""
        if depth > _DEEPEST:  # `text = text + more`
            return None
        match self.literal(node):
            case ast.Constant(value=str(text)):
                return text
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return self._joined((left, right), depth)
            case ast.JoinedStr(values=values):
                parts = (v.value if isinstance(v, ast.FormattedValue) else v for v in values)
                return self._joined(parts, depth)
        return None

    def _joined(self, nodes: Iterable[ast.expr], depth: int) -> str | None:
        texts = [self.text(node, depth + 1) for node in nodes]
        return "".join(map(str, texts)) if None not in texts else None

    def texts(self, node: ast.AST) -> tuple[str, ...] | None:
        """The texts of a set, list or tuple of literals, or of one literal; None for anything else."""
        found = self.literal(node)
        if isinstance(found, ast.Call) and self.canonical(found.func) in {"set", "frozenset"}:
            if not found.args:
                return ()
            found = found.args[0]
        if isinstance(found, ast.Constant) and isinstance(found.value, str):
            return (found.value,)
        if not isinstance(found, ast.Set | ast.List | ast.Tuple):
            return None
        texts = [e.value for e in found.elts if isinstance(e, ast.Constant)]
        if len(texts) != len(found.elts) or not all(isinstance(t, str) for t in texts):
            return None
        return tuple(sorted({str(text) for text in texts}))

    def literal(self, node: ast.AST) -> ast.expr | None:
        """The one expression that a name was given in this file, or the expression itself."""
        for _ in range(_DEEPEST):
            values = self.bound.values.get(bound_name(node), ())
            if len(values) != 1:
                break
            node = values[0]
        return node if isinstance(node, ast.expr) else None

    def origins(self, node: ast.AST, parameters: Parameters) -> tuple[str, ...]:
        """What the names in an expression stand for, each once: `TOL: 0.1`; what it is worth changes only with these."""
        found: dict[str, None] = {}
        waiting, seen = [node], set[str]()
        while waiting and len(found) < _MOST_ORIGINS:
            for inner in ast.walk(waiting.pop()):
                name = bound_name(inner)
                if not name or name in seen:
                    continue
                seen.add(name)
                given = self._sources(inner, parameters)
                found |= {f"{name}: {ast.unparse(one)}": None for one in given}
                waiting += given
                # A name may be bound here and imported, too, and only running tells which is the last.
                if not given or isinstance(inner, ast.Name):
                    for other, there in self._abroad(inner):
                        found |= dict.fromkeys(other.origins_of(there))
        return tuple(sorted(found))

    def exports(self) -> frozenset[tuple[str, str]]:
        """All that another file could take from this one: names, and what they stand for."""
        return frozenset((name, ast.dump(value)) for name, value in self._made())

    def made_of(self, words: set[str]) -> Iterator[str]:
        """Names that stand for something in which one of the words stands."""
        for name, value in self._made():
            if any(bound_name(node).removeprefix(".") in words for node in ast.walk(value)):
                yield name

    def _made(self) -> Iterator[tuple[str, ast.expr]]:
        for name, values in self.bound.values.items():
            yield from ((name.removeprefix("."), value) for value in values)
        for name, functions in self.bound.functions.items():
            yield from ((name, value) for function in functions for value in returned(function))

    def _sources(self, node: ast.AST, parameters: Parameters) -> list[ast.expr]:
        """Everything in this file that a name or an attribute may get its worth from."""
        name = bound_name(node)
        found = list(self.bound.values.get(name, ()))
        if name in parameters:
            found += self._given(parameters[name], name)
        for function in self.bound.functions.get(name.removeprefix("."), ()):
            found += returned(function)
        return found

    def _given(self, function: Definition, parameter: str) -> Iterator[ast.expr]:
        """What a parameter is given: by calls in this file, by its default, by decorators such as parametrize."""
        plain = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
        reported = parameter in ANYWHERE  # at the call itself
        yield from function.decorator_list
        for call in self.bound.calls.get(function.name, ()):
            bare = plain[1:] if isinstance(call.func, ast.Attribute) and plain[:1] == ["self"] else plain
            yield from (v for n, v in zip(bare, call.args, strict=False) if n == parameter)
            yield from (a for a in call.args if isinstance(a, ast.Starred))
            words = (k for k in call.keywords if k.arg in {None, parameter})
            yield from (k.value for k in words if not (reported and k.arg))
            if function.args.kwarg and function.args.kwarg.arg == parameter:
                passed = [k for k in call.keywords if k.arg in IN_CHECKS]
                yield from (ast.Call(func=_expression("dict"), args=[], keywords=[k]) for k in passed)
        if not reported:
            yield from (value for name, value in defaults(function) if name == parameter)

    def origins_of(self, name: str) -> tuple[str, ...]:
        """What a name, or an attribute, of this file stands for, asked from another."""
        return self._guarded(lambda: self.origins(_expression(name), {}), ())

    def numbers_of(self, name: str) -> list[float]:
        """What a name, or an attribute, of this file may be worth, asked from another."""
        return self._guarded(lambda: self._numbers(_expression(name), {}, 0), [])

    def carries(self, name: str) -> bool:
        """Whether a name of this file is the skip, asked from another."""
        return self._guarded(lambda: self.is_skip(_expression(name)), default=False)

    def _guarded(self, ask: Callable[[], _T], default: _T) -> _T:
        """Files import each other in circles."""
        if self._depth > 2:
            return default
        self._depth += 1
        try:
            return ask()
        finally:
            self._depth -= 1

    def _abroad(self, node: ast.AST) -> Iterator[tuple[FileNames, str]]:
        """Other files, and the names there, that an expression may mean; of attributes, where base classes are from."""
        yield from self._elsewhere(node, skips=False)
        if isinstance(node, ast.Attribute):
            for base in self.bound.bases:
                for other, _ in self._elsewhere(base, skips=False):
                    yield other, f".{node.attr}"

    def _elsewhere(self, node: ast.AST, *, skips: bool) -> Iterator[tuple[FileNames, str]]:
        """`from m import x`, `m.x`, `from m import *`."""
        parts = tuple(filter(None, dotted(node).split(".")))
        if not parts:
            return
        for module, name in sorted(self.bound.imports.get(parts[0], ())):
            chain = [*filter(None, (name, *parts[1:]))]
            # Whatever is not the last part is a module of a package.
            home = ".".join((module, *chain[:-1])) if module.strip(".") else module + ".".join(chain[:-1])
            if chain and (names := self._load(home, skips)) is not None:
                yield names, chain[-1]
        if len(parts) == 1:
            for star in self.bound.stars:
                if (names := self._load(star, skips)) is not None:
                    yield names, parts[0]

    def _comes_as_skip(self, node: ast.AST) -> bool:
        parts = tuple(filter(None, dotted(node).split(".")))
        if parts not in self._foreign:
            self._foreign[parts] = False  # for those who ask in a circle
            there = self._elsewhere(node, skips=True)
            self._foreign[parts] = any(other.carries(name) for other, name in there)
        return self._foreign[parts]

    @property
    def _carriers(self) -> set[str]:
        """Names that carry the skip on: assigned, or a function or class that applies it."""
        if not self._searched:
            self._searched = True
            while self._spread():
                pass
        return self._skips

    def _spread(self) -> bool:
        before = len(self._skips)
        for name, values in self.bound.values.items():
            if name.removeprefix(".") not in self._skips and any(map(self._passes_on, values)):
                self._skips.add(name.removeprefix("."))
        for name, mentioned in self.bound.bodies:
            fresh = name != SKIP_RULE and name not in self._skips
            if fresh and any(self.is_skip(_expression(one)) for one in mentioned):
                self._skips.add(name)
        return len(self._skips) > before

    def _passes_on(self, value: ast.expr) -> bool:
        if isinstance(value, ast.Call):
            given = value.args[:1] if self.canonical(value.func) == "partial" else []
            return any(self.is_skip(node) for node in (value, value.func, *given))
        return isinstance(value, ast.Lambda) and any(
            isinstance(n, ast.Name | ast.Attribute) and self.is_skip(n) for n in ast.walk(value)
        )

    def _canonical(self, node: ast.AST, depth: int) -> Iterator[str]:
        match node:
            case ast.Name(id=name):
                yield from self._meant(name, depth)
            case ast.Attribute(attr=name):
                values = self.bound.values.get(f".{name}", ()) if depth < _DEEPEST else ()
                for value in values:
                    if isinstance(value, ast.Name | ast.Attribute):
                        yield from self._canonical(value, depth + 1)
                yield name
            case ast.NamedExpr(value=value):
                yield from self._canonical(value, depth)
            case ast.Subscript(slice=ast.expr() as key):
                yield self.text(key) or ""  # globals()["skip_check_grad_ci"]
            case ast.Call(args=args):
                # getattr, vars(…).get, attrgetter: whatever is asked for the skip by its name
                yield from (name for name in map(self.text, args) if name == SKIP_RULE)

    def _meant(self, name: str, depth: int) -> Iterator[str]:
        if depth < _DEEPEST:
            for other in sorted(self.bound.aliases.get(name, ())):
                yield from self._meant(other, depth + 1)
        yield name

    def _numbers(self, node: ast.AST, parameters: Parameters, depth: int) -> list[float]:  # noqa: PLR0911 - one for each kind of expression
        if depth > _DEEPEST:
            return []
        match node:
            case ast.Constant(value=bool()):
                return []
            case ast.Constant(value=int() | float() as value):
                return _applied(float, value)
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                return [-n for n in self._numbers(inner, parameters, depth + 1)]
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATIONS:
                pairs = [
                    (a, b)
                    for a in self._numbers(left, parameters, depth + 1)
                    for b in self._numbers(right, parameters, depth + 1)
                ]
                return [n for a, b in pairs[:64] for n in _applied(_OPERATIONS[type(op)], a, b)]
            case ast.IfExp(body=body, orelse=orelse):
                return self._all([body, orelse], parameters, depth)
            case ast.Call(func=function, args=[inner]) if self.canonical(function) in _NUMBERS:
                return self._numbers(inner, parameters, depth + 1)
            case ast.Call(func=ast.Name(id="min" | "max"), args=[_, *_] as given):
                return self._all(given, parameters, depth)
            case ast.Name() | ast.Attribute():
                return self._named_numbers(node, parameters, depth)
        return []

    def _named_numbers(self, node: ast.Name | ast.Attribute, parameters: Parameters, depth: int) -> list[float]:
        name = bound_name(node)
        given = list(self.bound.values.get(name, ()))
        if name in parameters:
            given += self._given(parameters[name], name)
        each = [self._numbers(one, parameters, depth + 1) for one in given]
        if not given or isinstance(node, ast.Name):
            there = [other.numbers_of(name) for other, name in self._abroad(node)]
            each += [found for found in there if found or not given]
        return [n for one in each for n in one] if all(each) else []

    def _all(self, nodes: Sequence[ast.expr], parameters: Parameters, depth: int) -> list[float]:
        """What any of them may be worth; nothing if one of them is unknown."""
        each = [self._numbers(node, parameters, depth + 1) for node in nodes]
        return [n for one in each for n in one] if all(each) else []


def _expression(name: str) -> ast.expr:
    """`TOL` as it stands in a program, or `.tol` as an attribute of something."""
    if name.startswith("."):
        return ast.Attribute(value=ast.Constant(value=None), attr=name[1:], ctx=ast.Load())
    return ast.Name(id=name, ctx=ast.Load())


def defaults(function: Definition) -> Iterator[tuple[str, ast.expr]]:
    given = function.args
    plain = [*given.posonlyargs, *given.args]
    pairs = zip(plain[len(plain) - len(given.defaults) :], given.defaults, strict=True)
    yield from ((argument.arg, value) for argument, value in pairs)
    named = zip(given.kwonlyargs, given.kw_defaults, strict=True)
    yield from ((argument.arg, value) for argument, value in named if value is not None)


def _applied(operation: Callable[..., float], *numbers: float) -> list[float]:
    try:
        return [float(operation(*numbers))]
    except (ArithmeticError, ValueError, TypeError):
        return []


def _power(base: float, exponent: float) -> float:
    # Floats only: a tower of integers would take forever.
    return float(base) ** float(exponent) if abs(exponent) <= _LARGEST_POWER else float("nan")


_OPERATIONS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
    ast.Pow: _power,
}


class CommitFiles:
    def __init__(self, root: Path, commit: str) -> None:
        self._root = root
        self._commit = commit
        self._known: dict[str, FileNames | None] = {}

    def loader(self, path: str, *, changed: bool = True) -> Import:
        """How a file finds what it imports.

        From the second file on, skips are looked for only where they may be: otherwise it would be every file.
        """

        def load(module: str, skips: bool) -> FileNames | None:  # noqa: FBT001 - asked alike
            found = self._modules.find(module, path)
            if found is None or found == path:
                return None
            if skips and not changed and found not in self._skipping:
                return None
            return self.names(found)

        return load

    def names(self, path: str) -> FileNames | None:
        """The names of a file; None where there is none, or where it is no Python."""
        if path not in self._known:
            self._known[path] = None  # for files that import each other
            data = self.read(path)
            with suppress(Unreadable, RecursionError):
                if data is not None:
                    self._known[path] = FileNames(parse(data), self.loader(path, changed=False))
        return self._known[path]

    def read(self, path: str) -> bytes | None:
        oid = self._files.get(path)
        return git.run_git(self._root, "cat-file", "blob", oid) if oid else None

    def mentioning(self, paths: Iterable[str]) -> set[str]:
        """Files with a word that is the name of one of these modules."""
        return self._with_words(stem(f"/{path}") for path in paths)

    def users(self, paths: Iterable[str], names: Iterable[str]) -> set[str]:
        """Files that grant something, and may have one of these names from one of these modules, or through others."""
        found: set[str] = set()
        waiting, words = set(paths), set(names)
        for _ in range(_ROUNDS):
            waiting = (self.mentioning(waiting) & self._with_words(words)) - found
            found |= waiting
            known = [one for one in map(self.names, waiting) if one is not None]
            words |= {name for one in known for name in one.made_of(words)}
        return (found & self._grep(_GRANTS)) - set(paths)

    @cached_property
    def _files(self) -> dict[str, str]:
        tree = git.tree_paths(self._root, self._commit)
        return {path: oid for path, oid in tree.items() if path.endswith(".py")}

    @cached_property
    def _modules(self) -> Modules:
        return Modules((path, f"{os.sep}{path}") for path in self._files)

    @cached_property
    def _skipping(self) -> set[str]:
        """Files that mention the skip, or a module that does; tests are imported by nobody."""
        found = self._grep(SKIP_RULE)
        return found | self.mentioning(p for p in found if not stem(f"/{p}").startswith("test"))

    def _with_words(self, words: Iterable[str]) -> set[str]:
        plain = sorted({word for word in words if _PLAIN.fullmatch(word)})
        return self._grep(rf"\b({'|'.join(plain)})\b") if plain else set()

    def _grep(self, pattern: str) -> set[str]:
        """Python files with a line that fits."""
        words = ("grep", "-l", "-z", "-a", "-E", "-e", pattern, self._commit, "--", "*.py")
        try:
            out = git.run_git(self._root, *words)
        except CannotVerify as error:
            if not str(error).endswith(": "):  # without a word of complaint, it has found nothing
                raise
            return set()
        names = (entry.partition(b":")[2] for entry in out.split(b"\0") if entry)
        return {os.fsdecode(name) for name in names}
