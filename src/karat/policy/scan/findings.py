"""What is wrong with op tests: those that reach no check, and classes whose text speaks against them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date

from msgspec.structs import replace

from karat.findings import Finding, Severity
from karat.policy.exemptions import TOO_SLOW, Exemption, ExemptionFile, is_slow
from karat.policy.scan.facts import ClassFacts, Decorator, Method, MethodCall
from karat.policy.scan.names import Class
from karat.policy.scan.op_tests import OpTestClass, World
from karat.policy.scan.reach import Reach, Reached
from karat.policy.scan.report import DEVICE, OpTestRow, finding
from karat.policy.scan.vocabulary import FREE_CHECKS, NAMED_FOR_CHECK, SKIP_RULE, TOLERANCES, WEAK, is_check, normal
from karat.system.command import Command

_INTEGERS = ("int", "uint", "bool")
_NO_REASON = {"none": "no reason", "empty": "an empty reason", "computed": "a reason that only running it tells"}
_EMPTY = {"unchecked": Severity.FAIL, "checked": Severity.WARN, "conditional": Severity.WARN, "abstract": Severity.WARN}
"""State of an op test → how grave an empty test of it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """An op test's row, and what is wrong with it."""

    row: OpTestRow
    findings: list[Finding]
    dtype: str | None
    empty: list[Method]  # Its own tests that promise a check and do nothing.


class Inspector:
    """Holds op tests, and the classes they are made of, to the rule; None for `exemptions`: there is no such file."""

    def __init__(self, world: World, exemptions: ExemptionFile | None, today: date) -> None:
        self._world = world
        self._exemptions = exemptions
        self._today = today
        self._reach = Reach(world.names, world.lineage)

    def inspect(self, test: OpTestClass) -> Inspection:
        cls, lineage = test.cls, self._world.lineage
        reached = self._reach.of(cls, collected=test.collected, constants=dict(test.constants))
        ancestors = [a.facts for a in lineage.order(cls) if isinstance(a, Class)]
        op = next((facts.op for facts in ancestors if facts.op), None)
        dtype = str(lineage.values(cls).get("self.dtype") or "") or None
        names = (f"{test.path}::{test.name}", f"::{cls.facts.name}")
        covered = self._entry("gradient", op, names)
        state: str = "not-run" if test.shadowed and reached.state != "abstract" else reached.state
        if state in {"unchecked", "skipped"} and covered is not None:
            state = "exempt"
        elif state == "unchecked" and dtype is not None and dtype.startswith(_INTEGERS):
            state = "integer"
        row = OpTestRow(
            name=test.name,
            path=test.path,
            line=test.line,
            op=op,
            state=state,
            checked_at=next((f"{c.path}:{c.call.line}" for c in reached.checks if not c.caught), None),
        )
        empty = [m for owner, m in reached.empty if owner == cls and NAMED_FOR_CHECK.fullmatch(m.name)]
        base = f"its base is assumed to be an op test: {test.assumed}" if test.assumed else ""
        for end in lineage.open_ends(cls)[:1] if reached.state == "unchecked" and not test.assumed else ():
            base = f"its base {end.name} is not in the scanned files; what it checks is unknown"
        found = []
        if base:
            text = f"{test.name}: {base}"
            found.append(finding("unresolved-base", Severity.INFO, test.path, test.line, test.name, text))
        if state != "unchecked" or not empty:  # of which the empty test is named
            found += self._missing(test, row, reached, covered, dtype)
        return Inspection(row=row, findings=found, dtype=dtype, empty=empty)

    def _entry(self, rule: str, op: str | None, names: Sequence[str], value: float | None = None) -> Exemption | None:
        """The exemption that covers a test under any of its names, and allows the value."""
        for entry in self._exemptions.entries if self._exemptions else ():
            allowed = entry.max_relative_error
            if (
                entry.rule == rule
                and not entry.narrow
                and not entry.has_expired(self._today)
                and any(map(entry.speaks_of, names))
                # Where the op cannot be read off, only an entry that names the class can be meant.
                and (entry.covers(rule, op) if op else entry.scope != "*")
                and (allowed is None or (value is not None and value <= allowed))
            ):
                return entry
        return None

    def _missing(
        self, test: OpTestClass, row: OpTestRow, reached: Reached, covered: Exemption | None, dtype: str | None
    ) -> Iterator[Finding]:
        """An op test that has no gradient check, or not always."""
        kind, severity = "grad-check-missing", Severity.INFO
        after: str | None = None
        if row.state == "exempt" and covered is not None:
            kind, text = "exempted", f"has no gradient check; exempt by {covered.label}"
        elif row.state == "conditional":
            good = [check for check in reached.checks if not check.caught]
            silent = [check for check in good if check.when]
            first = (silent or good)[0]
            condition = next(iter(first.when or first.visible), "")
            device = any(DEVICE.search(text) for check in silent for text in check.when)
            severity = Severity.WARN if len(silent) == len(good) and device else Severity.INFO
            tail = "its tests pass and compare nothing" if silent else "it is skipped"
            kind, text = "check-conditional", f"checks gradients only where {condition}; elsewhere {tail}"
        elif row.state == "integer":
            text = f"has no gradient check; its dtype is {dtype}, which has no gradient"
        elif row.state == "not-run":
            why = f"line {test.shadowed} binds its name again" if test.shadowed else "a decorator skips all of it"
            severity, text = Severity.WARN, f"never runs: {why}"
            after = Command("sed", "-n", f"{test.line}p", test.path)
        elif row.state == "unchecked":
            sure = not self._world.lineage.open_ends(test.cls)
            severity = Severity.FAIL if sure else Severity.WARN
            text = f"has no gradient check{self._why(test, reached)}"
            after = f"add test_check_grad with self.check_grad to {row.name}, or an entry to exemptions.toml"
        else:
            return
        found = finding(kind, severity, test.path, test.line, row.name, f"{row.name} {text}")
        yield replace(found, next=after) if after else found

    def _why(self, test: OpTestClass, reached: Reached) -> str:
        for parent in self._world.lineage.order(test.cls)[1:]:
            if isinstance(parent, Class) and any(d.last == SKIP_RULE for d in parent.facts.decorators):
                place = f"{parent.path}:{parent.facts.line}"
                return f": {parent.facts.name} ({place}) skips it, and a skip is not inherited"
        for owner, method in reached.empty:
            if NAMED_FOR_CHECK.fullmatch(method.name):
                return f": {method.name} of {owner.facts.name} ({owner.path}:{method.line}) {method.empty}"
        if any(check.caught for check in reached.checks):
            return ": the failure of its check is caught"
        many = reached.tests != 1
        return f": none of its {reached.tests} tests reaches one" if many else ": its only test does not reach one"

    def of_class(self, path: str, facts: ClassFacts, inspected: Inspection) -> Iterator[Finding]:
        """What the text of a class says against it, whoever inherits from it."""
        name, state = facts.qualname, inspected.row.state
        for flag in facts.flags:
            on = f" on {flag.owner}" if flag.owner else ""
            text = f"{name} sets {flag.name} = {flag.value}{on} by hand; only a comparison may"
            yield finding("flag-by-hand", Severity.FAIL, path, flag.line, name, text)
        for decorator in facts.decorators:
            if decorator.last == SKIP_RULE:
                yield from self._skip(path, name, decorator, state)
        for method in inspected.empty:
            tail = ", and nothing else in it checks a gradient" if state == "unchecked" else ""
            text = f"{name}: {method.name} {method.empty}{tail}"
            yield finding("check-empty", _EMPTY.get(state, Severity.INFO), path, method.line, name, text)
        for method in facts.methods:
            for call in method.calls:
                if is_check(call.name) or call.name in FREE_CHECKS:
                    yield from self._call(path, name, call, inspected)

    def _skip(self, path: str, name: str, decorator: Decorator, state: str) -> Iterator[Finding]:
        severity, text = Severity.WARN, ""
        if decorator.given in _NO_REASON:
            severity = Severity.FAIL
            text = f"{name} skips its gradient check with {_NO_REASON[decorator.given]}"
        elif decorator.given == "positional":
            text = f"{name} gives the reason of its skip without reason=, where reviewers do not look for it"
        elif decorator.reason and is_slow(decorator.reason):
            text = f"{name}: {TOO_SLOW} ({decorator.reason})"
        if text:
            yield finding("skip-without-reason", severity, path, decorator.line, name, text)
        if state != "exempt":
            does = "skips its gradient check"
            if state in {"checked", "conditional"}:
                does = "is marked as skipping its gradient check, which runs,"
            reason = f" ({decorator.reason})" if decorator.reason else ""
            severity = Severity.WARN if self._exemptions is None else Severity.FAIL
            text = f"{name} {does} and no exemption covers that{reason}"
            yield finding("skip-without-exemption", severity, path, decorator.line, name, text)

    def _call(self, path: str, name: str, call: MethodCall, inspected: Inspection) -> Iterator[Finding]:
        def about(kind: str, severity: Severity, text: str) -> Finding:
            return finding(kind, severity, path, call.line, name, f"{name}: {call.name} {text}")

        def allowed(rule: str, value: float | None = None) -> tuple[Severity, str]:
            entry = self._entry(rule, inspected.row.op, [f"{path}::{name}"], value)
            return (Severity.INFO, f"; {entry.label} allows it") if entry else (Severity.WARN, "")

        dtype, given = inspected.dtype, call.keywords
        for keyword in TOLERANCES:
            default, value = normal(keyword, dtype), call.numbers.get(keyword)
            wider = value is None or default is None or value > default
            if default is not None and wider and given.get(keyword, "None") != "None":
                severity, tail = allowed("tolerance", value)
                of = f" of {dtype}" if dtype else ""
                text = f"is given {keyword}={given[keyword]}; the default{of} is {default:g}{tail}"
                yield about("tolerance-override", severity, text)
        for keyword in WEAK:
            if given.get(keyword, "None") != "None":
                severity, tail = allowed("weak")
                text = f"is given {keyword}={given[keyword]}, so nothing is differentiated{tail}"
                yield about("evidence-weak", severity, text)
        if given.get("no_grad_set", "None") not in {"None", "set()", "{}", "[]"}:
            yield about("check-narrowed", Severity.INFO, f"leaves out no_grad_set={given['no_grad_set']}")
        if given.get("check_dygraph") == "False":
            yield about("check-narrowed", Severity.INFO, "leaves out dynamic graphs (check_dygraph=False)")
        if call.caught:
            yield about("check-empty", Severity.FAIL, "cannot fail: its failure is caught")


def unbound(world: World, places: Sequence[tuple[str, int]]) -> Iterator[Finding]:
    """Classes of factories that no scanned file calls."""
    for path, index in places:
        facts = world.names.facts(path).classes[index]
        if any(NAMED_FOR_CHECK.fullmatch(m.name) for m in facts.methods):
            bases = ", ".join(base.text for base in facts.bases)
            text = f"{facts.qualname}: its base {bases} is a parameter that no scanned file binds"
            yield finding("unresolved-base", Severity.INFO, path, facts.line, facts.qualname, text)
