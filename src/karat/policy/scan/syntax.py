"""The facts of one file: its scopes, names and classes, with their methods, decorators and flags, from its text alone."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Literal

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
    Scope,
    Value,
)
from karat.policy.scan.methods import FunctionNode, When, arms, function_of, lambda_of, method_of
from karat.policy.scan.source import (
    Unreadable,
    column,
    defaults,
    dotted,
    expression,
    literal,
    members_of,
    negated,
    parameter_names,
    parse,
    text_of,
    truth,
)
from karat.policy.scan.vocabulary import EXPECTS_FAILURE, FLAGS, SKIP_RULE, dtype_named, is_check, is_test

_CONDITIONAL = frozenset({"skipIf", "skipUnless", "skipif", "skip_unless", "skip_if"})
_CLASS_EXPRESSIONS = (ast.Name, ast.Attribute, ast.Subscript, ast.IfExp, ast.BoolOp, ast.List, ast.Tuple, ast.Dict)
"""Expressions that may be a class when assigned; most assigned values are arrays and numbers."""
Given = Literal["keyword", "positional", "empty", "none", "computed"]


def facts_of(source: bytes, path: str) -> FileFacts:
    """What the file says about op tests; where it cannot be read, `problem` says why. It never raises."""
    try:
        reader = _FactReader()
        reader.block(parse(source).body, 0, ())
    except Unreadable as error:
        return FileFacts(path=path, problem=str(error), line=error.line)
    except RecursionError:
        return FileFacts(path=path, problem="its expressions are nested too deeply to be read")
    return FileFacts(
        path=path,
        scopes=tuple(reader.scopes),
        classes=tuple(reader.classes),
        bindings=tuple(reader.bindings),
        made=tuple(reader.made),
        flags=tuple(reader.flags),
    )


def import_bindings(node: ast.Import | ast.ImportFrom, scope: int = 0) -> Iterator[Binding]:
    """The names that an import statement binds; leading dots of a module are levels up."""
    line = node.lineno
    if isinstance(node, ast.Import):
        for alias in node.names:
            whole = alias.name if alias.asname else alias.name.partition(".")[0]
            yield Binding(scope=scope, name=alias.asname or whole, line=line, kind="module", module=whole)
            if not alias.asname and "." in alias.name:
                # `import a.b` binds a, and sees to it that a.b is there.
                yield Binding(scope=scope, name=alias.name, line=line, kind="module", module=alias.name)
        return
    module = "." * node.level + (node.module or "")
    for alias in node.names:
        if alias.name == "*":
            yield Binding(scope=scope, name="*", line=line, kind="star", module=module)
        else:
            yield Binding(
                scope=scope, name=alias.asname or alias.name, line=line, kind="from", module=module, target=alias.name
            )


class _FactReader:
    """Collects facts while going through statements; expressions are looked at only where they matter."""

    def __init__(self) -> None:
        self.scopes = [Scope(kind="module")]
        self.classes: list[ClassFacts] = []
        self.bindings: list[Binding] = []
        self.made: list[Made] = []
        self.flags: list[Flag] = []
        self.renamed: dict[str, ast.expr] = {}  # What decorates, by the names that the file gives it.
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
            case ast.Import() | ast.ImportFrom():
                self.bindings += import_bindings(node, scope)
                for alias in node.names if isinstance(node, ast.ImportFrom) else ():
                    if alias.asname and may_skip(ast.Name(alias.name)):
                        self.renamed[alias.asname] = ast.Name(alias.name)
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign() if node.value is not None:
                self._assign(node, node.value, scope, when)
            case ast.Expr(value=value):
                self._calls(value, scope, when=when)
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
                        self._patch(scope, name, None, when)
            case ast.If():
                for part, more in branches(node):
                    self.block(part, scope, when + more)
            case ast.For() | ast.AsyncFor():
                self._loop(node.target, node.iter, scope)
                self.block([*node.body, *node.orelse], scope, when)
            case ast.While():
                self.block([*node.body, *node.orelse], scope, when)
            case ast.With() | ast.AsyncWith():
                self.block(node.body, scope, when)
            case ast.Try() | ast.TryStar():
                self.block(chain(node.body, *(h.body for h in node.handlers), node.orelse, node.finalbody), scope, when)
            case ast.Match():
                for case in node.cases:
                    self.block(case.body, scope, (*when, text_of(node.subject)))

    def _bind(
        self, scope: int, name: str, line: int, kind: str, target: Expression | None = None, index: int = 0
    ) -> None:
        if name and "." not in name:
            self.bindings.append(
                Binding(scope=scope, name=name, line=line, kind=kind, reference=target, index=index)  # type: ignore[arg-type]
            )

    def _assign(
        self, node: ast.Assign | ast.AnnAssign | ast.AugAssign, value: ast.expr, scope: int, when: When
    ) -> None:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        body = self._bodies.get(scope)
        if body is not None and not isinstance(node, ast.AugAssign):
            when = ()
            for name in map(dotted, targets):
                body.attribute(name, value, node.lineno)
                body.values[name] = constant(name, value)
        if len(targets) == 1 and isinstance(targets[0], ast.Name) and may_skip(value):
            self.renamed[targets[0].id] = value
        for target in targets:
            self._assigned(target, value, scope, when)

    def _assigned(self, target: ast.expr, value: ast.expr, scope: int, when: When) -> None:
        name = dotted(target)
        match target:
            case ast.Subscript(value=ast.Call(func=ast.Name(id="globals")), slice=ast.Constant(value=str(key))):
                name = key  # by which factories name what they made
        owner, _, last = name.rpartition(".")
        if owner and FLAGS.fullmatch(last):
            self.flags.append(Flag(name=last, line=target.lineno, value=text_of(value), owner=owner, scope=scope))
        elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            for one, part in zip(target.elts, value.elts, strict=False):
                self._assigned(one, part, scope, when)
        else:
            may_be_class = isinstance(value, _CLASS_EXPRESSIONS)
            if isinstance(value, ast.Call):
                may_be_class = dotted(value.func) == "type" or any(map(dotted, value.args))
            if name and may_be_class:
                self._bind(scope, name, target.lineno, "alias", expression(value))
            self._patch(scope, name, value, when)
            match value:
                # `T = unittest.skip("why")(T)`: a decorator that is called by hand.
                case ast.Call(func=function, args=[ast.Name(id=given)], keywords=[]) if given == name and not when:
                    found = decorators([function], self.renamed)
                    index = self._latest(name, scope) if found else None
                    if index is not None:
                        cls = self.classes[index]
                        self.classes[index] = msgspec.structs.replace(cls, decorators=cls.decorators + found)
            # After the alias: what is bound last wins.
            self._calls(value, scope, name, when)

    def _patch(self, scope: int, whole: str, value: ast.expr | None, when: When) -> None:
        """`T.test_check_grad = None`, `del T.test_check_grad`: a class that is changed after its statement."""
        owner, _, name = whole.rpartition(".")
        if owner and (is_test(name) or is_check(name) or name == "__test__"):
            index = self._latest(owner, scope)
            if index is not None:
                self.classes[index] = patched(self.classes[index], name, value, when)

    def _latest(self, name: str, scope: int) -> int | None:
        """The class that a name means in a scope, so far."""
        for index in range(len(self.classes) - 1, -1, -1):
            if (self.classes[index].name, self.classes[index].scope) == (name, scope):
                return index
        return None

    def _loop(self, target: ast.expr, values: ast.expr, scope: int) -> None:
        """What a loop's names stand for: any of what it goes over."""
        if isinstance(values, ast.Call) and isinstance(values.func, ast.Attribute):
            values = values.func.value  # D.items(), D.values()
        if not isinstance(target, ast.Tuple):
            self._bind(scope, dotted(target), target.lineno, "loop", expression(values))
            return
        for place, one in enumerate(target.elts):
            self._bind(scope, dotted(one), target.lineno, "loop", expression(column(values, place)))

    def _calls(self, node: ast.expr, scope: int, bound: str = "", when: When = ()) -> None:
        """Calls that may make classes: `make(A)`, `[make(A), make(B)]`, `[make(p) for p in (A, B)]`."""
        match node:
            case ast.Call(func=ast.Name(id="setattr" | "delattr"), args=[on, key, *rest]):
                owner, name = dotted(on), literal(key) or ""
                value = rest[0] if len(rest) == 1 else None
                if value is not None and FLAGS.fullmatch(name):
                    line = node.lineno
                    self.flags.append(Flag(name=name, line=line, value=text_of(value), owner=owner, scope=scope))
                self._patch(scope, f"{owner}.{name}", value, when)
            case ast.Call(func=ast.Name(id="type"), args=[_, _, _]):
                self._typed(node, scope, bound)
            case ast.Call() if function := dotted(node.func):
                handed = (*node.args, *(k.value for k in node.keywords))
                held = any(isinstance(a, ast.Starred | ast.List | ast.Tuple) or dotted(a) for a in handed)
                if held or any(s.defaults and s.name == function for s in self.scopes):
                    self.made.append(Made(scope=scope, line=node.lineno, call=expression(node)))
            case ast.List(elts=values) | ast.Tuple(elts=values) | ast.Dict(values=values):
                for value in values:
                    self._calls(value, scope, when=when)
            case (
                ast.ListComp(elt=value, generators=loops)
                | ast.SetComp(elt=value, generators=loops)
                | ast.DictComp(value=value, generators=loops)
            ):
                for loop in loops:
                    self._loop(loop.target, loop.iter, scope)
                self._calls(value, scope, when=when)

    def _typed(self, node: ast.Call, scope: int, bound: str) -> None:
        """`type("TestX", (OpTest,), {...})`: a class without a statement."""
        bases = node.args[1].elts if isinstance(node.args[1], ast.Tuple) else [node.args[1]]
        name = literal(node.args[0]) or bound or "type(…)"
        members = members_of(node.args[2])
        dynamic = () if members is not None else (Expression(text=text_of(node.args[2])),)
        made = ClassFacts(
            name=name,
            qualname=self._qualname(scope, name),
            line=node.lineno,
            scope=scope,
            body=scope,
            bases=(*map(expression, bases), *dynamic),
        )
        for member, value in (members or {}).items():
            if is_test(member) or is_check(member):
                made = patched(made, member, value, ())
        self._bind(scope, bound or name, node.lineno, "class", index=len(self.classes))
        self.classes.append(made)

    def function(self, node: FunctionNode, scope: int) -> None:
        given = dict(defaults(node.args))
        made = Scope(
            kind="function",
            parent=scope,
            name=node.name,
            line=node.lineno,
            parameters=tuple(parameter_names(node.args)),
            defaults={name: expression(value) for name, value in given.items() if dotted(value)},
            constants={name: known for name, value in given.items() if (known := truth(value)) is not None},
        )
        index = len(self.scopes)
        self.scopes.append(made)
        self._bind(scope, node.name, node.lineno, "function", index=index)
        self.block(node.body, index, ())
        self.scopes[index] = msgspec.structs.replace(
            made, returns=tuple(self._returns.pop(index, ())), method=function_of(node)
        )

    def _qualname(self, scope: int, name: str) -> str:
        parts = [name]
        while scope > 0:
            here = self.scopes[scope]
            parts.append(f"{here.name}.<locals>" if here.kind == "function" else here.name)
            scope = here.parent
        return ".".join(reversed(parts))

    def _class(self, node: ast.ClassDef, scope: int, when: When) -> None:
        index, inside = len(self.classes), len(self.scopes)
        self.scopes.append(Scope(kind="class", parent=scope, name=node.name, line=node.lineno))
        self._bind(scope, node.name, node.lineno, "class", index=index)
        facts = ClassFacts(name=node.name, qualname=self._qualname(scope, node.name), line=node.lineno)
        self.classes.append(facts)
        body = self._bodies[inside] = _ClassBody(self, inside)
        self.block(node.body, inside, ())
        self.classes[index] = msgspec.structs.replace(
            facts,
            scope=scope,
            body=inside,
            bases=tuple(map(expression, node.bases)),
            decorators=decorators(node.decorator_list, self.renamed),
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
                        owner, _, last = dotted(target).rpartition(".")
                        if owner in {me, "cls", f"{me}.__class__"}:
                            sets.append((last, constant(last, value) if statement in node.body else "?"))
                            self.attribute(last, value, statement.lineno)
                        elif owner and FLAGS.fullmatch(last):
                            self._flag(last, value, statement.lineno, owner)
                case ast.Expr(value=ast.Call(func=called, args=given, lineno=line)):
                    if isinstance(called, ast.Attribute):
                        above = isinstance(called.value, ast.Call) and dotted(called.value.func) == "super"
                        sets += (
                            [(f"{'super.' * above}{called.attr}()", None)]
                            if above or dotted(called.value) == me
                            else ()
                        )
                    if dotted(called) == "setattr" and len(given) == 3 and FLAGS.fullmatch(literal(given[1]) or ""):
                        owner = dotted(given[0])
                        self._flag(literal(given[1]) or "", given[2], line, "" if owner in {"self", "cls"} else owner)
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
        method = method_of(node, decorators(node.decorator_list, self._reader.renamed), when)
        method = msgspec.structs.replace(method, sets=tuple(sets))
        before = self.methods.get(node.name)
        self.methods[node.name] = merged(before, method) if before and when else method
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


def merged(before: Method, after: Method) -> Method:
    """A method of which one definition counts under a condition, and another where it does not hold."""
    first = before.when or (negated(" and ".join(after.when)),)
    calls = [(first, call) for call in before.calls] + [(after.when, call) for call in after.calls]
    return msgspec.structs.replace(
        before,
        when=(),
        does=before.does or after.does,
        only_super=before.only_super and after.only_super,
        empty=before.empty and after.empty,
        decorators=before.decorators + after.decorators,
        calls=tuple(msgspec.structs.replace(call, when=when + call.when) for when, call in calls),
    )


def patched(facts: ClassFacts, name: str, value: ast.expr | None, when: When) -> ClassFacts:
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


def decorators(nodes: Iterable[ast.expr], renamed: Mapping[str, ast.expr]) -> tuple[Decorator, ...]:
    """Those that skip, or expect a failure; `renamed` says what a name of the file's own stands for."""
    return tuple(found for node in nodes if (found := _decorator(node, renamed)) is not None)


def may_skip(node: ast.expr) -> bool:
    """Whether an expression that gets a name may decorate by it: `gpu_only = unittest.skipIf(...)`."""
    last = dotted(node.func if isinstance(node, ast.Call) else node).rpartition(".")[2]
    return "skip" in last.lower() or last in EXPECTS_FAILURE


def _decorator(node: ast.expr, renamed: Mapping[str, ast.expr]) -> Decorator | None:
    called = node if isinstance(node, ast.Call) else None
    meant = renamed.get(dotted(called.func if called else node))
    call = called or (meant if isinstance(meant, ast.Call) else None)
    name = dotted(meant.func if isinstance(meant, ast.Call) else meant or (call.func if call else node))
    last = name.rpartition(".")[2]
    made = Decorator(name=name, line=node.lineno)
    if last == SKIP_RULE:
        reason, given = _reason(call)
        return msgspec.structs.replace(made, reason=reason, given=given)
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


def _reason(call: ast.Call | None) -> tuple[str | None, Given]:
    if call is None:
        return None, "none"
    by_name = [k.value for k in call.keywords if k.arg == "reason"]
    unpacked = any(k.arg is None for k in call.keywords) or any(isinstance(a, ast.Starred) for a in call.args)
    node = by_name[0] if by_name else call.args[0] if call.args else None
    if node is None:
        return None, "computed" if unpacked else "none"
    text = literal(node)
    if text is None:
        return None, "none" if isinstance(node, ast.Constant) and node.value is None else "computed"
    given: Given = "keyword" if by_name else "positional"
    return text, given if text.strip() else "empty"
