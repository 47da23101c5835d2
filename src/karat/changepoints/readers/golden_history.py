"""History of a golden: its values in every first-parent commit that touched it, renames followed."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import closing
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from math import isfinite
from pathlib import Path
from statistics import fmean

from karat.changepoints.readers import sheets
from karat.changepoints.readers.sheets import Cell, ReadOptions, Sheet, SheetRow
from karat.changepoints.series import no_such, wrong_usage
from karat.findings import UsageError, warn
from karat.goldens.formats import read as read_golden, too_long
from karat.goldens.series_lines import flat
from karat.goldens.shapes import Document, Golden, Metric, Reading, Series, Table
from karat.goldens.text_file import LimitedFindings
from karat.system.command import Command
from karat.system.foreign.limits import GOLDEN
from karat.system.git import Blobs, find_root, history, run_git

_MOST = 2000  # metrics of a table or document that are taken unless --metric names some


def read_history(path: str, options: ReadOptions) -> Sheet:
    """One row per version, oldest first."""
    whole = options.root / path
    folder = next(parent for parent in whole.absolute().parents if parent.is_dir())
    root = find_root(folder)
    if root is None:
        raise wrong_usage(f"expected --golden to be in a git work tree, found none around {folder}")
    try:
        resolved = Path(os.path.normpath(whole.absolute().parent.resolve() / whole.name))
        inside = resolved.relative_to(root.resolve()).as_posix()
    except ValueError as error:
        raise wrong_usage(f"expected --golden to be in the work tree {root}, found {whole}") from error
    past = [*history(root, "HEAD", inside, follow=True)][::-1]
    if not past:
        said = f"expected --golden to be a file that git knows, or knew, found no commit that touched {path}"
        raise UsageError(said, next_command=Command("git", "log", "--oneline", "--", path))
    odd = LimitedFindings()
    read: list[dict[str, Cell] | None] = []
    with closing(Blobs(root)) as blobs:
        there = blobs.read([change.new for *_, change in past if change.new], GOLDEN.value())
        for commit, _, change in past:
            data = next(there) if change.new else None
            read.append(_cells(commit, change.path, data, options.step, odd) if change.new else None)
    known = dict.fromkeys(name for cells in read if cells for name in cells)
    wanted = {one: [name for name in known if name == one or fnmatchcase(name, one)] for one in options.metrics}
    if nobody := next((one for one, names in wanted.items() if not names), None):
        raise no_such("--metric", f"be a metric of {path}", nobody, list(known))
    metrics = tuple(dict.fromkeys(name for names in wanted.values() for name in names)) or tuple(known)[:_MOST]
    notes = []
    if run_git(root, "rev-parse", "--is-shallow-repository").strip() == b"true":
        notes.append("the clone is shallow: its history is cut (git fetch --unshallow brings the rest)")
    renamed = list(dict.fromkeys(change.path for *_, change in past))
    if len(renamed) > 1:
        notes.append(f"it was renamed: {' → '.join(renamed)}")
    rows = []
    for (commit, seconds, change), cells in zip(past, read, strict=True):
        when = datetime.fromtimestamp(seconds, UTC)
        # One that cannot be read is broken; in one that can, a metric may be missing.
        none = dict.fromkeys(metrics, sheets.BROKEN if change.new else sheets.MISSING)
        label, log = f"{commit[:10]} {when:%Y-%m-%d}", f"{commit}:{change.path}"
        rows.append(SheetRow(label=label, cells=none if cells is None else cells, when=when, log=log))
    found, told = odd.findings(), tuple(notes)
    return Sheet(source=path, metrics=metrics, rows=tuple(rows), findings=found, notes=told, ordered=True)


def _cells(commit: str, path: str, data: bytes | int | None, step: str, odd: LimitedFindings) -> dict[str, Cell] | None:
    """Metric → value in one version; None if it cannot be read."""
    short = commit[:10]
    if data is None:
        said = f"expected git to have {path} of {short}, found that the object is missing"
        odd.add(warn("cannot-read", said, path=path, where=short, next="git fsck"))
        return None
    reading = Reading(None, (too_long(data),)) if isinstance(data, int) else read_golden(data)
    if reading.golden is not None:
        return values_of(reading.golden, step)
    said = reading.findings[0].message if reading.findings else "it is no golden"
    message = f"version {short}: {said}; it counts as a point that could not be tried"
    odd.add(warn("unreadable", message, path=path, where=short, next=Command("git", "show", f"{commit}:{path}")))
    return None


def values_of(golden: Golden, step: str) -> dict[str, Cell]:
    if isinstance(golden, Series):
        curves = {name: _of_curve(curve, step) for name, curve in golden.metrics.items()}
        scalars = {name: sheets.number_cell(v) for name, v in golden.scalars.items()}
        return {**curves, **scalars}
    pairs: Iterable[tuple[str, object]] = ()
    if isinstance(golden, Table):
        cells = ((key, *pair) for key, row in golden.rows.items() for pair in zip(golden.columns, row, strict=False))
        pairs = ((f"{'/'.join(key)} {column}", cell) for key, column, cell in cells if column not in golden.key)
    elif isinstance(golden, Document) and isinstance(golden.value, dict):
        pairs = flat(golden.value)
    found: dict[str, Cell] = {}
    for name, cell in pairs:
        value = sheets.number(cell)
        if value is not None:
            found[name] = sheets.number_cell(value)
        elif sheets.is_empty(cell):
            found[name] = sheets.MISSING
    return found


def _of_curve(curve: Metric, step: str) -> Cell:
    """The value that --step means."""
    if not curve.steps.size:
        return sheets.MISSING
    # A curve that ends in NaN is of a run that died: the mean of what is left of it would look like a value.
    last = float(curve.values[-1])
    if step == "last" or (step == "mean" and not isfinite(last)):
        return sheets.number_cell(last)
    if step == "mean":
        finite = [value for value in curve.values.tolist() if isfinite(value)]
        return (fmean(finite),)
    at = (curve.steps == int(step)).nonzero()[0]
    return sheets.number_cell(float(curve.values[at[0]])) if at.size else sheets.MISSING
