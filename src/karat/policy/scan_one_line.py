"""An expression on one line, as `ast.unparse` writes it, for the plain ones that nearly all are."""

from __future__ import annotations

import ast

_ENOUGH = 40
"""Members of a list that fill any line that is shown."""
_SIGNS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Is: "is",
    ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in",
}  # fmt: skip


def one_line(node: ast.AST, *, beginning: bool = False) -> str | None:
    """The text; None where the expression is not of the plain kind. `beginning`: a long list may be cut."""
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            one, other = _atom(left), _atom(right)
            return None if one is None or other is None else f"{one} {_SIGNS[type(op)]} {other}"
        case ast.UnaryOp(
            op=ast.Not(),
            operand=ast.Compare() | ast.Name() | ast.Attribute() | ast.Call() as operand,
        ):
            said = one_line(operand)
            return None if said is None else f"not {said}"
        case ast.List(elts=elts) if beginning and len(elts) > _ENOUGH:
            said = _joined(elts[:_ENOUGH])
            return None if said is None else f"[{said}]"
        case _:
            return _atom(node)  # fmt: skip


def _atom(node: ast.AST) -> str | None:  # noqa: PLR0911 - one for each kind
    """What never stands in brackets."""
    match node:
        case ast.Name():
            return node.id
        case ast.Constant():
            return _constant(node)
        case ast.Attribute(
            value=ast.Name() | ast.Attribute() | ast.Call() | ast.Subscript() as value
        ):
            said = _atom(value)
            return None if said is None else f"{said}.{node.attr}"
        case ast.Call(func=ast.Name() | ast.Attribute() as function):
            called, given = _atom(function), _joined(node.args)
            named = _keywords(node.keywords)
            if called is None or given is None or named is None:
                return None
            return f"{called}({given}{', ' if given and named else ''}{named})"
        case ast.Subscript(
            value=ast.Name() | ast.Attribute() as value, slice=ast.Name() | ast.Constant() as key
        ):
            said, inner = _atom(value), _atom(key)
            return None if said is None or inner is None else f"{said}[{inner}]"
        case ast.List(elts=elts):
            said = _joined(elts)
            return None if said is None else f"[{said}]"
        case _:
            return None  # fmt: skip


def _constant(node: ast.Constant) -> str | None:
    kind = type(node.value)
    if node.kind is not None or kind not in {str, int, bool, type(None), float}:
        return None
    text = repr(node.value)
    return None if kind is float and "n" in text else text  # inf and nan are written otherwise


def _joined(nodes: list[ast.expr]) -> str | None:
    texts = [one_line(node) for node in nodes]
    return None if None in texts else ", ".join(texts)  # type: ignore[arg-type]


def _keywords(nodes: list[ast.keyword]) -> str | None:
    texts = []
    for node in nodes:
        said = one_line(node.value)
        if said is None or node.arg is None:
            return None
        texts.append(f"{node.arg}={said}")
    return ", ".join(texts)
