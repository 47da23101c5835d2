"""The line of goldens.lock.json that says where a recorded golden came from."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from karat.findings import CannotVerify
from karat.goldens.git import find_root
from karat.goldens.lock import NAME, Entry, Provenance, group_root, read_lock, write_lock
from karat.goldens.paths import PathFilter
from karat.runs.artifact import told_by_ci

SOURCE = "record"
_SHARED = tuple(Provenance.__struct_fields__)


class LockLine(msgspec.Struct, frozen=True, kw_only=True):
    """One golden's place in the lock of its group."""

    file: Path
    path: str
    """The golden, relative to the lock's folder."""
    entries: Mapping[str, Entry]

    def knows(self, data: bytes, origin: Provenance) -> bool:
        """Whether nothing is to be said about these bytes that the lock does not say."""
        entry = self.entries.get(self.path)
        if entry is None:
            return not self.entries and origin.accepted is None
        accepted = bool(entry.accepted or any(one.accepted for one in entry.metrics.values()))
        told = origin.accepted is None or accepted
        return told and entry.sha256 == hashlib.sha256(data).hexdigest()

    def note(self, data: bytes, origin: Provenance, metrics: Sequence[str]) -> bool:
        """Write the line for a golden with these bytes; with metrics, only theirs is new."""
        if not self.entries and origin.accepted is None:
            return False  # no refresh has begun a lock here, and there is nothing to own up to
        digest = hashlib.sha256(data).hexdigest()
        shared = {name: getattr(origin, name) for name in _SHARED}
        entry = Entry(**shared, sha256=digest)
        old = self.entries.get(self.path)
        if metrics:
            base = {name: getattr(old, name) for name in _SHARED} if old else {"source": "unknown"}
            earlier = dict(old.metrics) if old else {}
            entry = Entry(
                **base, sha256=digest, metrics={**earlier, **dict.fromkeys(metrics, origin)}
            )
        return write_lock(self.file, {**self.entries, self.path: entry})


def lock_line(golden: Path, globs: Sequence[str], exclude: Sequence[str]) -> LockLine | None:
    """Where the lock would speak of this golden; None outside a repository or the golden paths."""
    target = golden.resolve()
    folder = next(parent for parent in target.parents if parent.is_dir())
    try:
        root = find_root(folder)
    except CannotVerify:  # no git here: then there is no lock that a refresh would have made
        root = None
    if root is None:
        return None
    path = target.relative_to(root.resolve()).as_posix()
    if not PathFilter(globs, exclude).covers(path):
        return None
    group = group_root(path, tuple(globs))
    file = root / group / NAME
    below = path[len(group) + 1 :] if group else path
    return LockLine(file=file, path=below, entries=read_lock(file))


def origin_of(environment: Mapping[str, str], *, accepted: bool, date: str | None) -> Provenance:
    """What this process knows of where a golden comes from."""
    told = told_by_ci(environment)
    return Provenance(
        source=SOURCE,
        run=told.get("run_id"),
        attempt=told.get("attempt"),
        commit=told.get("commit"),
        job=told.get("job"),
        image=told.get("image"),
        date=date,
        accepted="--accept-incomplete" if accepted else None,
    )
