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

import msgspec

from karat.changepoints.readers import sheets
from karat.changepoints.readers.sheets import Cell, ReadOptions, Sheet, SheetRow
from karat.changepoints.series import no_such, wrong_usage
from karat.findings import CannotVerify, UsageError, warn
from karat.goldens.formats import read as read_golden, too_long
from karat.goldens.line_records import flat
from karat.goldens.shapes import Document, Golden, Metric, Reading, Series, Table
from karat.goldens.text_file import LimitedFindings
from karat.system.command import Command
from karat.system.foreign.limits import GOLDEN, read_plain
from karat.system.git import Blobs, find_root, history, run_git

_NEVER = datetime(1970, 1, 1, tzinfo=UTC)
_MOST = 2000  # metrics of a table or document that are taken unless --metric names some
WORK_TREE = "work tree"


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """The golden as one commit left it."""

    commit: str
    when: datetime
    path: str
    blob: str  # Empty: the commit deleted it.


def read_history(path: str, options: ReadOptions) -> Sheet:
    """One row per version, oldest first, the uncommitted one last."""
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
    past = versions(root, inside)
    odd = LimitedFindings()
    read: list[dict[str, Cell] | None] = []
    data: bytes | int | None = None
    with closing(Blobs(root)) as blobs:
        there = blobs.read([version.blob for version in past if version.blob], GOLDEN.value())
        for version in past:
            data = next(there) if version.blob else None
            read.append(_cells(version, data, options, odd) if version.blob else None)
    current = _in_work_tree(whole)
    if current is not None and (not past or data != current):
        when = past[-1].when if past else _NEVER
        past.append(Version(commit="", when=when, path=inside, blob="-"))
        read.append(_cells(past[-1], current, options, odd))
    if not past:
        said = f"expected --golden to be a file that git knows, or knew, found no commit that touched {path}"
        raise UsageError(said, next_command=Command("git", "log", "--oneline", "--", path))
    known = dict.fromkeys(name for cells in read if cells for name in cells)
    wanted = {one: [name for name in known if name == one or fnmatchcase(name, one)] for one in options.metrics}
    if nobody := next((one for one, names in wanted.items() if not names), None):
        raise no_such("--metric", f"be a metric of {path}", nobody, list(known))
    metrics = tuple(dict.fromkeys(name for names in wanted.values() for name in names)) or tuple(known)[:_MOST]
    notes = []
    if run_git(root, "rev-parse", "--is-shallow-repository").strip() == b"true":
        notes.append("the clone is shallow: its history is cut (git fetch --unshallow brings the rest)")
    renamed = list(dict.fromkeys(version.path for version in past))
    if len(renamed) > 1:
        notes.append(f"it was renamed: {' → '.join(renamed)}")
    rows = []
    for version, cells in zip(past, read, strict=True):
        if cells is None:  # one that cannot be read is broken; in one that can, a metric may be missing
            cells = dict.fromkeys(metrics, sheets.BROKEN if version.blob else sheets.MISSING)  # noqa: PLW2901
        if version.commit:
            label, log = f"{version.commit[:10]} {version.when:%Y-%m-%d}", f"{version.commit}:{version.path}"
            rows.append(SheetRow(label=label, cells=cells, when=version.when, log=log))
        else:
            rows.append(SheetRow(label=WORK_TREE, cells=cells, log=version.path))
    return Sheet(
        source=path, metrics=metrics, rows=tuple(rows), findings=odd.findings(), notes=tuple(notes), ordered=True
    )


def _in_work_tree(path: Path) -> bytes | None:
    try:
        return read_plain(path, GOLDEN)
    except (FileNotFoundError, IsADirectoryError):
        return None
    except OSError as error:
        said = f"expected to read {path}, but: {error.strerror or error}"
        raise CannotVerify(said, next_command=Command("ls", "-l", str(path))) from error


def versions(root: Path, path: str) -> list[Version]:
    """Every commit of the first-parent line that touched the path, oldest first."""
    found: list[Version] = []
    for commit, seconds, change in history(root, "HEAD", path, follow=True):
        when = datetime.fromtimestamp(seconds, UTC)
        found.append(Version(commit=commit, when=when, path=change.path, blob=change.new or ""))
    return found[::-1]


def _cells(
    version: Version, data: bytes | int | None, options: ReadOptions, odd: LimitedFindings
) -> dict[str, Cell] | None:
    """Metric → value in one version; None if it cannot be read."""
    short = version.commit[:10]
    if data is None:
        said = f"expected git to have {version.path} of {short}, found that the object is missing"
        odd.add(warn("cannot-read", said, path=version.path, where=short, next="git fsck"))
        return None
    reading = Reading(None, (too_long(data),)) if isinstance(data, int) else read_golden(data)
    if reading.golden is None:
        said = reading.findings[0].message if reading.findings else "it is no golden"
        message = f"version {short or WORK_TREE}: {said}; it counts as a point that could not be tried"
        then = Command("git", "show", f"{version.commit}:{version.path}") if version.commit else None
        odd.add(warn("unreadable", message, path=version.path, where=short, next=then))
        return None
    return values_of(reading.golden, options)


def values_of(golden: Golden, options: ReadOptions) -> dict[str, Cell]:
    """Metric → its value in a golden."""
    if isinstance(golden, Series):
        curves = {name: _of_curve(curve, options) for name, curve in golden.metrics.items()}
        scalars = {name: sheets.number_cell(v, nan=options.nan) for name, v in golden.scalars.items()}
        return {**curves, **scalars}
    pairs: Iterable[tuple[str, object]] = ()
    if isinstance(golden, Table):
        pairs = (
            (f"{'/'.join(key)} {column}", cell)
            for key, cells in golden.rows.items()
            for column, cell in zip(golden.columns, cells, strict=False)
            if column not in golden.key
        )
    elif isinstance(golden, Document) and isinstance(golden.value, dict):
        pairs = flat(golden.value)
    found: dict[str, Cell] = {}
    for name, cell in pairs:
        value = sheets.number(cell)
        if value is not None:
            found[name] = sheets.number_cell(value, nan=options.nan)
        elif sheets.is_empty(cell):
            found[name] = sheets.MISSING
    return found


def _of_curve(curve: Metric, options: ReadOptions) -> Cell:
    """The value that --step means."""
    if not curve.steps.size:
        return sheets.MISSING
    # A curve that ends in NaN is of a run that died: the mean of what is left of it would look like a value.
    last = float(curve.values[-1])
    if options.step == "last" or (options.step == "mean" and not isfinite(last)):
        return sheets.number_cell(last, nan=options.nan)
    if options.step == "mean":
        finite = [value for value in curve.values.tolist() if isfinite(value)]
        return (fmean(finite),)
    at = (curve.steps == int(options.step)).nonzero()[0]
    return sheets.number_cell(float(curve.values[at[0]]), nan=options.nan) if at.size else sheets.MISSING
