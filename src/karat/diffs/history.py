"""The moves that goldens made from refresh to refresh: read from git once, kept, and extended by what is new.

git names every pair of versions that a commit of the first-parent line replaced; each pair is compared as `karat diff`
would. What came of it lies in git's own folder: it is never committed, goes with the clone, and can be deleted at any time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from karat.compare.change import Change, MetricChange, Verdict
from karat.compare.history import Past
from karat.findings import CannotVerify
from karat.goldens.paths import PathFilter, identity_of
from karat.report.words import count
from karat.system import git
from karat.system.files import bytes_of, write_bytes

if TYPE_CHECKING:
    from karat.diffs.diff import DiffOptions

_SCHEMA = "karat.history/1"
_AT_ONCE = 4000
"""Pairs that are compared before their curves and findings are let go."""
_MOVED = frozenset({Verdict.NOISE, Verdict.DRIFT, Verdict.BREAK})


class Replaced(msgspec.Struct, array_like=True):
    """One golden that a commit replaced."""

    path: int
    old: bytes
    new: bytes
    """The two blobs; empty where it was added or deleted."""
    sizes: dict[int, float] | None = None
    """Metric → the size of its move; None while the two are not compared."""


class Refresh(msgspec.Struct, array_like=True):
    """A commit that changed goldens."""

    commit: str
    seconds: int
    goldens: list[Replaced]


class KeptHistory(msgspec.Struct, array_like=True):
    """What the cache holds: all refreshes that lead to a commit. Names stand in it once, and as numbers elsewhere."""

    schema: str = _SCHEMA
    tip: str = ""
    paths: list[str] = msgspec.field(default_factory=list)
    metrics: list[str] = msgspec.field(default_factory=list)
    refreshes: list[Refresh] = msgspec.field(default_factory=list)

    def moves(self) -> dict[str, dict[str, list[float]]]:
        """Golden → metric → sizes; a pair that a merge brings a second time counts once."""
        found: dict[str, dict[str, list[float]]] = {}
        seen = set()
        for one in (golden for refresh in self.refreshes for golden in refresh.goldens):
            key = one.path, one.old, one.new
            if one.sizes and key not in seen:
                seen.add(key)
                by_metric = found.setdefault(self.paths[one.path], {})
                for metric, size in one.sizes.items():
                    if isfinite(size) and size >= 0:
                        by_metric.setdefault(self.metrics[metric], []).append(size)
        return found


def read_past(root: Path, commit: str, options: DiffOptions) -> Past:
    """The moves up to a commit. History helps; that it cannot be read is said, and costs nobody the diff."""
    try:
        kept, missing = kept_history(root, commit, options, compare=True)
        moves = kept.moves()
    except (CannotVerify, LookupError) as error:
        hint = f"in a partial clone, {git.REFETCH} brings what is missing"
        return Past({}, {}, f"the history cannot be read: {error}; {hint}")
    total = sum(max(map(len, metrics.values()), default=0) for metrics in moves.values())
    notes = [f"held against {count(total, 'earlier update')} of goldens in {count(len(kept.refreshes), 'commit')}"]
    if missing:
        notes.append(f"{count(missing, 'earlier version')} not in this clone ({git.REFETCH} brings them)")
    if (git.common_folder(root) / "shallow").exists():
        notes.append("the clone is shallow, so its history is cut (git fetch --unshallow brings the rest)")
    platforms = {path: identity_of(path, options.cases).get("platform", "") for path in moves}
    return Past(moves, platforms, "; ".join(notes))


def kept_history(root: Path, commit: str, options: DiffOptions, *, compare: bool) -> tuple[KeptHistory, int]:
    """The refreshes up to a commit, from the cache as far as it has them, and how many versions git does not have."""
    # Other patterns find other goldens; other rules measure timings otherwise.
    steady = [
        (r.pattern, r.path, sorted(r.sets.items()))
        for r in options.rules.rules
        if {"steady", "warm_up"} & r.sets.keys()
    ]
    asked = repr((_SCHEMA, [*options.globs], [*options.exclude], steady)).encode("utf-8", "backslashreplace")
    file = git.history_folder(root) / f"{sha256(asked).hexdigest()[:16]}.msgpack"
    kept = _load(file)
    changed = False
    if kept.tip != commit:
        fresh, gone = _since(root, kept, commit, options)
        changed = bool(fresh) or not kept.tip
        if fresh or gone:
            kept = _joined(kept, fresh, gone)
        kept.tip = commit
    missing = 0
    if not compare:
        return kept, missing  # and nothing is written: whoever finds it would take the rest for compared
    compared, missing = _compare(root, kept, options)
    if changed or compared:
        with suppress(OSError):  # a cache that cannot be written costs time, never the work
            file.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(file, msgspec.msgpack.encode(kept), durable=False)
    return kept, missing


def _load(file: Path) -> KeptHistory:
    """What is kept; nothing where it is damaged, or somebody else's."""
    with suppress(OSError, ValueError, RecursionError, MemoryError):
        data = bytes_of(file)
        kept = msgspec.msgpack.decode(data, type=KeptHistory) if data else KeptHistory()
        numbers = [golden for refresh in kept.refreshes for golden in refresh.goldens]
        good = git.is_commit_id(kept.tip) and all(0 <= one.path < len(kept.paths) for one in numbers)
        metrics = {metric for one in numbers for metric in one.sizes or ()}
        if good and kept.schema == _SCHEMA and all(0 <= metric < len(kept.metrics) for metric in metrics):
            return kept
    return KeptHistory()


def _since(
    root: Path, kept: KeptHistory, commit: str, options: DiffOptions
) -> tuple[list[tuple[str, int, git.GitChange]], set[str]]:
    """What is new since the kept tip, and the kept commits that do not lead here."""
    paths = [_pathspec(glob) for glob in options.globs]
    gone = {refresh.commit for refresh in kept.refreshes}
    commits = commit
    if kept.tip:
        with suppress(CannotVerify):  # the tip is gone: a branch that was rewritten and collected
            gone = set(git.run_git(root, "rev-list", kept.tip, f"^{commit}").decode().split())
            commits = f"{kept.tip}..{commit}"
    is_golden = PathFilter(options.globs, options.exclude)
    fresh = [entry for entry in git.history(root, commits, *paths) if is_golden(entry[2].path) and not entry[2].special]
    return fresh, gone


def _pathspec(glob: str) -> str:
    """What git is asked for, which may be more than the glob means."""
    loose = re.sub(r"\{[^{}/]*\}|\[", lambda found: "?" if found[0] == "[" else "*", glob)
    if re.search(r"[^/]\*\*|\*\*[^/]", loose):  # `**` beside other characters is karat's alone
        loose = loose.partition("**")[0].rpartition("/")[0] + "/**" if "/" in loose.partition("**")[0] else "**"
    return f":(top,glob){loose}"


def _joined(kept: KeptHistory, fresh: Sequence[tuple[str, int, git.GitChange]], gone: set[str]) -> KeptHistory:
    """The kept history with new refreshes and without others; what was compared once is not compared again."""
    known = {(one.path, one.old, one.new): one.sizes for refresh in kept.refreshes for one in refresh.goldens}
    numbers = {path: number for number, path in enumerate(kept.paths)}
    new: dict[str, Refresh] = {}
    for commit, seconds, change in fresh:
        path = numbers.setdefault(change.path, len(numbers))
        key = path, bytes.fromhex(change.old or ""), bytes.fromhex(change.new or "")
        sizes = known.get(key) if change.old and change.new else {}
        new.setdefault(commit, Refresh(commit, seconds, [])).goldens.append(Replaced(*key, sizes))
    rest = [refresh for refresh in kept.refreshes if refresh.commit not in gone and refresh.commit not in new]
    return KeptHistory(paths=[*numbers], metrics=kept.metrics, refreshes=[*new.values(), *rest])


def _compare(root: Path, kept: KeptHistory, options: DiffOptions) -> tuple[bool, int]:
    """Fills in the sizes of what is not compared yet: whether there was any, and how many versions git does not have."""
    waiting = [one for refresh in kept.refreshes for one in refresh.goldens if one.sizes is None]
    if not waiting:
        return False, 0
    from karat.diffs.sides import Blob, Item
    from karat.diffs.workers import Task, compare_items

    # Versions of one golden after another, oldest first: each is read once, and git unpacks them quickly.
    waiting.reverse()
    waiting.sort(key=lambda one: one.path)
    task = Task(cases=(), rules=options.rules, status=options.status)
    numbers = {metric: number for number, metric in enumerate(kept.metrics)}
    missing = done = 0
    for start in range(0, len(waiting), _AT_ONCE):
        part = waiting[start : start + _AT_ONCE]
        where = str(root)
        items = [
            Item(kept.paths[one.path], Blob(where, one.old.hex()), Blob(where, one.new.hex()), certain=True)
            for one in part
        ]
        for one, change in zip(part, compare_items(items, task, jobs=options.jobs).changes, strict=True):
            if any(finding.kind == "cannot-read" for finding in change.findings):
                missing += 1
                continue
            done += 1
            rows = change.metrics if change.verdict is not Verdict.UNREADABLE else ()
            one.sizes = {numbers.setdefault(row.metric, len(numbers)): row.size for row in rows if row.size is not None}
        if options.progress is not None:
            options.progress(min(start + _AT_ONCE, len(waiting)), len(waiting))
    kept.metrics = [*numbers]
    return done > 0, missing


def with_history(changes: Iterable[Change], past: Past) -> Iterator[Change]:
    """The changes, each row that moved held against the past; its finding says so."""
    for change in changes:
        rows = tuple(_held(row, change, past) for row in change.metrics)
        said = {row.metric: row.history.sentence for row in rows if row.history is not None}
        findings = tuple(
            replace(f, message=f"{f.message}; {said[f.metric]}") if f.kind == "value-drift" and f.metric in said else f
            for f in change.findings
        )
        yield replace(change, metrics=rows, findings=findings)


def _held(row: MetricChange, change: Change, past: Past) -> MetricChange:
    if not row.size or row.verdict not in _MOVED:
        return row
    found = past.about(row.size, row.metric, change.path, change.identity.get("platform", ""))
    return msgspec.structs.replace(row, history=found)
