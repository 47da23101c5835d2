"""Expressions, read without running them: dotted names, references to classes, constants, short texts."""

from __future__ import annotations

import ast
import re

from karat.policy.scan_one_line import one_line
from karat.policy.scan_shapes import Reference

_LONGEST = 80
_JOINED = re.compile(r" (?:and|or|if) ")


def dotted(node: ast.AST) -> str:
    """`a.b.c` for a chain of names; nothing for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    parts.append(node.id)
    return ".".join(reversed(parts))


def text_of(node: ast.AST) -> str:
    """The expression on one line, shortened."""
    try:
        text = dotted(node)
        if not text:
            text = " ".join((one_line(node, beginning=True) or ast.unparse(node)).split())
    except RecursionError:
        return "…"
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def negated(condition: str) -> str:
    """The other case."""
    if condition.startswith("not (") and condition.endswith(")") and condition.count("(") == 1:
        return condition[5:-1]
    if condition.startswith("not ") and not _JOINED.search(condition):
        return condition[4:]
    return (
        f"not ({condition})"
        if _JOINED.search(condition) or " " in condition
        else f"not {condition}"
    )


def reference(node: ast.AST) -> Reference:
    """What an expression says about the class or function that it means."""
    if isinstance(node, ast.Call):
        return _got(node) or _call(node)
    return Reference(text=text_of(node), names=tuple(dict.fromkeys(_names(node))))


def _got(node: ast.Call) -> Reference | None:
    """`getattr(module, "OpTest")`."""
    if dotted(node.func) != "getattr" or len(node.args) < 2:
        return None
    owner, name = dotted(node.args[0]), literal(node.args[1])
    return Reference(text=text_of(node), names=(f"{owner}.{name}",)) if owner and name else None


def _call(node: ast.Call) -> Reference:
    return Reference(
        text=text_of(node),
        function=dotted(node.func),
        arguments=tuple(reference(argument) for argument in node.args),
        keywords={k.arg: reference(k.value) for k in node.keywords if k.arg is not None},
    )


def _names(node: ast.AST) -> list[str]:
    name = dotted(node)
    if name:
        return [name]
    match node:
        case ast.Subscript(
            value=ast.Call(func=ast.Name(id="globals" | "locals")),
            slice=ast.Constant(value=str(key)),
        ):
            return [key]
        case ast.Subscript(value=value) | ast.Starred(value=value) | ast.NamedExpr(value=value):
            return _names(value)
        case ast.IfExp(body=body, orelse=orelse):
            return _names(body) + _names(orelse)
        case (
            ast.BoolOp(values=values)
            | ast.List(elts=values)
            | ast.Tuple(elts=values)
            | ast.Set(elts=values)
            | ast.Dict(values=values)
        ):
            return [name for value in values for name in _names(value)]
        case _:
            return []


def column(node: ast.expr, place: int) -> ast.expr:
    """What the place-th name of a loop over the expression goes over; all of it, where that is not plain to see."""
    match node:
        case ast.Call(func=ast.Name(id="zip"), args=args) if place < len(args):
            return args[place]
        case ast.List(elts=rows) | ast.Tuple(elts=rows):
            parts = [
                row.elts[place]
                for row in rows
                if isinstance(row, ast.Tuple | ast.List) and place < len(row.elts)
            ]
            return ast.List(elts=parts, ctx=ast.Load()) if len(parts) == len(rows) else node
        case _:
            return node


def members_of(node: ast.expr) -> dict[str, ast.expr] | None:
    """The members that `type()` is given; None where only running it tells."""
    match node:
        case ast.Dict(keys=keys, values=values):
            names = [literal(key) for key in keys]
            return None if None in names else dict(zip(names, values, strict=True))  # type: ignore[arg-type]
        case ast.Call(func=ast.Name(id="dict"), args=[], keywords=given):
            return None if any(k.arg is None for k in given) else {k.arg: k.value for k in given}  # type: ignore[misc]
        case _:
            return None


def truth(node: ast.AST) -> bool | None:
    """Whether a condition is always true or always false; None where that is not plain to see."""
    match node:
        case ast.Constant(value=value):
            return bool(value)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            inner = truth(operand)
            return None if inner is None else not inner
        case ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING"):
            return False
        case ast.List(elts=[]) | ast.Tuple(elts=[]) | ast.Dict(keys=[]):
            return False
        case ast.BoolOp(op=op, values=values):
            return _joined([truth(value) for value in values], isinstance(op, ast.And))
        case _:
            return None


def _joined(known: list[bool | None], both: bool) -> bool | None:  # noqa: FBT001 - and or or
    if (not both) in known:
        return not both
    return None if None in known else both


def literal(node: ast.AST | None) -> str | None:
    """The text of a string literal, joined literals included."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = literal(node.left), literal(node.right)
        return None if left is None or right is None else left + right
    return None


def number(node: ast.AST) -> float | None:
    """The value of a number that is written out: `0.01`, `-1`, `1e-3 * 2`."""
    match node:
        case ast.Constant(value=bool()):
            return None
        case ast.Constant(value=int() | float() as value):
            return _finite(value)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            inner = number(operand)
            return None if inner is None else -inner
        case ast.BinOp(left=left, op=ast.Mult() | ast.Div() as op, right=right):
            one, other = number(left), number(right)
            if one is None or other is None or (isinstance(op, ast.Div) and other == 0):
                return None
            return one * other if isinstance(op, ast.Mult) else one / other
        case _:
            return None


def _finite(value: float) -> float | None:
    try:
        return float(value)
    except OverflowError:
        return None
