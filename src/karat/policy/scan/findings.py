"""What is wrong with op tests: those that reach no check, and classes whose text speaks against them.

Which checks the tests of a class really reach goes through helpers, super() and parents, and under conditions.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from functools import cache
from typing import Literal

import msgspec
from msgspec.structs import replace

from karat.findings import Finding, Severity
from karat.policy.exemptions import TOO_SLOW, Exemption, ExemptionFile, is_slow
from karat.policy.scan.facts import ClassFacts, Decorator, Method, MethodCall
from karat.policy.scan.names import Ancestor, Class, Lineage, Memo, Names, Outside, Place
from karat.policy.scan.op_tests import OpTestClass, World, finding
from karat.policy.scan.source import negated, truth
from karat.policy.scan.vocabulary import (
    EXPECTS_FAILURE,
    FREE_CHECKS,
    HOOKS,
    NAMED_FOR_CHECK,
    SKIP_RULE,
    TOLERANCES,
    TOLERANCES_OF_DTYPE,
    WEAK,
    is_check,
    is_test,
)
from karat.system.command import Command

_MOST_SETS = 200


def always(needs: Iterable[frozenset[str]]) -> bool:
    """Whether one of several sets of conditions holds whatever happens: `c` and `not c` between them do."""
    known = set(needs)
    fresh = list(known)
    while fresh and frozenset() not in known and len(known) < _MOST_SETS:
        each = fresh.pop()
        for condition in each:
            rest = each - {condition}
            if rest | {negated(condition)} in known and rest not in known:
                known.add(rest)
                # What was looked at before may meet its other half in this.
                fresh = list(known)
                break
    return frozenset() in known


def settled(when: tuple[str, ...], known: Mapping[str, object]) -> tuple[str, ...] | None:
    """The conditions without those that are known to hold; None where one is never met."""
    truths = {condition: truth(_parsed(condition), known) for condition in when}
    return None if False in truths.values() else tuple(one for one in when if truths[one] is None)


@cache
def _parsed(condition: str) -> ast.expr | None:
    try:
        return ast.parse(condition, mode="eval").body
    except SyntaxError:  # shortened, or in words
        return None


def expects_failure(decorators: Sequence[Decorator]) -> bool:
    """Whether a failure passes, whatever the condition."""
    return any(d.last in EXPECTS_FAILURE and not d.condition for d in decorators)


def conditions(decorators: Sequence[Decorator]) -> tuple[str, ...]:
    return tuple(d.condition for d in decorators if d.condition)


_DEEPEST = 40  # Helpers that call helpers; the interpreter's own stack ends not far beyond.
_MOST_CHECKS = 100  # Checks of one method that are told apart.
_NONE: Mapping[str, bool] = {}


class Check(msgspec.Struct, frozen=True, kw_only=True):
    call: MethodCall
    path: str
    when: tuple[str, ...] = ()
    visible: tuple[str, ...] = ()  # Conditions of skip decorators: the runner says that it skipped.
    caught: bool = False


State = Literal["checked", "conditional", "unchecked", "skipped", "exempt", "integer", "not-run", "abstract"]
"""Of an op test; `exempt` by an entry of exemptions.toml, `integer` where its dtype has no gradient."""


class Reached(msgspec.Struct, frozen=True, kw_only=True):
    """What the tests of one class reach."""

    state: State
    checks: tuple[Check, ...] = ()
    empty: tuple[tuple[Class, Method], ...] = ()  # Tests that are named for a check and do nothing, own or inherited.


class Reach:
    """Follows the tests of classes."""

    def __init__(self, names: Names, lineage: Lineage) -> None:
        self._names = names
        self._lineage = lineage
        self._memo: Memo[list[Check]] = Memo(_DEEPEST, [])
        """What the methods on its way reach, each worked out once however many ways lead there."""

    def of(self, cls: Class, *, collected: bool = True, constants: Mapping[str, bool] = _NONE) -> Reached:
        """Every check that the class's own and inherited tests reach.

        `constants` are parameters of the factory that made the class, whose truth is known.
        """
        order = self._lineage.order(cls)
        tests = dict(self._tests(order))
        # unittest keeps a class's skip as an attribute, which children inherit.
        decorators = [d for a in order if isinstance(a, Class) for d in a.facts.decorators]
        around, expected = conditions(decorators), expects_failure(decorators)
        checks: list[Check] = []
        for index, method in tests.values():
            self._memo = Memo(_DEEPEST, [])
            for check in self._follow(order, index, method):
                when = settled(check.when, {**self._lineage.values(cls), **constants}) if check.when else ()
                if when is not None:
                    when, visible = cls.facts.when + when, around + check.visible
                    checks.append(replace(check, when=when, visible=visible, caught=check.caught or expected))
        good = [check for check in checks if not check.caught]
        runs = collected and tests.keys() - HOOKS and cls.facts.attributes.get("__test__") != "False"
        state: State
        if not runs:
            state = "abstract"
        elif any(d.last == "skip" for d in decorators):
            state = "not-run"
        elif not good:
            state = "skipped" if any(d.last == SKIP_RULE for d in cls.facts.decorators) else "unchecked"
        else:
            state = "checked" if always(frozenset(c.when + c.visible) for c in good) else "conditional"
        empty = tuple((order[i], method) for i, method in tests.values() if method.empty)
        return Reached(
            state=state,
            checks=tuple(checks),
            empty=empty,  # type: ignore[arg-type]
        )

    def _tests(self, order: Sequence[Ancestor]) -> Iterator[tuple[str, tuple[int, Method]]]:
        """Names that a runner finds, each in the first class that has it."""
        seen: set[str] = set()
        for index, ancestor in enumerate(order):
            if not isinstance(ancestor, Class) or self._lineage.is_root(ancestor):
                continue
            for method in ancestor.facts.methods:
                if method.name not in seen and (is_test(method.name) or method.name in HOOKS):
                    seen.add(method.name)
                    yield method.name, (index, method)
            seen |= ancestor.facts.attributes.keys()  # `test_check_grad = None`

    def _find(self, order: Sequence[Ancestor], name: str, start: int = 0) -> tuple[int, Method] | None:
        for index in range(start, len(order)):
            ancestor = order[index]
            if not isinstance(ancestor, Class) or self._lineage.is_root(ancestor):
                continue
            for method in ancestor.facts.methods:
                if method.name == name:
                    return index, method
            if name in ancestor.facts.attributes:
                return index, Method(name=name, line=ancestor.facts.line)
        return None

    def _follow(self, order: Sequence[Ancestor], index: int, method: Method) -> list[Check]:
        """What a method of one of the classes reaches."""
        here = order[index]
        if method.empty == "is skipped" or not isinstance(here, Class):
            return []
        key = (id(order), index, method.name)
        return self._memo.once(key, lambda: _kept(self._calls(order, index, here, method)))

    def _calls(self, order: Sequence[Ancestor], index: int, here: Class, method: Method) -> Iterator[Check]:
        """What the calls in a method reach."""
        visible, expected = conditions(method.decorators), expects_failure(method.decorators)
        for call in method.calls:
            for check in self._call(order, index, here, call):
                yield replace(
                    check,
                    when=method.when + call.when + check.when,
                    visible=visible + check.visible,
                    caught=call.caught or check.caught or expected,
                )

    def _call(self, order: Sequence[Ancestor], index: int, here: Class, call: MethodCall) -> Iterator[Check]:
        made = Check(call=call, path=here.path)
        if call.receiver == "free":
            yield made
        elif call.receiver == "class":  # `Parent.test_check_grad(self)`
            place = Place(here.path, here.facts.scope, environment=here.environment)
            for target in self._names.resolve(place, call.owner):
                theirs = self._lineage.order(target) if isinstance(target, Class) else ()
                found = self._find(theirs, call.name)
                if found is not None:
                    # What it calls on self is looked up from the class that is tested.
                    owner = theirs[found[0]]
                    where, at = (order, order.index(owner)) if owner in order else (theirs, found[0])
                    yield from self._follow(where, at, found[1])
                elif is_check(call.name) and isinstance(target, Class | Outside):
                    yield made
        else:
            found = self._find(order, call.name, index + 1 if call.receiver == "super" else 0)
            if found is not None:
                yield from self._follow(order, *found)
            elif is_check(call.name):
                yield made


def _kept(checks: Iterable[Check]) -> list[Check]:
    """Of the same call under the same conditions one; and not more than can be told apart."""
    kept = {(c.path, c.call.line, c.call.name, c.when, c.visible, c.caught): c for c in checks}
    ordered = sorted(kept.values(), key=lambda c: (c.caught, len(c.when) + len(c.visible)))
    return ordered[:_MOST_CHECKS]


_INTEGERS = ("int", "uint", "bool")
_EMPTY = {"unchecked": Severity.FAIL, "checked": Severity.WARN, "conditional": Severity.WARN, "abstract": Severity.WARN}
"""State of an op test → how grave an empty test of it is."""


class OpTestRow(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    path: str
    line: int
    op: str | None  # `op_type`, where it is a literal.
    state: State
    checked_at: str | None = None  # `file.py:12`: the first check that its tests reach.


class Inspection(msgspec.Struct, frozen=True, kw_only=True):
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
        state: State = "not-run" if test.shadowed and reached.state != "abstract" else reached.state
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
        base = f"its base is assumed to be an op test: {test.assumed}, by its name" if test.assumed else ""
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
            severity = Severity.WARN if len(silent) == len(good) else Severity.INFO
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
        return ": none of its tests reaches one"

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
        if not (decorator.reason or "").strip():
            severity, text = Severity.FAIL, f"{name} skips its gradient check without a reason that can be read"
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
        for keyword, usual in TOLERANCES.items():
            default = TOLERANCES_OF_DTYPE.get(dtype or "", {}).get(keyword, usual)
            value = call.numbers.get(keyword)
            if (value is None or value > default) and given.get(keyword, "None") != "None":
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
        if call.caught:
            yield about("check-empty", Severity.FAIL, "cannot fail: its failure is caught")
