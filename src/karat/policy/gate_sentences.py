"""Sentences of the gate: one finding per test and cause, with the ways out of it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from karat.findings import Finding, Severity
from karat.gradients.replaying import Focus
from karat.gradients.report import GradVerdict
from karat.policy import messages
from karat.policy.exemption_rules import TOO_SLOW, is_slow
from karat.policy.gate_needs import Need, State
from karat.policy.merging import Known
from karat.policy.records import Evidence, Reported

if TYPE_CHECKING:
    from karat.policy.gating import Judged

_KINDS: dict[State, str] = {
    "missing": "evidence-missing",
    "no-grad": "evidence-missing",
    "float64": "evidence-missing",
    "weak": "evidence-weak",
    "vacuous": "evidence-vacuous",
    "inconclusive": "evidence-inconclusive",
}


def of_test(judged: Judged, known: Known) -> Iterator[Finding]:
    """Everything the gate has to say of one test and op."""
    wrong = _failed(judged, known)
    if wrong is not None:
        yield wrong
    lacking = [need for need in judged.needs if need.state in _KINDS]
    if judged.skip_reason is not None and lacking:
        yield _skips(judged, lacking)
        return
    kinds = dict.fromkeys(_KINDS[need.state] for need in lacking)
    for kind in kinds:
        mine = [need for need in lacking if _KINDS[need.state] == kind]
        # A check that failed is the reason why there is no evidence, and has been told.
        if not (wrong and kind == "evidence-missing"):
            yield _lacks(kind, judged, known, mine)
    met = bool(judged.needs) and all(need.state == "evidence" for need in judged.needs)
    if judged.skip_reason is not None and met:
        yield _needless_skip(judged)


def _lacks(kind: str, judged: Judged, known: Known, needs: Sequence[Need]) -> Finding:
    why = _because(judged, known, needs)
    devices = sorted({need.device for need in needs if need.device})
    names = [need.input for need in needs if need.input != "*"]
    message = messages.lacks(judged.test, judged.op, names, why=why, devices=devices)
    return Finding(
        kind=kind,
        severity=Severity.FAIL,
        message=message,
        path=judged.file,
        metric=judged.op or None,
        where=judged.test,
        numbers={
            "inputs": ", ".join(names),
            "ran": judged.ran,
            "total": judged.total,
            "line": judged.line,
        },
        next=f"{messages.run_again(judged.test)} --karat-policy",
    )


def _because(judged: Judged, known: Known, needs: Sequence[Need]) -> str:
    said = dict.fromkeys(need.why for need in needs if need.why)
    if said:
        return "; ".join(said)
    if judged.ran < judged.total:
        return f"{judged.total - judged.ran} of its {judged.total} tests were not run"
    for outcome, verb in (("failed", "failed"), ("skipped", "was skipped")):
        for one in known.outcomes:
            if one.outcome == outcome:
                name = one.item.rpartition("::")[2]
                return f"{name} {verb}{f': {one.reason}' if one.reason else ''}"
    if not known.reports:
        return "no gradient check came to its end in it"
    return "its gradient checks compared other inputs"


def _skips(judged: Judged, lacking: Sequence[Need]) -> Finding:
    reason = judged.skip_reason or ""
    names = [need.input for need in lacking if need.input != "*"]
    slow = f"; {TOO_SLOW}" if is_slow(reason) else ""
    return Finding(
        kind="skip-without-exemption",
        severity=Severity.FAIL,
        message=(
            f"{messages.told(judged.test, judged.op)}: skips its gradient check of {messages.listed(names) or 'all inputs'}"
            f" ({reason!r}), and no entry of exemptions.toml covers it{slow}"
        ),
        path=judged.file,
        metric=judged.op or None,
        where=judged.test,
        numbers={"inputs": ", ".join(names), "reason": reason, "line": judged.line},
        next="edit exemptions.toml",
    )


def _needless_skip(judged: Judged) -> Finding:
    return Finding(
        kind="exemption-stale",
        severity=Severity.WARN,
        message=f"{messages.told(judged.test, judged.op)}: is said to skip its gradient check, and has evidence for every input; remove skip_check_grad_ci",
        path=judged.file,
        where=judged.test,
        numbers={"line": judged.line},
        next=f"edit {shlex.quote(judged.file)}",
    )


def _failed(judged: Judged, known: Known) -> Finding | None:
    evidence = [e for e in known.evidence if e.op == judged.op and e.verdict is GradVerdict.FAIL]
    reports = [r for r in known.reports if r.op == judged.op and r.verdict is GradVerdict.FAIL]
    if not evidence and not reports:
        return None
    return Finding(
        kind="grad-failed",
        severity=Severity.FAIL,
        message=f"{messages.told(judged.test, judged.op)}: {_what_failed(evidence, reports)}",
        path=judged.file,
        metric=judged.op or None,
        where=judged.test,
        numbers={"seed": (evidence or reports)[0].seed, "line": judged.line},
        next=_replayed(judged.test, evidence, reports),
    )


def _replayed(test: str, evidence: Sequence[Evidence], reports: Sequence[Reported]) -> str:
    """The command that makes the same probes again; put together here, because a journal may say anything."""
    again = messages.run_again(test)
    if evidence:
        one = evidence[0]
        aim = Focus(input=one.input, output=one.output, dtype=one.dtype)
        return f"{again} --karat-grad-seed {one.seed} --karat-grad-focus {shlex.quote(str(aim))}"
    return f"{again} --karat-grad-seed {reports[0].seed}"


def _what_failed(evidence: Sequence[Evidence], reports: Sequence[Reported]) -> str:
    if not evidence:
        return reports[0].reason or "a gradient check failed"
    first = evidence[0]
    others = len(evidence) - 1
    more = f" and {others:,} more comparison{'s' if others > 1 else ''}" if others else ""
    why = f": {first.reason}" if first.reason else ""
    return (
        f"the gradient of {first.input} by {first.output} is wrong in {first.dtype} on {first.device}"
        f" ({first.mode}, order {first.order}){more}{why}"
    )


def ignored(test: str, report: Reported) -> Finding:
    """A check failed, and its test passed: perhaps it meant to."""
    return Finding(
        kind="grad-failed",
        severity=Severity.WARN,
        message=f"{messages.told(test, report.op)}: a gradient check failed, and the test passed; use .require() unless it is meant to fail",
        path=test.partition("::")[0],
        where=test,
        numbers={"seed": report.seed},
        next=_replayed(test, (), [report]),
    )


def not_selected(judged: Sequence[Judged]) -> Iterator[Finding]:
    """One line for all that this run left out."""
    left = [one for one in judged if one.state == "not-selected"]
    if left:
        yield Finding(
            kind="not-selected",
            severity=Severity.INFO,
            message=f"{messages.listed((one.test for one in left), most=3)}: not run, or not all of it; nothing is said of it",
            numbers={"tests": len(left)},
        )
