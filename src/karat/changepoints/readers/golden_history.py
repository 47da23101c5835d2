"""History of a golden: its value in every commit of the first-parent line that touched it, renames followed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from functools import partial
from math import isfinite
from pathlib import Path
from shlex import quote
from statistics import fmean

import msgspec

from karat.changepoints.readers.sheets import (
    BROKEN,
    MISSING,
    NoValue,
    ReadOptions,
    Sheet,
    SheetRow,
    is_empty,
    number,
    number_cell,
    utc,
)
from karat.findings import Finding, Severity, UsageError, suggest
from karat.goldens.formats import read as read_golden
from karat.goldens.line_records import flat
from karat.goldens.shapes import Document, Golden, Metric, Series, Table
from karat.goldens.text_file import Few
from karat.system.git import Blobs, find_root, run_git

_COMMIT = b"\x02"
_NEVER = datetime(1970, 1, 1, tzinfo=UTC)
_MOST = 2000
"""Metrics of a table or document; whoever has more names those that count."""
WORK_TREE = "work tree"


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """The golden as one commit left it."""

    commit: str
    when: datetime
    path: str
    blob: str
    """Empty: the commit deleted it."""


def read_history(path: str, options: ReadOptions) -> Sheet:
    """One row per version, oldest first, the uncommitted one last."""
    whole = options.root / path
    folder = next(parent for parent in whole.absolute().parents if parent.is_dir())
    root = find_root(folder)
    if root is None:
        raise UsageError(
            f"expected --golden to be in a git work tree, found none around {folder}",
            next_command="karat changes --help",
        )
    inside = _inside(whole, root)
    past = versions(root, inside)
    contents = _contents(root, past)
    if whole.is_file():
        current = whole.read_bytes()
        if not past or contents[-1] != current:
            past.append(
                Version(
                    commit="",
                    when=past[-1].when if past else _NEVER,
                    path=inside,
                    blob="-",
                )
            )
            contents.append(current)
    if not past:
        raise UsageError(
            f"expected --golden to be a file that git knows, or knew, found no commit that touched {path}",
            next_command=f"git log --oneline -- {quote(path)}",
        )
    return _sheet(path, past, contents, options, shallow=_is_shallow(root))


def _inside(path: Path, root: Path) -> str:
    whole = Path(os.path.normpath(path.absolute().parent.resolve() / path.name))
    try:
        return whole.relative_to(root.resolve()).as_posix()
    except ValueError as error:
        raise UsageError(
            f"expected --golden to be in the work tree {root}, found {path}",
            next_command="karat changes --help",
        ) from error


def _is_shallow(root: Path) -> bool:
    return run_git(root, "rev-parse", "--is-shallow-repository").strip() == b"true"


def versions(root: Path, path: str) -> list[Version]:
    """Every commit of the first-parent line that touched the path, oldest first."""
    out = run_git(root, "--literal-pathspecs", "log", "--first-parent", "--follow", "--raw", "-z", "--no-abbrev", "--no-color", "--no-show-signature",
                  "--format=%x02%H %cI", "--end-of-options", "HEAD", "--", path)  # fmt: skip
    return list(_parsed(out))[::-1]


def _parsed(out: bytes) -> Iterator[Version]:
    commit, when = "", _NEVER
    fields = iter(out.split(b"\0"))
    for field in fields:
        text = field.strip(b"\n")
        if text.startswith(_COMMIT):
            commit, _, date = text[1:].decode().partition(" ")
            when = utc(datetime.fromisoformat(date.strip()))
        elif text.startswith(b":"):
            _, _, _, blob, status = text[1:].decode().split(" ")
            path = next(fields, b"")
            if status[0] in "RC":
                path = next(fields, b"")
            gone = status[0] == "D"
            yield Version(
                commit=commit, when=when, path=os.fsdecode(path), blob="" if gone else blob
            )


def _contents(root: Path, past: Sequence[Version]) -> list[bytes | None]:
    if not past:
        return []
    blobs = Blobs(root)
    try:
        found = iter(list(blobs.read([version.blob for version in past if version.blob])))
    finally:
        blobs.close()
    return [next(found) if version.blob else None for version in past]


def _sheet(
    source: str, past: Sequence[Version], contents: Sequence[bytes | None], options: ReadOptions, *, shallow: bool
) -> Sheet:  # fmt: skip
    odd = Few()
    read = [
        _cells(version, data, options, odd) if version.blob else None
        for version, data in zip(past, contents, strict=True)
    ]
    known = dict.fromkeys(name for cells in read if cells for name in cells)
    metrics = _wanted(list(known), source, options)
    rows = tuple(_row(version, cells, metrics) for version, cells in zip(past, read, strict=True))
    notes = []
    if shallow:
        notes.append(
            "the clone is shallow: its history is cut (git fetch --unshallow brings the rest)"
        )
    renamed = list(dict.fromkeys(version.path for version in past))
    if len(renamed) > 1:
        notes.append(f"it was renamed: {' → '.join(renamed)}")
    return Sheet(
        source=source,
        metrics=metrics,
        rows=rows,
        findings=odd.findings(),
        notes=tuple(notes),
        ordered=True,
    )


def _wanted(known: Sequence[str], source: str, options: ReadOptions) -> tuple[str, ...]:
    if not options.metrics:
        return tuple(known[:_MOST])
    found: dict[str, None] = {}
    for wanted in options.metrics:
        fits = [name for name in known if name == wanted or fnmatchcase(name, wanted)]
        if not fits:
            raise UsageError(
                f"expected --metric to be a metric of {source}, found {wanted!r}{suggest(wanted, known)};"
                f" there are {', '.join(known[:20]) or 'none'}",
                next_command="karat changes --help",
            )
        found.update(dict.fromkeys(fits))
    return tuple(found)


def _row(
    version: Version,
    cells: Mapping[str, tuple[float, ...] | NoValue] | None,
    metrics: Sequence[str],
) -> SheetRow:
    """A version that cannot be read could not be tried; in one that can, a metric may be missing."""
    if not version.commit:
        return SheetRow(label=WORK_TREE, cells=_filled(cells, metrics), log=version.path)
    label = f"{version.commit[:10]} {version.when:%Y-%m-%d}"
    filled = dict.fromkeys(metrics, MISSING) if not version.blob else _filled(cells, metrics)
    return SheetRow(
        label=label, cells=filled, when=version.when, log=f"{version.commit}:{version.path}"
    )


def _filled(
    cells: Mapping[str, tuple[float, ...] | NoValue] | None, metrics: Sequence[str]
) -> Mapping[str, tuple[float, ...] | NoValue]:
    return cells if cells is not None else dict.fromkeys(metrics, BROKEN)


def _cells(
    version: Version, data: bytes | None, options: ReadOptions, odd: Few
) -> dict[str, tuple[float, ...] | NoValue] | None:
    """Metric → value in one version; None if it cannot be read."""
    if data is None:
        odd.note("cannot-read", Severity.WARN, partial(_no_blob, version))
        return None
    reading = read_golden(data)
    if reading.golden is None:
        said = reading.findings[0].message if reading.findings else "it is no golden"
        odd.note("unreadable", Severity.WARN, partial(_unread, version, said))
        return None
    return values_of(reading.golden, options)


def values_of(golden: Golden, options: ReadOptions) -> dict[str, tuple[float, ...] | NoValue]:
    """Metric → its value in a golden."""
    if isinstance(golden, Series):
        curves = {name: _of_curve(curve, options) for name, curve in golden.metrics.items()}
        return {
            **curves,
            **{name: number_cell(v, nan=options.nan) for name, v in golden.scalars.items()},
        }
    pairs = _table_cells(golden) if isinstance(golden, Table) else _leaves(golden)
    found: dict[str, tuple[float, ...] | NoValue] = {}
    for name, cell in pairs:
        value = number(cell)
        if value is not None:
            found[name] = number_cell(value, nan=options.nan)
        elif is_empty(cell):
            found[name] = MISSING
    return found


def _of_curve(curve: Metric, options: ReadOptions) -> tuple[float, ...] | NoValue:
    """The value that --step means."""
    if not curve.steps.size:
        return MISSING
    # A curve that ends in NaN is of a run that died: the mean of what is left of it would look like a value.
    last = float(curve.values[-1])
    if options.step == "last" or (options.step == "mean" and not isfinite(last)):
        return number_cell(last, nan=options.nan)
    if options.step == "mean":
        finite = [value for value in curve.values.tolist() if isfinite(value)]
        return (fmean(finite),)
    at = (curve.steps == int(options.step)).nonzero()[0]
    return number_cell(float(curve.values[at[0]]), nan=options.nan) if at.size else MISSING


def _table_cells(table: Table) -> Iterator[tuple[str, str]]:
    for key, cells in table.rows.items():
        for column, cell in zip(table.columns, cells, strict=False):
            if column not in table.key:
                yield f"{'/'.join(key)} {column}", cell


def _leaves(document: Golden) -> Iterator[tuple[str, object]]:
    value = document.value if isinstance(document, Document) else None
    if isinstance(value, dict):
        yield from flat(value)


def _unread(version: Version, said: str) -> Finding:
    return Finding(
        kind="unreadable",
        severity=Severity.WARN,
        message=f"version {version.commit[:10] or WORK_TREE}: {said}; it counts as a point that could not be tried",
        path=version.path,
        where=version.commit[:10],
        next=f"git show {quote(f'{version.commit}:{version.path}')}" if version.commit else None,
    )


def _no_blob(version: Version) -> Finding:
    return Finding(
        kind="cannot-read",
        severity=Severity.WARN,
        message=f"expected git to have {version.path} of {version.commit[:10]}, found that the object is missing",
        path=version.path,
        where=version.commit[:10],
        next="git fsck",
    )
