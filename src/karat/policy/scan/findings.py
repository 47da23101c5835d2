"""Judging: op tests with what they reach → findings."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date

from karat.findings import Finding, Severity
from karat.policy.exemptions import TOO_SLOW, Exemption, Exemptions, is_slow
from karat.policy.scan.facts import Call, ClassFacts, Decorator, Method
from karat.policy.scan.names import Class
from karat.policy.scan.op_tests import OpTestClass, World
from karat.policy.scan.reach import Reach, Reached
from karat.policy.scan.report import DEVICE, OpTestRow, finding
from karat.policy.scan.vocabulary import (
    FREE_CHECKS,
    NAMED_FOR_CHECK,
    SKIP_RULE,
    TOLERANCES,
    WEAK,
    is_check,
    normal,
)

_INTEGERS = ("int", "uint", "bool")


@dataclass(frozen=True, slots=True)
class Rules:
    """What a scan holds op tests to."""

    exemptions: Exemptions | None = None
    """None: there is no such file, and skips are not held against one."""
    today: date = date.min


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """An op test's row, and what is wrong with it."""

    row: OpTestRow
    findings: list[Finding]
    dtype: str | None
    empty: list[Method]
    """Its own tests that promise a check and do nothing."""


class Judge:
    """Says what is wrong with op tests."""

    def __init__(self, world: World, rules: Rules) -> None:
        self._world = world
        self._rules = rules
        self._reach = Reach(world.names, world.lineage)

    def judge(self, test: OpTestClass) -> Judged:
        """What an op test comes to."""
        cls = test.cls
        reached = self._reach.of(cls, collected=test.collected, constants=dict(test.constants))
        op, dtype = self._op(cls), self._world.lineage.dtype(cls)
        covered = self._exemption(test, op)
        state: str = "not-run" if test.shadowed and reached.state != "abstract" else reached.state
        if state in {"unchecked", "skipped"} and covered is not None:
            state = "exempt"
        elif state == "unchecked" and dtype is not None and dtype.startswith(_INTEGERS):
            state = "integer"
        row = OpTestRow(
            name=test.name, path=test.path, line=test.line, op=op, state=state,
            checked_at=next((f"{c.path}:{c.line}" for c in reached.checks if not c.caught), None),
        )  # fmt: skip
        return Judged(
            row=row, findings=list(self._findings(test, row, reached, covered, dtype)), dtype=dtype,
            empty=own_empty(cls, reached),
        )  # fmt: skip

    def _op(self, cls: Class) -> str | None:
        order = [a.facts for a in self._world.lineage.order(cls) if isinstance(a, Class)]
        return next((facts.op for facts in order if facts.op), None)

    def _exemption(self, test: OpTestClass, op: str | None) -> Exemption | None:
        names = self._rules.exemptions.entries if self._rules.exemptions else ()
        identity = f"{test.path}::{test.name}"
        for entry in names:
            if entry.rule != "gradient" or entry.narrow or entry.has_expired(self._rules.today):
                continue
            spoken = entry.speaks_of(identity) or entry.speaks_of(f"::{test.cls.facts.name}")
            # Where the op cannot be read off, only an entry that names the class can be meant.
            if spoken and (entry.covers("gradient", op) if op else entry.scope != "*"):
                return entry
        return None

    def _findings(
        self, test: OpTestClass, row: OpTestRow, reached: Reached, covered: Exemption | None, dtype: str | None
    ) -> Iterator[Finding]:  # fmt: skip
        if test.assumed:
            yield finding("unresolved-base", Severity.INFO, test.path, test.line, row.name,
                          f"{row.name}: its base is taken for an op test's: {test.assumed}")  # fmt: skip
        elif reached.state == "unchecked":
            for end in self._world.lineage.open_ends(test.cls)[:1]:
                text = getattr(end, "text", None) or getattr(end, "name", "?")
                yield finding("unresolved-base", Severity.INFO, test.path, test.line, row.name,
                              f"{row.name}: its base {text} is not in the scanned files; what it checks is not known")  # fmt: skip
        yield from self._missing(test, row, reached, covered, dtype)
        if row.state == "conditional":
            yield from _conditional(test, row, reached)
        elif row.state == "not-run":
            yield _not_run(test, row)

    def _missing(
        self, test: OpTestClass, row: OpTestRow, reached: Reached, covered: Exemption | None, dtype: str | None
    ) -> Iterator[Finding]:  # fmt: skip
        name = row.name
        if row.state == "exempt" and covered is not None:
            yield finding("exempted", Severity.INFO, test.path, test.line, name,
                          f"{name} has no gradient check, as {covered.label} says")  # fmt: skip
        elif row.state == "integer":
            yield finding("grad-check-missing", Severity.INFO, test.path, test.line, name,
                          f"{name} has no gradient check; its dtype is {dtype}, which has no gradient")  # fmt: skip
        elif row.state == "unchecked" and not own_empty(test.cls, reached):
            sure = not self._world.lineage.open_ends(test.cls)
            yield finding(
                "grad-check-missing", Severity.FAIL if sure else Severity.WARN, test.path, test.line, name,
                f"{name} has no gradient check{self._why(test, reached)}",
                next=f"add test_check_grad with self.check_grad to {name}, or an entry to exemptions.toml",
            )  # fmt: skip

    def _why(self, test: OpTestClass, reached: Reached) -> str:
        parents = [a for a in self._world.lineage.order(test.cls)[1:] if isinstance(a, Class)]
        for parent in parents:
            if any(d.last == SKIP_RULE for d in parent.facts.decorators):
                return f": {parent.facts.name} ({parent.path}:{parent.facts.line}) skips it, and a skip is not inherited"
        for owner, method in reached.empty:
            if NAMED_FOR_CHECK.fullmatch(method.name):
                return f": {method.name} of {owner.facts.name} ({owner.path}:{method.line}) {method.empty}"
        if any(check.caught for check in reached.checks):
            return ": its check stands where a failure is caught"
        if reached.tests == 1:
            return ": its only test does not come to one"
        return f": none of its {reached.tests} tests comes to one"


def own_empty(cls: Class, reached: Reached) -> list[Method]:
    """Tests of the very class that promise a check and do nothing."""
    return [m for owner, m in reached.empty if owner == cls and NAMED_FOR_CHECK.fullmatch(m.name)]


def _conditional(test: OpTestClass, row: OpTestRow, reached: Reached) -> Iterator[Finding]:
    good = [check for check in reached.checks if not check.caught]
    silent = [check for check in good if check.when]
    first = (silent or good)[0]
    condition = next(iter(first.when or first.visible), "")
    device = any(DEVICE.search(text) for check in silent for text in check.when)
    severity = Severity.WARN if len(silent) == len(good) and device else Severity.INFO
    tail = (
        "; elsewhere its tests pass and compare nothing" if silent else "; elsewhere it is skipped"
    )
    yield finding("check-conditional", severity, test.path, test.line, row.name,
                  f"{row.name} checks gradients only where {condition}{tail}")  # fmt: skip


def _not_run(test: OpTestClass, row: OpTestRow) -> Finding:
    why = (
        f"line {test.shadowed} binds its name again"
        if test.shadowed
        else "a decorator skips all of it"
    )
    return finding("grad-check-missing", Severity.WARN, test.path, test.line, row.name,
                   f"{row.name} never runs: {why}", next=f"sed -n {test.line}p {shlex.quote(test.path)}")  # fmt: skip


def unbound(world: World, places: Sequence[tuple[str, int]]) -> Iterator[Finding]:
    """Classes of factories that no scanned file calls."""
    for path, index in places:
        facts = world.names.facts(path).classes[index]
        if any(NAMED_FOR_CHECK.fullmatch(m.name) for m in facts.methods):
            bases = ", ".join(base.text for base in facts.bases)
            yield finding("unresolved-base", Severity.INFO, path, facts.line, facts.qualname,
                          f"{facts.qualname}: its base {bases} is a parameter that no scanned file binds")  # fmt: skip


# DOC-HERE scan_class_findings: What the text of one op test class says against it, whoever inherits from it.


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
