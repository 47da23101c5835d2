"""JSON of a check, schema `karat.check/1`; the published schema is in karat/schemas."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from karat.checks.report import Checked, CheckReport
from karat.compare.gate.result import Deviation, MetricResult, Outcome
from karat.findings import Severity
from karat.report.json import finding_json

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
            "outcomes": {o.value: outcomes[o] for o in Outcome},
            "findings": {s.value: severities[s] for s in Severity},
        },
        "findings": [finding_json(f) for f in report.findings],
        "checks": [_checked(c) for c in report.checks],
    }


def render(report: CheckReport) -> bytes:
    """The JSON text. NaN and infinities, which JSON has no word for, become texts."""
    whole = _sayable(document(report))
    return msgspec.json.format(msgspec.json.encode(whole), indent=2) + b"\n"


def _sayable(value: Any) -> Any:
    """The same without what JSON cannot carry: lone surrogates, NaN, infinities."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_sayable(key): _sayable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_sayable(item) for item in value]
    if isinstance(value, float) and not abs(value) < float("inf"):
        return str(value)
    return value


def _checked(c: Checked) -> dict[str, Any]:
    return {
        "actual": c.actual,
        "golden": c.golden,
        "outcome": c.outcome.value,
        "shape": c.shape,
        "refresh": c.refresh,
        "findings": [finding_json(f) for f in c.findings],
        "metrics": [_result(r) for r in c.results],
    }


def _result(r: MetricResult) -> dict[str, Any]:
    return {
        "metric": r.metric,
        "outcome": r.outcome.value,
        "kind": r.kind or None,
        "check": r.check or None,
        "tolerance": r.tolerance or None,
        "rule": r.rule,
        "origin": r.origin,
        "noun": r.noun,
        "total": r.total,
        "compared": r.compared,
        "failed": r.failed,
        "missing": r.missing,
        "not_finite": r.broken,
        "better": r.better,
        "allowed": r.allowed,
        "used": r.used,
        "likely": r.likely,
        "because": r.because,
        "exempted": r.exempted.value if r.exempted else None,
        "first": None if r.first is None else _deviation(r.first),
        "worst": None if r.worst is None else _deviation(r.worst),
        "deviations": [_deviation(d) for d in r.deviations],
        "median": None if r.medians is None else msgspec.to_builtins(r.medians),
    }


def _deviation(d: Deviation) -> dict[str, Any]:
    return {
        "place": d.place,
        "how": d.how,
        "expected": d.expected,
        "got": d.got,
        "error": d.error,
        "relative": d.relative,
        "tolerance": d.tolerance,
    }
