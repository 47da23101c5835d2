"""Python source as a stranger wrote it: bytes → a syntax tree, or a sentence that says why not."""

from __future__ import annotations

import ast
import io
import re
import tokenize
import unicodedata
import warnings
from functools import lru_cache

from karat.policy.scan.facts import Reference

_LARGEST = 32 << 20
"""Bytes beyond which nobody wrote a test by hand; such a file would cost minutes and gigabytes."""


class Unreadable(Exception):  # noqa: N818 - a state of the file
    """The bytes are no Python that this interpreter understands."""

    def __init__(self, why: str, line: int = 0) -> None:
        super().__init__(why)
        self.line = line


def parse(source: bytes) -> ast.Module:
    """The syntax tree; Unreadable for whatever keeps it from being had."""
    if len(source) > _LARGEST:
        raise Unreadable(
            f"it has {len(source) >> 20} MiB, and files over {_LARGEST >> 20} MiB are not read"
        )
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
        raise Unreadable("the parser gave up for want of memory: nested too deeply") from error
    except (ValueError, LookupError, OverflowError) as error:
        # Null bytes; an integer of thousands of digits; an encoding that nobody knows.
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


# DOC-HERE scan_one_line: An expression on one line, as `ast.unparse` writes it, for the plain ones that nearly all are.

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


# DOC-HERE scan_lines: The lines of a file, to see at a glance whether a method may come to a check, without going through its tree.

# Flags and checks have `grad` in their names.
_SETS = re.compile(rb"grad|op_type|dtype|[tT]est|class|setattr")


class Lines:
    """Source by line numbers; where bytes may not be what Python reads, nothing is plain to see."""

    def __init__(self, source: bytes = b"") -> None:
        plain = source.isascii() and b"coding" not in source[:400]
        self._lines = source.splitlines(keepends=True) if plain else []

    def leads_nowhere(self, body: list[ast.stmt], me: str) -> bool:
        """Whether statements surely neither call anything of `me`, nor hand it over, nor check a gradient."""
        return self._lacks(_asks(me), body) if me.isascii() else False

    def sets_nothing(self, body: list[ast.stmt]) -> bool:
        """Whether statements surely set nothing that is kept of an object, and define no class."""
        return self._lacks(_SETS, body)

    def _lacks(self, pattern: re.Pattern[bytes], body: list[ast.stmt]) -> bool:
        first, last = body[0].lineno, body[-1].end_lineno
        if not self._lines or last is None:
            return False
        return pattern.search(b"".join(self._lines[first - 1 : last])) is None


@lru_cache(maxsize=100)
def _asks(me: str) -> re.Pattern[bytes]:
    """`me` that is anything but the owner of an attribute that is not called; every check has `grad` in its name."""
    alone = rb"\b%b\b(?!\s*\.\s*\w+\b(?![\s\\]*[(\#]))" % re.escape(me).encode()
    return re.compile(rb"grad|super" + (rb"|" + alone if me else rb""))


# DOC-HERE scan_expressions: Expressions, read without running them: dotted names, references to classes, constants, short texts.

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
            return _joined_scan_expressions(
                [truth(value) for value in values], isinstance(op, ast.And)
            )
        case _:
            return None


def _joined_scan_expressions(known: list[bool | None], both: bool) -> bool | None:  # noqa: FBT001 - and or or
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
