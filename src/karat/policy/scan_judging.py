"""Judging: op tests with what they reach → findings."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date

from karat.findings import Finding, Severity
from karat.policy.exemptions import Exemption, Exemptions
from karat.policy.scan_names import Class
from karat.policy.scan_reach import Reach, Reached
from karat.policy.scan_report import OpTestRow
from karat.policy.scan_shapes import Method
from karat.policy.scan_vocabulary import NAMED_FOR_CHECK, SKIP_RULE
from karat.policy.scan_wording import DEVICE, finding
from karat.policy.scan_world import OpTestClass, World

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
