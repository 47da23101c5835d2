"""CSV: exactly the seed's four columns, one row per (file, metric) that has a usable step.

Where bundles were compared, the numbers of tensors follow in columns of their own; a tensor has no
`avg_rel_diff`, and its `n_steps` are its elements.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from karat.compare.change import Change, Diff, MetricChange
from karat.report.words import magnitude
from karat.tensors.report import tensor_rows

COLUMNS = ("file", "metric", "n_steps", "avg_rel_diff")
TENSOR_COLUMNS = (
    "bit_equal", "mismatches", "max_abs", "mean_abs", "max_rel", "max_ulp", "sqnr_db", "cosine",
)  # fmt: skip


def csv_rows(diff: Diff) -> Iterator[tuple[Change, MetricChange]]:
    """The rows of the CSV, by file and metric."""
    for change in sorted(diff.changes, key=lambda c: c.path):
        for row in change.metrics:
            if row.in_csv:
                yield change, row


def ranked_rows(diff: Diff) -> list[tuple[Change, MetricChange]]:
    """The same rows, largest |avg_rel_diff| first."""
    return sorted(csv_rows(diff), key=lambda pair: -magnitude(pair[1].avg_rel_diff))


def render(diff: Diff) -> str:
    """The CSV text; floats in full precision."""
    out = io.StringIO()
    writer = csv.writer(out)
    tensors = [entry for entry in tensor_rows(diff) if entry[2].numbers is not None]
    rows = [(c.path, row.metric, row.n_steps, row.avg_rel_diff) for c, row in csv_rows(diff)]
    if not tensors:
        writer.writerow(COLUMNS)
        writer.writerows(rows)
        return out.getvalue()
    writer.writerow((*COLUMNS, *TENSOR_COLUMNS))
    writer.writerows([(*row, *[""] * len(TENSOR_COLUMNS)) for row in rows])
    for change, row, tensor in tensors:
        numbers = [getattr(tensor.numbers, name) for name in TENSOR_COLUMNS]
        elements = tensor.numbers.elements if tensor.numbers else 0
        writer.writerow((change.path, row.metric, elements, "", *numbers))
    return out.getvalue()
