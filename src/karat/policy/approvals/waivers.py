"""Waivers: every place where a project lets a gradient go unchecked, or be checked less; and those of one Python file.

They are read off the syntax tree: comments and strings that mention them are none.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from math import isfinite
from typing import Any, Literal, TypeAlias

import msgspec

from karat.policy.scan.source import Unreadable, defaults, dotted, literal, number, parameter_names
from karat.policy.scan.vocabulary import (
    ANYWHERE,
    DECLARATIONS,
    FLAGS,
    FREE_CHECKS,
    HIDING_HOOKS,
    IN_CHECKS,
    OPS,
    POSITIONS,
    ROOT_SUFFIX,
    SKIP_RULE,
    UNCOLLECTED,
    is_check,
)
from karat.system.hashes import sha256_hex

_SHOWN = 60
_SWITCHES = re.compile(f"{FLAGS.pattern}|{UNCOLLECTED.pattern}")
_CHECKED = frozenset({"inputs_to_check", "output_names", "fn"})


class WaiverSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A waiver as reports have it."""

    rule: str
    kind: str
    """`skip`, `flag`, `tolerance`, `step`, `bound`, `own-gradients`, `no-grad`, `laws`, `reference`, `uncollected`,
    `exemption`, `baseline`, `setting`; and what is gone: `check`, `function`, `base`."""
    path: str
    line: int = 0  # 0 where no line says it.
    scope: str = ""  # The class or function it stands in, or the tests an exemption speaks of.
    op: str = ""
    about: str = ""  # Which of several in one scope: the argument, and the call that it is given to.
    shown: str = ""  # What it grants, for people.

    @property
    def label(self) -> str:
        """For tables: what it is, and where it stands."""
        where = f" of {self.scope}" if self.scope not in {"", "*"} else ""
        op = f" (op {self.op})" if self.op else ""
        return f"{self.about or self.kind}{where}{op}"

    @property
    def place(self) -> str:
        return f"{self.path}:{self.line}" if self.line else self.path


class Waiver(WaiverSummary, frozen=True, kw_only=True):
    """One of them, on one side of a range."""

    value: str = ""  # What is granted, where that is neither a number nor a list: a reason, an expression.
    amounts: tuple[float, ...] = ()  # Where more is laxer: tolerances, the day an exemption ends.
    parts: tuple[str, ...] = ()  # Where more of them is laxer: inputs without a gradient.
    body: str = ""  # A digest of the definition around it, by which moved code is known.
    guard: bool = False  # Not a waiver, but what keeps gradients checked: nothing is granted until it is gone.

    @property
    def identity(self) -> tuple[str, ...]:
        """What it is about, whatever it grants; the file is not a part of it."""
        return (self.rule, self.kind, self.scope, self.op, self.about)

    @property
    def grant(self) -> tuple[object, ...]:
        return (self.value, self.amounts, self.parts)

    def no_laxer_than(self, other: Waiver) -> bool:
        """Whether it grants nothing that the other did not."""
        if self.value != other.value or len(self.amounts) != len(other.amounts):
            return False
        # Not `>`, which is false for NaN.
        tighter = all(mine <= its for mine, its in zip(self.amounts, other.amounts, strict=True))
        return tighter and set(self.parts) <= set(other.parts)


class PolicyChange(msgspec.Struct, frozen=True, kw_only=True):
    """A waiver that a range adds or makes laxer, or a guard that it removes or makes laxer."""

    waiver: Waiver
    before: Waiver | None = None

    @property
    def what(self) -> Literal["added", "changed", "removed"]:
        return "changed" if self.before is not None else "removed" if self.waiver.guard else "added"

    @property
    def digest(self) -> str:
        """What a sign-off is bound to: the change itself, wherever the branch's head is."""
        sides = [_signed(self.waiver), _signed(self.before) if self.before else None]
        return sha256_hex(msgspec.json.encode(sides))


def _signed(waiver: Waiver) -> list[object]:
    texts = (*waiver.identity, waiver.path, waiver.value)
    safe = [text.encode("utf-8", "backslashreplace").decode() for text in texts]
    # Infinity, which an exemption without an end has, is no number of JSON.
    return [*safe, [repr(amount) for amount in waiver.amounts], list(waiver.parts)]


Definition: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
_DEEPEST = 8


def last_name(node: ast.AST) -> str:
    """`tol` for `tol`, and for `self.tol`."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


class FileNames:
    """What each name of one file is given, be it a variable, an attribute or a parameter, and which stand for the skip.

    Nothing is run, next to nothing is worked out, and no other file is looked at.
    """

    def __init__(self, tree: ast.AST) -> None:
        self.given: dict[str, list[ast.AST]] = defaultdict(list)
        self._aliases: dict[str, str] = {}
        self._imported: set[str] = set()
        self._bodies: list[tuple[str, ast.AST]] = []  # Names, and what is done under them.
        calls: dict[str, list[ast.Call]] = defaultdict(list)
        functions: list[Definition] = []
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                calls[last_name(node.func)].append(node)
            elif isinstance(node, Definition):
                functions.append(node)
            self._note(node)
        for function in functions:
            self._parameters(function, calls[function.name])
        self._skips = {SKIP_RULE}
        before = 0
        while len(self._skips) > before:
            before = len(self._skips)
            self._skips |= {name for name, means in self._aliases.items() if means in self._skips}
            rest = [(name, body) for name, body in self._bodies if name not in self._skips]
            self._skips |= {name for name, body in rest if any(map(self.is_skip, ast.walk(body)))}

    def _note(self, node: ast.AST) -> None:
        match node:
            case ast.ImportFrom(names=names) | ast.Import(names=names):
                for one in names:
                    name = one.asname or one.name.partition(".")[0]
                    self._imported.add(name)
                    self._aliases[name] = one.name.rpartition(".")[2] if one.asname else name
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._bodies += ((node.name, statement) for statement in node.body)
                returned = (n.value for n in ast.walk(node) if isinstance(n, ast.Return | ast.Yield))
                self.given[node.name] += filter(None, returned)
            case ast.AugAssign(target=target, op=op, value=value):
                self._bind(target, ast.BinOp(left=target, op=op, right=value))
            case (
                ast.For(target=target, iter=value)
                | ast.AsyncFor(target=target, iter=value)
                | ast.comprehension(target=target, iter=value)
                | ast.AnnAssign(target=target, value=ast.expr() as value)
                | ast.NamedExpr(target=target, value=value)
            ):
                self._bind(target, value)
            case ast.Assign(targets=targets, value=value):
                for each in targets:
                    self._bind(each, value)

    def _bind(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            for one in target.elts:
                self._bind(one, value)
        elif name := last_name(target):
            self.given[name].append(value)
            self._bodies.append((name, value))
            if means := last_name(value):
                self._aliases[name] = means

    def _parameters(self, function: Definition, calls: list[ast.Call]) -> None:
        """What calls in this file hand over, defaults, and decorators such as parametrize."""
        plain = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
        named = {*parameter_names(function.args)}
        wanted = {*parameter_names(function.args, rest=True)} - {"self", "cls", *ANYWHERE}  # which stand for themselves
        for name in wanted:
            self.given[name] += function.decorator_list
        for name, value in defaults(function.args):
            self.given[name] += [value] if name in wanted else []
        for call in calls:
            bound = isinstance(call.func, ast.Attribute) and plain[:1] in (["self"], ["cls"])
            handed = dict(zip(plain[bound:], call.args, strict=False))
            handed |= {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
            spread = any(isinstance(one, ast.Starred) for one in call.args) or any(not k.arg for k in call.keywords)
            for name in wanted:
                if name in handed or spread or name not in named:  # `*args` and `**more` take whatever is left
                    self.given[name].append(handed.get(name, call))

    def canonical(self, node: ast.AST) -> str:
        """The last part of the name that an expression means: `gradcheck` for `k.gradcheck`, or for another name of it."""
        name = last_name(node) or (SKIP_RULE if self.is_skip(node) else "")
        for _ in range(_DEEPEST if isinstance(node, ast.Name) else 0):
            name = self._aliases.get(name, name)
        return name

    def text(self, node: ast.AST) -> str | None:
        """The text that an expression is worth: a literal, or a name for one."""
        return literal(self.literal(node))

    def texts(self, node: ast.AST) -> tuple[str, ...] | None:
        """The texts of a set, list or tuple of literals, or of one literal; None for anything else."""
        found = self.literal(node)
        if isinstance(found, ast.Call) and self.canonical(found.func) in {"set", "frozenset"}:
            found = found.args[0] if found.args else ast.Set(elts=[])
        elements = found.elts if isinstance(found, ast.Set | ast.List | ast.Tuple) else [found]
        texts = [one.value for one in elements if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        return tuple(sorted(set(texts))) if len(texts) == len(elements) else None

    def literal(self, node: ast.AST) -> ast.expr | None:
        """The one expression that a name is given, by this file alone, or the expression itself."""
        for _ in range(_DEEPEST):
            name = last_name(node)
            values = self.given.get(name, ())
            if len(values) != 1 or name in self._imported:
                break
            node = values[0]
        return node if isinstance(node, ast.expr) else None

    def is_skip(self, node: ast.AST) -> bool:
        """Whether an expression means the skip, by any of its names or by its text."""
        match node:
            case ast.NamedExpr(value=value):
                return self.is_skip(value)
            case ast.Subscript(slice=key):  # globals()["skip_check_grad_ci"]
                return self.text(key) == SKIP_RULE
            case ast.Call(args=args):  # getattr, vars(…).get, attrgetter
                return any(self.text(one) == SKIP_RULE for one in args)
        return last_name(node) in self._skips

    def origins(self, node: ast.AST) -> tuple[str, ...]:
        """What the names in an expression are given, and those in that: `TOL: 0.1`; it changes only with these."""
        found: set[str] = set()
        seen: set[str] = set()
        waiting = [node]
        while waiting:
            for name in map(last_name, ast.walk(waiting.pop())):
                if name and name not in seen:
                    seen.add(name)
                    waiting += self.given.get(name, ())
                    found.update(f"{name}: {ast.unparse(value)}" for value in self.given.get(name, ()))
        return tuple(sorted(found))


def waivers_of(tree: ast.Module, path: str) -> tuple[Waiver, ...]:
    """Every waiver in a file; raises `Unreadable`."""
    try:
        reader = _WaiverVisitor(FileNames(tree), path)
        reader.visit(tree)
    except RecursionError as error:
        raise Unreadable("its expressions are nested too deeply to be read") from error
    return tuple(reader.found)


class _WaiverVisitor(ast.NodeVisitor):
    """Walks a file, and knows at every moment in which class and function it is."""

    def __init__(self, names: FileNames, path: str) -> None:
        self.found: list[Waiver] = []
        self._names = names
        self._path = path
        self._around: list[ast.ClassDef | Definition] = []  # The definitions around this place, the outermost first.
        # Of a definition, and asked only if it grants something.
        self._op_of, self._digest = cache(_op_of), cache(_digest)
        self._op_tests: set[str] = set()
        self._applied: set[int] = set()  # References to the skip that are reported already.

    def visit_ClassDef(self, node: ast.ClassDef | Definition) -> None:
        self._around.append(node)
        for decorator in node.decorator_list:
            if self._names.is_skip(decorator):
                self._applied.add(id(decorator))
                own = self._names.canonical(decorator) == SKIP_RULE
                value = "" if own else f"through {ast.unparse(decorator)}"
                self._add("gradient", "skip", decorator, SKIP_RULE, value=value, shown=value or "no reason")
            self.visit(decorator)
        if isinstance(node, ast.ClassDef):
            bases = [ast.unparse(base) for base in node.bases]
            names = {base.rpartition(".")[2] for base in bases}
            if names & self._op_tests or any(name.endswith(ROOT_SUFFIX) for name in names):
                self._op_tests.add(node.name)
                self._add("gradient", "base", node, "op test", parts=tuple(bases), shown=", ".join(bases), guard=True)
            for head in (*node.bases, *(k.value for k in node.keywords)):
                self.visit(head)
        else:
            if node.name in HIDING_HOOKS:
                self._add(
                    "gradient", "uncollected", node, node.name, value=_digest(node), shown="hides tests"
                )  # `def check(self, max_relative_error=0.1)` grants it to whoever calls
            for name, default in defaults(node.args):
                self._named(name, default, f"default of {name}")
                self.visit(default)
        for statement in node.body:
            self.visit(statement)
        self._around.pop()

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef  # noqa: N815 - as ast.NodeVisitor asks

    def visit_Import(self, node: ast.AST) -> None:
        """Importing a skip is not using it, and what is deleted is not granted."""

    visit_ImportFrom = visit_Delete = visit_Import  # noqa: N815

    def visit_Assign(self, node: ast.Assign | ast.AnnAssign) -> None:
        value, targets = node.value, node.targets if isinstance(node, ast.Assign) else [node.target]
        if value is None:
            return
        for target in targets:
            self._assignment(target, value)
        # `skip = skip_check_grad_ci` is an alias, and reported where it is used.
        alias = all(isinstance(target, ast.Name) for target in targets)
        if alias and isinstance(value, ast.Name | ast.Attribute) and self._names.is_skip(value):
            self._applied.add(id(value))
        self.visit(value)

    visit_AnnAssign = visit_Assign  # noqa: N815

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._assignment(node.target, node.value)
        self.visit(node.value)

    def visit_Dict(self, node: ast.Dict) -> None:
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                self._named(key.value, value, f"{key.value} in a dict")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if self._names.is_skip(node.func):
            self._skip(node)
        elif isinstance(node.func, ast.Call) and self._names.is_skip(node.func.func):
            self._skip(node.func, applied_to=node.args)
        if self._names.canonical(node.func) in {"setattr", "__setattr__"} and len(node.args) > 1:
            *owner, key, value = node.args
            name = self._names.text(key)
            if name is not None:
                self._named(name, value, _attribute(owner[0] if owner else node.func, name))
        if isinstance(node.func, ast.Attribute) and UNCOLLECTED.fullmatch(owned := dotted(node.func.value)):
            self._named(owned, node, owned)  # collect_ignore.append("test_ops.py")
        self._arguments(node)
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name | ast.Attribute) -> None:
        """A skip that is handed on as a value may be applied to anything."""
        if isinstance(node.ctx, ast.Load) and id(node) not in self._applied and self._names.is_skip(node):
            self._applied.add(id(node))
            text = ast.unparse(node)
            value, shown = f"as a value: {text}", f"passed on as {text}"
            self._add("gradient", "skip", node, SKIP_RULE, value=value, shown=shown)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self.visit_Name(node)
        self.generic_visit(node)

    def _assignment(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            same = isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts)
            for i, one in enumerate(target.elts):
                self._assignment(one, value.elts[i] if same else value)  # type: ignore[attr-defined]
        elif isinstance(target, ast.Attribute):
            self._named(target.attr, value, _attribute(target.value, target.attr))
        elif isinstance(target, ast.Name):
            # Other names are looked up where they are used.
            if _SWITCHES.fullmatch(target.id) or (self._around and isinstance(self._around[-1], ast.ClassDef)):
                self._named(target.id, value, target.id)
        elif isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
            key = str(target.slice.value)
            self._named(key, value, f"{key} in a dict")

    def _skip(self, call: ast.Call, applied_to: Sequence[ast.expr] = ()) -> None:
        if id(call.func) in self._applied:
            return
        self._applied.add(id(call.func))
        rest = list(call.args)
        reason = next((k.value for k in call.keywords if k.arg == "reason"), None)
        if reason is None and rest and self._names.canonical(call.func) == SKIP_RULE:
            reason = rest.pop(0)
        others = [ast.unparse(node) for node in (*rest, *applied_to)]
        others += [ast.unparse(k) for k in call.keywords if k.arg != "reason"]
        about = SKIP_RULE + (f" on {', '.join(others)}" if others else "")
        if reason is not None and (said := self._names.text(reason)) is not None:
            text = " ".join(said.split())
            value, shown = f"reason: {text}", text or "an empty reason"
        elif reason is not None:
            value, shown = self._explained(reason)
            value = f"expression: {value}"
        elif self._names.canonical(call.func) != SKIP_RULE:
            value = shown = f"through {ast.unparse(call.func)}"
        else:
            value, shown = "", "no reason"
        self._add("gradient", "skip", call, about, value=value, shown=shown)

    def _explained(self, node: ast.expr) -> tuple[str, str]:
        """An expression of unknown value: itself, and all that its names stand for."""
        text = ast.unparse(node)
        origins = self._names.origins(node)
        if not origins:
            return text, text
        first = f"{origins[0][:_SHOWN]}…" if len(origins[0]) > _SHOWN else origins[0]
        more = f" and {len(origins) - 1} more" if len(origins) > 1 else ""
        digest = sha256_hex("\n".join(origins).encode("utf-8", "replace"))
        return f"{text} by {digest}", f"{text}, by {first}{more}"

    def _arguments(self, node: ast.Call) -> None:
        function, positional = node.func, list(node.args)
        if self._names.canonical(function) == "partial" and positional:
            function = positional.pop(0)
        name = self._names.canonical(function)
        order = POSITIONS.get(name, ())
        given = [(n, v) for n, v in zip(order, positional, strict=False) if n]
        given += [(k.arg, k.value) for k in node.keywords if k.arg]
        # What says which call it is.
        leading = order.index("no_grad_set") if order else 1
        by_name = [k.value for k in node.keywords if k.arg in {"inputs_to_check", "output_names", "wrt"}]
        subject = f"{name}({', '.join(ast.unparse(n) for n in (*positional[:leading], *by_name))})"
        checks = name in DECLARATIONS | FREE_CHECKS or is_check(name)
        found = next((k.value for k in node.keywords if k.arg in OPS), None)
        op = found.value if isinstance(found, ast.Constant) and isinstance(found.value, str) else ""
        if checks:  # more inputs and outputs are stricter; another function is another check
            what = [*positional[:leading], *(k.value for k in node.keywords if k.arg in _CHECKED)]
            known = [self._names.texts(one) for one in what] if is_check(name) else []
            texts = (
                {"value": subject}
                if None in known or not known
                else {"parts": tuple(t for k in known for t in k or ())}
            )
            self._add("gradient", "check", node, name, op=op, shown=subject, guard=True, **texts)
        for argument, value in given:
            if argument in ANYWHERE or FLAGS.fullmatch(argument) or (checks and argument in IN_CHECKS):
                self._named(argument, value, f"{argument} of {subject}", checks=checks, op=op)
        if checks:
            spread = [k.value for k in node.keywords if k.arg is None]
            spread += [argument.value for argument in node.args if isinstance(argument, ast.Starred)]
            for starred in spread:
                self._spread(starred, subject, op)

    def _spread(self, node: ast.expr, subject: str, op: str) -> None:
        """`**kwargs`: read where this file says what they are, and reported as they stand where it does not."""
        found = self._names.literal(node)
        if isinstance(found, ast.Dict) and all(isinstance(k, ast.Constant) for k in found.keys):
            for key, value in zip(found.keys, found.values, strict=True):
                name = str(key.value) if isinstance(key, ast.Constant) else ""
                if name in IN_CHECKS:  # the others are reported where the dict is
                    self._named(name, value, f"{name} of {subject}", checks=True, op=op)
            return
        text, shown = self._explained(node)
        about = f"arguments of {subject}"
        self._add("tolerance", "tolerance", node, about, value=text, shown=f"**{shown}", op=op)

    def _named(self, name: str, value: ast.expr, about: str, *, checks: bool = False, op: str = "") -> None:
        """A waiver for what is given to a name, if the name is one that grants something."""
        text = ast.unparse(value)
        if name == "python_api":
            self._add("gradient", "function", value, name, value=text, shown=text, guard=True)
        if _SWITCHES.fullmatch(name):
            kind = "flag" if FLAGS.fullmatch(name) else "uncollected"
            if kind == "flag" or text != "True" or name != "__test__":
                self._add("gradient", kind, value, about, value=text, shown=text, op=op)
            return
        rule, kind = ANYWHERE.get(name) or (IN_CHECKS.get(name) if checks else None) or ("", "")
        if not rule or (isinstance(value, ast.Constant) and value.value is None):
            return
        inputs = self._names.texts(value) if kind == "no-grad" else ()
        if inputs is None or kind == "reference":
            text, shown = self._explained(value)
            self._add(rule, kind, value, about, value=text, shown=shown, op=op)
        elif kind == "no-grad":
            if inputs:  # an empty list grants nothing
                shown = f"no gradient of {', '.join(inputs)}"
                self._add(rule, kind, value, about, parts=inputs, shown=shown, op=op)
        elif kind in {"own-gradients", "laws"}:
            if name != "level" or text == "'quick'":
                shown = "its author's own gradients" if kind == "own-gradients" else f"{name}={text}"
                self._add(rule, kind, value, about, value=text, shown=shown, op=op)
        else:
            self._amount(rule, kind, value, about, op)

    def _amount(self, rule: str, kind: str, value: ast.expr, about: str, op: str) -> None:
        if isinstance(value, ast.Dict):  # tolerances={"float16": 0.1}
            for key, each in zip(value.keys, value.values, strict=True):
                of = f"{ast.unparse(key) if key else '**'}: {about}"
                self._amount(rule, kind, each, of, op)
            return
        own = isinstance(value, ast.Attribute) and value.attr in ANYWHERE  # reported where it is set
        meant = None if own else self._names.literal(value)
        amount = number(meant) if meant is not None else None
        if amount is None or not isfinite(amount):
            text, shown = (ast.unparse(value),) * 2 if own else self._explained(value)
            self._add(rule, kind, value, about, value=text, shown=shown, op=op)
        elif kind == "step":  # neither a larger nor a smaller one is stricter
            self._add(rule, kind, value, about, value=f"{amount:g}", shown=f"{amount:g}", op=op)
        elif amount > 0:
            self._add(rule, kind, value, about, amounts=(amount,), shown=f"{amount:g}", op=op)

    def _add(
        self, rule: str, kind: str, node: ast.expr | ast.stmt, about: str, *, op: str = "", **granted: Any
    ) -> None:
        classes = [a for a in reversed(self._around) if isinstance(a, ast.ClassDef)]
        self.found.append(
            Waiver(
                rule=rule,
                kind=kind,
                path=self._path,
                line=node.lineno,
                scope=".".join(one.name for one in self._around),
                op=op or next(filter(None, map(self._op_of, classes)), ""),
                about=about,
                body=self._digest(self._around[0]) if self._around else "",
                **granted,
            )
        )


def _digest(node: ast.AST) -> str:
    """Of a definition, whatever its name."""
    parts = [value for field, value in ast.iter_fields(node) if field != "name"]
    text = "".join(
        ast.dump(one)
        for part in parts
        for one in (part if isinstance(part, list) else [part])
        if isinstance(one, ast.AST)
    )
    return sha256_hex(text.encode("utf-8", "replace"))


def _attribute(owner: ast.expr, name: str) -> str:
    """`flag`, or `flag of TestX` where it is set on something else than the test itself."""
    text = ast.unparse(owner)
    return name if text in {"self", "cls"} else f"{name} of {text}"


def _op_of(node: ast.AST) -> str:
    """The op that a class says it tests, where it says so in a literal."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Assign) and isinstance(inner.value, ast.Constant):
            for target in inner.targets:
                name = target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")
                if name in OPS and isinstance(inner.value.value, str):
                    return inner.value.value
    return ""
