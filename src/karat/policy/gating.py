"""Gating: evidence × exemptions → findings. Pure: no I/O, no clock.

Nothing is said of what a run did not select, unless the caller says that these journals are the whole suite.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date

import msgspec

from karat.findings import ExitCode, Finding, Severity, exit_code
from karat.gradients.report import GradVerdict
from karat.policy import gate_exemptions, gate_limits, gate_sentences
from karat.policy.exemptions import ByOp, Exemption, Exemptions
from karat.policy.gate_needs import Need, State, needs_of
from karat.policy.merging import Known, Merged
from karat.policy.ratchet import Ratchet, judge_ops

_GRAVITY: tuple[State, ...] = (
    "failed", "missing", "no-grad", "inconclusive", "vacuous", "weak", "float64", "not-selected", "exempt", "evidence",
)  # fmt: skip


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """One op test and one of its ops, judged."""

    test: str
    op: str
    """Empty where the test never came to say it."""
    state: State
    """The gravest of its needs; `evidence` also where it needs nothing."""
    needs: tuple[Need, ...] = ()
    ran: int = 0
    total: int = 0
    file: str = ""
    line: int = 0
    skip_reason: str | None = None


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What the gate is to hold evidence against."""

    exemptions: Exemptions = msgspec.field(default_factory=Exemptions)
    devices: tuple[str, ...] = ()
    today: date
    complete: bool = False
    """These journals are the whole suite: what is not in them was not run."""
    ratchet: Ratchet = msgspec.field(default_factory=Ratchet)
    findings: tuple[Finding, ...] = ()
    """What could not be had, such as a namespace."""


class Gated(msgspec.Struct, frozen=True, kw_only=True):
    """What the gate came to."""

    tests: tuple[Judged, ...]
    findings: tuple[Finding, ...]
    journals: int
    sessions: int
    compared: int
    """Comparisons that count as evidence."""
    complete: bool
    ops: int = 0
    """Operators of the registered namespaces."""

    @property
    def exit_code(self) -> ExitCode:
        """As findings say."""
        return exit_code(self.findings)


def gate(merged: Merged, asked: Asked) -> Gated:
    """Holds what journals say against the rule."""
    active = [one for one in asked.exemptions.entries if not one.has_expired(asked.today)]
    named = ByOp(active)
    judged = [
        one
        for known in merged.tests.values()
        if known.is_op_test
        for one in _judged(known, active, named, asked)
    ]
    found = [*merged.findings, *asked.findings, *asked.exemptions.findings]
    for one in judged:
        found += gate_sentences.of_test(one, merged.tests[one.test])
    found += gate_sentences.not_selected(judged)
    found += _plain_failures(merged)
    found += gate_limits.findings(merged, active, today=asked.today)
    found += gate_exemptions.findings(merged, judged, asked.exemptions.entries, today=asked.today, complete=asked.complete, ops=asked.ratchet.names)  # fmt: skip
    wrong = frozenset(
        one.metric for one in found if one.metric and one.kind == "grad-failed" and one.severity is Severity.FAIL
    )  # fmt: skip
    found += judge_ops(merged, active, asked.ratchet, complete=asked.complete, told=wrong)
    if all(one.state == "not-selected" for one in judged) and not found_nothing(found):
        found.append(_nothing(merged, len(judged)))
    evidence = [e for known in merged.tests.values() for e in known.evidence]
    return Gated(
        tests=tuple(judged),
        findings=tuple(sorted(found, key=lambda one: one.severity.rank)),
        journals=merged.journals,
        sessions=merged.sessions,
        compared=sum(e.counts for e in evidence),
        complete=asked.complete,
        ops=len(asked.ratchet.ops),
    )


def found_nothing(found: Sequence[Finding]) -> bool:
    """Whether somebody said already that there was nothing."""
    return any(one.kind == "nothing-compared" for one in found)


def _judged(
    known: Known, active: Sequence[Exemption], named: ByOp, asked: Asked
) -> Iterator[Judged]:
    for op in known.ops or ("",):
        mine = named.about(op) if op else active
        needs = needs_of(known, op, asked.devices, mine) or _unknown(known, op, mine)
        if not known.is_whole and not asked.complete:
            needs = tuple(_left_out(need, begun=known.ran > 0) for need in needs)
        declared = [one for one in known.declared if one.op == op]
        first = declared[0] if declared else None
        yield Judged(
            test=known.test,
            op=op,
            state=min((one.state for one in needs), key=_GRAVITY.index, default="evidence"),
            needs=needs,
            ran=known.ran,
            total=known.total,
            file=first.file if first else known.test.partition("::")[0],
            line=first.line if first else 0,
            skip_reason=next((one.skip_reason for one in declared if one.skip_reason), None),
        )


def _unknown(known: Known, op: str, active: Sequence[Exemption]) -> tuple[Need, ...]:
    """A test that was never set up (skipped, failed, not run) has said nothing of its inputs."""
    if known.declared:
        return ()
    for entry in active:
        # Without an op there is only the name of the test to go by, and a glob would cover whatever was skipped.
        about = (
            entry.covers("gradient", op) and entry.speaks_of(known.test)
            if op
            else entry.names(known.test)
        )
        if about and entry.rule == "gradient" and not entry.narrow:
            why = f"{entry.kind}: {entry.reason}"
            return (Need(input="*", dtype="", state="exempt", why=why, line=entry.line),)
    return (Need(input="*", dtype="", state="missing"),)


def _left_out(need: Need, *, begun: bool) -> Need:
    if begun and (need.is_met or need.state == "failed"):
        return need
    return msgspec.structs.replace(need, state="not-selected", line=None)


def _plain_failures(merged: Merged) -> Iterator[Finding]:
    """Tests that are no op tests are left alone; a check that failed in one that passed is worth a word."""
    for known in merged.tests.values():
        if known.is_op_test:
            continue
        failed = [one for one in known.reports if one.verdict is GradVerdict.FAIL]
        if failed and not any(one.outcome == "failed" for one in known.outcomes):
            yield gate_sentences.ignored(known.test, failed[0])


def _nothing(merged: Merged, left: int) -> Finding:
    ran = f"{merged.ran} tests were run, none of them a whole op test" if merged.ran else "no test was run"  # fmt: skip
    some = f" ({left} were not selected, or in part)" if left else ""
    return Finding(
        kind="nothing-compared",
        severity=Severity.FAIL,
        message=f"expected op tests in {merged.journals} journals, found none that can be judged{some}: {ran}",
        next="pytest --karat-evidence=DIR  # the tests that inherit from karat.OpTest",
    )
