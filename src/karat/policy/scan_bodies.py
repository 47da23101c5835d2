"""The body of a method: which calls it comes to, under which conditions, and whether it does anything at all."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from karat.policy.scan_expressions import dotted, negated, number, text_of, truth
from karat.policy.scan_shapes import Call, Decorator, Method
from karat.policy.scan_vocabulary import FREE_CHECKS, is_check, is_test

_SKIPS = ("skipTest", "pytest.skip", "SkipTest")
_CATCHES = frozenset({"", "Exception", "BaseException", "AssertionError"})
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
_HANDLERS: dict[type[ast.stmt], str] = {
    ast.If: "_if", ast.For: "_for", ast.AsyncFor: "_for", ast.While: "_while", ast.With: "_with",
    ast.AsyncWith: "_with", ast.Try: "_try", ast.TryStar: "_try", ast.Match: "_match",
    ast.FunctionDef: "_function", ast.AsyncFunctionDef: "_function", ast.ClassDef: "_nothing", ast.Pass: "_nothing",
    ast.Return: "_leave", ast.Raise: "_leave", ast.Continue: "_leave", ast.Break: "_leave",
}  # fmt: skip


def _children() -> dict[type[ast.AST], tuple[str, ...]]:
    """Kind of node → its fields that may hold expressions."""
    no_nodes = {
        "ctx",
        "op",
        "ops",
        "id",
        "attr",
        "arg",
        "kind",
        "conversion",
        "is_async",
        "simple",
        "level",
        "names",
    }
    found: dict[type[ast.AST], tuple[str, ...]] = {}
    pending: list[type[ast.AST]] = [ast.AST]
    while pending:
        kind = pending.pop()
        pending += kind.__subclasses__()
        if issubclass(kind, ast.Constant | ast.Import | ast.ImportFrom | ast.Global | ast.Nonlocal):
            found[kind] = ()
        else:
            found[kind] = tuple(name for name in kind._fields if name not in no_nodes)
    return found


_CHILDREN = _children()


def method_of(
    node: FunctionNode, decorators: tuple[Decorator, ...], when: tuple[str, ...]
) -> Method:
    """What a method comes to."""
    body = _Body(node)
    body.block(node.body, ())
    body.called_functions()
    return Method(
        name=node.name, line=node.lineno, calls=tuple(body.calls),
        empty=_emptiness(node, decorators, body) if is_test(node.name) else "",
        does=body.does, only_super=body.only_super, decorators=decorators, when=when,
    )  # fmt: skip


def _emptiness(node: FunctionNode, decorators: Sequence[Decorator], body: _Body) -> str:
    if any(d.last == "skip" for d in decorators) or (body.skipped and not body.does):
        return "is skipped"
    if body.does:
        return ""
    rest = [s for s in node.body if not _is_constant(s)]
    if not rest:
        return "holds only a docstring" if _has_text(node) else "holds only ..."
    if all(isinstance(s, ast.Pass) for s in rest):
        return "holds only pass"
    return "returns at once" if isinstance(rest[0], ast.Return) else "does nothing that could fail"


def _is_constant(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _has_text(node: FunctionNode) -> bool:
    return ast.get_docstring(node, clean=False) is not None


class _Body:
    """Walks statements in the order in which they run."""

    def __init__(self, node: FunctionNode) -> None:
        arguments = [*node.args.posonlyargs, *node.args.args]
        self.me = arguments[0].arg if arguments else ""
        self.calls: list[Call] = []
        self.does = False
        self.asserts = False
        self.called = 0
        self.skipped = False
        self._caught = 0
        self._local: dict[str, list[Call]] = {}
        self._loaded: set[str] = set()

    def called_functions(self) -> None:
        """Functions inside count where their name is used."""
        for name, calls in self._local.items():
            if name in self._loaded:
                self.calls.extend(calls)

    @property
    def only_super(self) -> bool:
        """Whether nothing is called but super() and methods of it."""
        supers = sum(call.receiver == "super" for call in self.calls)
        return not self.asserts and supers > 0 and self.called == 2 * supers

    def block(self, statements: Sequence[ast.stmt], when: tuple[str, ...]) -> bool:
        """Whether the block surely ends the function, or the loop around it."""
        for statement in statements:
            ended, more = self._statement(statement, when)
            if ended:
                return True
            when += more
        return False

    def _statement(self, node: ast.stmt, when: tuple[str, ...]) -> tuple[bool, tuple[str, ...]]:
        """Whether it ends here, and what holds for whatever comes after."""
        handler = _HANDLERS.get(type(node))
        if handler is None:
            return self._plain(node, when), ()
        outcome: tuple[bool, tuple[str, ...]] = getattr(self, handler)(node, when)
        return outcome

    def _plain(self, node: ast.stmt, when: tuple[str, ...]) -> bool:
        self._expressions(node, when)
        if self._skips(node):
            self.skipped |= not when
            return True
        return False

    def _for(
        self, node: ast.For | ast.AsyncFor, when: tuple[str, ...]
    ) -> tuple[bool, tuple[str, ...]]:
        self._expressions(node.iter, when)
        if truth(node.iter) is not False:
            self.block(node.body, when)
        self.block(node.orelse, when)
        return False, ()

    def _while(self, node: ast.While, when: tuple[str, ...]) -> tuple[bool, tuple[str, ...]]:
        self._expressions(node.test, when)
        if truth(node.test) is not False:
            self.block(node.body, when)
        return False, ()

    def _match(self, node: ast.Match, when: tuple[str, ...]) -> tuple[bool, tuple[str, ...]]:
        for case in node.cases:
            self.block(case.body, (*when, f"{text_of(node.subject)} matches"))
        return False, ()

    def _nothing(self, node: ast.stmt, when: tuple[str, ...]) -> tuple[bool, tuple[str, ...]]:  # noqa: ARG002
        return False, ()

    def _if(self, node: ast.If, when: tuple[str, ...]) -> tuple[bool, tuple[str, ...]]:
        self._expressions(node.test, when)
        known = truth(node.test)
        if known is not None:
            return self.block(node.body if known else node.orelse, when), ()
        condition = text_of(node.test)
        yes = self.block(node.body, (*when, condition))
        no = self.block(node.orelse, (*when, negated(condition)))
        if yes and no:
            return True, ()
        return False, (negated(condition),) if yes else (condition,) if no else ()

    def _with(
        self, node: ast.With | ast.AsyncWith, when: tuple[str, ...]
    ) -> tuple[bool, tuple[str, ...]]:
        for item in node.items:
            self._expressions(item.context_expr, when)
        catches = any("assertRaises" in text_of(i.context_expr) or "pytest.raises" in text_of(i.context_expr)
                      or "suppress" in text_of(i.context_expr) for i in node.items)  # fmt: skip
        self._caught += catches
        ended = self.block(node.body, when)
        self._caught -= catches
        return ended and not catches, ()

    def _try(self, node: ast.Try, when: tuple[str, ...]) -> tuple[bool, tuple[str, ...]]:
        catches = any(_swallows(handler) for handler in node.handlers)
        self._caught += catches
        ended = self.block(node.body, when)
        self._caught -= catches
        for handler in node.handlers:
            kind = text_of(handler.type) if handler.type else "anything"
            self.block(handler.body, (*when, f"{kind} was raised"))
        ended = self.block(node.orelse, when) or ended
        return self.block(node.finalbody, when) or (ended and not node.handlers), ()

    def _function(self, node: FunctionNode, when: tuple[str, ...]) -> tuple[bool, tuple[str, ...]]:
        inner = _Body(node)
        inner.me = self.me
        inner.block(node.body, when)
        inner.called_functions()
        self._local[node.name] = inner.calls
        self._loaded |= inner._loaded
        return False, ()

    def _leave(self, node: ast.stmt, when: tuple[str, ...]) -> tuple[bool, tuple[str, ...]]:
        if isinstance(node, ast.Raise) and node.exc is not None and "SkipTest" in text_of(node.exc):
            self.skipped |= not when
            return True, ()
        self._expressions(node, when)
        self.does |= isinstance(node, ast.Raise)
        return True, ()

    def _skips(self, node: ast.stmt) -> bool:
        if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call):
            return False
        return dotted(node.value.func).endswith(_SKIPS)

    def _expressions(self, node: ast.AST, when: tuple[str, ...]) -> None:
        # This sees every expression of every test: a loop over what can have children, and nothing else.
        pending = [node]
        while pending:
            inner = pending.pop()
            kind = type(inner)
            if kind is ast.Name:
                self._loaded.add(inner.id)  # type: ignore[attr-defined]
                continue
            for name in _CHILDREN.get(kind, ()):
                child = getattr(inner, name)
                if type(child) is list:
                    pending += child
                elif child is not None:
                    pending.append(child)
            if kind is ast.Call:
                self._call(inner, when)  # type: ignore[arg-type]
            elif kind is ast.Assert:
                self.does = self.asserts = True

    def _call(self, node: ast.Call, when: tuple[str, ...]) -> None:
        if dotted(node.func).endswith(_SKIPS):
            return
        self.does = True
        self.called += 1
        self.calls.extend(self._calls(node, when))

    def _calls(self, node: ast.Call, when: tuple[str, ...]) -> Iterator[Call]:
        function = node.func
        caught = self._caught > 0
        if isinstance(function, ast.Attribute):
            name, value = function.attr, function.value
            if isinstance(value, ast.Name) and value.id == self.me and self.me:
                yield _made(node, name, when, caught=caught)
                return
            if isinstance(value, ast.Call) and dotted(value.func) == "super":
                yield _made(node, name, when, caught=caught, receiver="super")
                return
        whole = dotted(function)
        if not whole:
            return
        position = self._position(node)
        owner, _, name = whole.rpartition(".")
        if name in FREE_CHECKS:
            yield _made(node, name, when, caught=caught, receiver="free", owner=whole)
        elif position == 0 and owner:
            yield _made(node, name, when, caught=caught, receiver="class", owner=owner)
        elif position >= 0:
            yield Call(name=name, line=node.lineno, receiver="free", owner=whole, when=when, caught=caught,
                       position=position)  # fmt: skip

    def _position(self, node: ast.Call) -> int:
        for index, argument in enumerate(node.args):
            if isinstance(argument, ast.Name) and argument.id == self.me and self.me:
                return index
        return -1


def _made(
    node: ast.Call, name: str, when: tuple[str, ...], *, caught: bool, receiver: str = "self", owner: str = ""
) -> Call:  # fmt: skip
    keywords: dict[str, str] = {}
    numbers: dict[str, float] = {}
    if is_check(name) or name in FREE_CHECKS:
        for keyword in node.keywords:
            if keyword.arg is None:
                keywords["**"] = text_of(keyword.value)
                continue
            keywords[keyword.arg] = text_of(keyword.value)
            value = number(keyword.value)
            if value is not None:
                numbers[keyword.arg] = value
    return Call(
        name=name, line=node.lineno, receiver=receiver, owner=owner, when=when, caught=caught,  # type: ignore[arg-type]
        keywords=keywords, numbers=numbers,
    )  # fmt: skip


def _swallows(handler: ast.ExceptHandler) -> bool:
    """Whether a handler takes a failed comparison for granted."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    names = {dotted(kind).rpartition(".")[2] if kind is not None else "" for kind in kinds}
    if not names & _CATCHES:
        return False
    return not any(isinstance(n, ast.Raise) or "fail" in text_of(n) for s in handler.body for n in ast.walk(s)
                   if isinstance(n, ast.Raise | ast.Call))  # fmt: skip
