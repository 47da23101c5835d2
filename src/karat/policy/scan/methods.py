"""The body of a method: which calls it reaches, under which conditions, and whether it does anything at all."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from karat.policy.scan.facts import Decorator, Method, MethodCall
from karat.policy.scan.source import dotted, literal, negated, number, parameter_names, text_of, truth
from karat.policy.scan.vocabulary import FREE_CHECKS, is_check, is_test

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
When = tuple[str, ...]  # Conditions, as text, that all hold.
CATCHES = frozenset({"", "Exception", "BaseException", "AssertionError"})
"""Exceptions that a failed comparison is; the empty name is a bare `except`."""
_PLAIN_MODULES = frozenset({"np", "numpy", "paddle", "math", "core", "base", "fluid"})
"""Whatever these are handed, they check no gradient; most calls of a test are theirs."""
_SKIPS = ("skipTest", "pytest.skip", "SkipTest")
_ENDS = frozenset({"sys.exit", "exit", "quit", "os._exit", "os.abort", "pytest.exit", "pytest.fail", "self.fail"})
"""Calls that nothing comes after."""


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
    return not any(
        isinstance(n, ast.Raise) or "fail" in text_of(n)
        for s in handler.body
        for n in ast.walk(s)
        if isinstance(n, ast.Raise | ast.Call)
    )


def drops(statements: Sequence[ast.stmt]) -> bool:
    """Whether a `finally` leaves by itself, and the failure with it."""
    leaves = ast.Return | ast.Break | ast.Continue
    return any(isinstance(node, leaves) for statement in statements for node in ast.walk(statement))


def method_of(node: FunctionNode, decorators: tuple[Decorator, ...], when: When) -> Method:
    body = _Body(dict.fromkeys(parameter_names(node.args)[:1], ""))
    body.function(node)
    empty = never = ""
    if is_test(node.name):
        # A runner calls a test, and neither iterates over the result nor awaits it.
        if body.yields:
            never = "is a generator, whose body no runner runs"
        elif isinstance(node, ast.AsyncFunctionDef):
            never = "is a coroutine, which no runner awaits"
        empty = never or _emptiness(node, decorators, body)
    return Method(
        name=node.name,
        line=node.lineno,
        calls=() if never else tuple(body.calls),
        empty=empty,
        does=body.does,
        only_super=body.only_super,
        decorators=decorators,
        when=when,
    )


def function_of(node: FunctionNode) -> Method | None:
    """What a function does with whichever of its parameters is an op test; None if it does nothing with any."""
    body = _Body({name: name for name in parameter_names(node.args)})
    body.function(node)
    calls = tuple(call for call in body.calls if call.object)
    return Method(name=node.name, line=node.lineno, calls=calls, does=body.does) if calls else None


def lambda_of(name: str, node: ast.Lambda) -> Method:
    """What a method does that is written as a lambda."""
    body = _Body(dict.fromkeys(parameter_names(node.args)[:1], ""))
    body.expressions(node.body, ())
    empty = "does nothing that could fail" if is_test(name) and not body.does else ""
    return Method(name=name, line=node.lineno, calls=tuple(body.calls), does=body.does, empty=empty)


def _emptiness(node: FunctionNode, decorators: Sequence[Decorator], body: _Body) -> str:
    if any(d.last == "skip" for d in decorators) or (body.skipped and not body.does):
        return "is skipped"
    if body.does:
        return ""
    rest = [s for s in node.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
    if not rest:
        text = ast.get_docstring(node, clean=False)
        return "holds only ..." if text is None else "holds only a docstring"
    if all(isinstance(s, ast.Pass) for s in rest):
        return "holds only pass"
    return "returns at once" if isinstance(rest[0], ast.Return) else "does nothing that could fail"


class _Body:
    """Walks statements in the order in which they run."""

    def __init__(self, tests: dict[str, str], checks: dict[str, ast.Attribute] | None = None) -> None:
        self._tests = tests
        """Names of the op test → which parameter of a function it is; nothing for a method's own `self`."""
        self._checks = {} if checks is None else checks  # Names of its checks: `check = self.check_grad`.
        self.calls: list[MethodCall] = []
        self.does = False
        self.skipped = False
        self.yields = False
        self._asserts = False
        self._called = 0
        self._caught = 0
        self._local: dict[str, list[MethodCall]] = {}
        self._loaded: set[str] = set()

    def function(self, node: FunctionNode, when: When = ()) -> None:
        """A whole function; functions inside count where their name is used."""
        self._block(node.body, when)
        for name, found in self._local.items():
            if name in self._loaded:
                self.calls.extend(found)

    @property
    def only_super(self) -> bool:
        """Whether nothing is called but super() and methods of it."""
        supers = sum(call.receiver == "super" for call in self.calls)
        return not self._asserts and supers > 0 and self._called == 2 * supers

    def _block(self, statements: Sequence[ast.stmt], when: When) -> bool:
        """Whether the block surely ends the function, or the loop around it."""
        for statement in statements:
            ended, more = self._statement(statement, when)
            if ended:
                return True
            when += more
        return False

    def _statement(self, node: ast.stmt, when: When) -> tuple[bool, When]:  # noqa: C901, PLR0912 - one branch per kind
        """Whether it ends here, and what holds for whatever comes after."""
        ended = False
        match node:
            case ast.If():
                return self._if(node, when)
            case ast.For(iter=head) | ast.AsyncFor(iter=head) | ast.While(test=head):
                self.expressions(head, when)
                if truth(head) is not False:
                    self._block(node.body, when)
                self._block(node.orelse, when)
            case ast.With() | ast.AsyncWith():
                for item in node.items:
                    self.expressions(item.context_expr, when)
                catches = any(takes_failure(item.context_expr) for item in node.items)
                self._caught += catches
                ended = self._block(node.body, when) and not catches
                self._caught -= catches
            case ast.Try() | ast.TryStar():
                ended = self._try(node, when)
            case ast.Match():
                self.expressions(node.subject, when)
                for case in node.cases:
                    if isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None and case.guard is None:
                        self._block(case.body, when)
                        break
                    guard = f" if {text_of(case.guard)}" if case.guard else ""
                    condition = f"{text_of(node.subject)} matches {text_of(case.pattern)}{guard}"
                    self._block(case.body, (*when, condition))
                    when = (*when, negated(condition))
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                inner = _Body(self._tests, self._checks)
                inner.function(node, when)
                self._keep(node.name, inner)
            case ast.ClassDef() | ast.Pass():
                pass
            case ast.Assign():
                self._assign(node, when)
            case ast.Return() | ast.Raise() | ast.Continue() | ast.Break():
                ended = True
                raised = node.exc if isinstance(node, ast.Raise) else None
                if raised is not None and "SkipTest" in text_of(raised):
                    self.skipped |= not when
                else:
                    self.expressions(node, when)
                    self.does |= isinstance(node, ast.Raise)
            case _:
                self.expressions(node, when)
                if isinstance(node, ast.Assert):
                    ended = truth(node.test) is False
                elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
                    called = dotted(node.value.func)
                    self.skipped |= called.endswith(_SKIPS) and not when
                    ended = called.endswith(_SKIPS) or called in _ENDS
        return ended, ()

    def _assign(self, node: ast.Assign, when: When) -> None:
        (target, *others), value = node.targets, node.value
        if isinstance(target, ast.Name) and not others:
            if isinstance(value, ast.Lambda):
                inner = _Body(self._tests, self._checks)
                inner.expressions(value.body, when)
                self._keep(target.id, inner)
                return
            match value:
                case ast.Name(id=test) if test in self._tests:
                    self._tests[target.id] = self._tests[test]
                case ast.Attribute(attr=name, value=ast.Name(id=test)) if is_check(name) and test in self._tests:
                    self._checks[target.id] = value
        self.expressions(node, when)

    def _if(self, node: ast.If, when: When) -> tuple[bool, When]:
        open_ = truth(node.test) is None
        depth, ended = len(when), list[bool]()
        for test, body in arms(node):
            if test is not None:
                self.expressions(test, when)
            known = test is None or truth(test)
            if known:
                ended.append(self._block(body, when))
                break
            if known is None and test is not None:
                condition = text_of(test)
                ended.append(self._block(body, (*when, condition)))
                when = (*when, negated(condition))
        if all(ended) or not open_:
            return all(ended), ()
        not_first = when[depth]
        return False, (not_first,) if ended[0] else (negated(not_first),) if all(ended[1:]) else ()

    def _try(self, node: ast.Try | ast.TryStar, when: When) -> bool:
        catches = any(swallows(handler) for handler in node.handlers) or drops(node.finalbody)
        self._caught += catches
        ended = self._block(node.body, when)
        self._caught -= catches
        for handler in node.handlers:
            kind = text_of(handler.type) if handler.type else "anything"
            self._block(handler.body, (*when, f"{kind} was raised"))
        ended = self._block(node.orelse, when) or ended
        return self._block(node.finalbody, when) or (ended and not node.handlers)

    def _keep(self, name: str, inner: _Body) -> None:
        self._local[name] = inner.calls
        self._loaded |= inner._loaded

    def expressions(self, node: ast.AST, when: When) -> None:  # noqa: C901 - one branch per kind
        """Calls anywhere below a node."""
        pending = [node]
        while pending:
            inner = pending.pop()
            match inner:
                case ast.Name(id=name):
                    self._loaded.add(name)
                    continue
                case ast.IfExp(test=test, body=body, orelse=orelse):
                    self.expressions(test, when)
                    self._guarded(body, when, test, holds=True)
                    self._guarded(orelse, when, test, holds=False)
                    continue
                case ast.BoolOp(op=op, values=[first, *rest]):
                    self.expressions(first, when)
                    # Whether the first decides is known of it alone; what comes after shares that condition.
                    for value in rest:
                        self._guarded(value, when, first, holds=isinstance(op, ast.And))
                    continue
                case ast.Call():
                    if not dotted(inner.func).endswith(_SKIPS):
                        self.does = True
                        self._called += 1
                        self._note(inner, when)
                    if takes_failure(inner):  # assertRaises(AssertionError, lambda: self.check_grad())
                        self._caught += 1
                        for argument in inner.args:
                            self.expressions(argument, when)
                        self._caught -= 1
                        continue
                case ast.Assert():
                    self.does = self._asserts = True
                case ast.Yield() | ast.YieldFrom():
                    self.yields = True
            for field in inner._fields:  # ast.iter_child_nodes takes a tenth of a scan
                below = getattr(inner, field, None)
                if isinstance(below, list):
                    pending += [each for each in below if isinstance(each, ast.AST)]
                elif isinstance(below, ast.AST):
                    pending.append(below)

    def _note(self, node: ast.Call, when: When) -> None:
        """Keep a call that may check a gradient, or lead to one that does."""
        function: ast.AST = node.func.value if isinstance(node.func, ast.NamedExpr) else node.func
        match function:
            case ast.Name(id=name) if name in self._checks:
                function = self._checks[name]
            case ast.Call(func=ast.Name(id="getattr"), args=[value, key, *_]) if (asked := literal(key)) is not None:
                function = ast.Attribute(value=value, attr=asked)
        match function:
            case ast.Attribute(attr=name, value=ast.Name(id=owner)) if owner in self._tests:
                self._add(node, name, when, object=self._tests[owner])
            case ast.Attribute(attr=name, value=ast.Call(func=ast.Name(id="super"))):
                self._add(node, name, when, receiver="super")
            case _:
                self._free(node, dotted(function), when)
        for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
            match argument:
                case ast.Attribute(attr=name, value=ast.Name(id=owner)) if is_check(name) and owner in self._tests:
                    who = text_of(node.func)
                    more = () if who.endswith("partial") else (f"{who} calls it",)
                    caught = self._caught > 0 or takes_failure(node)
                    test = self._tests[owner]
                    self.calls.append(
                        MethodCall(name=name, line=node.lineno, when=when + more, caught=caught, object=test)
                    )

    def _free(self, node: ast.Call, whole: str, when: When) -> None:
        """A call of a function, or of a class's method, that is handed the test."""
        owner, _, name = whole.rpartition(".")
        if name in FREE_CHECKS:
            self._add(node, name, when, receiver="free", owner=whole)
        elif whole and whole.partition(".")[0] not in _PLAIN_MODULES:
            handed = [(str(index), argument) for index, argument in enumerate(node.args)]
            handed += [(keyword.arg or "**", keyword.value) for keyword in node.keywords]
            for place, argument in handed:
                if isinstance(argument, ast.Name) and argument.id in self._tests:
                    test = self._tests[argument.id]
                    if place == "0" and owner and not test:
                        self._add(node, name, when, receiver="class", owner=owner)
                    else:
                        self._add(node, name, when, receiver="free", owner=whole, place=place, object=test)

    def _add(self, node: ast.Call, name: str, when: When, **more: Any) -> None:
        if "place" not in more and (is_check(name) or name in FREE_CHECKS):
            more["keywords"] = {keyword.arg or "**": text_of(keyword.value) for keyword in node.keywords}
            numbers = ((keyword.arg, number(keyword.value)) for keyword in node.keywords)
            more["numbers"] = {key: value for key, value in numbers if key is not None and value is not None}
        self.calls.append(MethodCall(name=name, line=node.lineno, when=when, caught=self._caught > 0, **more))

    def _guarded(self, node: ast.expr, when: When, condition: ast.expr, *, holds: bool) -> None:
        known = truth(condition)
        if known is not None and known is not holds:
            return
        begin, depth = len(self.calls), len(when)
        self.expressions(node, when)
        if known is None and len(self.calls) > begin:
            text = text_of(condition) if holds else negated(text_of(condition))
            self.calls[begin:] = [
                msgspec.structs.replace(call, when=(*when, text, *call.when[depth:])) for call in self.calls[begin:]
            ]


def arms(node: ast.If) -> Iterator[tuple[ast.expr | None, list[ast.stmt]]]:
    """The condition and body of an `if` and of every `elif`, and those of the `else`, which has no condition."""
    rest: list[ast.stmt] = [node]
    while len(rest) == 1 and isinstance(rest[0], ast.If):  # hundreds deep in generated files
        yield rest[0].test, rest[0].body
        rest = rest[0].orelse
    yield None, rest
