"""Names in Python files of a commit: what an alias stands for, and what a constant is worth, without running anything.

Names are followed into other files of the same commit, which are read when a name leads there, each once. Where several
values are possible, all of them count.
"""

from __future__ import annotations

import ast
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from typing import TypeAlias, TypeVar

from karat.findings import CannotVerify
from karat.policy.scan.names import Modules, below, stem
from karat.policy.scan.source import Unreadable, all_of, defaults, dotted, literal, numbers, parse
from karat.policy.scan.syntax import import_bindings
from karat.policy.scan.vocabulary import ANYWHERE, IN_CHECKS, SKIP_RULE
from karat.system import git
from karat.system.foreign.limits import SOURCE, TooLong

Definition: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
_DEEPEST = 8
_MOST_ORIGINS = 60
_NUMBERS = frozenset({"float", "int", "float16", "float32", "float64", "abs"})

Parameters: TypeAlias = Mapping[str, Definition]  # The parameters that may be meant at a place, and whose they are.
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
        self.bodies: list[tuple[str, frozenset[str]]] = []  # What is called → the names that its body mentions.
        self.bases: list[ast.expr] = []  # What classes inherit from.
        self.calls: dict[str, list[ast.Call]] = defaultdict(list)
        for node in ast.walk(tree):
            self._note(node)

    def _note(self, node: ast.AST) -> None:  # noqa: C901, PLR0912 - one branch per kind
        match node:
            case ast.Call(func=function):
                self.calls[bound_name(function).removeprefix(".")].append(node)
            case ast.ImportFrom() | ast.Import():
                for binding in import_bindings(node):
                    if binding.kind == "star":
                        self.stars.append(binding.module)
                    elif "." not in binding.name:
                        self.imports[binding.name].add((binding.module, binding.target))
                        self._alias(binding.name, binding.target or binding.module.rpartition(".")[2])
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self.functions[node.name].append(node)
                self.bodies.append((node.name, _mentioned(node.body)))
            case ast.ClassDef(name=name, bases=bases, body=body):
                self.bases += bases
                for statement in body:
                    if isinstance(statement, ast.FunctionDef) and statement.name in _ENTRANCES:
                        self.bodies.append((name, _mentioned(statement.body)))
                    # What a class body binds is read as an attribute.
                    for target, value in _assignments(statement):
                        if isinstance(target, ast.Name):
                            self.values[f".{target.id}"].append(value)
            case ast.NamedExpr(target=target, value=value):
                self._bind(target, value)
            case ast.AugAssign(target=target, op=op, value=value):
                self._bind(target, ast.BinOp(left=target, op=op, right=value))
            case ast.For() | ast.AsyncFor() | ast.comprehension():
                for each in node.iter.elts if isinstance(node.iter, ast.Tuple | ast.List | ast.Set) else (node.iter,):
                    self._bind(node.target, each)
            case _:
                for target, value in _assignments(node):
                    self._bind(target, value)

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
        if isinstance(target, ast.Name) and isinstance(inner, ast.Name | ast.Attribute):
            self._alias(name, bound_name(inner).removeprefix("."))

    def _alias(self, name: str, means: str) -> None:
        if name != means:
            self.aliases[name].add(means)


def bound_name(node: ast.AST) -> str:
    """`TOL`, or `.tol` for an attribute of anything."""
    if isinstance(node, ast.Attribute):
        return f".{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _assignments(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """(target, value) of an assignment statement."""
    match node:
        case ast.Assign(targets=targets, value=value):
            yield from ((target, value) for target in targets)
        case ast.AnnAssign(target=target, value=ast.expr() as value):
            yield target, value


def _returned(function: Definition) -> Iterator[ast.expr]:
    for node in ast.walk(function):
        if isinstance(node, ast.Return | ast.Yield) and node.value is not None:
            yield node.value


def _mentioned(body: Iterable[ast.stmt]) -> frozenset[str]:
    return frozenset(filter(None, (bound_name(node) for statement in body for node in ast.walk(statement))))


def _expression(name: str) -> ast.expr:
    """`TOL` as it stands in a program, or `.tol` as an attribute of something."""
    if name.startswith("."):
        return ast.Attribute(value=ast.Constant(value=None), attr=name[1:], ctx=ast.Load())
    return ast.Name(id=name, ctx=ast.Load())


class FileNames:
    """Names of one file: aliases and constants; a name that is bound several times may be worth any of its values."""

    def __init__(self, tree: ast.Module, load: Import = lambda _module, _skips: None) -> None:
        self.bound = Bindings(tree)
        self._load = load
        self._skips: set[str] = set()
        self._searched = False
        self._foreign: dict[str, bool] = {}
        self._depth = 0

    def canonical(self, node: ast.AST) -> str:
        """The last part of the name that an expression means: `skip_check_grad_ci` for `op_test.skip_check_grad_ci`."""
        return next(iter(self._canonical(node)), "")

    def is_skip(self, node: ast.AST) -> bool:
        """Whether an expression means the skip decorator, or what this file or another made of it."""
        if any(name == SKIP_RULE or name in self._carriers for name in self._canonical(node)):
            return True
        name = dotted(node)
        if name not in self._foreign:
            self._foreign[name] = False  # for those who ask in a circle
            there = self._imported(node, skips=True)
            self._foreign[name] = any(other.asked(partial(other.is_skip, it)) for other, it in there)
        return self._foreign[name]

    def text(self, node: ast.AST) -> str | None:
        """The text that an expression is worth: a literal, several joined, or a name for one."""
        return literal(node, self.literal)

    def texts(self, node: ast.AST) -> tuple[str, ...] | None:
        """The texts of a set, list or tuple of literals, or of one literal; None for anything else."""
        found = self.literal(node)
        if isinstance(found, ast.Call) and self.canonical(found.func) in {"set", "frozenset"}:
            found = found.args[0] if found.args else ast.Set(elts=[])
        match found:
            case ast.Constant(value=str(text)):
                return (text,)
            case ast.Set(elts=elements) | ast.List(elts=elements) | ast.Tuple(elts=elements):
                texts = [element.value for element in elements if isinstance(element, ast.Constant)]
                if len(texts) == len(elements) and all(isinstance(text, str) for text in texts):
                    return tuple(sorted(map(str, set(texts))))
        return None

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
                functions = self.bound.functions.get(name.removeprefix("."), ())
                given = [*self._given(name, parameters), *(value for each in functions for value in _returned(each))]
                found |= {f"{name}: {ast.unparse(one)}": None for one in given}
                waiting += given
                # A name may be bound here and imported, too, and only running tells which is the last.
                if not given or isinstance(inner, ast.Name):
                    for other, there in self._abroad(inner):
                        found |= dict.fromkeys(other.asked(partial(other.origins, there, {})) or ())
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
            yield from ((name, value) for function in functions for value in _returned(function))

    def _given(self, parameter: str, parameters: Parameters) -> Iterator[ast.expr]:
        """What a name is given in this file: a parameter by calls, its default, and decorators such as parametrize."""
        yield from self.bound.values.get(parameter, ())
        function = parameters.get(parameter)
        if function is None:
            return
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
            yield from (value for name, value in defaults(function.args) if name == parameter)

    def asked(self, question: Callable[[], _T]) -> _T | None:
        """What this file answers another; None where they go on asking each other in a circle."""
        if self._depth > 2:
            return None
        self._depth += 1
        try:
            return question()
        finally:
            self._depth -= 1

    def _abroad(self, node: ast.AST) -> Iterator[tuple[FileNames, ast.expr]]:
        """Other files, and what an expression may mean there; of attributes, where base classes are from."""
        yield from self._imported(node, skips=False)
        if isinstance(node, ast.Attribute):
            for base in self.bound.bases:
                yield from ((other, _expression(f".{node.attr}")) for other, _ in self._imported(base, skips=False))

    def _imported(self, node: ast.AST, *, skips: bool) -> Iterator[tuple[FileNames, ast.expr]]:
        """`from m import x`, `m.x`, `from m import *`."""
        first, *rest = dotted(node).split(".")
        found = []
        for module, name in sorted(self.bound.imports.get(first, ())):
            if chain := [*filter(None, (name, *rest))]:
                # Whatever is not the last part is a module of a package.
                found.append((below(module, *chain[:-1]), chain[-1]))
        if first and not rest:
            found += [(star, first) for star in self.bound.stars]
        for home, name in found:
            if (names := self._load(home, skips)) is not None:
                yield names, _expression(name)

    @property
    def _carriers(self) -> set[str]:
        """Names that carry the skip on: assigned, or a function or class that applies it."""
        before = len(self._skips) if self._searched else -1
        self._searched = True
        while len(self._skips) > before:
            before = len(self._skips)
            for name, values in self.bound.values.items():
                if name.removeprefix(".") not in self._skips and any(map(self._passes_on, values)):
                    self._skips.add(name.removeprefix("."))
            for name, mentioned in self.bound.bodies:
                known = name == SKIP_RULE or name in self._skips
                if not known and any(self.is_skip(_expression(one)) for one in mentioned):
                    self._skips.add(name)
        return self._skips

    def _passes_on(self, value: ast.expr) -> bool:
        if isinstance(value, ast.Call):
            given = value.args[:1] if self.canonical(value.func) == "partial" else []
            return any(self.is_skip(node) for node in (value, value.func, *given))
        return isinstance(value, ast.Lambda) and any(
            isinstance(n, ast.Name | ast.Attribute) and self.is_skip(n) for n in ast.walk(value)
        )

    def _canonical(self, node: ast.AST, depth: int = 0) -> Iterator[str]:
        match node:
            case ast.Name(id=name):
                for other in sorted(self.bound.aliases.get(name, ())) if depth < _DEEPEST else ():
                    yield from self._canonical(ast.Name(id=other), depth + 1)
                yield name
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

    def numbers(self, node: ast.AST, parameters: Parameters, depth: int = 0) -> list[float]:
        """Every number that an expression may be worth, infinite ones as well; none where that is unknown."""

        def known(node: ast.AST, depth: int) -> list[float]:
            match node:
                case ast.Call(func=function, args=[inner]) if self.canonical(function) in _NUMBERS:
                    return self.numbers(inner, parameters, depth)
                case ast.Name() | ast.Attribute():
                    name = bound_name(node)
                    given = [*self._given(name, parameters)]
                    each = [self.numbers(one, parameters, depth) for one in given]
                    if not given or isinstance(node, ast.Name):
                        for other, there in self._abroad(node):
                            found = other.asked(partial(other.numbers, there, {})) or []
                            each += [found] if found or not given else []
                    return all_of(each)
            return []

        return numbers(node, known, depth)


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
        with suppress(TooLong):
            return git.read_blob(self._root, oid, SOURCE) if oid else None
        return None

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
