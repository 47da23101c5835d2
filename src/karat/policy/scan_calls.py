"""A call in a method: whom it asks, what it hands over, and what it tells a check."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from karat.policy.scan_expressions import dotted, literal, number, text_of
from karat.policy.scan_shapes import Call
from karat.policy.scan_vocabulary import FREE_CHECKS, is_check

CATCHES = frozenset({"", "Exception", "BaseException", "AssertionError"})
"""Exceptions that a failed comparison is; the empty name is a bare `except`."""
_PLAIN_MODULES = frozenset({"np", "numpy", "paddle", "math", "core", "base", "fluid"})
"""Whatever these are handed, they check no gradient; most calls of a test are theirs."""


@dataclass(slots=True)
class Known:
    """Names of a body that stand for the op test, or for a check of it."""

    tests: dict[str, str]
    """Name → which parameter of a function it is; nothing for a method's own `self`."""
    checks: dict[str, ast.Attribute] = field(default_factory=dict)
    """`check = self.check_grad`."""

    def learn(self, name: str, value: ast.expr) -> None:
        """An assignment: `me = self`, `check = self.check_grad`."""
        if isinstance(value, ast.Name) and value.id in self.tests:
            self.tests[name] = self.tests[value.id]
        elif self.is_check(value):
            self.checks[name] = value  # type: ignore[assignment]

    def is_check(self, node: ast.AST) -> bool:
        """Whether the expression is a check of the test, called or not."""
        return isinstance(node, ast.Attribute) and is_check(node.attr) and self.is_test(node.value)

    def is_test(self, node: ast.AST) -> bool:
        """Whether the expression is the op test itself."""
        return isinstance(node, ast.Name) and node.id in self.tests


def takes_failure(node: ast.AST) -> bool:
    """Whether an expression takes the failure of what it is handed, or stands around, for granted."""
    if not isinstance(node, ast.Call):
        return False
    function = node.func
    last = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if last == "suppress":
        return any(dotted(kind).rpartition(".")[2] in CATCHES for kind in node.args)
    return last == "raises" or last.startswith("assertRaises")


def swallows(handler: ast.ExceptHandler) -> bool:
    """Whether a handler takes a failed comparison for granted."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    names = {dotted(kind).rpartition(".")[2] if kind is not None else "" for kind in kinds}
    if not names & CATCHES:
        return False
    return not any(isinstance(n, ast.Raise) or "fail" in text_of(n) for s in handler.body for n in ast.walk(s)
                   if isinstance(n, ast.Raise | ast.Call))  # fmt: skip


def drops(statements: Sequence[ast.stmt]) -> bool:
    """Whether a `finally` leaves by itself, and the failure with it."""
    leaves = ast.Return | ast.Break | ast.Continue
    return any(isinstance(node, leaves) for statement in statements for node in ast.walk(statement))


def calls(node: ast.Call, known: Known, when: tuple[str, ...], *, caught: bool) -> Iterator[Call]:
    """Calls that may check a gradient, or lead to one that does."""
    yield from _asked(node, known, when, caught=caught)
    for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
        if known.is_check(argument):
            assert isinstance(argument, ast.Attribute)  # noqa: S101 - as is_check says
            who = text_of(node.func)
            more = () if who.endswith("partial") else (f"{who} calls it",)
            yield Call(name=argument.attr, line=node.lineno, when=when + more, object=_object(argument, known),
                       caught=caught or takes_failure(node))  # fmt: skip


def _asked(node: ast.Call, known: Known, when: tuple[str, ...], *, caught: bool) -> Iterator[Call]:
    function = _function(node.func, known)
    if isinstance(function, ast.Attribute):
        value = function.value
        if known.is_test(value):
            yield _made(node, function.attr, when, caught=caught, object=_object(function, known))
            return
        if isinstance(value, ast.Call) and dotted(value.func) == "super":
            yield _made(node, function.attr, when, caught=caught, receiver="super")
            return
    whole = dotted(function)
    if not whole:
        return
    owner, _, name = whole.rpartition(".")
    if name in FREE_CHECKS:
        yield _made(node, name, when, caught=caught, receiver="free", owner=whole)
        return
    if whole.partition(".")[0] in _PLAIN_MODULES:
        return
    for place, test in _handed(node, known):
        if place == "0" and owner and not test:
            yield _made(node, name, when, caught=caught, receiver="class", owner=owner)
        else:
            yield Call(name=name, line=node.lineno, receiver="free", owner=whole, when=when, caught=caught,
                       place=place, object=test)  # fmt: skip


def _function(node: ast.expr, known: Known) -> ast.expr:
    """What is called, behind a walrus, an alias or `getattr(self, "check_grad")`."""
    if isinstance(node, ast.NamedExpr):
        node = node.value
    if isinstance(node, ast.Name) and node.id in known.checks:
        return known.checks[node.id]
    if isinstance(node, ast.Call) and dotted(node.func) == "getattr" and len(node.args) > 1:
        name = literal(node.args[1])
        if name is not None:
            return ast.Attribute(value=node.args[0], attr=name)
    return node


def _handed(node: ast.Call, known: Known) -> Iterator[tuple[str, str]]:
    """(place or keyword, which test) of every argument that is an op test."""
    places = [(str(index), argument) for index, argument in enumerate(node.args)]
    places += [(keyword.arg or "**", keyword.value) for keyword in node.keywords]
    for place, argument in places:
        if isinstance(argument, ast.Name) and argument.id in known.tests:
            yield place, known.tests[argument.id]


def _object(node: ast.Attribute, known: Known) -> str:
    return known.tests[node.value.id] if isinstance(node.value, ast.Name) else ""


def _made(
    node: ast.Call, name: str, when: tuple[str, ...], *, caught: bool, **more: str
) -> Call:  # fmt: skip
    keywords: dict[str, str] = {}
    numbers: dict[str, float] = {}
    if is_check(name) or name in FREE_CHECKS:
        for keyword in node.keywords:
            keywords[keyword.arg or "**"] = text_of(keyword.value)
            value = number(keyword.value)
            if value is not None and keyword.arg is not None:
                numbers[keyword.arg] = value
    return Call(name=name, line=node.lineno, when=when, caught=caught, keywords=keywords, numbers=numbers, **more)  # type: ignore[arg-type]  # fmt: skip
