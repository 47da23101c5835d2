"""A review: what changed, what has been decided, and decisions that git holds: accept, reject, and undo.

Accepting stages a golden with its lock line and samples; rejecting puts all of them back as HEAD has them. A decision is
made on what was seen: if HEAD, the index or the file is another by now, it is refused. It is done whole or not at all,
and can be undone, the last one first, until somebody else touches the same files.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec.structs import replace

from karat.diffs.diff import DiffOptions, diff_sides
from karat.diffs.result import Diff, gravest_first, groups_of
from karat.diffs.sides import Revision, WorkTree, resolve_sides
from karat.findings import CannotVerify, ExitCode, Finding, KaratError, Severity, UsageError
from karat.goldens import formats
from karat.goldens.paths import PathFilter
from karat.goldens.provenance import LockEntry, Provenance, place_of, read_lock, write_lock
from karat.goldens.shapes import Golden, Reading
from karat.refreshes import worktree
from karat.refreshes.worktree import Reset, ensure_inside, lock_at, read_golden, render, write_golden
from karat.report.words import count, few
from karat.reviews.causes import Cause, Item, State, causes_of, groups_by_path, metrics_of, with_metric
from karat.reviews.index import (
    Entry,
    Snapshot,
    Standing,
    in_head,
    on_disk,
    put_back,
    set_index,
    snapshot,
    staged_whole,
    standings,
)
from karat.reviews.stage import by_lock, samples_of, stage_lines, write_reason
from karat.system import git
from karat.system.foreign.limits import GOLDEN
from karat.system.hashes import sha256_hex

if TYPE_CHECKING:
    from karat.config import Config

_Deed = Callable[[Path, Sequence[str]], list[Finding]]


class Stale(KaratError):  # noqa: N818 - it is a state of knowledge, not a bug
    """What was decided on is not what is there now."""

    exit_code = ExitCode.CANNOT_VERIFY


class NeedsReason(KaratError):  # noqa: N818 - a question
    """It fails, and nobody said why it is taken all the same."""

    def __init__(self, failing: Sequence[Finding]) -> None:
        kinds = few(sorted({finding.kind for finding in failing}), 3)
        goldens = count(len({finding.path for finding in failing}), "golden")
        said = f"accepting {goldens} with {count(len(failing), 'fail finding')} ({kinds}) needs a reason"
        super().__init__(said, next_command="karat help accept")
        self.failing = tuple(failing)


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What was decided about some goldens, and done."""

    verb: Literal["accepted", "rejected", "would accept", "would reject"]
    paths: tuple[str, ...]
    metric: str | None = None
    reason: str | None = None  # Only where something failed.
    beside: tuple[str, ...] = ()  # Lock files and samples that went along.
    findings: tuple[Finding, ...] = ()  # How to have back what was rejected.


class _Done(msgspec.Struct, frozen=True):
    """A decision with what it takes to undo it."""

    decision: Decision
    head: str  # The commit then: what was committed since is git's to undo.
    before: Snapshot
    after: Snapshot


class Review:
    """What differs between HEAD and the work tree around a folder, under review by one person.

    Several may be under way at once, and none overrules another unseen.
    """

    def __init__(self, start: Path, config: Config, options: DiffOptions) -> None:
        left, right = resolve_sides(None, None, start)
        assert isinstance(left, Revision)  # noqa: S101 - the sides by default
        assert isinstance(right, WorkTree)  # noqa: S101
        self.root = left.root
        self._sides = left, right
        self._config = config
        self._options = options
        self._width = len(left.commit)
        self._done: list[_Done] = []
        self._skipped: set[str] = set()
        self._rejected: dict[str, Item] = {}  # As they were seen once they were put back.
        self._standings: dict[str, Standing] = {}
        self._states: dict[str, State] = {}
        self.refresh()

    # What there is to decide.

    def refresh(self) -> None:
        """Look again at HEAD, the index and the working tree."""
        root, commit = git.root_and_head(self.root)
        self._sides = (Revision(root, "HEAD", commit), self._sides[1])
        # First where they stand, then what they say: what is saved in between is stale, and not decided unseen.
        listed, _ = git.TreeComparison(root, commit, None).finish()
        is_golden = PathFilter(self._options.globs, self._options.exclude, self._options.only)
        self._standings = standings(root, commit, [change.path for change in listed if is_golden(change.path)])
        self._judge(diff_sides(*self._sides, self._options))
        paths = [*self._changes, *self._rejected]
        self._standings |= standings(root, commit, [path for path in paths if path not in self._standings])
        self._states = {path: self._state(path) for path in paths}

    def _judge(self, diff: Diff) -> None:
        self.diff = diff
        self._changes = {change.path: change for change in diff.changes if not change.same_bytes}
        self._causes = causes_of(diff)
        self._groups = groups_by_path(diff.groups)

    def _state(self, path: str) -> State:
        standing = self._standings[path]
        if path in self._rejected and self._rejected[path].seen == standing.seen:
            return "rejected"
        if standing.index == standing.head or (not standing.head and standing.intended):
            return "pending"
        return "accepted" if staged_whole(self.root, standing) else "partly"

    def causes(self) -> tuple[Cause, ...]:
        return self._causes

    def state(self, path: str) -> State:
        """What has been decided about a golden."""
        known = self._states[path]
        return "skipped" if known == "pending" and path in self._skipped else known

    def states(self) -> dict[str, State]:
        """The same of every changed golden, and of those that were rejected."""
        return {path: self.state(path) for path in (*self._changes, *self._rejected)}

    def items(self) -> tuple[Item, ...]:
        """Every changed golden, worst first, and last what was rejected and differs no more."""
        paths = dict.fromkeys(path for cause in self._causes for path in cause.paths)
        return tuple(self.item(path) for path in (*paths, *(p for p in self._rejected if p not in paths)))

    def item(self, path: str) -> Item:
        """One golden, and what has been decided about it."""
        if path not in self._changes:
            if path in self._rejected and self._states[path] == "rejected":
                return self._rejected[path]
            raise UsageError(f"expected a changed golden, found {path!r}", next_command="karat review")
        change, state = self._changes[path], self.state(path)
        seen, groups = self._standings[path].seen, self._groups.get(path, ())
        return Item(path=path, verdict=change.verdict, change=change, groups=groups, state=state, seen=seen)

    def skip(self, paths: Sequence[str]) -> None:
        """Leave goldens for later; only this review remembers it."""
        self._skipped.update(paths)

    def pair(self, path: str) -> tuple[Reading | None, Reading | None]:
        """What HEAD has, and what the working tree has; of what cannot be read, a reading without a golden."""

        def reading(read: Callable[[], bytes | None]) -> Reading | None:
            try:
                data = read()
            except CannotVerify:  # the findings of the change say why
                return Reading(None)
            return None if data is None else formats.read(data, path)

        return reading(lambda: self._blob(self._standings[path].head.get(path))), reading(lambda: self._file(path))

    def again(self) -> Review:
        """The same review for somebody else: a decision in one makes what the other has seen stale."""
        return Review(self.root, self._config, dataclasses.replace(self._options, progress=None))

    def _blob(self, entry: Entry | None) -> bytes | None:
        if entry is None or entry.intended:
            return None
        with closing(git.Blobs(self.root)) as blobs:
            (data,) = blobs.read([entry.oid], GOLDEN.value())
        if isinstance(data, int):
            raise CannotVerify(formats.too_long(data).message)
        if data is None:
            raise CannotVerify(git.no_object(entry.oid), next_command=git.REFETCH)
        return data

    def _file(self, path: str) -> bytes | None:
        return read_golden(self.root, path) if not (self.root / path).is_dir() else None

    def failing(self, paths: Sequence[str], metric: str | None = None) -> list[Finding]:
        """What stands in the way of accepting them without a reason."""
        found = (finding for path in paths for finding in self.item(path).change.findings)
        return [f for f in found if f.severity is Severity.FAIL and (metric is None or f.metric in {None, metric})]

    # Decisions.

    def accept(
        self,
        paths: Sequence[str],
        *,
        metric: str | None = None,
        reason: str | None = None,
        seen: Mapping[str, str] | None = None,
    ) -> Decision:
        """Stage goldens, or one metric of one, with their lock lines and samples."""
        chosen = self._chosen(paths, "accepted", metric, seen)
        failing, reason = self.failing(chosen, metric), (reason or "").strip() or None
        if failing and reason is None:
            raise NeedsReason(failing)
        overruled = sorted({f.path for f in failing}) if reason else []
        locks = by_lock(chosen, self._config.paths)

        def do(temporary: Path, samples: Sequence[str]) -> list[Finding]:
            if reason and overruled:
                write_reason(self.root, overruled, self._config.paths, reason, temporary)
            if metric is None or self._staged_metric(chosen[0], metric):
                git.about(self.root, [*chosen, *samples], "add", "--all")
                for lock, names in locks.items():
                    lines = read_lock(self.root / lock)
                    stage_lines(self.root, lock, {name: lines.get(name) for name in names.values()})
            return []

        made = Decision(verb="accepted", paths=tuple(chosen), metric=metric, reason=reason if overruled else None)
        return self._decide(made, do, written=list(locks) if overruled else [])

    def reject(
        self, paths: Sequence[str], *, metric: str | None = None, seen: Mapping[str, str] | None = None
    ) -> Decision:
        """Put goldens, or one metric of one, back as HEAD has them, with their lock lines and samples."""
        chosen = self._chosen(paths, "rejected", metric, seen)
        locks = by_lock(chosen, self._config.paths)

        def do(temporary: Path, samples: Sequence[str]) -> list[Finding]:
            if metric is not None and not self._restored_metric(chosen[0], metric, temporary):
                return []
            head = {lock: lock_at(self.root, "HEAD", lock) for lock in locks}
            goldens = [file for path in chosen for file in self._standings[path].files]
            known = in_head(self.root, self._sides[0].commit, [*goldens, *samples])
            set_index(self.root, {file: known.get(file) for file in (*goldens, *samples)})
            for lock, names in locks.items():
                stage_lines(self.root, lock, {name: head[lock].get(name) for name in names.values()})
            lines = {lock: list(names.values()) for lock, names in locks.items()}
            gone = tuple(file for file in (*goldens, *samples) if file not in known)
            reset = Reset(root=self.root, restored=tuple(known), deleted=gone, lines=lines)
            return worktree.put_back(reset, temporary)

        return self._decide(Decision(verb="rejected", paths=tuple(chosen), metric=metric), do)

    def undo(self) -> Decision | None:
        """Put the index and the files back as they were before this review's last decision; None if there is none."""
        if not self._done:
            return None
        last = self._done[-1]
        with git.only_writer(self.root) as temporary:
            there = snapshot(self.root, last.after.index, last.after.files, width=self._width)
            if there != last.after or git.root_and_head(self.root)[1] != last.head:
                what = "HEAD has moved" if there == last.after else "changed"
                said = f"{few(last.decision.paths, 3)}: {what} since it was {last.decision.verb}"
                raise Stale(f"{said}, so it is left as it is", next_command="git status")
            put_back(self.root, last.before, temporary)
        self._done.pop()
        self._settle(last.decision, {})
        return last.decision

    def _chosen(
        self, paths: Sequence[str], state: State, metric: str | None, seen: Mapping[str, str] | None
    ) -> list[str]:
        """Those that are not decided so already."""
        items = [self.item(path) for path in dict.fromkeys(paths)]
        self._fresh({item.path: item.seen for item in items} | dict(seen or {}))
        if metric is not None:
            wrong = f"one golden, found {len(items):,}" if len(items) != 1 else ""
            if not wrong and metric not in (there := metrics_of(items[0].change)):
                wrong = f"a metric of {items[0].path} that changed ({few(there, 8) or 'none'}), found {metric}"
            if wrong:
                raise UsageError(f"--metric: expected {wrong}", next_command="karat review")
        return [item.path for item in items if item.state != state]

    def _fresh(self, seen: Mapping[str, str]) -> dict[str, Standing]:
        """Where goldens stand, which is where they stood when they were seen."""
        now = standings(self.root, self._sides[0].commit, list(seen))
        changed = [path for path, standing in now.items() if standing.seen != seen[path]]
        if changed or git.root_and_head(self.root)[1] != self._sides[0].commit:
            raise Stale(f"changed since it was shown: {few(changed, 3) or 'HEAD'}", next_command="karat review")
        return now

    def _decide(self, made: Decision, do: _Deed, written: Sequence[str] | None = None) -> Decision:
        """Do it, whole or not at all, if everything is still as it was seen; `written`: the files, None for all."""
        if not made.paths:
            return made
        items = {path: self.item(path) for path in made.paths}
        with git.only_writer(self.root) as temporary:
            now = self._fresh({path: item.seen for path, item in items.items()})
            samples, locks = samples_of(self.root, made.paths), list(by_lock(made.paths, self._config.paths))
            touched = [*(file for path in made.paths for file in now[path].files), *samples, *locks]
            before = snapshot(self.root, touched, touched if written is None else written)
            try:
                findings = do(temporary, samples)
                kept = written is None or all(now[path].disk == on_disk(self.root, path, self._width) for path in now)
                if not kept:
                    said = f"{few(made.paths, 3)}: saved while it was being accepted"
                    raise Stale(said, next_command="karat review")  # noqa: TRY301
            except BaseException:
                put_back(self.root, before, temporary)
                raise
            after = snapshot(self.root, before.index, before.files, width=self._width)
        along = [path for path in (*samples, *locks) if before.of(path) != after.of(path)]
        made = replace(made, beside=tuple(along), findings=tuple(findings))
        self._done.append(_Done(made, self._sides[0].commit, before, after))
        self._settle(made, items)
        return made

    def _settle(self, decision: Decision, rejected: Mapping[str, Item]) -> None:
        """What is known of goldens after a decision about them, or after it was undone."""
        paths = decision.paths
        self._skipped.difference_update(paths)
        self._rejected = {path: item for path, item in self._rejected.items() if path not in paths}
        if decision.metric is not None or any(path not in self._changes for path in paths):
            # The same diff, with these goldens as they are now.
            fresh = diff_sides(*self._sides, dataclasses.replace(self._options, only=paths, progress=None))
            kept = [change for change in self.diff.changes if change.path not in paths]
            kept += [change for change in fresh.changes if change.path in paths]
            changes = tuple(sorted(kept, key=gravest_first))
            groups = groups_of(changes, self._options.rules, unchanged=self.diff.unchanged)
            provenance = {path: known for path, known in self.diff.provenance.items() if path not in paths}
            provenance |= {path: fresh.provenance[path] for path in paths if path in fresh.provenance}
            self._judge(replace(self.diff, changes=changes, groups=groups, provenance=provenance))
        self._standings |= standings(self.root, self._sides[0].commit, paths)
        for path in paths:
            whole = decision.metric is None or path not in self._changes
            if decision.verb == "rejected" and path in rejected and whole:
                self._rejected[path] = replace(rejected[path], state="rejected", seen=self._standings[path].seen)
            self._states[path] = self._state(path)

    # One metric.

    def _staged_metric(self, path: str, metric: str) -> bool:
        """Stage HEAD's file with one metric's new values; True if that is the whole golden, which is then to be staged."""
        standing, (lock, name) = self._standings[path], place_of(path, self._config.paths)
        entry = standing.index.get(path) or standing.head[path]
        new, base = self._golden(self._file(path), path), self._blob(entry)
        whole = with_metric(self._golden(base, path), new, metric)
        if whole == new:
            return True
        data = render(whole, old=base, incoming=None, padding=0)
        set_index(self.root, {path: Entry(entry.mode, git.write_object(self.root, data))})
        if (line := read_lock(self.root / lock).get(name)) is not None:
            old = lock_at(self.root, "", lock).get(name)
            mixed = LockEntry.of(line.origin, sha256_hex(data), old, [metric])
            stage_lines(self.root, lock, {name: replace(mixed, accepted=line.accepted)})
        return False

    def _restored_metric(self, path: str, metric: str, temporary: Path) -> bool:
        """Put HEAD's values of one metric into the file, and the index; True if nothing else has changed."""
        standing, (lock, name) = self._standings[path], place_of(path, self._config.paths)
        head, disk, staged = self._blob(standing.head[path]), self._file(path), self._blob(standing.index.get(path))
        old = self._golden(head, path)
        whole = with_metric(self._golden(disk, path), old, metric)
        if whole == old:
            return True
        data = render(whole, old=disk, incoming=None, padding=0)
        write_golden(self.root, path, data, disk, temporary)
        known = lock_at(self.root, "HEAD", lock).get(name)
        origin = known.origin if known else Provenance(source="unknown")
        if (line := read_lock(self.root / lock).get(name)) is not None:
            ensure_inside(self.root, self.root / lock)
            write_lock(self.root / lock, {name: LockEntry.of(origin, sha256_hex(data), line, [metric])}, temporary)
        if staged is not None and staged != head:
            part = with_metric(self._golden(staged, path), old, metric)
            data = render(part, old=staged, incoming=None, padding=0) if part != old else head or b""
            set_index(self.root, {path: Entry(standing.index[path].mode, git.write_object(self.root, data))})
            line = lock_at(self.root, "", lock).get(name)
            if line is not None:
                mixed = LockEntry.of(origin, sha256_hex(data), line, [metric]) if part != old else known
                stage_lines(self.root, lock, {name: mixed})
        return False

    def _golden(self, data: bytes | None, path: str) -> Golden:
        golden = formats.read(data or b"", path).golden
        if golden is None:
            raise UsageError(f"{path}: expected a golden that can be read on both sides", next_command="karat review")
        return golden
