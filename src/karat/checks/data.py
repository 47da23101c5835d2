"""JSON of a check, schema `karat.check/1`."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from karat.checks.report import CheckReport
from karat.compare.gate.result import CheckOutcome, MetricResult
from karat.findings import Severity
from karat.report.json import encode, finding_json

SCHEMA = "karat.check/1"


def document(report: CheckReport) -> dict[str, Any]:
    """The report as plain data."""
    outcomes = Counter(c.outcome for c in report.checks)
    severities = Counter(f.severity for f in report.all_findings())
    return {
        "schema": SCHEMA,
        "outcome": report.outcome.value,
        "exit_code": int(report.exit_code),
        "totals": {
            "goldens": len(report.checks),
            "compared": report.compared,
            "outcomes": {o.value: outcomes[o] for o in CheckOutcome},
            "findings": {s.value: severities[s] for s in Severity},
        },
        "findings": [finding_json(f) for f in report.findings],
        "checks": [
            {
                "actual": c.actual,
                "golden": c.golden,
                "outcome": c.outcome.value,
                "shape": c.shape,
                "refresh": c.refresh,
                "findings": [finding_json(f) for f in c.findings],
                "metrics": [_result(r) for r in c.results],
            }
            for c in report.checks
        ],
    }


def render(report: CheckReport) -> bytes:
    """The JSON text. NaN and infinities, which JSON has no word for, become texts."""
    return encode(document(report), odd_numbers_as_text=True)


def _result(result: MetricResult) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(result)
    del plain["exemption"]
    for name in ("kind", "check", "tolerance"):
        plain[name] = plain[name] or None
    plain["not_finite"] = plain.pop("broken")
    plain["median"] = plain.pop("medians")
    return plain
