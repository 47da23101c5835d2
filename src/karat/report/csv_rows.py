"""CSV: exactly the seed's four columns, one row per (file, metric) that has a usable step."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from karat.compare.change import Change, Diff, MetricChange
from karat.report.words import magnitude

COLUMNS = ("file", "metric", "n_steps", "avg_rel_diff")


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
    writer.writerow(COLUMNS)
    writer.writerows(
        [(c.path, row.metric, row.n_steps, row.avg_rel_diff) for c, row in csv_rows(diff)]
    )
    return out.getvalue()
