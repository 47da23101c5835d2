"""The moves that goldens made from refresh to refresh: read from git once, kept, and extended by what is new.

git names every pair of versions that a commit of the first-parent line replaced; each pair is compared as `karat diff`
would. What came of it lies in git's own folder: it is never committed, goes with the clone, and can be deleted at any time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from hashlib import sha256
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from karat.compare.change import Change, Verdict
from karat.compare.history import Past
from karat.findings import CannotVerify
from karat.goldens.paths import PathFilter, identity_of
from karat.report.words import count
from karat.system import git
from karat.system.files import bytes_of, write_bytes

if TYPE_CHECKING:
    from karat.diffs.diff import DiffOptions

_SCHEMA = "karat.history/2"
_AT_ONCE = 4000  # Pairs that are compared before their curves and findings are let go.
_STEADY = frozenset({"steady", "warm_up"})
_MOVED = frozenset({Verdict.NOISE, Verdict.DRIFT, Verdict.BREAK})


class Replaced(msgspec.Struct, array_like=True):
    """One golden that a commit replaced."""

    path: str
    old: bytes
    new: bytes  # The two blobs; empty where it was added or deleted.
    sizes: dict[str, float] | None = None  # Metric → the size of its move; None while the two are not compared.


class Refresh(msgspec.Struct, array_like=True):
    """A commit that changed goldens."""

    commit: str
    seconds: int
    goldens: list[Replaced]


class KeptHistory(msgspec.Struct, array_like=True):
    """What the cache holds: all refreshes that lead to a commit."""

    schema: str = _SCHEMA
    tip: str = ""
    refreshes: list[Refresh] = msgspec.field(default_factory=list)

    def replaced(self) -> Iterator[Replaced]:
        """Every golden that was replaced, newest first."""
        return (golden for refresh in self.refreshes for golden in refresh.goldens)

    def moves(self) -> dict[str, dict[str, list[float]]]:
        """Golden → metric → sizes; a pair that a merge brings a second time counts once."""
        found: dict[str, dict[str, list[float]]] = {}
        seen = set()
        for one in self.replaced():
            key = one.path, one.old, one.new
            if one.sizes and key not in seen:
                seen.add(key)
                by_metric = found.setdefault(one.path, {})
                for metric, size in one.sizes.items():
                    if isfinite(size) and size >= 0:
                        by_metric.setdefault(metric, []).append(size)
        return found


def read_past(root: Path, commit: str, options: DiffOptions) -> Past:
    """The moves up to a commit. History helps; that it cannot be read is said, and costs nobody the diff."""
    try:
        kept = kept_history(root, commit, options, compare=True)
        moves = kept.moves()
    except (CannotVerify, LookupError) as error:
        hint = f"in a partial clone, {git.REFETCH} brings what is missing"
        return Past({}, note=f"the history cannot be read: {error}; {hint}")
    total = sum(max(map(len, metrics.values()), default=0) for metrics in moves.values())
    notes = [f"held against {count(total, 'earlier update')} of goldens in {count(len(kept.refreshes), 'commit')}"]
    if missing := sum(one.sizes is None for one in kept.replaced()):
        notes.append(f"{count(missing, 'earlier version')} not in this clone ({git.REFETCH} brings them)")
    if (git.common_folder(root) / "shallow").exists():
        notes.append("the clone is shallow, so its history is cut (git fetch --unshallow brings the rest)")
    platforms = {path: identity_of(path, options.cases).get("platform", "") for path in moves}
    return Past(moves, platforms, "; ".join(notes))


def kept_history(root: Path, commit: str, options: DiffOptions, *, compare: bool) -> KeptHistory:
    """The refreshes up to a commit, from the cache as far as it has them."""
    # Other patterns find other goldens; other rules measure timings otherwise.
    steady = [(r.pattern, r.path, sorted(r.sets.items())) for r in options.rules.rules if _STEADY & r.sets.keys()]
    asked = repr((_SCHEMA, [*options.globs], [*options.exclude], steady)).encode("utf-8", "backslashreplace")
    file = git.history_folder(root) / f"{sha256(asked).hexdigest()[:16]}.msgpack"
    kept = load(file)
    changed = False
    if kept.tip != commit:
        kept, changed = _extended(kept, root, commit, options)
    # What is not compared is not written: whoever finds it would take it for what a diff has asked for.
    if compare and (_compare(root, kept, options) or changed):
        with suppress(OSError):  # a cache that cannot be written costs time, never the work
            file.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(file, msgspec.msgpack.encode(kept), durable=False)
    return kept


def load(file: Path) -> KeptHistory:
    """What is kept; nothing where it is damaged, or somebody else's."""
    with suppress(OSError, ValueError, RecursionError, MemoryError):
        kept = msgspec.msgpack.decode(bytes_of(file) or b"", type=KeptHistory)
        plausible = all(0 <= refresh.seconds < 10**11 for refresh in kept.refreshes)
        if plausible and git.is_commit_id(kept.tip) and kept.schema == _SCHEMA:
            return kept
    return KeptHistory()


def _extended(kept: KeptHistory, root: Path, commit: str, options: DiffOptions) -> tuple[KeptHistory, bool]:
    """The history up to another commit, and whether it goes on from what is kept, and not back.

    What was compared once is not compared again.
    """
    gone, commits = {refresh.commit for refresh in kept.refreshes}, commit
    if kept.tip:
        with suppress(CannotVerify):  # the tip is gone: a branch that was rewritten and collected
            gone = set(git.run_git(root, "rev-list", kept.tip, f"^{commit}").decode().split())
            commits = f"{kept.tip}..{commit}"
    is_golden = PathFilter(options.globs, options.exclude)
    known = {(one.path, one.old, one.new): one.sizes for one in kept.replaced()}
    new: dict[str, Refresh] = {}
    for name, seconds, change in git.history(root, commits, *map(_pathspec, options.globs)):
        if is_golden(change.path) and not change.special:
            key = change.path, bytes.fromhex(change.old or ""), bytes.fromhex(change.new or "")
            sizes = known.get(key) if change.old and change.new else {}
            new.setdefault(name, Refresh(name, seconds, [])).goldens.append(Replaced(*key, sizes))
    rest = [refresh for refresh in kept.refreshes if refresh.commit not in gone and refresh.commit not in new]
    return KeptHistory(tip=commit, refreshes=[*new.values(), *rest]), bool(new) or not gone


def _pathspec(glob: str) -> str:
    """What git is asked for, which may be more than the glob means."""
    loose = re.sub(r"\{[^{}/]*\}|\[", lambda found: "?" if found[0] == "[" else "*", glob)
    if re.search(r"[^/]\*\*|\*\*[^/]", loose):  # `**` beside other characters is karat's alone
        loose = loose.partition("**")[0].rpartition("/")[0] + "/**" if "/" in loose.partition("**")[0] else "**"
    return f":(top,glob){loose}"


def _compare(root: Path, kept: KeptHistory, options: DiffOptions) -> bool:
    """Fills in the sizes of what is not compared yet, where git has both versions; whether there was any."""
    waiting = [one for one in kept.replaced() if one.sizes is None]
    if not waiting:
        return False
    from karat.diffs.sides import Blob, Item
    from karat.diffs.workers import Task, compare_items

    # Versions of one golden after another, oldest first: each is read once, and git unpacks them quickly.
    waiting.reverse()
    waiting.sort(key=lambda one: one.path)
    task = Task(cases=(), rules=options.rules, status=options.status)
    where, done = str(root), 0
    for start in range(0, len(waiting), _AT_ONCE):
        part = waiting[start : start + _AT_ONCE]
        blobs = [(Blob(where, one.old.hex()), Blob(where, one.new.hex())) for one in part]
        items = [Item(one.path, *both, certain=True) for one, both in zip(part, blobs, strict=True)]
        for one, change in zip(part, compare_items(items, task, jobs=options.jobs).changes, strict=True):
            if not any(finding.kind == "cannot-read" for finding in change.findings):
                done += 1
                sized = ((row.metric, row.size) for row in change.metrics)
                one.sizes = {name: size for name, size in sized if size is not None}
        if options.progress is not None:
            options.progress(min(start + _AT_ONCE, len(waiting)), len(waiting))
    return done > 0


def with_history(changes: Iterable[Change], past: Past) -> Iterator[Change]:
    """The changes, each row that moved held against the past; its finding says so, if there is a past."""
    for change in changes:
        platform = change.identity.get("platform", "")
        rows = [*change.metrics]
        for at, row in enumerate(rows):
            if (size := row.size) and row.verdict in _MOVED:
                rows[at] = replace(row, history=past.about(size, row.metric, change.path, platform))
        said = {row.metric: row.history.sentence for row in rows if row.history and row.history.compared_with}
        findings = tuple(
            replace(f, message=f"{f.message}; {said[f.metric]}") if f.kind == "value-drift" and f.metric in said else f
            for f in change.findings
        )
        yield replace(change, metrics=tuple(rows), findings=findings)
