"""The statements of a file: scopes, names, classes, and the calls that make classes."""

from __future__ import annotations

import ast
from collections.abc import Sequence

import msgspec

from karat.policy.scan_bodies import FunctionNode, method_of
from karat.policy.scan_decorators import decorators
from karat.policy.scan_expressions import dotted, literal, negated, reference, text_of, truth
from karat.policy.scan_shapes import (
    Binding,
    ClassFacts,
    FileFacts,
    Flag,
    Made,
    Method,
    Reference,
    Scope,
)
from karat.policy.scan_vocabulary import FLAGS, is_check, is_test

_DTYPES = frozenset({
    "float16", "float32", "float64", "uint16", "bfloat16", "complex64", "complex128", "int8", "uint8", "int16",
    "int32", "int64", "bool",
})  # fmt: skip


def read(tree: ast.Module, path: str) -> FileFacts:
    """Everything of a file that op tests can be known by."""
    reader = _Reader()
    reader.open(Scope(kind="module"))
    reader.block(tree.body, 0, ())
    return FileFacts(
        path=path, scopes=tuple(reader.scopes), classes=tuple(reader.classes), bindings=tuple(reader.bindings),
        made=tuple(reader.made), flags=tuple(reader.flags),
    )  # fmt: skip


class _Reader:
    """Collects facts while going through statements; expressions are looked at only where they matter."""

    def __init__(self) -> None:
        self.scopes: list[Scope] = []
        self.classes: list[ClassFacts] = []
        self.bindings: list[Binding] = []
        self.made: list[Made] = []
        self.flags: list[Flag] = []
        self._returns: dict[int, list[Reference]] = {}

    def open(self, scope: Scope) -> int:
        self.scopes.append(scope)
        return len(self.scopes) - 1

    def block(self, statements: Sequence[ast.stmt], scope: int, when: tuple[str, ...]) -> None:
        for statement in statements:
            self.statement(statement, scope, when)

    def statement(self, node: ast.stmt, scope: int, when: tuple[str, ...]) -> None:
        match node:
            case ast.ClassDef():
                self._class(node, scope, when)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._function(node, scope)
            case ast.Import() | ast.ImportFrom():
                self._import(node, scope)
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
                self.assign(node, scope)
            case ast.Expr(value=ast.Call() as call):
                self._call(call, scope)
            case ast.Return(value=ast.expr() as value):
                self._returns.setdefault(scope, []).append(reference(value))
            case ast.Delete():
                for target in node.targets:
                    self._bind(scope, dotted(target), node.lineno, "deleted")
            case _:
                self._compound(node, scope, when)

    def _compound(self, node: ast.stmt, scope: int, when: tuple[str, ...]) -> None:
        match node:
            case ast.If():
                self._if(node, scope, when)
            case ast.For() | ast.AsyncFor():
                self._bind(scope, dotted(node.target), node.lineno, "alias", reference(node.iter))
                self.block([*node.body, *node.orelse], scope, when)
            case ast.While() | ast.With() | ast.AsyncWith():
                self.block(node.body, scope, when)
            case ast.Try() | ast.TryStar():
                for part in _parts(node):
                    self.block(part, scope, when)
            case ast.Match():
                for case in node.cases:
                    self.block(case.body, scope, (*when, text_of(node.subject)))
            case _:
                pass

    def _if(self, node: ast.If, scope: int, when: tuple[str, ...]) -> None:
        for body, more in branches(node):
            self.block(body, scope, when + more)

    def _bind(
        self, scope: int, name: str, line: int, kind: str, target: Reference | None = None, index: int = 0
    ) -> None:  # fmt: skip
        if name and "." not in name:
            self.bindings.append(
                Binding(scope=scope, name=name, line=line, kind=kind, reference=target, index=index)  # type: ignore[arg-type]
            )

    def _import(self, node: ast.Import | ast.ImportFrom, scope: int) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                whole = alias.name if alias.asname else alias.name.partition(".")[0]
                self.bindings.append(Binding(scope=scope, name=alias.asname or whole, line=node.lineno,
                                             kind="module", module=whole))  # fmt: skip
                if not alias.asname and "." in alias.name:
                    # `import a.b` binds a, and sees to it that a.b is there.
                    self.bindings.append(Binding(scope=scope, name=alias.name, line=node.lineno, kind="module",
                                                 module=alias.name))  # fmt: skip
            return
        module = "." * node.level + (node.module or "")
        for alias in node.names:
            star = alias.name == "*"
            self.bindings.append(Binding(
                scope=scope, name="*" if star else alias.asname or alias.name, line=node.lineno,
                kind="star" if star else "from", module=module, target="" if star else alias.name,
            ))  # fmt: skip

    def assign(self, node: ast.Assign | ast.AnnAssign | ast.AugAssign, scope: int) -> None:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if node.value is None:
            return
        for target in targets:
            name = dotted(target)
            owner, _, last = name.rpartition(".")
            if owner and FLAGS.fullmatch(last):
                self.flags.append(Flag(name=last, line=node.lineno, value=text_of(node.value), owner=owner,
                                       scope=scope))  # fmt: skip
            elif name and _may_be_class(node.value):
                self._bind(scope, name, node.lineno, "alias", reference(node.value))
                if isinstance(node.value, ast.Call):
                    # After the alias: what is bound last wins.
                    self._call(node.value, scope, name)
            elif isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                for one, value in zip(target.elts, node.value.elts, strict=False):
                    self._bind(scope, dotted(one), node.lineno, "alias", reference(value))

    def _call(self, node: ast.Call, scope: int, bound: str = "") -> None:
        function = dotted(node.func)
        if function == "setattr" and len(node.args) == 3:
            name = literal(node.args[1])
            if name is not None and FLAGS.fullmatch(name):
                self.flags.append(Flag(name=name, line=node.lineno, value=text_of(node.args[2]),
                                       owner=dotted(node.args[0]), scope=scope))  # fmt: skip
            return
        if function == "type" and len(node.args) == 3:
            self._typed(node, scope, bound)
            return
        if function and any(dotted(a) for a in [*node.args, *(k.value for k in node.keywords)]):
            self.made.append(Made(scope=scope, line=node.lineno, call=reference(node)))

    def _typed(self, node: ast.Call, scope: int, bound: str) -> None:
        """`type("TestX", (OpTest,), {...})`: a class without a statement."""
        bases = node.args[1].elts if isinstance(node.args[1], ast.Tuple) else [node.args[1]]
        name = literal(node.args[0]) or bound or "type(…)"
        keys = node.args[2].keys if isinstance(node.args[2], ast.Dict) else [None]
        attributes = _methods_of_dict(node.args[2])
        dynamic = () if None not in keys else (Reference(text=text_of(node.args[2])),)
        index = len(self.classes)
        self.classes.append(ClassFacts(
            name=name, qualname=self._qualname(scope, name), line=node.lineno, scope=scope, body=scope,
            bases=(*(reference(base) for base in bases), *dynamic), attributes=attributes,
        ))  # fmt: skip
        self._bind(scope, bound or name, node.lineno, "class", index=index)

    def _function(self, node: FunctionNode, scope: int) -> None:
        arguments = node.args
        names = [a.arg for a in (*arguments.posonlyargs, *arguments.args)]
        defaults = dict(zip(reversed(names), reversed(arguments.defaults), strict=False))
        defaults |= {
            a.arg: d for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d
        }
        made = Scope(
            kind="function", parent=scope, name=node.name, line=node.lineno,
            parameters=(*names, *(a.arg for a in arguments.kwonlyargs)),
            defaults={name: reference(value) for name, value in defaults.items() if dotted(value)},
            constants={name: known for name, value in defaults.items() if (known := truth(value)) is not None},
        )  # fmt: skip
        index = self.open(made)
        self._bind(scope, node.name, node.lineno, "function", index=index)
        self.block(node.body, index, ())
        method = method_of(node, (), ()) if names else None
        self.scopes[index] = msgspec.structs.replace(
            made,
            returns=tuple(self._returns.pop(index, ())),
            method=method if method and any(is_check(c.name) for c in method.calls) else None,
        )

    def _qualname(self, scope: int, name: str) -> str:
        parts = [name]
        while scope > 0:
            here = self.scopes[scope]
            parts.append(f"{here.name}.<locals>" if here.kind == "function" else here.name)
            scope = here.parent
        return ".".join(reversed(parts))

    def _class(self, node: ast.ClassDef, scope: int, when: tuple[str, ...]) -> None:
        body = self.open(Scope(kind="class", parent=scope, name=node.name, line=node.lineno))
        index = len(self.classes)
        self._bind(scope, node.name, node.lineno, "class", index=index)
        qualname = self._qualname(scope, node.name)
        self.classes.append(ClassFacts(name=node.name, qualname=qualname, line=node.lineno))
        parts = _ClassBody(self, body)
        parts.block(node.body, ())
        self.classes[index] = ClassFacts(
            name=node.name, qualname=qualname, line=node.lineno, scope=scope, body=body,
            bases=tuple(reference(base) for base in node.bases), decorators=decorators(node.decorator_list),
            methods=tuple(parts.methods.values()), flags=tuple(parts.flags), attributes=parts.attributes,
            op=parts.op, dtype=parts.dtype, when=when,
        )  # fmt: skip


class _ClassBody:
    """The statements of a class body."""

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
                    for part in _parts(node):
                        self.block(part, when)
                case ast.With() | ast.For() | ast.While():
                    self.block(node.body, when)
                case _:
                    self._reader.statement(node, self._scope, when)

    def _assigned(self, node: ast.Assign | ast.AnnAssign) -> None:
        if node.value is None:
            return
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            self._attribute(dotted(target), node.value, node.lineno)
        self._reader.assign(node, self._scope)

    def _method(self, node: FunctionNode, when: tuple[str, ...]) -> None:
        method = method_of(node, decorators(node.decorator_list), when)
        before = self.methods.get(node.name)
        if before is None or not when or not before.when:
            self.methods[node.name] = method
        self.attributes.pop(node.name, None)
        me = node.args.args[0].arg if node.args.args else "self"
        self._assignments(node.body, me)

    def _assignments(self, statements: Sequence[ast.stmt], me: str) -> None:
        """What methods set on the object or its class."""
        for node in statements:
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    self._set(dotted(target), node.value, node.lineno, me)
            elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
                self._setattr(node.value)
            elif isinstance(node, ast.ClassDef):
                self._reader.statement(node, self._scope, ())
            else:
                for inner in ("body", "orelse", "finalbody"):
                    self._assignments(getattr(node, inner, ()), me)
                for handler in getattr(node, "handlers", ()):
                    self._assignments(handler.body, me)

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
        elif is_test(name) or is_check(name) or name == "__test__":
            self.attributes[name] = text_of(value)
            self.methods.pop(name, None)


def branches(node: ast.If) -> list[tuple[list[ast.stmt], tuple[str, ...]]]:
    """The branches that can be taken, each with its condition."""
    known = truth(node.test)
    condition = text_of(node.test)
    if known is not None:
        return [(node.body if known else node.orelse, ())]
    if condition.startswith("__name__ =="):
        return [(node.body, ()), (node.orelse, ())]
    return [(node.body, (condition,)), (node.orelse, (negated(condition),))]


def _parts(node: ast.Try | ast.TryStar) -> list[list[ast.stmt]]:
    return [node.body, *(handler.body for handler in node.handlers), node.orelse, node.finalbody]


def _methods_of_dict(node: ast.expr) -> dict[str, str]:
    """Tests and checks among the members that `type()` is given."""
    found = {}
    for key, value in (
        zip(node.keys, node.values, strict=True) if isinstance(node, ast.Dict) else ()
    ):
        name = literal(key)
        if name and (is_test(name) or is_check(name)):
            found[name] = text_of(value)
    return found


def _dtype(value: ast.expr) -> str:
    said = literal(value) or dotted(value).rpartition(".")[2]
    # The original keeps bfloat16 in unsigned integers, which numpy knows.
    said = {"uint16": "bfloat16", "bool_": "bool", "bool8": "bool"}.get(said, said)
    return said if said in _DTYPES else "?"


def _may_be_class(node: ast.expr) -> bool:
    """Whether an assigned expression is worth a look: most are arrays and numbers."""
    if isinstance(node, ast.Call):
        return dotted(node.func) == "type" or any(dotted(a) for a in node.args)
    kinds = ast.Name | ast.Attribute | ast.Subscript | ast.IfExp | ast.BoolOp | ast.List | ast.Tuple
    return isinstance(node, kinds)
