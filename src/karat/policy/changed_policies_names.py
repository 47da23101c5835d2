"""Names of one file: what an alias stands for, and what a constant is worth, without running anything."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from math import isfinite

from karat.policy.scan_vocabulary import SKIP_RULE

_DEEPEST = 8
_LARGEST_POWER = 400
_NUMBERS = frozenset({"float", "int", "float16", "float32", "float64", "abs"})


class Names:
    """Aliases and constants; a name that is bound several times may be worth any of its values."""

    def __init__(self, tree: ast.Module) -> None:
        self._aliases: dict[str, set[str]] = {}
        self._values: dict[str, list[ast.expr]] = {}
        self._skips: dict[str, ast.AST] = {}
        nodes = list(ast.walk(tree))
        for node in nodes:
            if isinstance(node, _BINDING):
                self._note(node)
        if any(map(_is_the_skip, nodes)):
            self._find_skips()
            self._find_skip_functions([n for n in nodes if isinstance(n, ast.FunctionDef)])

    def canonical(self, node: ast.AST) -> str:
        """The last part of the name that an expression means: `skip_check_grad_ci` for `op_test.skip_check_grad_ci`."""
        return next(iter(self._canonical(node, 0)), "")

    def is_skip(self, node: ast.AST) -> bool:
        """Whether an expression means the skip decorator, or what this file made of it."""
        return any(name == SKIP_RULE or name in self._skips for name in self._canonical(node, 0))

    def numbers(self, node: ast.AST) -> tuple[float, ...]:
        """Every number that an expression may be worth; none where that cannot be told."""
        found = self._numbers(node, 0)
        return tuple(found) if found and all(map(isfinite, found)) else ()

    def texts(self, node: ast.AST) -> tuple[str, ...] | None:
        """The texts of a set, list or tuple of literals, or of one literal; None for anything else."""
        found = self._resolved(node)
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
        return self._resolved(node)

    def _note(self, node: ast.AST) -> None:
        match node:
            case ast.ImportFrom(names=names) | ast.Import(names=names):
                for alias in names:
                    if alias.asname and alias.asname != alias.name:
                        self._alias(alias.asname, alias.name.rpartition(".")[2])
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._bind(target, value)
            case (
                ast.AnnAssign(target=target, value=ast.expr() as value)
                | ast.NamedExpr(target=target, value=value)
            ):
                self._bind(target, value)
            case ast.ClassDef(body=body):
                self._note_class(body)

    def _note_class(self, body: list[ast.stmt]) -> None:
        """What a class body binds is read as an attribute."""
        for statement in body:
            for target in statement.targets if isinstance(statement, ast.Assign) else ():
                if isinstance(target, ast.Name) and isinstance(statement, ast.Assign):
                    self._values.setdefault(f".{target.id}", []).append(statement.value)

    def _bind(self, target: ast.AST, value: ast.expr) -> None:
        if isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List):
            for one, its in zip(target.elts, value.elts, strict=False):
                self._bind(one, its)
            return
        name = _bound_name(target)
        if not name:
            return
        self._values.setdefault(name, []).append(value)
        inner = value.value if isinstance(value, ast.NamedExpr) else value
        if isinstance(target, ast.Name) and isinstance(inner, ast.Name):
            self._alias(name, inner.id)
        elif isinstance(target, ast.Name) and isinstance(inner, ast.Attribute):
            self._alias(name, inner.attr)

    def _alias(self, name: str, means: str) -> None:
        if name != means:
            self._aliases.setdefault(name, set()).add(means)

    def _canonical(self, node: ast.AST, depth: int) -> Iterator[str]:
        match node:
            case ast.Name(id=name):
                yield from self._meant(name, depth)
            case ast.Attribute(attr=name):
                yield name
            case ast.NamedExpr(value=value):
                yield from self._canonical(value, depth)
            case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value=str(name)), *_]):
                yield name
            case ast.Subscript(slice=ast.Constant(value=str(name))):
                yield name  # globals()["skip_check_grad_ci"]

    def _meant(self, name: str, depth: int) -> Iterator[str]:
        if depth < _DEEPEST:
            for other in sorted(self._aliases.get(name, ())):
                yield from self._meant(other, depth + 1)
        yield name

    def _find_skips(self) -> None:
        """Names that carry the skip on: `skip = skip_check_grad_ci(reason=…)`."""
        found = True
        while found:
            found = False
            for name, values in self._values.items():
                if name not in self._skips and any(self._carries(value) for value in values):
                    self._skips[name] = values[0]
                    found = True

    def _find_skip_functions(self, functions: list[ast.FunctionDef]) -> None:
        """Functions that apply the skip are skips themselves: wrappers, and factories of classes that have it."""
        for _ in range(_DEEPEST):
            for node in functions:
                own = node.name != SKIP_RULE and node.name not in self._skips
                if own and not node.name.startswith("test") and self._mentions(node):
                    self._skips[node.name] = node

    def _mentions(self, function: ast.FunctionDef) -> bool:
        inside = (n for s in function.body for n in ast.walk(s))
        return any(isinstance(n, ast.Name | ast.Attribute) and self.is_skip(n) for n in inside)

    def _carries(self, value: ast.expr) -> bool:
        if isinstance(value, ast.Call):
            given = value.args[:1] if self.canonical(value.func) == "partial" else []
            return any(self.is_skip(node) for node in (value.func, *given))
        return isinstance(value, ast.Lambda) and any(
            isinstance(n, ast.Name | ast.Attribute) and self.is_skip(n) for n in ast.walk(value)
        )

    def _resolved(self, node: ast.AST) -> ast.expr | None:
        for _ in range(_DEEPEST):
            name = _bound_name(node)
            values = self._values.get(name, []) if name else []
            if len(values) != 1:
                break
            node = values[0]
        return node if isinstance(node, ast.expr) else None

    def _numbers(self, node: ast.AST, depth: int) -> list[float]:  # noqa: PLR0911 - one for each kind of expression
        if depth > _DEEPEST:
            return []
        match node:
            case ast.Constant(value=bool()):
                return []
            case ast.Constant(value=int() | float() as value):
                return _applied(float, value)
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                return [-n for n in self._numbers(inner, depth + 1)]
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATIONS:
                pairs = [
                    (a, b)
                    for a in self._numbers(left, depth + 1)
                    for b in self._numbers(right, depth + 1)
                ]
                return [n for a, b in pairs[:64] for n in _applied(_OPERATIONS[type(op)], a, b)]
            case ast.IfExp(body=body, orelse=orelse):
                return self._all([body, orelse], depth)
            case ast.Call(func=function, args=[inner]) if self.canonical(function) in _NUMBERS:
                return self._numbers(inner, depth + 1)
            case ast.Call(func=ast.Name(id="min" | "max"), args=[_, *_] as given):
                return self._all(given, depth)
            case ast.Name() | ast.Attribute():
                return self._all(self._values.get(_bound_name(node), []), depth)
        return []

    def _all(self, nodes: list[ast.expr], depth: int) -> list[float]:
        """What any of them may be worth; nothing if one of them cannot be told."""
        each = [self._numbers(node, depth + 1) for node in nodes]
        return [n for one in each for n in one] if all(each) else []


_BINDING = (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.ClassDef)


def _is_the_skip(node: ast.AST) -> bool:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name):
            return name.endswith(SKIP_RULE)
        case ast.Constant(value=str(text)):
            return text == SKIP_RULE
    return False


def _bound_name(node: ast.AST) -> str:
    """`TOL`, or `.tol` for an attribute of anything."""
    if isinstance(node, ast.Attribute):
        return f".{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


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
