"""JSON of a replay, schema `karat.replay/1`; the published schema is in karat/schemas."""

from __future__ import annotations

from collections import Counter
from typing import Any

from karat.findings import Severity
from karat.replay.outcome import Outcome, Replayed, ReplayReport
from karat.report.plain import encode, finding_json
from karat.report.tensor_rows import comparison_json

SCHEMA = "karat.replay/1"


def document(report: ReplayReport) -> dict[str, Any]:
    """The report as plain data."""
    outcomes = Counter(case.outcome for case in report.cases)
    severities = Counter(f.severity for f in report.all_findings())
    return {
        "schema": SCHEMA,
        "bundle": report.bundle,
        "runner": report.runner,
        "exit_code": int(report.exit_code),
        "totals": {
            "cases": len(report.cases),
            "compared": sum(len(case.comparisons) for case in report.cases),
            "outcomes": {o.value: outcomes[o] for o in Outcome},
            "findings": {s.value: severities[s] for s in Severity},
        },
        "findings": [finding_json(f) for f in report.findings],
        "cases": [_case(case) for case in report.cases],
    }


def render(report: ReplayReport) -> bytes:
    """The JSON text."""
    return encode(document(report))


def _case(case: Replayed) -> dict[str, Any]:
    identity = case.identity
    return {
        "path": case.path,
        "suite": identity.suite,
        "flow": identity.flow,
        "test": identity.test,
        "subtest": identity.subtest,
        "outcome": case.outcome.value,
        "seconds": round(case.seconds, 3),
        "work": case.work,
        "findings": [finding_json(f) for f in case.findings],
        "tensors": [{"name": c.name, **comparison_json(c)} for c in case.comparisons],
    }
