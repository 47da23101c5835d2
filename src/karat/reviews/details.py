"""One changed golden in full, as data for the page of a review: curves, changed cells, tensors, or differences of structure.

Everything is read when it is asked for, and cut to what a person can look at; what is left out is counted.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace

from karat.bundles.cases import Spool
from karat.compare.change import Change, MetricChange
from karat.compare.document import under_key
from karat.compare.pairs import GoldenPair, compare
from karat.diffs.cases import both
from karat.diffs.report.data import gravity
from karat.diffs.report.html import FIELDS, embed, plain, provenance_of, row_of
from karat.diffs.sides import resolve_sides, start_listing
from karat.goldens.shapes import Document, Golden, Reading, Series, Table
from karat.reviews.causes import metrics_of
from karat.reviews.review import Review
from karat.tensors.bits import widened
from karat.tensors.tensor import Damaged, TensorExtent, read_blocks

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST = 1000  # Changed rows of a table, differences of a document.
_POINTS = 1_000_000
_LARGEST = 64 << 20  # Bytes of a tensor that is still drawn.
_BINS, _WORST = 41, 16
_HEAT = (48, 96)
_TEXT = 2000


def details(review: Review, path: str) -> dict[str, Any]:
    """What the page shows of one golden."""
    item = review.item(path)
    change, more = item.change, dict[str, Any]()
    if change.shape == "bundle":
        more["tensors"] = _tensors(review, change)
    else:
        old, new = (None if side is None else side.golden for side in review.pair(path))
        change = _with_curves(change, old, new)
        if isinstance(old, Table | None) and isinstance(new, Table | None):
            more["table"] = cells(old or Table((), (), {}), new or Table((), (), {}))
        elif isinstance(old, Document) and isinstance(new, Document):
            found = list(islice(differences(old.value, new.value), MOST + 1))
            more["document"] = {"places": found[:MOST], "more": len(found) > MOST}
    told = "".join(finding.message for finding in change.findings)
    rows: list[MetricChange | None] = [*sorted(change.metrics, key=gravity)] or [None]
    curves, places = embed(rows, _POINTS)
    return {
        "path": path,
        "seen": item.seen,
        "shape": change.shape,
        "fields": FIELDS,
        "rows": [row_of(0, change, row, place) for row, place in zip(rows, places, strict=True)],
        "curves": curves,
        "metrics": metrics_of(change),
        "findings": [
            [f.severity.value, f.kind, f.metric, f.where, f.message, f.next and str(f.next)] for f in change.findings
        ],
        "history": {
            row.metric: row.history.sentence
            for row in change.metrics
            if row.history and row.history.sentence not in told
        },
        "facts": {**change.identity, **provenance_of(review.diff, path)},
        **more,
    }


def _with_curves(change: Change, old: Golden | None, new: Golden | None) -> Change:
    """The change with what a plot needs; a golden that only one side has shows its curves, too."""
    known = old or new
    if not change.metrics and isinstance(known, Series) and not (old and new):
        side = "old" if old else "new"
        row = MetricChange(metric="", verdict=change.verdict, because="")
        rows = (replace(row, metric=name, **{side: curve}) for name, curve in known.metrics.items())
        return replace(change, metrics=tuple(rows))
    before, after = (None if golden is None else Reading(golden) for golden in (old, new))
    drawn = compare(GoldenPair(path=change.path, old=before, new=after), keep_curves=True)
    curves = {row.metric: (row.old, row.new) for row in drawn.metrics}
    kept = (curves.get(row.metric, (None, None)) for row in change.metrics)
    rows = (replace(row, old=a, new=b) for row, (a, b) in zip(change.metrics, kept, strict=True))
    return replace(change, metrics=tuple(rows))


def cells(old: Table, new: Table) -> dict[str, Any]:
    """The rows that changed: each cell as old and new, None where a side does not have it."""
    key = old.key or new.key
    columns = [name for name in dict.fromkeys((*old.columns, *new.columns)) if name not in key]
    rows: list[tuple[tuple[str, ...], list[list[str | None] | None]]] = []
    for name in dict.fromkeys((*old.rows, *new.rows)):
        before, after = (
            dict(zip(side.columns, side.rows[name], strict=False)) if name in side.rows else None for side in (old, new)
        )
        if before != after:
            rows.append(
                (name, [None if side is None else [side.get(column) for column in columns] for side in (before, after)])
            )
    moved = [at for at in range(len(columns)) if any(a is None or b is None or a[at] != b[at] for _, (a, b) in rows)]
    shown = [
        [name, *(None if side is None else [side[at] for at in moved] for side in sides)] for name, sides in rows[:MOST]
    ]
    return {"key": key, "columns": [columns[at] for at in moved], "rows": shown, "more": len(rows) - len(shown)}


def differences(old: Any, new: Any) -> Iterator[list[str | None]]:
    """Where two JSON values differ: the path, what stood there, what stands there; None for nothing."""
    stack = [(old, new, ("$", ""))]
    while stack:
        a, b, at = stack.pop()
        if isinstance(a, dict) and isinstance(b, dict):
            names = list(dict.fromkeys((*a, *b)))
            pairs = [(a.get(name, _NONE), b.get(name, _NONE), under_key(at, name)) for name in names]
            stack += reversed(pairs)
        elif isinstance(a, list) and isinstance(b, list):
            longest = max(len(a), len(b))
            padded = ([*side, *[_NONE] * (longest - len(side))] for side in (a, b))
            stack += reversed([(x, y, (f"{at[0]}[{n}]", "")) for n, (x, y) in enumerate(zip(*padded, strict=True))])
        elif a is not b and (type(a) is not type(b) or a != b):
            texts = [None if side is _NONE else json.dumps(side, ensure_ascii=False) for side in (a, b)]
            # Both are cut; long ones begin a little before they part.
            same = len(os.path.commonprefix([text or "" for text in texts]))  # noqa: RUF071 - texts, and no paths
            start = same - 30 if same > 60 else 0
            yield [at[0], *(text and ("…" if start else "") + text[start : start + _TEXT] for text in texts)]


_NONE = object()


def _tensors(review: Review, change: Change) -> list[dict[str, Any]]:
    """Each tensor that both sides have and that differs: a histogram of the differences, the worst elements, a map."""
    left, right = resolve_sides(None, None, review.root)
    started = start_listing(left, right)
    listing = started.finish() if started else None
    moved = [row.metric for row in change.metrics if row.tensor and row.tensor.numbers and row.verdict != "same"]
    with ExitStack() as stack:
        found = stack.enter_context(both(left, right, listing, store=None))
        pair = next((pair for pair in found.pairs() if pair.path == change.path), None)
        if pair is None or pair.old is None or pair.new is None:
            return []
        known = {record.name for record in pair.old.manifest.tensors}
        spools = [stack.enter_context(Spool(case)) for case in (pair.old, pair.new)]
        return [_tensor(name, *(spool.tensor(name) for spool in spools)) for name in moved if name in known]


def _tensor(name: str, before: TensorExtent, after: TensorExtent) -> dict[str, Any]:
    if before.shape != after.shape or max(before.extent.size, after.extent.size) > _LARGEST:
        return {"name": name, "why": "of two shapes" if before.shape != after.shape else "too large to draw"}
    try:
        old, new = (_values(side) for side in (before, after))
    except Damaged as damage:
        return {"name": name, "why": str(damage)}
    if old is None or new is None:
        return {"name": name, "why": "of a type that cannot be drawn"}
    with np.errstate(all="ignore"):
        moved = new - old
        size = np.abs(moved)
    became_nan = np.isnan(size) & ~(np.isnan(old) & np.isnan(new))
    size = np.where(became_nan, np.inf, np.nan_to_num(size, nan=0.0, posinf=np.inf))
    real = moved.real[np.isfinite(moved)]
    counts, edges = np.histogram(real, bins=_BINS) if real.size else (np.zeros(0, int), np.zeros(0))
    worst = np.argsort(-size, kind="stable")[:_WORST]
    places = [[int(at) for at in np.unravel_index(at, before.shape)] for at in worst if size[at] > 0]
    heat, shape = None, [extent for extent in before.shape if extent > 1]
    if len(shape) == 2:  # the largest difference of each patch of a matrix
        patch = size.reshape(shape)
        for axis, most in enumerate(_HEAT):
            starts = np.linspace(0, shape[axis], min(most, shape[axis]), endpoint=False)
            patch = np.maximum.reduceat(patch, np.unique(starts.astype(int)), axis=axis)
        rows, columns = patch.shape
        heat = {"rows": rows, "columns": columns, "values": [plain(value) for value in patch.reshape(-1)]}
    return {
        "name": name,
        "counts": counts.tolist(),
        "edges": edges.tolist(),
        "worst": [
            [place, *(plain(side[at].real) for side in (old, new, moved))]
            for place, at in zip(places, worst, strict=False)
        ],
        "heat": heat,
    }


def _values(tensor: TensorExtent) -> NDArray[Any] | None:
    bits = np.frombuffer(b"".join(bytes(block) for block in read_blocks(tensor.extent)), np.uint8)
    return widened(tensor.dtype, bits)
