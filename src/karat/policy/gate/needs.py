"""What the rule requires of one op test, what it has, and how to say what it lacks.

The rule: evidence in float64 for every differentiable input, on every device that is required, unless exempt.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from math import inf
from typing import Literal

import msgspec
from msgspec.structs import replace

from karat.findings import Finding, Severity, fail, info, warn
from karat.gradients.report import GradVerdict
from karat.policy.evidence import KnownTest
from karat.policy.exemptions import TOO_SLOW, Exemption, is_slow
from karat.policy.journal import Evidence
from karat.report.words import count, few
from karat.system.command import Command

State = Literal[
    "failed", "missing", "no-grad", "inconclusive", "vacuous", "weak", "float64", "not-selected", "exempt", "evidence"
]
"""Gravest first."""
_UNASKED = "it has a gradient, and no check asks for it"
SMALL = "compared only at inputs with a single element, where a wrong axis, sum or order does not show"
RULE = "Every op test has gradient evidence in float64 for every differentiable input, or an exemption."
DOUBLE = frozenset({"float64", "complex128"})
_SAME = {"gpu": "cuda", "rocm": "cuda"}
_BENDS: dict[str, tuple[str, ...]] = {"float64": ("gradient", "float64"), "weak": ("gradient", "weak")}
"""State → the rules an exemption from which covers it; only from gradient for the others."""
KINDS: dict[State, str] = {
    "missing": "evidence-missing",
    "no-grad": "evidence-missing",
    "float64": "evidence-missing",
    "weak": "evidence-weak",
    "vacuous": "evidence-vacuous",
    "inconclusive": "evidence-inconclusive",
}


class Need(msgspec.Struct, frozen=True, kw_only=True):
    """One input that must have evidence."""

    input: str
    dtype: str  # As the test gave it.
    device: str | None = None  # None: any will do.
    state: State
    why: str = ""
    line: int | None = None  # Of the exemption that covers it.


class GatedTest(msgspec.Struct, frozen=True, kw_only=True):
    """One op test and one of its ops, with what it needs and has."""

    test: str
    op: str  # Empty if the test never declared one.
    state: State  # The gravest of its needs; `evidence` also where it needs nothing.
    needs: tuple[Need, ...] = ()
    ran: int = 0
    total: int = 0
    file: str = ""
    line: int = 0
    skip_reason: str | None = None


def is_differentiable(dtype: str) -> bool:
    """Integers and booleans have no gradient; whatever is not known to be one has."""
    return not dtype.startswith(("int", "uint", "bool"))


def is_of_backward(e: Evidence) -> bool:
    """Whether it is about the backward, of first order: forward mode runs other code, and proves nothing of it."""
    return e.mode == "reverse" and e.order == 1


def same_device(found: str, wanted: str) -> bool:
    """`cuda:0` is `cuda`, and so is what other frameworks call gpu."""
    kinds = [name.partition(":")[0].lower() for name in (found, wanted)]
    return len({_SAME.get(kind, kind) for kind in kinds}) == 1


def needs_of(
    known: KnownTest, op: str, devices: Sequence[str], entries: Sequence[Exemption], *, small: bool = False
) -> tuple[Need, ...]:
    """What one test needs for one op, and what it has; `small`: the op was only ever checked at a single element."""
    declared = [one for one in known.declared if one.op == op]
    set_aside = {name for one in declared for name in one.no_grad}
    inputs: dict[str, str] = {}
    for name, dtype in (item for one in declared for item in one.inputs.items()):
        if is_differentiable(dtype):
            inputs.setdefault(name, dtype)
    each = []
    for name, dtype in inputs.items():
        every = [e for e in known.evidence if (e.op, e.input) == (op, name)]
        mine = [e for e in every if is_of_backward(e)]
        beside = "on other devices" if mine else "in forward mode or a higher order" if every else ""
        for device in devices or (None,):
            here = [e for e in mine if device is None or same_device(e.device, device)]
            state, why = _state(here, set_aside=name in set_aside, beside=beside)
            if small and state == "evidence":
                state, why = "weak", SMALL
            each.append(Need(input=name, dtype=dtype, device=device, state=state, why=why))
    names = unasked_outputs([known], op)
    each += [Need(input=f"the output {name}", dtype="", state="missing", why=_UNASKED) for name in names]
    return tuple(covered(need, known.test, op, entries) for need in each)


def unasked_outputs(tests: Iterable[KnownTest], op: str) -> list[str]:
    """Outputs of an op with a gradient that none of these tests asks for."""
    here = list(tests)
    compared = {e.output for known in here for e in known.evidence if e.op == op}
    return sorted({name for known in here for one in known.reports if one.op == op for name in one.unasked} - compared)


def other_functions(tests: Iterable[KnownTest]) -> Iterator[Finding]:
    """Ops that were checked by functions of other names: nothing else tells what an op's name stands for."""
    names: dict[str, set[str]] = {}
    for report in (one for known in tests for one in known.reports):
        names.setdefault(report.op, set()).update(name.rpartition(".")[2] for name in report.functions)
    odd = {op: sorted(mine) for op, mine in sorted(names.items()) if mine and not any(_alike(op, one) for one in mine)}
    if odd:
        text = few([f"{op} by {few(mine, 2)}" for op, mine in odd.items()], 6)
        yield info("other-function", f"checked by functions of other names: {text}", numbers={"ops": len(odd)})


def _alike(op: str, function: str) -> bool:
    one, two = (re.sub(r"\W|_", "", name.rpartition(".")[2]).casefold() for name in (op, function))
    return one in two or (len(two) > 2 and two in one)


def small_ops(tests: Iterable[KnownTest]) -> frozenset[str]:
    """Ops whose evidence is of inputs with a single element, and of nothing larger: axes and sums go unseen."""
    most: dict[str, float] = {}
    for e in (e for known in tests for e in known.evidence if e.counts):
        most[e.op] = max(most.get(e.op, 0), inf if e.elements is None else e.elements)
    return frozenset(op for op, elements in most.items() if elements <= 1)


def covered(need: Need, test: str, op: str, entries: Iterable[Exemption]) -> Need:
    """The same, exempt if an entry covers it; a gradient that is wrong is never exempt."""
    if need.state in {"evidence", "failed"}:
        return need
    rules = _BENDS.get(need.state, ("gradient",))
    for entry in entries:
        # Inputs that are integers need nothing, and this one is none of them.
        about = entry.kind != "integer-only" and any(entry.covers(rule, op) for rule in rules)
        if about and entry.speaks_of(test, need.input, need.dtype):
            return replace(need, state="exempt", why=f"{entry.kind}: {entry.reason}", line=entry.line)
    return need


def _state(here: Sequence[Evidence], *, set_aside: bool, beside: str) -> tuple[State, str]:
    """The state of one input by its evidence, and why it does not count; the nearest to evidence first."""
    failed = [e for e in here if e.verdict is GradVerdict.FAIL]
    if failed:
        return "failed", failed[0].reason
    strong = [e for e in here if e.counts]
    if any(e.dtype in DOUBLE for e in strong):
        return "evidence", ""
    if strong:
        return "float64", f"only in {', '.join(sorted({e.dtype for e in strong}))}"
    weak = [e for e in here if e.verdict.holds and not e.vacuous]
    if less := [e.untried for e in weak if e.untried]:
        return "weak", f"the check leaves out {count(len(less[0]), 'law')} of gradients: {few(less[0], 2)}"
    if weak:
        return "weak", "compared with the author's own gradients, and with nothing else"
    if vacuous := [e.reason for e in here if e.vacuous]:
        return "vacuous", vacuous[0] or "corrupted gradients passed the same check"
    if unclear := [e.reason for e in here if e.verdict is GradVerdict.INCONCLUSIVE]:
        return "inconclusive", unclear[0] or "the check could not decide"
    if set_aside:
        return "no-grad", "left out by no_grad_set, without a reason"
    return "missing", f"compared only {beside}" if beside else ""


def run_again(test: str) -> Command:
    """The command that runs a test; `file.py::TestOps[relu]` is one op of a class made from specs."""
    class_, bracket, op = test.partition("[")
    if "::" in class_ and bracket and op.endswith("]"):
        return Command("pytest", class_, "-k", op[:-1])
    return Command("pytest", test)


def labelled(test: str, op: str) -> str:
    return f"{test} (op {op})" if op else test


def listed(names: Iterable[str], *, most: int = 6) -> str:
    """`X, Y and 3 more`."""
    return few(sorted(set(names)), most)


def ways(test: str, op: str, inputs: Sequence[str] = (), *, reason: str = "", today: date | None = None) -> list[str]:
    """The three ways to set it right, as lines."""
    names = json.dumps(list(inputs) or ["X"], ensure_ascii=False)
    name = test.rpartition("::")[2]
    entry = exemption_entry(op=op or "OP", scope=test, reason=reason, today=today)
    return [
        f"1. {name} tests an operator: check its gradients,",
        f'     def test_check_grad(self): self.check_grad({names}, "Out")',
        "   and let it run: an empty, skipped or inherited test, or a flag set by hand, is no evidence.",
        f"2. {name} tests a Python API or anything else: let it inherit from unittest.TestCase, not from OpTest.",
        "3. there is a special reason not to check: decorate the class with",
        f"     @skip_check_grad_ci(reason={json.dumps(reason or 'why', ensure_ascii=False)})",
        "   and add this entry to exemptions.toml; it needs an approving review (karat policy approvals):",
        *textwrap.indent(entry, "     ").splitlines(),
    ]


def exemption_entry(
    *,
    op: str,
    scope: str = "*",
    rule: str = "gradient",
    reason: str = "",
    limits: Mapping[str, float] | None = None,
    today: date | None = None,
) -> str:
    """An entry of exemptions.toml, ready but for who and why."""
    first = today or date.today()  # noqa: DTZ011 - the day where the person is
    quarter = timedelta(days=90)
    day = min(first, date.max - quarter) + quarter
    named = rule == "gradient"
    hint = '  # or "no-grad-op", if it has no gradient at all, which is verified' if named else ""
    lines = [
        "[[exemption]]",
        f"op = {_quoted(op)}",
        *([] if scope == "*" else [f"scope = {_quoted(scope)}"]),
        *([] if named else [f"rule = {_quoted(rule)}"]),
        f'kind = "special"{hint}',
        f"reason = {_quoted(reason or ('why this cannot be checked' if named else 'why it is needed'))}",
        'owner = "@you"',
        'issue = "https://…"',
        f"expires = {day.isoformat()}",
        *(f"{key} = {value!r}" for key, value in (limits or {}).items()),
    ]
    return "\n".join(lines)


def _quoted(text: str) -> str:
    """A string as TOML writes it; what a terminal must not see is escaped."""
    plain = text.encode("utf-8", "backslashreplace").decode().replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(char if char.isprintable() else f"\\U{ord(char):08x}" for char in plain) + '"'


def of_test(judged: GatedTest, known: KnownTest) -> Iterator[Finding]:
    """Everything the gate has to say of one test and op."""
    evidence = [e for e in known.evidence if e.op == judged.op and e.verdict is GradVerdict.FAIL]
    reports = [r for r in known.reports if r.op == judged.op and r.verdict is GradVerdict.FAIL]
    if evidence or reports:
        if evidence:
            first, others = evidence[0], len(evidence) - 1
            more = f" and {count(others, 'more comparison')}" if others else ""
            text = (
                f"the gradient of {first.input} by {first.output} is wrong in {first.dtype} on {first.device}"
                f" ({first.mode}, order {first.order}){more}"
                f"{f': {first.reason}' if first.reason else ''}"
            )
        else:
            text = reports[0].reason or "a gradient check failed"
        failed = (evidence or reports)[0]
        # Put together here, because a journal may say anything.
        again = run_again(judged.test).plus("--karat-grad-seed", str(failed.seed))
        yield _finding("grad-failed", judged, text, {"seed": failed.seed}, again)
    lacking = [need for need in judged.needs if need.state in KINDS]
    if judged.skip_reason is not None and lacking:
        reason = judged.skip_reason
        names = [need.input for need in lacking if need.input != "*"]
        slow = f"; {TOO_SLOW}" if is_slow(reason) else ""
        text = (
            f"skips its gradient check of {listed(names) or 'all inputs'} ({reason!r}),"
            f" and no entry of exemptions.toml covers it{slow}"
        )
        numbers = {"inputs": ", ".join(names), "reason": reason}
        yield _finding("skip-without-exemption", judged, text, numbers, "edit exemptions.toml")
        return
    kinds: dict[str, list[Need]] = {}
    for need in lacking:
        kinds.setdefault(KINDS[need.state], []).append(need)
    if evidence or reports:  # a check that failed is the reason why there is no evidence, and has been reported
        kinds.pop("evidence-missing", None)
    yield from (_lacking(kind, judged, known, mine) for kind, mine in kinds.items())
    met = bool(judged.needs) and all(need.state == "evidence" for need in judged.needs)
    if judged.skip_reason is not None and met:
        text = "is marked as skipping its gradient check, but has evidence for every input; remove skip_check_grad_ci"
        stale = _finding("exemption-stale", judged, text, {}, Command("edit", judged.file))
        yield replace(stale, severity=Severity.WARN, metric=None)


def _finding(kind: str, judged: GatedTest, text: str, numbers: Mapping[str, str | int], after: str) -> Finding:
    return fail(
        kind,
        f"{labelled(judged.test, judged.op)}: {text}",
        path=judged.file,
        metric=judged.op or None,
        where=judged.test,
        numbers={**numbers, "line": judged.line},
        next=str(after),
    )


def _lacking(kind: str, judged: GatedTest, known: KnownTest, needs: Sequence[Need]) -> Finding:
    """`no gradient evidence in float64 for X, Y on cuda; why`."""
    names = [need.input for need in needs if need.input != "*"]
    devices = listed(need.device for need in needs if need.device)
    why = "; ".join(dict.fromkeys(need.why for need in needs if need.why))
    worst = min(known.outcomes, key=lambda one: ("failed", "skipped", "passed").index(one.outcome), default=None)
    if not why and judged.ran < judged.total:
        why = f"{judged.total - judged.ran} of its {judged.total} tests were not run"
    elif not why and worst is not None and worst.outcome != "passed":
        verb = "failed" if worst.outcome == "failed" else "was skipped"
        why = f"{worst.item.rpartition('::')[2]} {verb}{f': {worst.reason}' if worst.reason else ''}"
    elif not why:
        why = "its gradient checks compared other inputs" if known.reports else "no gradient check finished in it"
    on = f" on {devices}" if devices else ""
    text = f"no gradient evidence in float64 for {listed(names) or 'any input'}{on}; {why}"
    numbers: dict[str, str | int] = {"inputs": ", ".join(names), "ran": judged.ran, "total": judged.total}
    return _finding(kind, judged, text, numbers, run_again(judged.test).plus("--karat-policy"))


def of_plain_test(known: KnownTest) -> Iterator[Finding]:
    """A check that failed in a test that is no op test; one that passed all the same may have meant to."""
    for op in sorted({one.op for one in known.reports}):
        if names := unasked_outputs([known], op):
            text = f"{labelled(known.test, op)}: no evidence for the output {few(names, 3)}; {_UNASKED}"
            yield warn("check-narrowed", text, path=known.test.partition("::")[0], where=known.test, metric=op)
    failed = next((one for one in known.reports if one.verdict is GradVerdict.FAIL), None)
    if failed is None:
        return
    noticed = any(one.outcome == "failed" for one in known.outcomes)
    ignored = "a gradient check failed, but the test passed; use .require() unless it is meant to fail"
    yield Finding(
        kind="grad-failed",
        severity=Severity.FAIL if noticed else Severity.WARN,
        message=f"{labelled(known.test, failed.op)}: {failed.reason or 'a gradient check failed' if noticed else ignored}",
        path=known.test.partition("::")[0],
        metric=failed.op if noticed else None,
        where=known.test,
        numbers={"seed": failed.seed},
        next=str(run_again(known.test).plus("--karat-grad-seed", str(failed.seed))),
    )
