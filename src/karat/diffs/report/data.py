"""A diff as data: the rows that every report shows, the CSV, and the JSON of schema `karat.diff/1`.

The CSV has exactly the seed's four columns, one row per (file, metric) that has a usable step. Where bundles were
compared, the numbers of tensors follow in columns of their own; a tensor has no `avg_rel_diff`, and its `n_steps`
are its elements.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from heapq import nsmallest
from math import inf
from typing import TYPE_CHECKING, Any

import msgspec

from karat.compare.change import Change, MetricChange, Numbers, Verdict
from karat.diffs.result import Diff, verdict_counts
from karat.findings import Severity
from karat.report.words import count, magnitude, number, severity_counts, signed

if TYPE_CHECKING:
    from karat.tensors.comparison import Comparison

SCHEMA = "karat.diff/1"
COLUMNS = ("file", "metric", "n_steps", "avg_rel_diff")
TENSOR_COLUMNS = ("bit_equal", "mismatches", "max_abs", "mean_abs", "max_rel", "max_ulp", "sqnr_db", "cosine")

_PIECE = 1 << 20


def csv_rows(diff: Diff) -> Iterator[tuple[Change, MetricChange]]:
    for change in sorted(diff.changes, key=lambda c: c.path):
        for row in change.metrics:
            if row.in_csv:
                yield change, row


def gravity(row: MetricChange) -> tuple[int, float, float]:
    """The order of every table: by verdict, then by how far beyond the threshold; what cannot be measured first."""
    beyond = inf if row.threshold_ratio is None else magnitude(row.threshold_ratio)
    return row.verdict.rank, -beyond, -magnitude(row.max_abs_rel_diff)


def top_rows(diff: Diff, top: int) -> tuple[list[tuple[Change, MetricChange, str]], int]:
    """The gravest of the rows that differ, each with its name, and how many differ; an incomplete golden is one row."""
    total = 0

    def moved() -> Iterator[tuple[Change, MetricChange, str]]:
        nonlocal total
        for change in diff.changes:
            rows = [row for row in change.metrics if row.tensor is None and row.verdict is not Verdict.SAME]
            lacking = [row for row in rows if row.verdict is Verdict.INCOMPLETE]
            found = [(change, row, row.metric) for row in rows if row.verdict is not Verdict.INCOMPLETE]
            if lacking:
                gravest = min(lacking, key=gravity)
                found.append((change, gravest, gravest.metric if len(lacking) == 1 else count(len(lacking), "metric")))
            total += len(found)
            yield from found

    return nsmallest(top, moved(), key=lambda entry: gravity(entry[1])), total


ROW_TITLES = ("verdict", "metric", "n", "change", "mean |·|", "max |·|", "at", "× limit")


def row_cells(row: MetricChange, name: str) -> tuple[str, ...]:
    """What a table says of a row: n, change, mean |·|, max |·|, where, and how far beyond the threshold."""
    if name != row.metric:  # it stands for several
        return ("",) * 6
    numbers = (signed(row.change), number(row.mean_abs_rel_diff), number(row.max_abs_rel_diff))
    beyond = "" if row.threshold_ratio is None else f"{row.threshold_ratio:,.3g}"
    n = row.n_steps if row.tensor is None else row.n_shared  # of a tensor, its elements
    return str(n), *numbers, "" if row.max_step is None else str(row.max_step), beyond


def tensor_rows(diff: Diff) -> Iterator[tuple[Change, MetricChange, Comparison]]:
    for change in sorted(diff.changes, key=lambda c: c.path):
        for row in change.metrics if isinstance(change.metrics, tuple) else ():  # of bundles no row is packed
            if row.tensor is not None:
                yield change, row, row.tensor


def counts(diff: Diff) -> str:
    """What was compared, how it came out, and what there is to say, in numbers."""
    rows = sum(row.in_csv for change in diff.changes for row in change.metrics)
    changed = f"{count(len(diff.changes), 'golden')} compared"
    parts = [f"{changed} ({verdict_counts(diff.changes)})" if diff.changes else "no golden changed"]
    if diff.unchanged:
        parts.append(f"{diff.unchanged:,} unchanged")
    if rows:
        parts.append(count(rows, "row"))
    if tensors := sum(1 for _ in tensor_rows(diff)):
        parts.append(count(tensors, "tensor"))
    if severities := severity_counts(diff.all_findings()):
        parts.append(f"findings: {severities}")
    return " · ".join(parts)


def ranked_tensors(diff: Diff) -> list[tuple[Change, MetricChange, Comparison]]:
    """Those that are not the same, gravest first, then by the largest relative difference."""
    moved = (entry for entry in tensor_rows(diff) if entry[1].verdict is not Verdict.SAME)
    return sorted(moved, key=lambda entry: gravity(entry[1]))


def render_csv(diff: Diff) -> Iterator[bytes]:
    """The CSV in pieces, for a hundred thousand goldens make forty megabytes; floats in full precision."""
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    for row in _csv_cells(diff):
        writer.writerow(row)
        if out.tell() >= _PIECE:
            yield out.getvalue().encode("utf-8", "backslashreplace")
            out.seek(out.truncate(0))
    yield out.getvalue().encode("utf-8", "backslashreplace")


def _csv_cells(diff: Diff) -> Iterator[Sequence[object]]:
    tensors = [entry for entry in tensor_rows(diff) if entry[2].numbers is not None]
    more = TENSOR_COLUMNS if tensors else ()
    yield *COLUMNS, *more
    for change, row in csv_rows(diff):
        yield _cell(change.path), _cell(row.metric), row.n_steps, row.avg_rel_diff, *[""] * len(more)
    for change, row, tensor in tensors:
        numbers = [getattr(tensor.numbers, name) for name in TENSOR_COLUMNS]
        elements = tensor.numbers.elements if tensor.numbers else 0
        yield _cell(change.path), _cell(row.metric), elements, "", *numbers


def _cell(name: str) -> str:
    """A name that no spreadsheet takes for a formula: with an apostrophe before it, as they write it themselves."""
    return f"'{name}" if name.startswith(tuple("=+-@\t\r\n＝＋－＠")) else name  # noqa: RUF001 - wide ones, too


def render_json(diff: Diff) -> bytes:
    from karat.report.json import encode

    return encode(document(diff))


def document(diff: Diff) -> dict[str, Any]:
    from karat.report.json import finding_json

    return {
        "schema": SCHEMA,
        "old": diff.old,
        "new": diff.new,
        "answer": diff.answer(),
        "totals": totals(diff),
        "history": diff.history or None,
        "findings": [finding_json(f) for f in diff.findings],
        "groups": [
            {**msgspec.to_builtins(g), "members": [{"path": path, "metric": metric} for path, metric in g.members]}
            for g in diff.groups
        ],
        "files": [{**change_json(c), "provenance": _provenance_json(diff, c.path)} for c in diff.changes],
    }


def _provenance_json(diff: Diff, path: str) -> dict[str, Any]:
    old, new = diff.provenance.get(path, (None, None))
    return {"old": msgspec.to_builtins(old), "new": msgspec.to_builtins(new)}


def totals(diff: Diff) -> dict[str, Any]:
    """The counts people quote."""
    verdicts = Counter(c.verdict for c in diff.changes)
    severities = Counter(f.severity for f in diff.all_findings())
    return {
        "files": len(diff.changes),
        "unchanged": diff.unchanged,
        "with_baseline": sum(c.has_baseline for c in diff.changes),
        "rows": sum(1 for _ in csv_rows(diff)),
        "verdicts": {v.value: verdicts[v] for v in Verdict},
        "findings": {s.value: severities[s] for s in Severity},
    }


def change_json(c: Change) -> dict[str, Any]:
    from karat.report.json import finding_json

    return {
        "path": c.path,
        "shape": c.shape,
        "verdict": c.verdict.value,
        "has_baseline": c.has_baseline,
        "same_bytes": c.same_bytes,
        "identity": dict(c.identity),
        "findings": [finding_json(f) for f in c.findings],
        "metrics": [_metric_json(m) for m in c.metrics],
    }


_PLAIN = ("metric", "because", "rule", "threshold_ratio", "in_csv", *Numbers.__struct_fields__)


def _metric_json(m: MetricChange) -> dict[str, Any]:
    plain: dict[str, Any] = {name: getattr(m, name) for name in _PLAIN}
    tensor = None
    if m.tensor is not None:
        from karat.tensors.report import comparison_json

        tensor = comparison_json(m.tensor)
    history = None if m.history is None else m.history.data()
    told = None if m.explanation is None else msgspec.to_builtins(m.explanation)
    return {**plain, "verdict": m.verdict.value, "tensor": tensor, "explanation": told, "history": history}
