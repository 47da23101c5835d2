"""Changes as JSON: schema karat.changes/1."""

from __future__ import annotations

from typing import Any

import msgspec

from karat.changes.change import Change, Step
from karat.changes.report import ChangesReport, Examined
from karat.changes.series import Observation, Series
from karat.report.plain import encode, finding_json

SCHEMA = "karat.changes/1"


def document(report: ChangesReport) -> bytes:
    """The report as schema karat.changes/1."""
    return encode(
        {
            "schema": SCHEMA,
            "exit_code": int(report.exit_code),
            "seconds": round(report.seconds, 3),
            "options": {
                "false_alarms": report.options.false_alarms,
                "smallest": report.options.smallest,
                "online": report.online,
                "fail_on": list(report.fail_on),
            },
            "series": [_series(entry) for entry in report.entries],
            "findings": [finding_json(finding) for finding in report.findings],
            "notes": list(report.notes),
        }
    )


def _series(entry: Examined) -> dict[str, Any]:
    series, analysis = entry.series, entry.analysis
    return {
        "metric": series.metric,
        "source": series.source,
        "unit": series.unit,
        "better": series.better,
        "points": [_point(point) for point in series.observations],
        "steps": [_step(series, step) for step in analysis.steps],
        "levels": [_level(series, level) for level in analysis.levels],
        "changes": [_change(series, change) for change in analysis.changes],
        "outliers": [series.observations[index].label for index in analysis.outliers],
        "noise": analysis.noise,
        "notes": list(analysis.notes),
        "newest": _newest(entry),
    }


def _point(point: Observation) -> dict[str, Any]:
    return {
        "label": point.label,
        "outcome": point.outcome.value,
        "values": list(point.values),
        "signature": point.signature,
        "when": point.when.isoformat() if point.when else None,
        "log": point.log,
    }


def _step(series: Series, step: Step) -> dict[str, Any]:
    label = series.observations
    return {
        "last_good": label[step.last_good].label,
        "first_bad": label[step.first_bad].label,
        "earliest": label[step.earliest].label,
        "latest": label[step.latest].label,
        "before": step.before.value,
        "after": step.after.value,
        "absolute": step.absolute,
        "relative": step.relative,
        "p_value": step.p_value,
        "confidence": step.confidence,
    }


def _level(series: Series, level: Any) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(level)
    ends = {end: series.observations[plain[end]].label for end in ("first", "last")}
    return {**plain, **ends}


def _change(series: Series, change: Change) -> dict[str, Any]:
    return {
        "kind": change.kind.value,
        "first": series.observations[change.first].label,
        "last": series.observations[change.last].label,
        "steps": list(change.steps),
        "signature": change.signature,
        "confidence": change.confidence,
        "message": change.message,
    }


def _newest(entry: Examined) -> dict[str, Any] | None:
    newest = entry.newest
    if newest is None:
        return None
    return {
        "verdict": newest.verdict,
        "p_value": newest.p_value,
        "step": _step(entry.series, newest.step) if newest.step else None,
        "message": newest.message,
        "points_needed": newest.points_needed,
    }
