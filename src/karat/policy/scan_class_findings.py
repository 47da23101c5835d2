"""What the text of one op test class says against it, whoever inherits from it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import date

from karat.findings import Finding, Severity
from karat.policy.exemption_rules import TOO_SLOW, is_slow
from karat.policy.exemptions import Exemption, Exemptions
from karat.policy.scan_judging import Judged
from karat.policy.scan_shapes import Call, ClassFacts, Decorator, Method
from karat.policy.scan_vocabulary import (
    FREE_CHECKS,
    SKIP_RULE,
    TOLERANCES,
    WEAK,
    is_check,
    normal,
)
from karat.policy.scan_wording import finding


class ClassFindings:
    """Findings of class definitions, each told once."""

    def __init__(self, exemptions: Exemptions | None, today: date) -> None:
        self._exemptions = exemptions
        self._today = today

    def of(self, path: str, facts: ClassFacts, judged: Judged) -> Iterator[Finding]:
        """All of a class; `judged` is the op test that it makes."""
        state, op, dtype = judged.row.state, judged.row.op, judged.dtype
        yield from _flags(path, facts)
        for decorator in facts.decorators:
            if decorator.last == SKIP_RULE:
                yield from self._skip(path, facts, decorator, state)
        yield from _empty(path, facts.qualname, judged.empty, state)
        for method in facts.methods:
            for call in method.calls:
                if is_check(call.name) or call.name in FREE_CHECKS:
                    yield from self._call(path, facts, call, op, dtype)

    def _skip(
        self, path: str, facts: ClassFacts, decorator: Decorator, state: str
    ) -> Iterator[Finding]:
        said = {
            "none": "no reason", "empty": "an empty reason", "computed": "a reason that only running it tells",
        }  # fmt: skip
        name = facts.qualname
        if decorator.given in said:
            yield finding("skip-without-reason", Severity.FAIL, path, decorator.line, name,
                          f"{name} skips its gradient check with {said[decorator.given]}")  # fmt: skip
        elif decorator.given == "positional":
            yield finding("skip-without-reason", Severity.WARN, path, decorator.line, name,
                          f"{name} gives the reason of its skip without reason=, where reviews do not look for it")  # fmt: skip
        elif decorator.reason and is_slow(decorator.reason):
            yield finding("skip-without-reason", Severity.WARN, path, decorator.line, name,
                          f"{name}: {TOO_SLOW} ({decorator.reason})")  # fmt: skip
        if state != "exempt":
            known = self._exemptions is not None
            does = (
                "skips its gradient check"
                if state not in {"checked", "conditional"}
                else "is marked as skipping its gradient check, which runs,"
            )
            yield finding("skip-without-exemption", Severity.FAIL if known else Severity.WARN, path, decorator.line, name,
                          f"{name} {does} and no exemption covers that"
                          + (f" ({decorator.reason})" if decorator.reason else ""))  # fmt: skip

    def _call(
        self, path: str, facts: ClassFacts, call: Call, op: str | None, dtype: str | None
    ) -> Iterator[Finding]:  # fmt: skip
        name = facts.qualname
        yield from self._tolerances(path, facts, call, op, dtype)
        for keyword in WEAK:
            if call.keywords.get(keyword, "None") != "None":
                severity, tail = self._severity("weak", op, path, name)
                yield finding("evidence-weak", severity, path, call.line, name,
                              f"{name}: {call.name} is given {keyword}={call.keywords[keyword]}, so nothing is differentiated{tail}")  # fmt: skip
        if call.keywords.get("no_grad_set", "None") not in {"None", "set()", "{}", "[]"}:
            yield finding("check-narrowed", Severity.INFO, path, call.line, name,
                          f"{name}: {call.name} leaves out no_grad_set={call.keywords['no_grad_set']}")  # fmt: skip
        if call.keywords.get("check_dygraph") == "False":
            yield finding("check-narrowed", Severity.INFO, path, call.line, name,
                          f"{name}: {call.name} leaves out dynamic graphs (check_dygraph=False)")  # fmt: skip
        if call.caught:
            yield finding("check-empty", Severity.FAIL, path, call.line, name,
                          f"{name}: {call.name} stands where its failure is caught, so it cannot fail")  # fmt: skip

    def _tolerances(
        self, path: str, facts: ClassFacts, call: Call, op: str | None, dtype: str | None
    ) -> Iterator[Finding]:  # fmt: skip
        for keyword in TOLERANCES.keys() & call.keywords.keys():
            default, value = normal(keyword, dtype), call.numbers.get(keyword)
            if (
                default is None
                or call.keywords[keyword] == "None"
                or (value is not None and value <= default)
            ):
                continue
            severity, tail = self._severity("tolerance", op, path, facts.qualname, value)
            of = f" of {dtype}" if dtype else ""
            yield finding("tolerance-override", severity, path, call.line, facts.qualname,
                          f"{facts.qualname}: {call.name} is given {keyword}={call.keywords[keyword]}; "
                          f"the default{of} is {default:g}{tail}")  # fmt: skip

    def _severity(
        self, rule: str, op: str | None, path: str, name: str, value: float | None = None
    ) -> tuple[Severity, str]:
        entry = self._entry(rule, op, f"{path}::{name}", value)
        return (Severity.INFO, f"; {entry.label} allows it") if entry else (Severity.WARN, "")

    def _entry(self, rule: str, op: str | None, test: str, value: float | None) -> Exemption | None:
        for entry in self._exemptions.entries if self._exemptions else ():
            allowed = entry.max_relative_error
            if (
                entry.rule != rule
                or entry.narrow
                or entry.has_expired(self._today)
                or not entry.speaks_of(test)
            ):
                continue
            if not (entry.covers(rule, op) if op else entry.scope != "*"):
                continue
            if allowed is None or (value is not None and value <= allowed):
                return entry
        return None


def _flags(path: str, facts: ClassFacts) -> Iterator[Finding]:
    for flag in facts.flags:
        on = f" on {flag.owner}" if flag.owner else ""
        yield finding("flag-by-hand", Severity.FAIL, path, flag.line, facts.qualname,
                      f"{facts.qualname} sets {flag.name} = {flag.value}{on} by hand; only a comparison may")  # fmt: skip


def _empty(path: str, name: str, methods: Iterable[Method], state: str) -> Iterator[Finding]:
    severities = {
        "unchecked": Severity.FAIL, "checked": Severity.WARN, "conditional": Severity.WARN, "abstract": Severity.WARN,
    }  # fmt: skip
    for method in methods:
        tail = ", and nothing else of it checks a gradient" if state == "unchecked" else ""
        yield finding("check-empty", severities.get(state, Severity.INFO), path, method.line, name,
                      f"{name}: {method.name} {method.empty}{tail}")  # fmt: skip
