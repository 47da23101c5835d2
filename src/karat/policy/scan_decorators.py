"""Decorators that keep a test from running, or from being held to the rule."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from typing import Literal

from karat.policy.scan_expressions import dotted, literal, negated, text_of
from karat.policy.scan_shapes import Decorator
from karat.policy.scan_vocabulary import EXPECTS_FAILURE, SKIP_RULE

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
