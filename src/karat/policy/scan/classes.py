"""Decorators that keep a test from running, or from being held to the rule."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from karat.policy.scan.expressions import Lines, dotted, literal, negated, text_of, truth
from karat.policy.scan.facts import ClassFacts, Decorator, Flag, Method
from karat.policy.scan.methods import FunctionNode, lambda_of, method_of, otherwise
from karat.policy.scan.vocabulary import EXPECTS_FAILURE, FLAGS, SKIP_RULE, is_check, is_test

_CONDITIONAL = frozenset({"skipIf", "skipUnless", "skipif", "skip_unless", "skip_if"})
Given = Literal["keyword", "positional", "empty", "none", "computed"]


def decorators(nodes: Iterable[ast.expr], renamed: Mapping[str, ast.expr]) -> tuple[Decorator, ...]:
    """Those that skip, or expect a failure; `renamed` says what a name of the file's own stands for."""
    found = (_decorator(node, renamed) for node in nodes)
    return tuple(decorator for decorator in found if decorator is not None)


def may_skip(node: ast.expr) -> bool:
    """Whether an expression that gets a name may decorate by it: `gpu_only = unittest.skipIf(...)`."""
    last = dotted(node.func if isinstance(node, ast.Call) else node).rpartition(".")[2]
    return "skip" in last.lower() or last in EXPECTS_FAILURE


def _decorator(node: ast.expr, renamed: Mapping[str, ast.expr]) -> Decorator | None:
    called = node if isinstance(node, ast.Call) else None
    meant = renamed.get(dotted(called.func if called else node))
    call = called or (meant if isinstance(meant, ast.Call) else None)
    name = dotted(
        meant.func if isinstance(meant, ast.Call) else meant or (call.func if call else node)
    )
    last = name.rpartition(".")[2]
    if last == SKIP_RULE:
        reason, given = _reason(call)
        return Decorator(
            name=name, line=node.lineno, called=call is not None, reason=reason, given=given
        )
    if last in EXPECTS_FAILURE:
        condition = _condition(call, "skipif") if call is not None and call.args else ""
        return Decorator(name=name, line=node.lineno, called=call is not None, condition=condition)
    if last == "skip":
        return Decorator(name=name, line=node.lineno, called=call is not None)
    if "skip" not in last.lower() or last.startswith("skip_check_"):
        return None
    return Decorator(
        name=name, line=node.lineno, called=call is not None, condition=_condition(call, last)
    )


def _condition(call: ast.Call | None, last: str) -> str:
    """Under which condition the test runs; for decorators of the tree's own, their name says it."""
    if call is None or not call.args or last not in _CONDITIONAL:
        return f"{last} lets it"
    text = text_of(call.args[0])
    return text if last in {"skipUnless", "skip_unless"} else negated(text)


def _reason(call: ast.Call | None) -> tuple[str | None, Given]:
    if call is None:
        return None, "none"
    by_name = [k.value for k in call.keywords if k.arg == "reason"]
    unpacked = any(k.arg is None for k in call.keywords) or any(
        isinstance(a, ast.Starred) for a in call.args
    )
    node = by_name[0] if by_name else call.args[0] if call.args else None
    if node is None:
        return None, "computed" if unpacked else "none"
    text = literal(node)
    if text is None:
        nothing = isinstance(node, ast.Constant) and node.value is None
        return None, "none" if nothing else "computed"
    if not text.strip():
        return text, "empty"
    return text, "keyword" if by_name else "positional"


# DOC-HERE scan_class_body: The body of a class: its methods, its flags, its op and dtype, and what is changed after it.

_DTYPES = frozenset({
    "float16", "float32", "float64", "uint16", "bfloat16", "complex64", "complex128", "int8", "uint8", "int16",
    "int32", "int64", "bool",
})  # fmt: skip


class Statements(Protocol):
    """Whoever reads the statements around a class."""

    @property
    def renamed(self) -> Mapping[str, ast.expr]:
        """What decorates, by the names that the file gives it."""

    @property
    def lines(self) -> Lines:
        """The text of the file."""

    def statement(self, node: ast.stmt, scope: int, when: tuple[str, ...]) -> None:
        """Any statement."""

    def assign(self, node: ast.Assign | ast.AnnAssign | ast.AugAssign, scope: int) -> None:
        """An assignment."""


class ClassBody:
    """The statements of a class body."""

    def __init__(self, reader: Statements, scope: int) -> None:
        self._reader = reader
        self._scope = scope
        self.methods: dict[str, Method] = {}
        self.flags: list[Flag] = []
        self.attributes: dict[str, str] = {}
        self.op: str | None = None
        self.dtypes: set[str] = set()

    @property
    def dtype(self) -> str | None:
        """The only dtype that the class sets; `?` for several, or one that cannot be read off."""
        if not self.dtypes:
            return None
        return next(iter(self.dtypes)) if len(self.dtypes) == 1 else "?"

    def block(self, statements: Sequence[ast.stmt], when: tuple[str, ...]) -> None:
        for node in statements:
            match node:
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    self._method(node, when)
                case ast.Assign() | ast.AnnAssign():
                    self._assigned(node)
                case ast.If():
                    for body, more in branches(node):
                        self.block(body, when + more)
                case ast.Try() | ast.TryStar():
                    for part in try_parts(node):
                        self.block(part, when)
                case ast.With() | ast.For() | ast.While():
                    self.block([*node.body, *getattr(node, "orelse", ())], when)
                case ast.Delete():
                    self._deleted(node)
                case _:
                    self._reader.statement(node, self._scope, when)

    def _deleted(self, node: ast.Delete) -> None:
        for target in node.targets:
            self.methods.pop(dotted(target), None)
            self.attributes.pop(dotted(target), None)

    def _assigned(self, node: ast.Assign | ast.AnnAssign) -> None:
        if node.value is None:
            return
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            self._attribute(dotted(target), node.value, node.lineno)
        self._reader.assign(node, self._scope)

    def _method(self, node: FunctionNode, when: tuple[str, ...]) -> None:
        method = method_of(
            node, decorators(node.decorator_list, self._reader.renamed), when, self._reader.lines
        )
        before = self.methods.get(node.name)
        self.methods[node.name] = merged(before, method) if before and when else method
        self.attributes.pop(node.name, None)
        if not self._reader.lines.sets_nothing(node.body):
            me = node.args.args[0].arg if node.args.args else "self"
            self._assignments(node.body, me)

    def _assignments(self, statements: Sequence[ast.stmt], me: str) -> None:
        """What methods set on the object or its class."""
        pending = [*reversed(statements)]
        while pending:
            node = pending.pop()
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    self._set(dotted(target), node.value, node.lineno, me)
            elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
                self._setattr(node.value)
            elif isinstance(node, ast.ClassDef):
                self._reader.statement(node, self._scope, ())
            else:
                pending += reversed([*_inner(node)])

    def _set(self, name: str, value: ast.expr, line: int, me: str) -> None:
        owner, _, last = name.rpartition(".")
        if not owner:
            return
        if owner in {me, "cls", f"{me}.__class__"}:
            self._attribute(last, value, line)
        elif FLAGS.fullmatch(last):
            self.flags.append(Flag(name=last, line=line, value=text_of(value), owner=owner))

    def _setattr(self, node: ast.Call) -> None:
        if dotted(node.func) != "setattr" or len(node.args) != 3:
            return
        name = literal(node.args[1])
        if name is not None and FLAGS.fullmatch(name):
            owner = dotted(node.args[0])
            self.flags.append(Flag(name=name, line=node.lineno, value=text_of(node.args[2]),
                                   owner="" if owner in {"self", "cls"} else owner))  # fmt: skip

    def _attribute(self, name: str, value: ast.expr, line: int) -> None:
        if not name or "." in name:
            return
        if FLAGS.fullmatch(name):
            self.flags.append(Flag(name=name, line=line, value=text_of(value)))
        elif name == "op_type":
            self.op = literal(value) or self.op
        elif name == "dtype":
            self.dtypes.add(_dtype(value))
        elif isinstance(value, ast.Lambda) and (is_test(name) or is_check(name)):
            self.methods[name] = lambda_of(name, value)
            self.attributes.pop(name, None)
        elif is_test(name) or is_check(name) or name == "__test__":
            self.attributes[name] = text_of(value)
            self.methods.pop(name, None)


def _inner(node: ast.stmt) -> Iterator[ast.stmt]:
    """The statements in a statement."""
    for part in ("body", "orelse", "finalbody"):
        yield from getattr(node, part, ())
    for handler in getattr(node, "handlers", ()):
        yield from handler.body


def merged(before: Method, after: Method) -> Method:
    """A method of which one definition counts under a condition, and another where it does not hold."""
    first = before.when or (negated(" and ".join(after.when)),)
    calls = [(first, call) for call in before.calls] + [(after.when, call) for call in after.calls]
    return msgspec.structs.replace(
        before, when=(), does=before.does or after.does, only_super=before.only_super and after.only_super,
        empty=before.empty and after.empty, decorators=before.decorators + after.decorators,
        calls=tuple(msgspec.structs.replace(call, when=when + call.when) for when, call in calls),
    )  # fmt: skip


def patched(
    facts: ClassFacts, name: str, value: ast.expr | None, when: tuple[str, ...]
) -> ClassFacts:
    """The class with a member that is set, or deleted where `value` is None, after its statement."""
    kept = [method for method in facts.methods if method.name != name]
    before = [method for method in facts.methods if method.name == name]
    if when:
        # Where the condition does not hold, it is as it was.
        otherwise = (negated(" and ".join(when)),)
        kept += [msgspec.structs.replace(m, when=m.when + otherwise) for m in before]
    attributes = {key: text for key, text in facts.attributes.items() if key != name}
    if isinstance(value, ast.Lambda):
        kept.append(msgspec.structs.replace(lambda_of(name, value), when=when))
    elif value is not None and not when:
        attributes[name] = text_of(value)
    return msgspec.structs.replace(facts, methods=tuple(kept), attributes=attributes)


def branches(node: ast.If) -> list[tuple[list[ast.stmt], tuple[str, ...]]]:
    """The branches that can be taken, those of every `elif` included, each with its conditions."""
    found: list[tuple[list[ast.stmt], tuple[str, ...]]] = []
    before: tuple[str, ...] = ()
    while True:
        known = truth(node.test)
        if known:
            return [*found, (node.body, before)]
        condition = text_of(node.test)
        if condition.startswith("__name__ =="):
            found.append((node.body, before))
        elif known is None:
            found.append((node.body, (*before, condition)))
            before = (*before, negated(condition))
        after = otherwise(node)
        if after is None:
            return [*found, (node.orelse, before)]
        node = after


def try_parts(node: ast.Try | ast.TryStar) -> list[list[ast.stmt]]:
    return [node.body, *(handler.body for handler in node.handlers), node.orelse, node.finalbody]


def _dtype(value: ast.expr) -> str:
    said = literal(value) or dotted(value).rpartition(".")[2]
    # The original keeps bfloat16 in unsigned integers, which numpy knows.
    said = {"uint16": "bfloat16", "bool_": "bool", "bool8": "bool"}.get(said, said)
    return said if said in _DTYPES else "?"
