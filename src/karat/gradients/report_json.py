"""JSON of a gradient report, schema `karat.grad-report/1`; the published schema is in karat/schemas."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

import msgspec

from karat.gradients.report import Comparison, Diagnosis, GradReport, Property

SCHEMA = "karat.grad-report/1"


def document(report: GradReport) -> bytes:
    """The report as JSON text."""
    return msgspec.json.format(msgspec.json.encode(_plain(plain(report))), indent=2) + b"\n"


def plain(report: GradReport) -> dict[str, Any]:
    """The report as plain data; numbers may still be NaN or infinite."""
    return {
        "schema": SCHEMA,
        "op": report.op,
        "framework": report.framework,
        "device": report.device,
        "seed": str(report.seed),
        "identity": report.identity,
        "verdict": report.verdict.value,
        "reason": report.reason,
        "vacuous": report.vacuous,
        "smallest_error": report.smallest_error,
        "forwards": report.forwards,
        "backwards": report.backwards,
        "seconds": round(report.seconds, 6),
        "comparisons": [_comparison(one) for one in report.comparisons],
        "properties": [_property(one) for one in report.properties],
        "diagnoses": [_diagnosis(one) for one in report.diagnoses],
        "excluded": [{"name": one.name, "why": one.why} for one in report.excluded],
        "notes": list(report.notes),
    }


def _comparison(one: Comparison) -> dict[str, Any]:
    return {
        "input": one.input,
        "output": one.output,
        "dtype": one.dtype,
        "mode": one.mode,
        "order": one.order,
        "verdict": one.verdict.value,
        "reason": one.reason,
        "counts": one.counts,
        "oracle": one.oracle,
        "strength": one.strength,
        "error": one.error,
        "tolerance": one.tolerance,
        "scale": one.scale,
        "smallest_error": one.smallest_error,
        "probes": one.probes,
        "controls": dict(one.controls),
        "vacuous": one.vacuous,
        "kinks": one.kinks,
        "widened": one.widened,
    }


def _property(one: Property) -> dict[str, Any]:
    return {
        "name": one.name,
        "verdict": one.verdict.value,
        "detail": one.detail,
        "measured": one.measured,
        "bound": one.bound,
        "dtype": one.dtype,
    }


def _diagnosis(one: Diagnosis) -> dict[str, Any]:
    return {
        "input": one.input,
        "output": one.output,
        "dtype": one.dtype,
        "coordinate": None if one.coordinate is None else list(one.coordinate),
        "expected": one.expected,
        "found": one.found,
        "hint": one.hint,
        "forwards": one.forwards,
        "replay": one.replay,
    }


def _plain(value: Any) -> Any:
    """What JSON can say: NaN and infinities as text, complex numbers as two, lone surrogates escaped."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, Mapping):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, complex):
        return {"real": _plain(value.real), "imag": _plain(value.imag)}
    if isinstance(value, float):
        # numpy's own float64 is a float, too; JSON is to have plain ones.
        return float(value) if isfinite(value) else str(float(value))
    return value
