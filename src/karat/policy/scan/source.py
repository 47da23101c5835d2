"""Python source as a stranger wrote it: bytes → a syntax tree, and what an expression says without being run."""

from __future__ import annotations

import ast
import io
import re
import tokenize
import unicodedata
import warnings
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from karat.policy.scan.facts import Expression
from karat.policy.scan.vocabulary import dtype_named
from karat.system.foreign.limits import SOURCE, TooLong

_LONGEST = 80
_LARGEST = 1e300
_JOINED = re.compile(r" (?:and|or|if) ")


class Unreadable(Exception):  # noqa: N818 - a state of the file
    """The bytes are not Python that this interpreter understands."""

    def __init__(self, why: str, line: int = 0) -> None:
        super().__init__(why)
        self.line = line


def parse(source: bytes) -> ast.Module:
    """The syntax tree; raises `Unreadable` if there is none."""
    if len(source) > SOURCE.value():
        raise Unreadable(str(TooLong("", len(source), SOURCE).strerror))
    try:
        with warnings.catch_warnings():
            # Invalid escapes and the like are that file's business.
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except SyntaxError as error:
        raise Unreadable(f"{error.msg} (line {error.lineno or 1})", error.lineno or 0) from error
    except RecursionError as error:
        raise Unreadable("its expressions are nested too deeply to be parsed") from error
    except MemoryError as error:
        raise Unreadable("the parser ran out of memory: nested too deeply") from error
    except (ValueError, LookupError, OverflowError) as error:
        # Null bytes; an integer of thousands of digits; an unknown encoding.
        raise Unreadable(f"{error}") from error


def words(source: bytes) -> bytes:
    """The bytes in which every ASCII identifier of the file stands as Python will read it.

    Identifiers are NFKC-normalised by Python, and an encoding may hide them from whoever looks at bytes.
    """
    if source.isascii() and b"coding" not in source[:400]:
        return source
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
        text = source.decode(encoding, "replace")
    except (SyntaxError, LookupError, ValueError):
        text = source.decode("latin-1")
    return unicodedata.normalize("NFKC", text).encode("utf-8", "replace")


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
        text = dotted(node) or " ".join(ast.unparse(node).split())
    except RecursionError:
        return "…"
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def negated(condition: str) -> str:
    if condition.startswith("not (") and condition.endswith(")") and condition.count("(") == 1:
        return condition[5:-1]
    if condition.startswith("not ") and not _JOINED.search(condition):
        return condition[4:]
    return f"not ({condition})" if " " in condition else f"not {condition}"


def expression(node: ast.AST) -> Expression:
    """What an expression says about the class or function that it means."""
    text = text_of(node)
    if not isinstance(node, ast.Call):
        return Expression(text=text, names=tuple(dict.fromkeys(_names(node))))
    function = dotted(node.func)
    return Expression(
        text=text,
        function=function,
        arguments=tuple(expression(argument) for argument in node.args),
        keywords={k.arg: expression(k.value) for k in node.keywords if k.arg is not None},
    )


def _names(node: ast.AST) -> list[str]:
    name = dotted(node)
    if name:
        return [name]
    match node:
        case ast.Subscript(value=ast.Call(func=ast.Name(id="globals" | "locals")), slice=ast.Constant(value=str(key))):
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
    return []


def truth(node: ast.AST | None, known: Mapping[str, object] = MappingProxyType({})) -> bool | None:
    """Whether a condition is always true or always false, by what names are `known` to be; None where that is not plain."""
    match node:
        case ast.Constant(value=value):
            return bool(value)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            inner = truth(operand, known)
            return None if inner is None else not inner
        case ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING"):
            return False
        case ast.List(elts=[]) | ast.Tuple(elts=[]) | ast.Dict(keys=[]):
            return False
        case ast.BoolOp(op=op, values=values):
            parts, decides = [truth(value, known) for value in values], isinstance(op, ast.Or)
            return decides if decides in parts else None if None in parts else not decides
        case ast.Compare(left=left, ops=[ast.Eq() | ast.NotEq() | ast.Is() | ast.IsNot() as sign], comparators=[right]):
            sides = _value(left, known), _value(right, known)
            return None if ... in sides else (sides[0] == sides[1]) == isinstance(sign, ast.Eq | ast.Is)
        case ast.Name() | ast.Attribute() if (name := dotted(node)) in known:
            return bool(known[name])
    return None


def _value(node: ast.expr, known: Mapping[str, object]) -> object:
    """What a side of a comparison is known to be; an ellipsis where it is not."""
    if isinstance(node, ast.Constant):
        return dtype_named(str(node.value)) or node.value
    return known.get(dotted(node), dtype_named(dotted(node).rpartition(".")[2]) or ...)


def literal(node: ast.AST | None) -> str | None:
    """The text of a string literal, or of several joined."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            parts = [literal(left), literal(right)]
            return None if None in parts else "".join(map(str, parts))
    return None


def number(node: ast.AST) -> float | None:
    """The value of a number that is written out: `0.01`, `-1`."""
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return float(value) if abs(value) < _LARGEST else None
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            inner = number(operand)
            return None if inner is None else -inner
    return None


def parameter_names(arguments: ast.arguments, *, rest: bool = False) -> list[str]:
    """Every parameter; `rest` for those as well that take all the others."""
    taking_rest = (arguments.vararg, arguments.kwarg) if rest else ()
    found = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *taking_rest)
    return [argument.arg for argument in found if argument is not None]


def defaults(arguments: ast.arguments) -> Iterator[tuple[str, ast.expr]]:
    plain = [*arguments.posonlyargs, *arguments.args]
    for argument, value in (
        *zip(plain[len(plain) - len(arguments.defaults) :], arguments.defaults, strict=True),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ):
        if value is not None:
            yield argument.arg, value
