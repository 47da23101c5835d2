"""JSON of a diff, schema `karat.diff/1`; the published schema is in karat/schemas."""

from __future__ import annotations

from collections import Counter
from typing import Any

from karat.compare.change import Change, Diff, Group, MetricChange, Verdict
from karat.diffs.report.rows import csv_rows
from karat.findings import Severity
from karat.report.json import encode, finding_json
from karat.tensors.report import comparison_json

SCHEMA = "karat.diff/1"


def document(diff: Diff) -> dict[str, Any]:
    """The diff as plain data."""
    return {
        "schema": SCHEMA,
        "old": diff.old,
        "new": diff.new,
        "totals": totals(diff),
        "findings": [finding_json(f) for f in diff.findings],
        "groups": [_group(g) for g in diff.groups],
        "files": [change_json(c) for c in diff.changes],
    }


def render(diff: Diff) -> bytes:
    """The JSON text."""
    return encode(document(diff))


def totals(diff: Diff) -> dict[str, Any]:
    """The counts people quote."""
    verdicts = Counter(c.verdict for c in diff.changes)
    severities = Counter(f.severity for f in diff.all_findings())
    rows = sum(1 for _ in csv_rows(diff))
    return {
        "files": len(diff.changes),
        "unchanged": diff.unchanged,
        "with_baseline": sum(c.has_baseline for c in diff.changes),
        "rows": rows,
        "verdicts": {v.value: verdicts[v] for v in Verdict},
        "findings": {s.value: severities[s] for s in Severity},
    }


def _group(g: Group) -> dict[str, Any]:
    return {
        "title": g.title,
        "kind": g.kind,
        "severity": g.severity.value,
        "platform": g.platform,
        "family": g.family,
        "direction": g.direction,
        "low": g.low,
        "high": g.high,
        "members": [{"path": path, "metric": metric} for path, metric in g.members],
    }


def change_json(c: Change) -> dict[str, Any]:
    """One golden's change as plain data."""
    return {
        "path": c.path,
        "shape": c.shape,
        "verdict": c.verdict.value,
        "has_baseline": c.has_baseline,
        "same_bytes": c.same_bytes,
        "identity": dict(c.identity),
        "findings": [finding_json(f) for f in c.findings],
        "metrics": [_metric(m) for m in c.metrics],
    }


def _metric(m: MetricChange) -> dict[str, Any]:
    return {
        "metric": m.metric,
        "verdict": m.verdict.value,
        "because": m.because,
        "rule": m.rule,
        "n_steps": m.n_steps,
        "avg_rel_diff": m.avg_rel_diff,
        "mean_abs_rel_diff": m.mean_abs_rel_diff,
        "max_abs_rel_diff": m.max_abs_rel_diff,
        "mean_diff": m.mean_diff,
        "max_step": m.max_step,
        "max_old": m.max_old,
        "max_new": m.max_new,
        "first_diff_step": m.first_diff_step,
        "n_shared": m.n_shared,
        "bit_equal": m.bit_equal,
        "steps_lost": m.steps_lost,
        "steps_gained": m.steps_gained,
        "nan_gained": m.nan_gained,
        "nan_lost": m.nan_lost,
        "tolerance_ratio": m.tolerance_ratio,
        "steady_rel_diff": m.steady_rel_diff,
        "in_csv": m.in_csv,
        "tensor": None if m.tensor is None else comparison_json(m.tensor),
    }
