"""The facts of one file: its scopes, names and classes, with their methods, decorators and flags, from its text alone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Literal

import msgspec

from karat.policy.scan.facts import Binding, ClassFacts, Decorator, FileFacts, Flag, Made, Method, Reference, Scope
from karat.policy.scan.methods import FunctionNode, When, function_of, lambda_of, method_of, otherwise
from karat.policy.scan.source import (
    Unreadable,
    column,
    dotted,
    literal,
    members_of,
    negated,
    parse,
    reference,
    text_of,
    truth,
)
from karat.policy.scan.vocabulary import EXPECTS_FAILURE, FLAGS, SKIP_RULE, is_check, is_test

_CONDITIONAL = frozenset({"skipIf", "skipUnless", "skipif", "skip_unless", "skip_if"})
_DTYPE = re.compile(r"b?float16|float(?:32|64)|complex(?:64|128)|u?int(?:8|16)|int(?:32|64)|bool")
_CLASS_EXPRESSIONS = (ast.Name, ast.Attribute, ast.Subscript, ast.IfExp, ast.BoolOp, ast.List, ast.Tuple, ast.Dict)
"""Expressions that may be a class when assigned; most assigned values are arrays and numbers."""
Given = Literal["keyword", "positional", "empty", "none", "computed"]


def facts_of(source: bytes, path: str) -> FileFacts:
    """What the file says about op tests; where it cannot be read, `problem` says why. It never raises."""
    try:
        reader = _Reader()
        reader.open(Scope(kind="module"))
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
            name = alias.asname or whole
            yield Binding(scope=scope, name=name, line=line, kind="module", module=whole)
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


class _Reader:
    """Collects facts while going through statements; expressions are looked at only where they matter."""

    def __init__(self) -> None:
        self.scopes: list[Scope] = []
        self.classes: list[ClassFacts] = []
        self.bindings: list[Binding] = []
        self.made: list[Made] = []
        self.flags: list[Flag] = []
        self.renamed: dict[str, ast.expr] = {}
        """What decorates, by the names that the file gives it."""
        self._returns: dict[int, list[Reference]] = {}

    def open(self, scope: Scope) -> int:
        self.scopes.append(scope)
        return len(self.scopes) - 1

    def block(self, statements: Sequence[ast.stmt], scope: int, when: When) -> None:
        for statement in statements:
            self.statement(statement, scope, when)

    def statement(self, node: ast.stmt, scope: int, when: When) -> None:
        match node:
            case ast.ClassDef():
                self._class(node, scope, when)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._function(node, scope)
            case ast.Import() | ast.ImportFrom():
                self.bindings += import_bindings(node, scope)
                for alias in node.names if isinstance(node, ast.ImportFrom) else ():
                    if alias.asname and may_skip(ast.Name(alias.name)):
                        self.renamed[alias.asname] = ast.Name(alias.name)
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
                self.assign(node, scope, when)
            case ast.Expr(value=value):
                self._calls(value, scope, when=when)
            case ast.Return(value=ast.expr() as value):
                self._returns.setdefault(scope, []).append(reference(value))
                self._calls(value, scope)
            case ast.Delete():
                for target in node.targets:
                    self._bind(scope, dotted(target), node.lineno, "deleted")
                    owner, _, name = dotted(target).rpartition(".")
                    self._patch(scope, owner, name, None, when)
            case _:
                self._compound(node, scope, when)

    def _compound(self, node: ast.stmt, scope: int, when: When) -> None:
        match node:
            case ast.If():
                for body, more in branches(node):
                    self.block(body, scope, when + more)
            case ast.For() | ast.AsyncFor():
                self._loop(node.target, node.iter, scope)
                self.block([*node.body, *node.orelse], scope, when)
            case ast.While():
                self.block([*node.body, *node.orelse], scope, when)
            case ast.With() | ast.AsyncWith():
                self.block(node.body, scope, when)
            case ast.Try() | ast.TryStar():
                for part in try_parts(node):
                    self.block(part, scope, when)
            case ast.Match():
                for case in node.cases:
                    self.block(case.body, scope, (*when, text_of(node.subject)))

    def _bind(
        self, scope: int, name: str, line: int, kind: str, target: Reference | None = None, index: int = 0
    ) -> None:
        if name and "." not in name:
            self.bindings.append(
                Binding(scope=scope, name=name, line=line, kind=kind, reference=target, index=index)  # type: ignore[arg-type]
            )

    def assign(self, node: ast.Assign | ast.AnnAssign | ast.AugAssign, scope: int, when: When = ()) -> None:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if node.value is None:
            return
        if len(targets) == 1 and isinstance(targets[0], ast.Name) and may_skip(node.value):
            self.renamed[targets[0].id] = node.value
        for target in targets:
            self._assigned(target, node.value, scope, when)

    def _assigned(self, target: ast.expr, value: ast.expr, scope: int, when: When) -> None:
        name = dotted(target) or _global(target)
        owner, _, last = name.rpartition(".")
        if owner and FLAGS.fullmatch(last):
            self._flag(last, owner, value, target.lineno, scope)
        elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            for one, part in zip(target.elts, value.elts, strict=False):
                self._assigned(one, part, scope, when)
        else:
            if name and _may_be_class(value):
                self._bind(scope, name, target.lineno, "alias", reference(value))
            if owner:
                self._patch(scope, owner, last, value, when)
            if not when:
                self._decorated(scope, name, value)
            # After the alias: what is bound last wins.
            self._calls(value, scope, name, when)

    def _flag(self, name: str, owner: str, value: ast.expr, line: int, scope: int) -> None:
        self.flags.append(Flag(name=name, line=line, value=text_of(value), owner=owner, scope=scope))

    def _patch(self, scope: int, owner: str, name: str, value: ast.expr | None, when: When) -> None:
        """`T.test_check_grad = None`, `del T.test_check_grad`: a class that is changed after its statement."""
        if not owner or not (is_test(name) or is_check(name) or name == "__test__"):
            return
        index = self._latest(owner, scope)
        if index is not None:
            self.classes[index] = patched(self.classes[index], name, value, when)

    def _latest(self, name: str, scope: int) -> int | None:
        """The class that a name means in a scope, so far."""
        for index in range(len(self.classes) - 1, -1, -1):
            if (self.classes[index].name, self.classes[index].scope) == (name, scope):
                return index
        return None

    def _decorated(self, scope: int, name: str, value: ast.expr) -> None:
        """`T = unittest.skip("why")(T)`: a decorator that is called by hand."""
        match value:
            case ast.Call(func=function, args=[ast.Name(id=given)], keywords=[]) if given == name:
                found = decorators([function], self.renamed)
                index = self._latest(name, scope) if found else None
                if index is not None:
                    cls = self.classes[index]
                    self.classes[index] = msgspec.structs.replace(cls, decorators=cls.decorators + found)

    def _loop(self, target: ast.expr, values: ast.expr, scope: int) -> None:
        """What a loop's names stand for: any of what it goes over."""
        if isinstance(values, ast.Call) and isinstance(values.func, ast.Attribute):
            values = values.func.value  # D.items(), D.values()
        if not isinstance(target, ast.Tuple):
            self._bind(scope, dotted(target), target.lineno, "alias", reference(values))
            return
        for place, one in enumerate(target.elts):
            self._bind(scope, dotted(one), target.lineno, "alias", reference(column(values, place)))

    def _calls(self, node: ast.expr, scope: int, bound: str = "", when: When = ()) -> None:
        """Calls that may make classes: `make(A)`, `[make(A), make(B)]`, `[make(p) for p in (A, B)]`."""
        match node:
            case ast.Call():
                self._call(node, scope, bound, when)
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

    def _call(self, node: ast.Call, scope: int, bound: str = "", when: When = ()) -> None:
        function = dotted(node.func)
        if function in {"setattr", "delattr"} and len(node.args) > 1:
            owner, name = dotted(node.args[0]), literal(node.args[1]) or ""
            value = node.args[2] if len(node.args) == 3 else None
            if value is not None and FLAGS.fullmatch(name):
                self._flag(name, owner, value, node.lineno, scope)
            self._patch(scope, owner, name, value, when)
            return
        if function == "type" and len(node.args) == 3:
            self._typed(node, scope, bound)
            return
        handed = (*node.args, *(k.value for k in node.keywords))
        held = any(isinstance(a, ast.Starred | ast.List | ast.Tuple) or dotted(a) for a in handed)
        if function and (held or any(s.defaults and s.name == function for s in self.scopes)):
            self.made.append(Made(scope=scope, line=node.lineno, call=reference(node)))

    def _typed(self, node: ast.Call, scope: int, bound: str) -> None:
        """`type("TestX", (OpTest,), {...})`: a class without a statement."""
        bases = node.args[1].elts if isinstance(node.args[1], ast.Tuple) else [node.args[1]]
        name = literal(node.args[0]) or bound or "type(…)"
        members = members_of(node.args[2])
        dynamic = () if members is not None else (Reference(text=text_of(node.args[2])),)
        index = len(self.classes)
        made = ClassFacts(
            name=name,
            qualname=self._qualname(scope, name),
            line=node.lineno,
            scope=scope,
            body=scope,
            bases=(*(reference(base) for base in bases), *dynamic),
        )
        for member, value in (members or {}).items():
            if is_test(member) or is_check(member):
                made = patched(made, member, value, ())
        self.classes.append(made)
        self._bind(scope, bound or name, node.lineno, "class", index=index)

    def _function(self, node: FunctionNode, scope: int) -> None:
        arguments = node.args
        names = [a.arg for a in (*arguments.posonlyargs, *arguments.args)]
        defaults = dict(zip(reversed(names), reversed(arguments.defaults), strict=False))
        defaults |= {a.arg: d for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d}
        made = Scope(
            kind="function",
            parent=scope,
            name=node.name,
            line=node.lineno,
            parameters=(*names, *(a.arg for a in arguments.kwonlyargs)),
            defaults={name: reference(value) for name, value in defaults.items() if dotted(value)},
            constants={name: known for name, value in defaults.items() if (known := truth(value)) is not None},
        )
        index = self.open(made)
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
        body = self.open(Scope(kind="class", parent=scope, name=node.name, line=node.lineno))
        index = len(self.classes)
        self._bind(scope, node.name, node.lineno, "class", index=index)
        qualname = self._qualname(scope, node.name)
        self.classes.append(ClassFacts(name=node.name, qualname=qualname, line=node.lineno))
        parts = _ClassBody(self, body)
        parts.block(node.body, ())
        self.classes[index] = ClassFacts(
            name=node.name,
            qualname=qualname,
            line=node.lineno,
            scope=scope,
            body=body,
            bases=tuple(reference(base) for base in node.bases),
            decorators=decorators(node.decorator_list, self.renamed),
            methods=tuple(parts.methods.values()),
            flags=tuple(parts.flags),
            attributes=parts.attributes,
            op=parts.op,
            dtype=parts.dtype,
            when=when,
        )


def _may_be_class(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        return dotted(node.func) == "type" or any(dotted(a) for a in node.args)
    return isinstance(node, _CLASS_EXPRESSIONS)


def _global(node: ast.expr) -> str:
    """`X` for `globals()["X"]`, the way by which factories name what they made."""
    match node:
        case ast.Subscript(value=ast.Call(func=ast.Name(id="globals")), slice=ast.Constant(value=str(name))):
            return name
    return ""


class _ClassBody:
    def __init__(self, reader: _Reader, scope: int) -> None:
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

    def block(self, statements: Sequence[ast.stmt], when: When) -> None:
        for node in statements:
            match node:
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    method = method_of(node, decorators(node.decorator_list, self._reader.renamed), when)
                    before = self.methods.get(node.name)
                    self.methods[node.name] = merged(before, method) if before and when else method
                    self.attributes.pop(node.name, None)
                    self._assignments(node.body, node.args.args[0].arg if node.args.args else "self")
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
                    for target in node.targets:
                        self.methods.pop(dotted(target), None)
                        self.attributes.pop(dotted(target), None)
                case _:
                    self._reader.statement(node, self._scope, when)

    def _assigned(self, node: ast.Assign | ast.AnnAssign) -> None:
        if node.value is None:
            return
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            self._attribute(dotted(target), node.value, node.lineno)
        self._reader.assign(node, self._scope)

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
                handlers = [s for handler in getattr(node, "handlers", ()) for s in handler.body]
                parts = (getattr(node, part, ()) for part in ("body", "orelse", "finalbody"))
                pending += reversed([*chain(*parts), *handlers])

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
            owner = "" if owner in {"self", "cls"} else owner
            self.flags.append(Flag(name=name, line=node.lineno, value=text_of(node.args[2]), owner=owner))

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


def branches(node: ast.If) -> list[tuple[list[ast.stmt], When]]:
    """The branches that can be taken, those of every `elif` included, each with its conditions."""
    found: list[tuple[list[ast.stmt], When]] = []
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
    name = literal(value) or dotted(value).rpartition(".")[2]
    # The original keeps bfloat16 in unsigned integers, which numpy knows.
    name = {"uint16": "bfloat16", "bool_": "bool", "bool8": "bool"}.get(name, name)
    return name if _DTYPE.fullmatch(name) else "?"


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
    name = dotted(meant.func if isinstance(meant, ast.Call) else meant or (call.func if call else node))
    last = name.rpartition(".")[2]
    if last == SKIP_RULE:
        reason, given = _reason(call)
        return Decorator(name=name, line=node.lineno, called=call is not None, reason=reason, given=given)
    if last in EXPECTS_FAILURE:
        condition = _condition(call, "skipif") if call is not None and call.args else ""
        return Decorator(name=name, line=node.lineno, called=call is not None, condition=condition)
    if last == "skip":
        return Decorator(name=name, line=node.lineno, called=call is not None)
    if "skip" not in last.lower() or last.startswith("skip_check_"):
        return None
    return Decorator(name=name, line=node.lineno, called=call is not None, condition=_condition(call, last))


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
        nothing = isinstance(node, ast.Constant) and node.value is None
        return None, "none" if nothing else "computed"
    if not text.strip():
        return text, "empty"
    return text, "keyword" if by_name else "positional"
