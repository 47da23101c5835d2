"""Gating: evidence × exemptions → findings. Pure: no I/O, no clock.

Nothing is said of what a run did not select, unless the caller says that these journals are the whole suite.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import date
from typing import Any

import msgspec

from karat.findings import ExitCode, Finding, Severity, exit_code
from karat.gradients.report import GradVerdict
from karat.policy.evidence import Known, Merged
from karat.policy.exemptions import ByOp, Exemption, Exemptions
from karat.policy.gate import exemptions as gate_exemptions, limits, needs, needs as gate_sentences
from karat.policy.gate.baseline import Ratchet, judge_ops
from karat.policy.gate.needs import Need, State, needs_of
from karat.report.json import encode, finding_json
from karat.report.words import count

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
    found += limits.findings(merged, active, today=asked.today)
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


# DOC-HERE gate_report: What the gate found: for people as lines, for programs as schema karat.policy-gate/1.

SCHEMA = "karat.policy-gate/1"
_SHOWN = 20
_LACKING = frozenset({"missing", "no-grad", "float64", "weak", "vacuous", "inconclusive"})
_WORDS = {ExitCode.OK: "passed", ExitCode.FAIL: "failed", ExitCode.CANNOT_VERIFY: "not verified"}


def document(gated: Gated) -> bytes:
    """The JSON text of a report."""
    plain: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(gated, findings=()))
    return encode(
        {
            "schema": SCHEMA,
            "exit_code": int(gated.exit_code),
            **plain,
            "findings": [finding_json(finding) for finding in gated.findings],
        }
    )


def lines(gated: Gated, *, today: date | None = None) -> Iterator[str]:
    """The report for people: findings, the ways out, the counts."""
    yield from _findings(gated.findings)
    lacking = [one for one in gated.tests if one.state in _LACKING]
    if lacking:
        yield ""
        yield f"{needs.RULE} Three ways to set {_named(lacking)} right:"
        yield from (f"  {line}" for line in _ways(lacking[0], today))
    entries = [f.numbers["entry"] for f in gated.findings if f.numbers.get("entry")]
    if entries:
        yield ""
        yield "A limit of a test's own needs an entry in exemptions.toml, and an approving review:"
        yield from (f"  {line}" for line in str(entries[0]).splitlines())
    if gated.findings:
        yield ""
    yield f"{_last(gated)}{_as_of(today)}"


def _findings(findings: Sequence[Finding]) -> Iterator[str]:
    kinds: dict[tuple[Severity, str], list[str]] = {}
    for finding in findings:
        kinds.setdefault((finding.severity, finding.kind), []).append(finding.message)
    for (severity, kind), said in kinds.items():
        yield from (f"{severity.value:4}  {kind}: {message}" for message in said[:_SHOWN])
        if len(said) > _SHOWN:
            yield f"{severity.value:4}  {kind}: {len(said) - _SHOWN:,} more; --json F has all"


def _named(lacking: Sequence[Judged]) -> str:
    more = len(lacking) - 1
    return f"{lacking[0].test}{f' (and {more:,} more)' if more else ''}"


def _ways(one: Judged, today: date | None) -> list[str]:
    names = [n.input for n in one.needs if n.state in _LACKING and n.input != "*"]
    return needs.ways(one.test, one.op, names, reason=one.skip_reason or "", today=today)


def _as_of(today: date | None) -> str:
    """Whoever sets the clock back (KARAT_TODAY, --today) lets expired entries hold; it is seen."""
    said = today is not None and today != date.today()  # noqa: DTZ011 - the day where the person is
    return f"; as of {today}" if said else ""


def _last(gated: Gated) -> str:
    states = Counter(one.state for one in gated.tests)
    none = sum(one.state == "evidence" and not one.needs for one in gated.tests)
    parts = [f"{states['evidence'] - none:,} with evidence"]
    parts += [f"{none:,} without floating inputs"] if none else []
    parts += [f"{states['exempt']:,} exempt"] if states["exempt"] else []
    parts += [f"{states['not-selected']:,} not selected"] if states["not-selected"] else []
    lacking = len(gated.tests) - states["evidence"] - states["exempt"] - states["not-selected"]
    parts += [f"{lacking:,} without"] if lacking else []
    tests = count(len(gated.tests), "op test")
    ops = f"; {count(gated.ops, 'operator')} in the namespaces" if gated.ops else ""
    return (
        f"gate {_WORDS[gated.exit_code]}: {tests}: {', '.join(parts)}; {count(gated.compared, 'comparison')}"
        f" in {count(gated.journals, 'journal')} of {count(gated.sessions, 'session')}{ops}"
    )
