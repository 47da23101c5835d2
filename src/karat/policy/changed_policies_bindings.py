"""Bindings of one file: which names it gives to what, and what it takes from other files; nothing is run."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

Definition: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
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
                self._import(node)
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
            case (
                ast.AnnAssign(target=target, value=ast.expr() as value)
                | ast.NamedExpr(target=target, value=value)
            ):
                self._bind(target, value)
            case ast.AugAssign(target=target, op=op, value=value):
                self._bind(target, ast.BinOp(left=target, op=op, right=value))
            case ast.For() | ast.AsyncFor() | ast.comprehension():
                for each in _elements(node.iter):
                    self._bind(node.target, each)

    def _import(self, node: ast.ImportFrom | ast.Import) -> None:
        module = "." * node.level + (node.module or "") if isinstance(node, ast.ImportFrom) else ""
        for alias in node.names:
            if alias.name == "*":
                self.stars.append(module)
            elif module:
                self.imports[alias.asname or alias.name].add((module, alias.name))
            else:
                name = alias.asname or alias.name.partition(".")[0]
                self.imports[name].add((alias.name if alias.asname else name, ""))
            if alias.asname:
                self._alias(alias.asname, alias.name.rpartition(".")[2])

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


def dotted(node: ast.AST) -> tuple[str, ...]:
    """`("a", "b", "c")` for `a.b.c`; nothing for what is no chain of names."""
    if isinstance(node, ast.Attribute):
        inner = dotted(node.value)
        return (*inner, node.attr) if inner else ()
    return (node.id,) if isinstance(node, ast.Name) else ()


def returned(function: Definition) -> Iterator[ast.expr]:
    """What a function may give back."""
    for node in ast.walk(function):
        if isinstance(node, ast.Return | ast.Yield) and node.value is not None:
            yield node.value


def arguments(function: Definition) -> list[ast.arg]:
    """Every parameter, also those that take all the rest."""
    given = function.args
    found = [*given.posonlyargs, *given.args, given.vararg, *given.kwonlyargs, given.kwarg]
    return [argument for argument in found if argument is not None]


def _elements(node: ast.expr) -> Sequence[ast.expr]:
    return node.elts if isinstance(node, ast.Tuple | ast.List | ast.Set) else (node,)


def _mentioned(body: Iterable[ast.stmt]) -> frozenset[str]:
    names = (bound_name(node) for statement in body for node in ast.walk(statement))
    return frozenset(name for name in names if name)
