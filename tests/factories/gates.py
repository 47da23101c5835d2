"""Gates: what the gate says of records and exemptions."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

from factories.evidence import journal
from karat.findings import Finding, Severity
from karat.policy.evidence import merge
from karat.policy.exemptions import Exemption, ExemptionFile
from karat.policy.gate.decision import GateReport, Policy, gate
from karat.policy.journal import Record

TODAY = date(2026, 11, 15)
WEAK = {"strength": "weak", "oracle": "user"}


def entry(**said: Any) -> Exemption:
    usual: dict[str, Any] = {
        "op": "tanh",
        "reason": "it has its reasons",
        "owner": "@a",
        "issue": "https://x.org/1",
        "expires": date(2027, 1, 1),
        "path": "exemptions.toml",
        "line": 1,
    }
    return Exemption(**{**usual, **said})


def gated(tmp_path: Path, records: list[Record], *entries: Exemption, **asked: Any) -> GateReport:
    journal(tmp_path / "evidence", records)
    held = ExemptionFile(entries=entries)
    return gate(merge([tmp_path / "evidence"]), Policy(exemptions=held, today=TODAY, **asked))


def told(result: GateReport, *, least: Severity = Severity.WARN) -> list[tuple[str, str]]:
    return [(f.severity.value, f.kind) for f in result.findings if f.severity.rank <= least.rank]


def the(result: GateReport, kind: str) -> Finding:
    (found,) = [one for one in result.findings if one.kind == kind]
    return found
