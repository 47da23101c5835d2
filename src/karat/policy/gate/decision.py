"""The gate: evidence × exemptions → findings, as text and as schema karat.policy-gate/1.

What a run did not select is not judged, unless the caller says that these journals are the whole suite.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from datetime import date
from typing import get_args

import msgspec

from karat.findings import ExitCode, Finding, Severity, exit_code, fail, info, warn
from karat.policy.evidence import KnownTest, Merged
from karat.policy.exemptions import ByOp, Exemption, ExemptionFile
from karat.policy.gate import needs
from karat.policy.gate.lists import OpBaseline, about_entries, judge_ops, unlisted_limits
from karat.policy.gate.needs import GatedTest, Need, State, needs_of
from karat.report.words import count, grouped_lines

SCHEMA = "karat.policy-gate/1"
_GRAVITY: tuple[State, ...] = get_args(State)
_WORDS = {ExitCode.OK: "passed", ExitCode.FAIL: "failed", ExitCode.CANNOT_VERIFY: "not verified"}


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    exemptions: ExemptionFile = msgspec.field(default_factory=ExemptionFile)
    devices: tuple[str, ...] = ()
    today: date
    complete: bool = False  # These journals are the whole suite: what is not in them was not run.
    baseline: OpBaseline = msgspec.field(default_factory=OpBaseline)
    findings: tuple[Finding, ...] = ()  # What could not be had, such as a namespace.


class GateReport(msgspec.Struct, frozen=True, kw_only=True):
    tests: tuple[GatedTest, ...]
    findings: tuple[Finding, ...]
    journals: int
    sessions: int
    compared: int  # Comparisons that count as evidence.
    plain: int = 0  # Tests that are no op tests and check gradients: `karat.gradcheck` in a function, say.
    proved: int = 0  # How many of those have evidence.
    complete: bool
    ops: int = 0  # Operators of the registered namespaces.

    @property
    def exit_code(self) -> ExitCode:
        return exit_code(self.findings)


def gate(merged: Merged, policy: Policy) -> GateReport:
    """Hold what journals say against the rule."""
    active = [one for one in policy.exemptions.entries if not one.has_expired(policy.today)]
    named = ByOp(active)
    op_tests = [known for known in merged.tests.values() if known.is_op_test]
    small = needs.small_ops(merged.tests.values())
    judged = [one for known in op_tests for one in _judge(known, active, named, policy, small)]
    found = [*merged.findings, *policy.findings, *policy.exemptions.findings]
    for one in judged:
        found += needs.of_test(one, merged.tests[one.test])
    if left_out := [one.test for one in judged if one.state == "not-selected"]:
        text = f"{needs.listed(left_out, most=3)}: not run, or only in part; not judged"
        found.append(info("not-selected", text, numbers={"tests": len(left_out)}))
    # Of other tests no evidence is required; what they show counts, and a gradient that is wrong is wrong.
    plain = [known for known in merged.tests.values() if known.reports and not known.is_op_test]
    proved = sum(any(e.counts for e in known.evidence) for known in plain)
    found += [one for known in plain for one in needs.of_plain_test(known)]
    if not policy.complete:  # another test, which was not run, may give the op more
        found += [warn("evidence-weak", f"op {op}: {needs.SMALL}", metric=op) for op in sorted(small)]
    found += needs.other_functions(merged.tests.values())
    found += unlisted_limits(merged, named, today=policy.today)
    found += about_entries(merged, judged, policy)
    failures = [one for one in found if one.kind == "grad-failed" and one.severity is Severity.FAIL]
    wrong = frozenset(one.metric for one in failures if one.metric)
    found += judge_ops(merged, named, policy.baseline, complete=policy.complete, wrong=wrong)
    none = not proved and all(one.state == "not-selected" for one in judged)
    if none and not any(one.kind in {"nothing-compared", "grad-failed"} for one in found):
        ran = f"{count(merged.ran, 'test')} run, none with evidence" if merged.ran else "no test was run"
        some = f" ({len(judged)} not selected, or only in part)" if judged else ""
        text = f"expected gradient checks in {count(merged.journals, 'journal')}, found none that can be judged{some}: {ran}"
        after = "pytest --karat-evidence=DIR  # tests that inherit from karat.OpTest, or call karat.gradcheck"
        found.append(fail("nothing-compared", text, next=after))
    evidence = [e for known in merged.tests.values() for e in known.evidence]
    return GateReport(
        tests=tuple(judged),
        findings=tuple(sorted(found, key=lambda one: one.severity.rank)),
        journals=merged.journals,
        sessions=merged.sessions,
        compared=sum(e.counts for e in evidence),
        plain=len(plain),
        proved=proved,
        complete=policy.complete,
        ops=len(policy.baseline.ops),
    )


def _judge(
    known: KnownTest, active: Sequence[Exemption], named: ByOp, policy: Policy, small: Collection[str]
) -> Iterator[GatedTest]:
    for op in known.ops or ("",):
        mine = named.about(op) if op else active
        each = needs_of(known, op, policy.devices, mine, small=policy.complete and op in small)
        if not each and not known.declared:
            # A test that was never set up (skipped, failed, not run) has said nothing of its inputs.
            each = (Need(input="*", dtype="", state="missing"),)
            for entry in mine:
                # Without an op there is only the name of the test to go by, and a glob would cover whatever was skipped.
                about = entry.covers("gradient", op) and entry.speaks_of(known.test) if op else entry.names(known.test)
                if about and entry.rule == "gradient" and not entry.narrow:
                    why = f"{entry.kind}: {entry.reason}"
                    each = (Need(input="*", dtype="", state="exempt", why=why, line=entry.line),)
                    break
        if not known.is_whole and not policy.complete:
            # Of a test that was run in part, what it has shown counts, and the rest is not judged.
            each = tuple(
                need
                if known.ran > 0 and need.state in {"evidence", "exempt", "failed"}
                else msgspec.structs.replace(need, state="not-selected", line=None)
                for need in each
            )
        declared = [one for one in known.declared if one.op == op]
        first = declared[0] if declared else None
        yield GatedTest(
            test=known.test,
            op=op,
            state=min((one.state for one in each), key=_GRAVITY.index, default="evidence"),
            needs=each,
            ran=known.ran,
            total=known.total,
            file=first.file if first else known.test.partition("::")[0],
            line=first.line if first else 0,
            skip_reason=next((one.skip_reason for one in declared if one.skip_reason), None),
        )


def lines(gated: GateReport, *, today: date | None = None) -> Iterator[str]:
    yield from grouped_lines((finding, finding.message) for finding in gated.findings)
    lacking = [one for one in gated.tests if one.state in needs.KINDS]
    if lacking:
        first, more = lacking[0], len(lacking) - 1
        names = [n.input for n in first.needs if n.state in needs.KINDS and n.input != "*"]
        yield ""
        yield f"{needs.RULE} Three ways to fix {first.test}{f' (and {more:,} more)' if more else ''}:"
        ways = needs.ways(first.test, first.op, names, reason=first.skip_reason or "", today=today)
        yield from (f"  {line}" for line in ways)
    entries = [f.numbers["entry"] for f in gated.findings if f.numbers.get("entry")]
    if entries:
        yield ""
        yield "A limit that a test sets itself needs an entry in exemptions.toml, and an approving review:"
        yield from (f"  {line}" for line in str(entries[0]).splitlines())
    if gated.findings:
        yield ""
    # Whoever sets the clock back (KARAT_TODAY) lets expired entries hold; it is seen.
    other_day = today is not None and today != date.today()  # noqa: DTZ011 - the day where the person is
    states = Counter(one.state for one in gated.tests)
    none = sum(one.state == "evidence" and not one.needs for one in gated.tests)
    others = {
        "without floating-point inputs": none,
        "exempt": states["exempt"],
        "not selected": states["not-selected"],
        "without evidence": len(gated.tests) - states["evidence"] - states["exempt"] - states["not-selected"],
    }
    parts = [f"{states['evidence'] - none:,} with evidence"]
    parts += [f"{number:,} {words}" for words, number in others.items() if number]
    tests = [f"{count(len(gated.tests), 'op test')}: {', '.join(parts)}"] if gated.tests or not gated.plain else []
    if gated.plain:
        noun = "other test" if gated.tests else "test"
        tests.append(f"{count(gated.plain, noun)} with gradient checks, {gated.proved:,} with evidence")
    ops = f"; {count(gated.ops, 'operator')} in the namespaces" if gated.ops else ""
    yield (
        f"gate {_WORDS[gated.exit_code]}: {'; '.join(tests)};"
        f" {count(gated.compared, 'comparison')} in {count(gated.journals, 'journal')}"
        f" of {count(gated.sessions, 'session')}{ops}{f'; as of {today}' if other_day else ''}"
    )
