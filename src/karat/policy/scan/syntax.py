"""The statements of a file: scopes, names, classes, and the calls that make classes."""

from __future__ import annotations

import ast
from collections.abc import Sequence

import msgspec

from karat.policy.scan.classes import ClassBody, branches, decorators, may_skip, patched, try_parts
from karat.policy.scan.expressions import (
    Lines,
    Unreadable,
    column,
    dotted,
    literal,
    members_of,
    parse,
    reference,
    text_of,
    truth,
)
from karat.policy.scan.facts import Binding, ClassFacts, FileFacts, Flag, Made, Reference, Scope
from karat.policy.scan.methods import FunctionNode, function_of
from karat.policy.scan.vocabulary import FLAGS, is_check, is_test


def read(tree: ast.Module, path: str, lines: Lines) -> FileFacts:
    """Everything of a file that op tests can be known by."""
    reader = _Reader(lines)
    reader.open(Scope(kind="module"))
    reader.block(tree.body, 0, ())
    return FileFacts(
        path=path, scopes=tuple(reader.scopes), classes=tuple(reader.classes), bindings=tuple(reader.bindings),
        made=tuple(reader.made), flags=tuple(reader.flags),
    )  # fmt: skip


class _Reader:
    """Collects facts while going through statements; expressions are looked at only where they matter."""

    def __init__(self, lines: Lines) -> None:
        self.lines = lines
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

    def _compound(self, node: ast.stmt, scope: int, when: tuple[str, ...]) -> None:
        match node:
            case ast.If():
                self._if(node, scope, when)
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
            if alias.asname and may_skip(ast.Name(alias.name)):
                self.renamed[alias.asname] = ast.Name(alias.name)
            self.bindings.append(Binding(
                scope=scope, name="*" if star else alias.asname or alias.name, line=node.lineno,
                kind="star" if star else "from", module=module, target="" if star else alias.name,
            ))  # fmt: skip

    def assign(
        self, node: ast.Assign | ast.AnnAssign | ast.AugAssign, scope: int, when: tuple[str, ...] = ()
    ) -> None:  # fmt: skip
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if node.value is None:
            return
        if len(targets) == 1 and isinstance(targets[0], ast.Name) and may_skip(node.value):
            self.renamed[targets[0].id] = node.value
        for target in targets:
            self._assigned(target, node.value, scope, when)

    def _assigned(
        self, target: ast.expr, value: ast.expr, scope: int, when: tuple[str, ...]
    ) -> None:
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
        self.flags.append(
            Flag(name=name, line=line, value=text_of(value), owner=owner, scope=scope)
        )

    def _patch(
        self, scope: int, owner: str, name: str, value: ast.expr | None, when: tuple[str, ...]
    ) -> None:
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
                    self.classes[index] = msgspec.structs.replace(
                        cls, decorators=cls.decorators + found
                    )
            case _:
                pass

    def _loop(self, target: ast.expr, values: ast.expr, scope: int) -> None:
        """What a loop's names stand for: any of what it goes over."""
        if isinstance(values, ast.Call) and isinstance(values.func, ast.Attribute):
            values = values.func.value  # D.items(), D.values()
        if not isinstance(target, ast.Tuple):
            self._bind(scope, dotted(target), target.lineno, "alias", reference(values))
            return
        for place, one in enumerate(target.elts):
            self._bind(scope, dotted(one), target.lineno, "alias", reference(column(values, place)))

    def _calls(
        self, node: ast.expr, scope: int, bound: str = "", when: tuple[str, ...] = ()
    ) -> None:
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
            case _:
                pass

    def _call(
        self, node: ast.Call, scope: int, bound: str = "", when: tuple[str, ...] = ()
    ) -> None:
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
        if function and (any(_may_hold_class(a) for a in handed) or self._has_defaults(function)):
            self.made.append(Made(scope=scope, line=node.lineno, call=reference(node)))

    def _has_defaults(self, function: str) -> bool:
        return any(scope.defaults and scope.name == function for scope in self.scopes)

    def _typed(self, node: ast.Call, scope: int, bound: str) -> None:
        """`type("TestX", (OpTest,), {...})`: a class without a statement."""
        bases = node.args[1].elts if isinstance(node.args[1], ast.Tuple) else [node.args[1]]
        name = literal(node.args[0]) or bound or "type(…)"
        members = members_of(node.args[2])
        dynamic = () if members is not None else (Reference(text=text_of(node.args[2])),)
        index = len(self.classes)
        made = ClassFacts(
            name=name, qualname=self._qualname(scope, name), line=node.lineno, scope=scope, body=scope,
            bases=(*(reference(base) for base in bases), *dynamic),
        )  # fmt: skip
        for member, value in (members or {}).items():
            if is_test(member) or is_check(member):
                made = patched(made, member, value, ())
        self.classes.append(made)
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

    def _class(self, node: ast.ClassDef, scope: int, when: tuple[str, ...]) -> None:
        body = self.open(Scope(kind="class", parent=scope, name=node.name, line=node.lineno))
        index = len(self.classes)
        self._bind(scope, node.name, node.lineno, "class", index=index)
        qualname = self._qualname(scope, node.name)
        self.classes.append(ClassFacts(name=node.name, qualname=qualname, line=node.lineno))
        parts = ClassBody(self, body)
        parts.block(node.body, ())
        self.classes[index] = ClassFacts(
            name=node.name, qualname=qualname, line=node.lineno, scope=scope, body=body,
            bases=tuple(reference(base) for base in node.bases), decorators=decorators(node.decorator_list, self.renamed),
            methods=tuple(parts.methods.values()), flags=tuple(parts.flags), attributes=parts.attributes,
            op=parts.op, dtype=parts.dtype, when=when,
        )  # fmt: skip


def _may_be_class(node: ast.expr) -> bool:
    """Whether an assigned expression is worth a look: most are arrays and numbers."""
    if isinstance(node, ast.Call):
        return dotted(node.func) == "type" or any(dotted(a) for a in node.args)
    kinds = (
        ast.Name
        | ast.Attribute
        | ast.Subscript
        | ast.IfExp
        | ast.BoolOp
        | ast.List
        | ast.Tuple
        | ast.Dict
    )
    return isinstance(node, kinds)


def _may_hold_class(node: ast.expr) -> bool:
    return isinstance(node, ast.Starred | ast.List | ast.Tuple) or bool(dotted(node))


def _global(node: ast.expr) -> str:
    """`X` for `globals()["X"]`, the way by which factories name what they made."""
    match node:
        case ast.Subscript(
            value=ast.Call(func=ast.Name(id="globals")), slice=ast.Constant(value=str(name))
        ):
            return name
        case _:
            return ""


# DOC-HERE scan_facts: Facts of one file: its classes, bases, decorators, flags and tolerances, from its text alone.

__all__ = ["FileFacts", "facts_of"]


def facts_of(source: bytes, path: str) -> FileFacts:
    """What the file says about op tests; where it cannot be read, `problem` says why. It never raises."""
    try:
        return read(parse(source), path, Lines(source))
    except Unreadable as error:
        return FileFacts(path=path, problem=str(error), line=error.line)
    except RecursionError:
        return FileFacts(path=path, problem="its expressions are nested too deeply to be read")
