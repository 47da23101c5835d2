"""One artifact of a bucket, brought to its shelf in the cache.

Of a large archive only the end is read first, where it says what it holds, and then the wanted
members' bytes alone. A shelf belongs to one version of an artifact, so that what an earlier process
left on it, half an archive or half of the files, is gone on from.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import BinaryIO, cast

import msgspec

from karat.sources.archive import Archive, Limits, Member, shown
from karat.sources.bucket_store import BucketStore
from karat.sources.crew import in_parallel
from karat.sources.layout import Entry, Group
from karat.sources.listing import Artifact, Progress
from karat.sources.ranges import Stretches, coalesced, weight
from karat.sources.shelf import Kept, Shelf
from karat.sources.unusable import Unusable

_SMALL = 1 << 18
"""An archive up to this size is read whole: two more requests would take longer."""
_TAIL = 0xFFFF + 22 + 20 + 56
"""Where an archive's end record is, however long its comment."""
_MOST = 0.6
"""If more of an archive than this is wanted, all of it is read."""
_FILES_AT_ONCE = 8
_NOTE_EVERY = 64
_DAMAGE = {"artifact-corrupt", "artifact-truncated", "artifact-not-zip"}

Wanted = Callable[[str], bool]
Obtained = tuple[tuple[str, ...], dict[str, Path]]
"""All names of an artifact, and its wanted files."""


class Watch:
    """Counts what comes, and tells whoever watches; several threads may bring one artifact."""

    def __init__(self, artifact: Artifact, progress: Progress | None) -> None:
        self._artifact = artifact
        self._progress = progress
        self._lock = threading.Lock()
        self._begun = False
        self.received = 0

    def begin(self, total: int) -> None:
        """The first bytes are about to come; so many will."""
        if self._progress is not None and not self._begun:
            self._progress.begin(self._artifact, total)
            self._progress.advance(self._artifact, self.received)
        self._begun = True

    def advance(self, count: int) -> None:
        with self._lock:
            self.received += count
        if self._progress is not None and self._begun:
            self._progress.advance(self._artifact, count)

    def end(self) -> None:
        if self._progress is not None and self._begun:
            self._progress.end(self._artifact)


def version(group: Group) -> str:
    """What tells this content of a group from any other."""
    parts = [f"{e.name}\0{e.size}\0{e.tag or e.modified}" for e in group.entries]
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


class BucketFetch:
    """Brings one artifact to a shelf."""

    def __init__(
        self,
        store: BucketStore,
        shelf: Shelf,
        limits: Limits,
        watch: Watch,
        check_stopped: Callable[[], None],
    ) -> None:
        self._store = store
        self._shelf = shelf
        self._limits = limits
        self._watch = watch
        self._check_stopped = check_stopped

    def obtain(self, group: Group, wanted: Wanted) -> Obtained:
        """Names and wanted files; what an earlier process left is doubted before the server is."""
        if not group.packed:
            return self._loose(group, wanted)
        leftovers = any(self._shelf.folder.iterdir())
        try:
            return self._packed(group.entries[0], wanted)
        except Unusable as error:
            if error.kind in _DAMAGE:
                self._shelf.forget()
            if not leftovers or error.kind not in _DAMAGE:
                raise
        return self._packed(group.entries[0], wanted)

    def _packed(self, entry: Entry, wanted: Wanted) -> Obtained:
        """An archive's wanted members, by their own bytes where that is less."""
        names = self._shelf.record.names
        if names is not None:
            chosen = [name for name in names if wanted(name)]
            here = self._here(chosen)
            if len(here) == len(chosen):
                return names, self._paths(here)
        tail = 0 if entry.size <= _SMALL else entry.size - _TAIL
        with closing(Stretches(entry.size, partial(self._stretch, entry))) as remote:
            remote.add(tail, entry.size)
            archive = Archive(cast("BinaryIO", remote), self._limits)
            members = archive.wanted(wanted)
            here = self._here([member.name for member in members])
            missing = [member for member in members if member.name not in here]
            spans = _spans(missing, tail)
            self._watch.begin(self._watch.received + weight(spans))
            for span in spans:
                remote.add(*span)
            here |= self._unpacked(archive, missing)
        self._shelf.drop_parts()
        return archive.names, self._paths(here)

    def _stretch(self, entry: Entry, start: int, end: int) -> Path:
        """Bytes of an object; what is here of them already is not asked for again."""
        path = self._shelf.part(start, end)
        with path.open("ab", buffering=0) as file:
            for chunk in self._store.read(entry, start + file.tell(), end):
                self._check_stopped()
                file.write(chunk)
                self._watch.advance(len(chunk))
        return path

    def _unpacked(self, archive: Archive, missing: Sequence[Member]) -> dict[str, Kept]:
        kept: dict[str, Kept] = {}
        try:
            for member in missing:
                fill = partial(archive.extract, member)
                kept[member.name] = self._shelf.keep_member(member.name, fill)
        finally:
            self._note(archive.names, kept)
        return kept

    def _loose(self, group: Group, wanted: Wanted) -> Obtained:
        """The wanted objects of a folder."""
        names = {group.member(entry): entry for entry in group.entries}
        chosen = {name: entry for name, entry in names.items() if wanted(name)}
        _check_sizes(chosen, self._limits)
        here = self._here(list(chosen))
        tasks = [
            partial(self._file, name, entry) for name, entry in chosen.items() if name not in here
        ]
        self._watch.begin(sum(e.size for name, e in chosen.items() if name not in here))
        fresh: dict[str, Kept] = {}
        try:
            for name, kept in in_parallel(tasks, _FILES_AT_ONCE, stop=lambda: None):
                fresh[name] = kept
                if len(fresh) % _NOTE_EVERY == 0:
                    self._note(tuple(names), fresh)
        finally:
            self._note(tuple(names), fresh)
        return tuple(names), self._paths(here | fresh)

    def _file(self, name: str, entry: Entry) -> tuple[str, Kept]:
        def fill(file: BinaryIO) -> None:
            for chunk in self._store.read(entry, 0, entry.size):
                self._check_stopped()
                file.write(chunk)
                self._watch.advance(len(chunk))

        return name, self._shelf.keep_member(name, fill)

    def _here(self, names: Sequence[str]) -> dict[str, Kept]:
        """Those that are on the shelf, and whole."""
        kept = self._shelf.record.members
        return {n: kept[n] for n in names if n in kept and self._shelf.find(kept[n]) is not None}

    def _paths(self, kept: Mapping[str, Kept]) -> dict[str, Path]:
        return {name: self._shelf.folder / one.file for name, one in kept.items()}

    def _note(self, names: tuple[str, ...], fresh: Mapping[str, Kept]) -> None:
        record = self._shelf.record
        members = {**record.members, **fresh}
        self._shelf.note(msgspec.structs.replace(record, names=names, members=members))


def _spans(missing: Sequence[Member], tail: int) -> list[tuple[int, int]]:
    """What of an archive is still to be brought, if everything from `tail` on is here."""
    before = [member for member in missing if member.start < tail]
    spans = coalesced((member.start, min(member.end, tail)) for member in before)
    return [(0, tail)] if weight(spans) > _MOST * tail else spans


def _check_sizes(chosen: Mapping[str, Entry], limits: Limits) -> None:
    for name, entry in chosen.items():
        if entry.size > limits.member:
            raise Unusable(
                "archive-refused",
                f"{shown(name)} has {entry.size:,} bytes, at most {limits.member:,} are allowed",
            )
    total = sum(entry.size for entry in chosen.values())
    if total > limits.total:
        raise Unusable(
            "archive-refused",
            f"its wanted files have {total:,} bytes, at most {limits.total:,} are allowed",
        )
