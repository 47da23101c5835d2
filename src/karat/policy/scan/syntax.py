"""The facts of one file, from its text alone: its scopes, names and classes, with their methods, decorators and flags.

Of a method: which calls it reaches, under which conditions, and whether it does anything at all.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import msgspec

from karat.policy.scan.facts import (
    Binding,
    ClassFacts,
    Decorator,
    Expression,
    FileFacts,
    Flag,
    Made,
    Method,
    MethodCall,
    Scope,
    Value,
)
from karat.policy.scan.source import (
    Unreadable,
    defaults,
    dotted,
    expression,
    literal,
    negated,
    number,
    parameter_names,
    parse,
    text_of,
    truth,
)
from karat.policy.scan.vocabulary import EXPECTS_FAILURE, FLAGS, FREE_CHECKS, SKIP_RULE, dtype_named, is_check, is_test

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
When = tuple[str, ...]  # Conditions, as text, that all hold.
_CATCHES = frozenset({"", "Exception", "BaseException", "AssertionError"})
"""Exceptions that a failed comparison is; the empty name is a bare `except`."""
_SKIPS = ("skipTest", "pytest.skip", "SkipTest")
_CONDITIONAL = frozenset({"skipIf", "skipUnless", "skipif", "skip_unless", "skip_if"})
_CLASS_EXPRESSIONS = (ast.Name, ast.Attribute, ast.Subscript, ast.IfExp, ast.BoolOp, ast.List, ast.Tuple, ast.Dict)
"""Expressions that may be a class when assigned; most assigned values are arrays and numbers."""


def facts_of(source: bytes) -> FileFacts:
    """What the file says about op tests; where it cannot be read, `problem` says why. It never raises."""
    try:
        reader = _FactReader()
        reader.block(parse(source).body, 0, ())
    except Unreadable as error:
        return FileFacts(problem=str(error), line=error.line)
    except RecursionError:
        return FileFacts(problem="its expressions are nested too deeply to be read")
    return FileFacts(
        scopes=tuple(reader.scopes),
        classes=tuple(reader.classes),
        bindings=tuple(reader.bindings),
        made=tuple(reader.made),
        flags=tuple(reader.flags),
    )


class _FactReader:
    """Collects facts while going through statements; expressions are looked at only where they matter."""

    def __init__(self) -> None:
        self.scopes = [Scope(kind="module")]
        self.classes: list[ClassFacts] = []
        self.bindings: list[Binding] = []
        self.made: list[Made] = []
        self.flags: list[Flag] = []
        self._returns: dict[int, list[Expression]] = {}
        self._bodies: dict[int, _ClassBody] = {}  # Scope → the class body that it is.

    def block(self, statements: Iterable[ast.stmt], scope: int, when: When) -> None:
        for statement in statements:
            self.statement(statement, scope, when)

    def statement(self, node: ast.stmt, scope: int, when: When) -> None:  # noqa: C901, PLR0912 - one branch per kind
        body = self._bodies.get(scope)
        match node:
            case ast.ClassDef():
                self._class(node, scope, when)
            case ast.FunctionDef() | ast.AsyncFunctionDef() if body is not None:
                body.method(node, when)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self.function(node, scope)
            case ast.Import(names=names):
                for alias in names:
                    whole = alias.name if alias.asname else alias.name.partition(".")[0]
                    # `import a.b` binds a, and sees to it that a.b is there.
                    also = () if alias.asname or "." not in alias.name else ((alias.name, alias.name),)
                    for name, module in ((alias.asname or whole, whole), *also):
                        self.bindings.append(
                            Binding(scope=scope, name=name, line=node.lineno, kind="module", module=module)
                        )
            case ast.ImportFrom(names=names):  # leading dots of a module are levels up
                made = Binding(
                    scope=scope, name="*", line=node.lineno, kind="star", module="." * node.level + (node.module or "")
                )
                for alias in names:
                    bound = {"name": alias.asname or alias.name, "kind": "from", "target": alias.name}
                    self.bindings.append(made if alias.name == "*" else msgspec.structs.replace(made, **bound))
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign() if node.value is not None:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                if body is not None and not isinstance(node, ast.AugAssign):
                    for name in map(dotted, targets):
                        body.attribute(name, node.value, node.lineno)
                        body.values[name] = constant(name, node.value)
                for target in targets:
                    self._assigned(target, node.value, scope)
            case ast.Expr(value=value):
                self._calls(value, scope)
            case ast.Return(value=ast.expr() as value):
                self._returns.setdefault(scope, []).append(expression(value))
                self._calls(value, scope)
            case ast.Delete():
                for name in map(dotted, node.targets):
                    if body is not None:
                        body.methods.pop(name, None)
                        body.attributes.pop(name, None)
                    else:
                        self._bind(scope, name, node.lineno, "deleted")
                        self._patch(scope, name, None)
            case ast.If():
                for part, more in branches(node):
                    self.block(part, scope, when + more)
            case ast.For() | ast.AsyncFor():
                values = node.iter  # What the loop's names stand for: any of what it goes over.
                if isinstance(values, ast.Call) and isinstance(values.func, ast.Attribute):
                    values = values.func.value  # D.items(), D.values()
                for one in node.target.elts if isinstance(node.target, ast.Tuple) else [node.target]:
                    self._bind(scope, dotted(one), one.lineno, "loop", expression(values))
                self.block([*node.body, *node.orelse], scope, when)
            case ast.While():
                self.block([*node.body, *node.orelse], scope, when)
            case ast.With() | ast.AsyncWith():
                self.block(node.body, scope, when)
            case ast.Try() | ast.TryStar():
                self.block(chain(node.body, *(h.body for h in node.handlers), node.orelse, node.finalbody), scope, when)

    def _bind(
        self, scope: int, name: str, line: int, kind: str, target: Expression | None = None, index: int = 0
    ) -> None:
        if name and "." not in name:
            self.bindings.append(
                Binding(scope=scope, name=name, line=line, kind=kind, reference=target, index=index)  # type: ignore[arg-type]
            )

    def _assigned(self, target: ast.expr, value: ast.expr, scope: int) -> None:
        name = dotted(target)
        match target:
            case ast.Subscript(value=ast.Call(func=ast.Name(id="globals")), slice=ast.Constant(value=str(key))):
                name = key  # by which factories name what they made
        owner, _, last = name.rpartition(".")
        if owner and FLAGS.fullmatch(last):
            self.flags.append(Flag(name=last, line=target.lineno, value=text_of(value), owner=owner, scope=scope))
        elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            for one, part in zip(target.elts, value.elts, strict=False):
                self._assigned(one, part, scope)
        else:
            may_be_class = isinstance(value, _CLASS_EXPRESSIONS)
            if isinstance(value, ast.Call):
                may_be_class = any(map(dotted, value.args))
            if name and may_be_class:
                self._bind(scope, name, target.lineno, "alias", expression(value))
            self._patch(scope, name, value)
            # After the alias: what is bound last wins.
            self._calls(value, scope)

    def _patch(self, scope: int, whole: str, value: ast.expr | None) -> None:
        """`T.test_check_grad = None`, `del T.test_check_grad`: a class that is changed after its statement."""
        owner, _, name = whole.rpartition(".")
        if not (owner and (is_test(name) or is_check(name) or name == "__test__")):
            return
        for index in range(len(self.classes) - 1, -1, -1):
            cls = self.classes[index]
            if (cls.name, cls.scope) == (owner, scope):
                kept = [method for method in cls.methods if method.name != name]
                kept += [lambda_of(name, value)] if isinstance(value, ast.Lambda) else []
                attributes = {k: v for k, v in cls.attributes.items() if k != name}
                if value is not None:
                    attributes[name] = text_of(value)
                self.classes[index] = msgspec.structs.replace(cls, methods=tuple(kept), attributes=attributes)
                return

    def _calls(self, node: ast.expr, scope: int) -> None:
        """Calls that may make classes: `make(A)`, `[make(A), make(B)]`."""
        match node:
            case ast.Call() if function := dotted(node.func):
                handed = (*node.args, *(k.value for k in node.keywords))
                held = any(isinstance(a, ast.Starred | ast.List | ast.Tuple) or dotted(a) for a in handed)
                if held or any(s.defaults and s.name == function for s in self.scopes):
                    self.made.append(Made(scope=scope, line=node.lineno, call=expression(node)))
            case ast.List(elts=values) | ast.Tuple(elts=values) | ast.Dict(values=values):
                for value in values:
                    self._calls(value, scope)

    def function(self, node: FunctionNode, scope: int) -> None:
        given = dict(defaults(node.args))
        made = Scope(
            kind="function",
            parent=scope,
            name=node.name,
            parameters=tuple(parameter_names(node.args)),
            defaults={name: expression(value) for name, value in given.items() if dotted(value)},
            constants={name: known for name, value in given.items() if (known := truth(value)) is not None},
        )
        index = len(self.scopes)
        self.scopes.append(made)
        self._bind(scope, node.name, node.lineno, "function", index=index)
        self.block(node.body, index, ())
        self.scopes[index] = msgspec.structs.replace(made, returns=tuple(self._returns.pop(index, ())))

    def _class(self, node: ast.ClassDef, scope: int, when: When) -> None:
        index, inside = len(self.classes), len(self.scopes)
        self.scopes.append(Scope(kind="class", parent=scope, name=node.name))
        self._bind(scope, node.name, node.lineno, "class", index=index)
        parts, above = [node.name], scope
        while above > 0:
            here = self.scopes[above]
            parts.append(f"{here.name}.<locals>" if here.kind == "function" else here.name)
            above = here.parent
        facts = ClassFacts(name=node.name, qualname=".".join(reversed(parts)), line=node.lineno)
        self.classes.append(facts)
        body = self._bodies[inside] = _ClassBody(self, inside)
        self.block(node.body, inside, ())
        self.classes[index] = msgspec.structs.replace(
            facts,
            scope=scope,
            body=inside,
            bases=tuple(map(expression, node.bases)),
            decorators=decorators(node.decorator_list),
            methods=tuple(body.methods.values()),
            flags=tuple(body.flags),
            attributes=body.attributes,
            op=body.op,
            values=body.values,
            when=when,
        )


class _ClassBody:
    """What the statements of a class, and of its methods, set on it."""

    def __init__(self, reader: _FactReader, scope: int) -> None:
        self._reader = reader
        self._scope = scope
        self.methods: dict[str, Method] = {}
        self.attributes: dict[str, str] = {}
        self.flags: list[Flag] = []
        self.op: str | None = None
        self.values: dict[str, Value] = {}

    def method(self, node: FunctionNode, when: When) -> None:
        # What it sets on the object or its class.
        sets: list[tuple[str, Value]] = []
        me, factory = node.args.args[0].arg if node.args.args else "self", False
        pending: list[ast.stmt] = [*reversed(node.body)]
        while pending:
            match statement := pending.pop():
                case ast.Assign(value=value) | ast.AnnAssign(value=ast.expr() as value):
                    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
                    for target in chain(*(one.elts if isinstance(one, ast.Tuple) else [one] for one in targets)):
                        whose, _, last = dotted(target).rpartition(".")
                        if whose in {me, "cls", f"{me}.__class__"}:
                            sets.append((last, constant(last, value) if statement in node.body else "?"))
                            self.attribute(last, value, statement.lineno)
                        elif whose and FLAGS.fullmatch(last):
                            self._flag(last, value, statement.lineno, whose)
                case ast.Expr(value=ast.Call(func=ast.Attribute(value=owner, attr=name))):
                    above = isinstance(owner, ast.Call) and dotted(owner.func) == "super"
                    if above or dotted(owner) == me:
                        sets.append((f"{'super.' * above}{name}()", None))
                case ast.ClassDef(bases=bases) if {*map(dotted, bases)} & {*parameter_names(node.args)}:
                    factory = True
                case ast.ClassDef() as inner:
                    self._reader.statement(inner, self._scope, ())
                case other:
                    handlers = [s for handler in getattr(other, "handlers", ()) for s in handler.body]
                    parts = (getattr(other, part, ()) for part in ("body", "orelse", "finalbody"))
                    pending += reversed([*chain(*parts), *handlers])
        if factory:
            self._reader.function(node, self._scope)
        walked, skips = _Body(parameter_names(node.args)[:1]), decorators(node.decorator_list)
        walked.block(node.body, ())
        self.methods[node.name] = Method(
            name=node.name,
            line=node.lineno,
            calls=tuple(walked.calls),
            empty=_emptiness(node, skips, walked) if is_test(node.name) else "",
            does=walked.does,
            decorators=skips,
            when=when,
            sets=tuple(sets),
        )
        self.attributes.pop(node.name, None)

    def _flag(self, name: str, value: ast.expr, line: int, owner: str = "") -> None:
        self.flags.append(Flag(name=name, line=line, value=text_of(value), owner=owner))

    def attribute(self, name: str, value: ast.expr, line: int) -> None:
        if not name or "." in name:
            return
        if FLAGS.fullmatch(name):
            self._flag(name, value, line)
        elif name == "op_type":
            self.op = literal(value) or self.op
        elif isinstance(value, ast.Lambda) and (is_test(name) or is_check(name)):
            self.methods[name] = lambda_of(name, value)
            self.attributes.pop(name, None)
        elif is_test(name) or is_check(name) or name == "__test__":
            self.attributes[name] = text_of(value)
            self.methods.pop(name, None)


def constant(name: str, value: ast.expr) -> Value:
    """What an attribute is set to, where it can be read off."""
    if name == "dtype":
        return dtype_named(literal(value) or dotted(value).rpartition(".")[2]) or "?"
    plain = isinstance(value, ast.Constant) and isinstance(value.value, str | bool | None)
    return value.value if plain else "?"  # type: ignore[attr-defined]


def branches(node: ast.If) -> Iterator[tuple[list[ast.stmt], When]]:
    """The branches that can be taken, those of every `elif` included, each with its conditions."""
    before: tuple[str, ...] = ()
    for test, body in arms(node):
        known = test is None or truth(test)
        condition = text_of(test) if test is not None else ""
        if known or condition.startswith("__name__ =="):
            yield body, before
        elif known is None:
            yield body, (*before, condition)
            before = (*before, negated(condition))
        if known:
            return


def decorators(nodes: Iterable[ast.expr]) -> tuple[Decorator, ...]:
    """Those that skip, or expect a failure."""
    return tuple(found for node in nodes if (found := _decorator(node)) is not None)


def _decorator(node: ast.expr) -> Decorator | None:
    call = node if isinstance(node, ast.Call) else None
    name = dotted(call.func if call else node)
    last = name.rpartition(".")[2]
    made = Decorator(name=name, line=node.lineno)
    if last == SKIP_RULE:
        by_name = next((k.value for k in call.keywords if k.arg == "reason"), None) if call else None
        return msgspec.structs.replace(made, reason=literal(by_name or (call.args[0] if call and call.args else None)))
    if last == "skip" or (last in EXPECTS_FAILURE and (call is None or not call.args)):
        return made
    if last in EXPECTS_FAILURE:
        return msgspec.structs.replace(made, condition=_condition(call, "skipif"))
    if "skip" not in last.lower() or last.startswith("skip_check_"):
        return None
    return msgspec.structs.replace(made, condition=_condition(call, last))


def _condition(call: ast.Call | None, last: str) -> str:
    """Under which condition the test runs; for decorators of the tree's own, their name says it."""
    if call is None or not call.args or last not in _CONDITIONAL:
        return f"{last} lets it"
    text = text_of(call.args[0])
    return text if last in {"skipUnless", "skip_unless"} else negated(text)


def takes_failure(node: ast.AST) -> bool:
    """Whether what an expression stands around is expected to fail."""
    if not isinstance(node, ast.Call):
        return False
    last = dotted(node.func).rpartition(".")[2]
    if last == "suppress":
        return any(dotted(kind).rpartition(".")[2] in _CATCHES for kind in node.args)
    return last == "raises" or last.startswith("assertRaises")


def swallows(handler: ast.ExceptHandler) -> bool:
    """Whether a handler takes a failed comparison for granted."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    names = {dotted(kind).rpartition(".")[2] if kind is not None else "" for kind in kinds}
    if not names & _CATCHES:
        return False
    return not any(
        isinstance(n, ast.Raise) or "fail" in text_of(n)
        for s in handler.body
        for n in ast.walk(s)
        if isinstance(n, ast.Raise | ast.Call)
    )


def lambda_of(name: str, node: ast.Lambda) -> Method:
    """What a method does that is written as a lambda."""
    body = _Body(parameter_names(node.args)[:1])
    body.expressions(node.body, ())
    empty = "" if body.does else "does nothing that could fail"
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

    def __init__(self, tests: Iterable[str]) -> None:
        self._tests = {*tests}  # Names of the op test: `self`, and what it is assigned to.
        self.calls: list[MethodCall] = []
        self.does = False
        self.skipped = False
        self._caught = 0

    def block(self, statements: Sequence[ast.stmt], when: When) -> bool:
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
                    self.block(node.body, when)
                self.block(node.orelse, when)
            case ast.With() | ast.AsyncWith():
                for item in node.items:
                    self.expressions(item.context_expr, when)
                catches = any(takes_failure(item.context_expr) for item in node.items)
                self._caught += catches
                ended = self.block(node.body, when) and not catches
                self._caught -= catches
            case ast.Try() | ast.TryStar():
                catches = any(swallows(handler) for handler in node.handlers)
                self._caught += catches
                ended = self.block(node.body, when)
                self._caught -= catches
                for handler in node.handlers:
                    kind = text_of(handler.type) if handler.type else "anything"
                    self.block(handler.body, (*when, f"{kind} was raised"))
                ended = self.block(node.orelse, when) or ended
                ended = self.block(node.finalbody, when) or (ended and not node.handlers)
            case ast.Match():
                for case in node.cases:
                    self.block(case.body, (*when, text_of(node.subject)))
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self.block(node.body, when)
            case ast.ClassDef() | ast.Pass():
                pass
            case ast.Assign(targets=[ast.Name(id=other)], value=ast.Name(id=name)) if name in self._tests:
                self._tests.add(other)
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
                    ended = called.endswith(_SKIPS)
        return ended, ()

    def _if(self, node: ast.If, when: When) -> tuple[bool, When]:
        open_ = truth(node.test) is None
        depth, ended = len(when), list[bool]()
        for test, body in arms(node):
            if test is not None:
                self.expressions(test, when)
            known = test is None or truth(test)
            if known:
                ended.append(self.block(body, when))
                break
            if known is None and test is not None:
                condition = text_of(test)
                ended.append(self.block(body, (*when, condition)))
                when = (*when, negated(condition))
        if all(ended) or not open_:
            return all(ended), ()
        not_first = when[depth]
        return False, (not_first,) if ended[0] else (negated(not_first),) if all(ended[1:]) else ()

    def expressions(self, node: ast.AST, when: When) -> None:
        """Calls anywhere below a node."""
        pending, called = [node], set[ast.AST]()
        while pending:
            inner = pending.pop()
            match inner:
                case ast.Call(func=function) if not dotted(function).endswith(_SKIPS):
                    self.does = True
                    self._note(inner, when)
                    called.add(function)
                case ast.Attribute(attr=name, value=ast.Name(id=test)) if is_check(name) and test in self._tests:
                    if inner not in called:  # `check = self.check_grad`: it is taken for called
                        self.calls.append(MethodCall(name=name, line=inner.lineno, when=when))
                case ast.Assert():
                    self.does = True
            for field in inner._fields:  # ast.iter_child_nodes takes a tenth of a scan
                below = getattr(inner, field, None)
                if isinstance(below, list):
                    pending += [each for each in below if isinstance(each, ast.AST)]
                elif isinstance(below, ast.AST):
                    pending.append(below)

    def _note(self, node: ast.Call, when: When) -> None:
        """Keep a call that may check a gradient, or lead to one that does."""
        match node.func:
            case ast.Attribute(attr=name, value=ast.Name(id=owner)) if owner in self._tests:
                self._add(node, name, when)
            case ast.Attribute(attr=name, value=ast.Call(func=ast.Name(id="super"))):
                self._add(node, name, when, receiver="super")
            case function:
                owner, _, name = (whole := dotted(function)).rpartition(".")
                first = node.args[0] if node.args else None
                if name in FREE_CHECKS:
                    self._add(node, name, when, receiver="free", owner=whole)
                elif owner and isinstance(first, ast.Name) and first.id in self._tests:
                    self._add(node, name, when, receiver="class", owner=owner)

    def _add(self, node: ast.Call, name: str, when: When, **more: Any) -> None:
        if is_check(name) or name in FREE_CHECKS:
            more["keywords"] = {keyword.arg or "**": text_of(keyword.value) for keyword in node.keywords}
            numbers = ((keyword.arg, number(keyword.value)) for keyword in node.keywords)
            more["numbers"] = {key: value for key, value in numbers if key is not None and value is not None}
        self.calls.append(MethodCall(name=name, line=node.lineno, when=when, caught=self._caught > 0, **more))


def arms(node: ast.If) -> Iterator[tuple[ast.expr | None, list[ast.stmt]]]:
    """The condition and body of an `if` and of every `elif`, and those of the `else`, which has no condition."""
    rest: list[ast.stmt] = [node]
    while len(rest) == 1 and isinstance(rest[0], ast.If):  # hundreds deep in generated files
        yield rest[0].test, rest[0].body
        rest = rest[0].orelse
    yield None, rest
