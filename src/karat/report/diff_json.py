"""JSON of a diff, schema `karat.diff/1`; the published schema is in karat/schemas."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from karat.compare.change import Change, Diff, Group, MetricChange, Verdict
from karat.findings import Finding, Severity
from karat.report.csv_rows import csv_rows

SCHEMA = "karat.diff/1"


def document(diff: Diff) -> dict[str, Any]:
    """The diff as plain data."""
    return {
        "schema": SCHEMA,
        "old": _text(diff.old),
        "new": _text(diff.new),
        "totals": totals(diff),
        "findings": [_finding(f) for f in diff.findings],
        "groups": [_group(g) for g in diff.groups],
        "files": [_file(c) for c in diff.changes],
    }


def render(diff: Diff) -> bytes:
    """The JSON text. NaN and infinities, which JSON has no word for, become null."""
    data = msgspec.json.encode(document(diff), enc_hook=str)
    return msgspec.json.format(data, indent=2) + b"\n"


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


def _finding(f: Finding) -> dict[str, Any]:
    return {
        "kind": f.kind,
        "severity": f.severity.value,
        "path": _text(f.path),
        "metric": _text(f.metric),
        "where": _text(f.where),
        "message": _text(f.message),
        "numbers": {key: _text(value) for key, value in f.numbers.items()},
        "next": _text(f.next),
    }


def _text(value: Any) -> Any:
    # A file name that is not UTF-8 arrives with lone surrogates, which JSON text cannot carry.
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


def _group(g: Group) -> dict[str, Any]:
    return {
        "title": _text(g.title),
        "kind": g.kind,
        "severity": g.severity.value,
        "platform": _text(g.platform),
        "family": _text(g.family),
        "direction": g.direction,
        "low": g.low,
        "high": g.high,
        "members": [{"path": _text(path), "metric": _text(metric)} for path, metric in g.members],
    }


def _file(c: Change) -> dict[str, Any]:
    return {
        "path": _text(c.path),
        "shape": c.shape,
        "verdict": c.verdict.value,
        "has_baseline": c.has_baseline,
        "identity": {key: _text(value) for key, value in c.identity.items()},
        "findings": [_finding(f) for f in c.findings],
        "metrics": [_metric(m) for m in c.metrics],
    }


def _metric(m: MetricChange) -> dict[str, Any]:
    return {
        "metric": _text(m.metric),
        "verdict": m.verdict.value,
        "because": _text(m.because),
        "rule": _text(m.rule),
        "n_steps": m.n_steps,
        "avg_rel_diff": m.avg_rel_diff,
        "mean_abs_rel_diff": m.mean_abs_rel_diff,
        "max_abs_rel_diff": m.max_abs_rel_diff,
        "max_step": _text(m.max_step),
        "max_old": m.max_old,
        "max_new": m.max_new,
        "first_diff_step": _text(m.first_diff_step),
        "n_shared": m.n_shared,
        "bit_equal": m.bit_equal,
        "steps_lost": m.steps_lost,
        "steps_gained": m.steps_gained,
        "nan_gained": m.nan_gained,
        "nan_lost": m.nan_lost,
        "tolerance_ratio": m.tolerance_ratio,
        "steady_rel_diff": m.steady_rel_diff,
        "in_csv": m.in_csv,
    }
