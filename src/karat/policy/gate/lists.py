"""What people have listed, held against the evidence: exemptions and the baseline, and limits that tests widen on their own.

An exemption may be expired, stale, untrue or unused. The baseline lists operators that are known to lack evidence. It may
get shorter, and longer only by hand: a new operator without evidence fails; so does a listed one that has evidence now, or
that is gone, until the list is shortened.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import date
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from karat.findings import Finding, Severity, fail
from karat.gradients.report import GradVerdict
from karat.policy.evidence import KnownTest, Merged
from karat.policy.exemptions import LIMITS, ByOp, Exemption, names_op
from karat.policy.gate.needs import (
    DOUBLE,
    GatedTest,
    exemption_entry,
    is_differentiable,
    is_of_backward,
    labelled,
    listed,
    small_ops,
    unasked_outputs,
)
from karat.report.baseline import BaselineFile
from karat.report.words import few
from karat.system.command import Command

if TYPE_CHECKING:
    from karat.policy.gate.decision import Policy

BASELINE = BaselineFile("karat.policy-baseline/1", "operators")
_NO_ENTRY = "no entry of exemptions.toml allows it"
FURTHEST = 400  # Days ahead that an expiry may lie: what nobody looks at again does not end.
_WIDENED = {
    "tolerance": "is allowed a relative error of {0:.3g}, more than the check needs",
    "determinism": "lets two runs of one backward differ by {0:.3g}",
}
_NOT_NEEDED = {
    "gradient": "has gradient evidence, or needs none",
    "float64": "has evidence in float64",
    "weak": "has evidence that does not rest on its author alone",
    "tolerance": "passes without a widened tolerance",
    "determinism": "passes without a bound on non-determinism",
}
"""Rule → why a test does not need an exemption from it."""


class Widened(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a test lets go."""

    rule: str
    test: str
    op: str
    input: str | None = None
    dtype: str | None = None
    value: float


def widened_in(known: KnownTest) -> Iterator[Widened]:
    for one in known.evidence:
        if one.widened is not None:
            yield Widened(
                rule="tolerance", test=known.test, op=one.op, input=one.input, dtype=one.dtype, value=one.widened
            )
    for report in known.reports:
        if report.nondeterminism_bound > 0:
            yield Widened(rule="determinism", test=known.test, op=report.op, value=report.nondeterminism_bound)


def is_about(entry: Exemption, one: Widened) -> bool:
    return entry.covers(one.rule, one.op) and entry.speaks_of(one.test, one.input, one.dtype)


def allowed_by(entry: Exemption, one: Widened) -> bool:
    limit = getattr(entry, LIMITS[one.rule])
    return is_about(entry, one) and limit is not None and one.value <= limit


def unlisted_limits(merged: Merged, active: ByOp, *, today: date) -> Iterator[Finding]:
    """What op tests let go without an entry; one finding per test, op and rule."""
    for known in merged.tests.values():
        worst: dict[tuple[str, str], Widened] = {}
        for one in widened_in(known) if known.is_op_test else ():
            if not any(allowed_by(entry, one) for entry in active.about(one.op)):
                first = worst.setdefault((one.op, one.rule), one)
                worst[one.op, one.rule] = max(first, one, key=lambda each: each.value)
        for one in worst.values():
            near = next((entry for entry in active.about(one.op) if is_about(entry, one)), None)
            key = LIMITS[one.rule]
            found = f"{near.path}:{near.line} allows {getattr(near, key):.3g}" if near else _NO_ENTRY
            whom = f" of {one.input} in {one.dtype}" if one.input else ""
            entry = exemption_entry(op=one.op, scope=one.test, rule=one.rule, limits={key: one.value}, today=today)
            yield fail(
                "tolerance-override",
                f"{labelled(one.test, one.op)}: the check{whom} {_WIDENED[one.rule].format(one.value)}; {found}",
                path=one.test.partition("::")[0],
                metric=one.op,
                where=one.test,
                numbers={"rule": one.rule, key: one.value, "entry": entry},
                next=str(Command("edit", near.path if near else "exemptions.toml")),
            )


def about_entries(merged: Merged, judged: Sequence[GatedTest], policy: Policy) -> Iterator[Finding]:
    entries, today, complete = policy.exemptions.entries, policy.today, policy.complete
    named = ByOp(entries)
    matched: dict[int, list[GatedTest]] = {}
    for one in judged:
        # Of a test that never said its op, those that name it.
        mine: Iterable[Exemption] = (e for e in entries if e.names(one.test))
        if one.op:
            mine = (e for e in named.about(one.op) if e.narrow or e.speaks_of(one.test))
        for entry in mine:
            matched.setdefault(id(entry), []).append(one)
    # An operator without a test may be exempt from having one.
    every = chain(policy.baseline.ops, *policy.baseline.ops.values())
    beside = {id(entry) for op in every for entry in named.about(op)}
    for entry in entries:
        seen = matched.get(id(entry), [])
        if entry.has_expired(today):
            severity = Severity.FAIL if seen or complete else Severity.WARN
            text = f"expired on {entry.expires} and covers nothing; check the gradient, or renew it with a reason"
            yield _finding(entry, "exemption-expired", severity, text)
            continue
        if entry.expires is not None and (entry.expires - today).days > FURTHEST:
            text = f"ends on {entry.expires}, more than {FURTHEST} days ahead; choose an earlier day, and renew it then"
            yield _finding(entry, "exemption-invalid", Severity.FAIL, text)
        if not seen and complete and id(entry) not in beside:
            yield _finding(entry, "exemption-unused", Severity.FAIL, "matches no op test of the whole suite; remove it")
        yield from _held(entry, [(one, merged.tests[one.test]) for one in seen])


def _held(entry: Exemption, seen: Sequence[tuple[GatedTest, KnownTest]]) -> Iterator[Finding]:
    """An entry that still holds: untrue, not needed, used, or not verified."""
    for _, known in seen:
        if contradiction := _contradiction(entry, known):
            yield _finding(entry, "exemption-untrue", Severity.FAIL, f"it says {entry.kind}, but {contradiction}")
            return
    needless = [one.test for one, known in seen if _is_needless(entry, one, known)]
    if needless:
        narrow = "" if entry.narrow else "; remove it, or narrow its scope to the tests that need it"
        text = f"{listed(needless, most=3)} {_NOT_NEEDED[entry.rule]}{narrow}"
        # What it says is still true where the function is flat, which is evidence by itself.
        severity = Severity.WARN if entry.kind == "no-grad-op" else Severity.FAIL
        yield _finding(entry, "exemption-stale", severity, text)
        return
    used = [one for one, _ in seen if any(need.line == entry.line for need in one.needs)]
    if used or (seen and entry.rule in LIMITS):
        tests = listed((one.test for one in used or [one for one, _ in seen]), most=3)
        until = f" until {entry.expires}" if entry.expires else ""
        yield _finding(entry, "exempted", Severity.INFO, f"covers {tests}{until}: {entry.reason}")
    if entry.kind == "no-grad-op":
        unasked = []
        for one, known in seen:
            asked = {each.input for each in known.no_grads if each.op == one.op}
            if any(n.line == entry.line and n.input not in asked for n in one.needs):
                unasked.append(one.test)
        if unasked:
            text = f"{listed(unasked, most=3)} did not ask the op for the gradient, so it is not known to have none"
            yield _finding(entry, "exemption-unverified", Severity.FAIL, text)


def _is_needless(entry: Exemption, one: GatedTest, known: KnownTest) -> bool:
    if entry.kind == "integer-only":
        return False  # it is true, and says what everybody can see
    if entry.rule in LIMITS:
        mine = [w for w in widened_in(known) if w.rule == entry.rule and w.op == one.op]
        inside = [w for w in mine if entry.speaks_of(w.test, w.input, w.dtype)]
        checked = any(report.op == one.op for report in known.reports)
        return checked and known.is_whole and not inside
    needs = [n for n in one.needs if entry.speaks_of(one.test, n.input, n.dtype)]
    if not needs:
        return bool(known.declared) and known.is_whole and not entry.narrow
    return all(need.state == "evidence" for need in needs)


def _contradiction(entry: Exemption, known: KnownTest) -> str | None:
    """What was seen that the entry says cannot be: a gradient, or floating-point inputs."""
    for one in known.no_grads if entry.kind == "no-grad-op" else ():
        mine = names_op(entry.op, one.op) and entry.speaks_of(known.test, one.input)
        if mine and one.outcome == "gradient":
            detail = f": {one.detail}" if one.detail else ""
            return f"{known.test} asked {one.op} for the gradient of {one.input} and got one{detail}"
    for declared in known.declared if entry.kind == "integer-only" else ():
        for name, dtype in declared.inputs.items():
            mine = names_op(entry.op, declared.op) and is_differentiable(dtype)
            if mine and entry.speaks_of(known.test, name, dtype):
                return f"{known.test} gives {name} as {dtype}"
    return None


def _finding(entry: Exemption, kind: str, severity: Severity, text: str) -> Finding:
    return Finding(
        kind=kind,
        severity=severity,
        message=f"{entry.label}: {text}",
        path=entry.path,
        where=f"line {entry.line}",
        metric=entry.op,
        next=None if severity is Severity.INFO else f"{Command('edit', entry.path)}  # line {entry.line}",
        numbers={"owner": entry.owner, "expires": str(entry.expires or ""), "line": entry.line},
    )


class OpBaseline(msgspec.Struct, frozen=True, kw_only=True):
    """The operators of the registered namespaces, and the list of those that lack evidence."""

    ops: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """Operator → its other names, under any of which it may be tested."""
    functions: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """Operator → the names of its function, and of those of its own package that it is made of."""
    listed: tuple[str, ...] = ()
    sure: bool = True  # Whether all namespaces could be imported; what is not found in the others need not be gone.
    root: Path = Path()
    path: str = "policy-baseline.json"  # Seen from the root.
    again: Command = Command("karat", "policy", "gate", "--complete")  # The command as it was typed, for advice.


def rewrite(path: Path, added: Iterable[str], gone: Iterable[str]) -> None:
    """Puts operators on a baseline and takes others off; all others stay as they are at that moment."""
    from karat.goldens.saves import update

    update(path, lambda there: BASELINE.merged(there, path.name, added, gone))


def is_among(op: str, names: Collection[str]) -> bool:
    """Whether an operator is named, by its full name or the end of it: `mylib.ops.softmax`, `softmax`."""
    return any(end in names for end in _ends(op))


def _ends(op: str) -> list[str]:
    parts = op.split(".")
    return [".".join(parts[start:]) for start in range(len(parts))]


def judge_ops(
    merged: Merged, active: ByOp, held: OpBaseline, *, complete: bool, wrong: Iterable[str] = ()
) -> Iterator[Finding]:
    """New operators without evidence, and stale entries of the list.

    `wrong` names the operators whose gradient is known to be wrong: they have been tested, and that is reported.
    """
    # Names of operators with evidence in float64 that nothing speaks against.
    tests, proved = merged.tests.values(), set[str]()
    for known in tests:
        wide = widened_in(known)
        loose = {one.op for one in wide if not any(allowed_by(entry, one) for entry in active.about(one.op))}
        good = (e for e in known.evidence if e.counts and e.dtype in DOUBLE and is_of_backward(e))
        proved |= {e.op for e in good} - loose
    proved -= {e.op for known in tests for e in known.evidence if e.verdict is GradVerdict.FAIL} | small_ops(tests)
    partial = {one.op for known in tests for one in known.reports if one.unasked}
    proved -= {op for op in partial if unasked_outputs(tests, op)}
    reached: dict[str, set[str]] = {}
    for report in (one for known in merged.tests.values() for one in known.reports if one.verdict.holds):
        reached.setdefault(report.op, set()).update(report.functions)
    listed, there = set(held.listed), set(held.ops)
    tested = proved.union(wrong)
    for op in held.listed:
        if is_among(op, proved):
            why = "it has gradient evidence now"
        elif complete and held.sure and there and op not in there:
            why = "it is gone"
        else:
            continue
        yield fail(
            "baseline-stale",
            f"{held.path}: {op} is listed as lacking evidence, but {why}; shorten the list",
            path=held.path,
            metric=op,
            next=held.again.plus("--update-baseline"),
        )
    for op, others in held.ops.items() if complete else ():
        names = (op, *others)
        exempt = any(entry.covers("gradient", name) for name in names for entry in active.about(name))
        if op in listed or exempt:
            continue
        short = op.rpartition(".")[2]
        said = f"an operator without gradient evidence in float64; test it with karat.OpTest, OpSpec or karat.gradcheck(op={short!r})"
        checked = {one for name in names for end in _ends(name) for one in reached.get(end, ())}
        other = bool(checked) and checked.isdisjoint(held.functions.get(op, checked))
        if other:
            said = f"what was checked under its name is another function ({few(sorted(checked), 3)}); check the operator itself"
        if other or not any(is_among(name, tested) for name in names):
            yield fail(
                "new-op",
                f"{op}: {said}, then run the gate again; if it must wait, --add-to-baseline puts it on the baseline",
                metric=op,
                next=held.again,
            )
