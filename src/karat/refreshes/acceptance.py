"""Acceptance: whether what came in may replace the golden that is there. Pure.

The job's conclusion rejects nothing: a moved golden is why it failed. What is rejected is content that
is not all there. Values that moved far are taken with a warning; `karat diff` and `karat stage` object to
them, which is where a person decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

import msgspec
from msgspec.structs import replace

from karat.compare.change import Change
from karat.compare.pairs import GoldenPair, compare_many
from karat.findings import Finding, Severity, fail, warn
from karat.goldens.shapes import Golden, Reading, Series, Table, with_columns, with_curves
from karat.refreshes.claims import Claim
from karat.refreshes.jobs import UNFINISHED, RefreshOptions


class Incoming(msgspec.Struct, frozen=True, kw_only=True):
    """What wants to become a golden, read and put together."""

    path: str
    reading: Reading
    identity: Mapping[str, str] = msgspec.field(default_factory=dict)
    conclusion: str | None = None
    findings: tuple[Finding, ...] = ()  # What was noticed on the way here.
    base: Reading | None = None  # What is in the work tree, where only some metrics go into it.
    claims: tuple[Claim, ...]
    data: bytes | None = None  # The incoming bytes, where one file is the whole golden.
    seen: bytes | None = None  # What was in the work tree when it was decided on.


class Acceptance(msgspec.Struct, frozen=True, kw_only=True):
    """The golden to write, or None where it is refused."""

    golden: Golden | None
    change: Change
    findings: tuple[Finding, ...]
    accepted: bool = False  # Taken only because the user said so.
    metrics: tuple[str, ...] = ()


Merged = tuple[Reading, tuple[str, ...]]
"""What would be in the work tree: the new values, or the old file with some of them, and the names of those."""


def decide_all(incoming: Sequence[tuple[Incoming, Reading | None]], options: RefreshOptions) -> list[Acceptance]:
    """The decision on each, against the golden that is there (None: there is none)."""
    merged = [_merge(new, old, options) for new, old in incoming]
    pairs = [
        GoldenPair(path=new.path, old=old, new=one, identity=new.identity)
        for (new, old), (one, _) in zip(incoming, merged, strict=True)
    ]
    changes = compare_many(pairs, options.rules, status=tuple(options.status))
    return [_decide(new, one, change, options) for (new, _), one, change in zip(incoming, merged, changes, strict=True)]


def _merge(new: Incoming, old: Reading | None, options: RefreshOptions) -> Merged:
    golden, before = new.reading.golden, old.golden if old else None
    if golden is None:
        return new.reading, ()
    if options.metrics:
        # The rest of the file stays as it is, not as HEAD has it: it may be an earlier refresh's.
        base = (new.base.golden if new.base is not None else None) or before
        if isinstance(golden, Series) and isinstance(base, Series | None):
            mine, there = base or Series({}), (*golden.metrics, *golden.scalars)
            taken = tuple(name for name in there if is_asked_for(name, options.metrics))
            known = [name for name in (*mine.metrics, *mine.scalars) if is_asked_for(name, options.metrics)]
            lacking = [name for name in known if name not in taken]
            if taken and not lacking:
                return replace(new.reading, golden=with_curves(mine, golden, taken)), taken
            made: Merged | Finding = _not_taken(lacking, there, "metric")
        elif isinstance(golden, Table) and isinstance(base, Table) and base.key == golden.key:
            made = _only_columns(new.reading, golden, base, options.metrics)
        else:
            made = fail("type-changed", f"--metric knows curves and columns; this is a {golden.shape}")
        if isinstance(made, Finding):
            made = replace(new.reading, golden=None, findings=(made,)), ()
        return made
    keep_rows = options.accept_incomplete and not options.prune
    if keep_rows and isinstance(golden, Table) and isinstance(before, Table):
        # Rows that did not come in stay as they were: they are removed by --prune alone.
        lost = {key: cells for key, cells in before.rows.items() if key not in golden.rows}
        # Without all of the old columns the old rows would lose cells; it is the columns that are lost.
        if not lost or before.key != golden.key or not set(before.columns) <= set(golden.columns):
            return new.reading, ()
        places = [before.columns.index(c) if c in before.columns else None for c in golden.columns]
        rows = {key: tuple("" if i is None else cells[i] for i in places) for key, cells in lost.items()}
        names = ", ".join(" / ".join(key) for key in list(lost)[:5])
        message = f"{len(lost)} rows are missing from the new results and stay as they were: {names}"
        findings = (*new.reading.findings, fail("lost-rows", message))
        return replace(new.reading, golden=replace(golden, rows={**golden.rows, **rows}), findings=findings), ()
    return new.reading, ()


def is_asked_for(name: str, globs: Sequence[str]) -> bool:
    """Whether a metric is one of those that --metric means."""
    return any(name == glob or fnmatchcase(name, glob) for glob in globs)


def _only_columns(reading: Reading, golden: Table, before: Table, globs: Sequence[str]) -> Merged | Finding:
    names = tuple(c for c in before.columns if is_asked_for(c, globs) and c not in before.key)
    lost = [name for name in names if name not in golden.columns]
    if lost or not names:
        return _not_taken(lost, before.columns, "column")
    if absent := [" / ".join(key) for key in before.rows if key not in golden.rows]:
        rows = f"{len(absent)} rows are missing from the new results: {', '.join(absent[:5])}"
        return fail("lost-rows", f"--metric: {rows}")
    findings = list(reading.findings)
    if more := [" / ".join(key) for key in golden.rows if key not in before.rows]:
        # Some columns alone make no row.
        message = f"--metric adds no rows, so {len(more)} that came in are left out: {', '.join(more[:5])}"
        findings.append(warn("gained-rows", message))
    return replace(reading, golden=with_columns(before, golden, names), findings=tuple(findings)), names


def _not_taken(lost: Sequence[str], there: Sequence[str], what: str) -> Finding:
    """What --metric means did not come in; or it means nothing, which another run would not mend."""
    if lost:
        return fail("lost-metric", f"--metric: missing from the new results: {', '.join(lost)}")
    names = ", ".join(there[:8]) + (", …" if len(there) > 8 else "")
    return fail("lost-metric", f"--metric: it has no such {what}, only {names or 'none'}", next="karat refresh --help")


def _decide(new: Incoming, merged: Merged, change: Change, options: RefreshOptions) -> Acceptance:
    findings = [f if f.path else replace(f, path=new.path) for f in (*new.findings, *change.findings)]
    if options.prune:
        findings = [
            replace(f, severity=Severity.INFO, message=f"pruned: {f.message}") if f.kind == "lost-rows" else f
            for f in findings
        ]
    objections = [f for f in findings if f.condemns]
    golden = merged[0].golden
    accepted = bool(objections) and options.accept_incomplete and golden is not None
    if objections and not accepted:
        golden = None
        # Of a file that is refused, only the reasons matter; how far its remains moved does not. Rows are gone with
        # the shard that is missing, and no --prune is the answer to that.
        if any(f.kind == "missing-shard" for f in objections):
            objections = [f for f in objections if f.kind != "lost-rows"]
        advice = {"lost-rows": "; if that is meant, --prune"}
        findings = [
            replace(f, message=f"refused, the old golden is kept: {f.message}{advice.get(f.kind, '')}")
            for f in objections
        ]
    else:
        # Nothing that is taken fails: whether to believe values that moved is for `karat diff`.
        findings = [replace(f, severity=Severity.WARN) if f.severity is Severity.FAIL else f for f in findings]
    if accepted:
        kinds = ", ".join(sorted({f.kind for f in objections}))
        message = f"taken although karat objects ({kinds}), because --accept-incomplete was given"
        findings.append(warn("accepted-incomplete", message, path=new.path))
    if golden is not None and new.conclusion in UNFINISHED:
        how = "was cancelled" if new.conclusion == "cancelled" else "timed out"
        message = f"taken from a job that {how}; the file itself is complete"
        findings.append(warn("from-unfinished-job", message, path=new.path))
    told = tuple(sorted(findings, key=lambda f: f.severity.rank))
    return Acceptance(golden=golden, change=change, findings=told, accepted=accepted, metrics=merged[1])
