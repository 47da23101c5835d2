"""What the gate found: for people as lines, for programs as schema karat.policy-gate/1."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import date
from typing import Any

import msgspec

from karat.findings import ExitCode, Finding, Severity
from karat.policy import messages
from karat.policy.gating import Gated, Judged
from karat.report.plain import encode, finding_json
from karat.report.words import count

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
        yield f"{messages.RULE} Three ways to set {_named(lacking)} right:"
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
    return messages.ways(one.test, one.op, names, reason=one.skip_reason or "", today=today)


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
