"""One artifact of a bucket, brought to its shelf in the cache.

Of a large archive only the end is read first, where it says what it holds, and then the wanted
members' bytes alone. A shelf belongs to one version of an artifact, so that what an earlier process
left on it, half an archive or half of the files, is gone on from.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import BinaryIO, cast

from karat.sources.archive import Archive, Limits, Member, shown
from karat.sources.bucket_store import BucketStore
from karat.sources.crew import in_parallel
from karat.sources.layout import Entry, Group
from karat.sources.outcome import Obtained, Wanted, Watch
from karat.sources.ranges import Stretches, coalesced, weight
from karat.sources.shelf import Kept, Shelf
from karat.sources.unusable import DAMAGE, Unusable

_SMALL = 1 << 18
"""An archive up to this size is read whole: two more requests would take longer."""
_TAIL = 0xFFFF + 22 + 20 + 56
"""Where an archive's end record is, however long its comment."""
_MOST = 0.6
"""If more of an archive than this is wanted, all of it is read."""
_FILES_AT_ONCE = 8
_NOTE_EVERY = 64


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
            if error.kind in DAMAGE:
                self._shelf.forget()
            if not leftovers or error.kind not in DAMAGE:
                raise
        return self._packed(group.entries[0], wanted)

    def _packed(self, entry: Entry, wanted: Wanted) -> Obtained:
        """An archive's wanted members, by their own bytes where that is less."""
        names = self._shelf.record.names
        if names is not None:
            chosen = [name for name in names if wanted(name)]
            here = self._shelf.here(chosen)
            if len(here) == len(chosen):
                return names, self._shelf.paths(here)
        tail = 0 if entry.size <= _SMALL else entry.size - _TAIL
        with closing(Stretches(entry.size, partial(self._stretch, entry))) as remote:
            remote.add(tail, entry.size)
            archive = Archive(cast("BinaryIO", remote), self._limits)
            members = archive.wanted(wanted)
            here = self._shelf.here([member.name for member in members])
            missing = [member for member in members if member.name not in here]
            spans = _spans(missing, tail)
            self._watch.begin(self._watch.received + weight(spans))
            for span in spans:
                remote.add(*span)
            here |= self._shelf.unpack(archive, missing)
        self._shelf.drop_parts()
        return archive.names, self._shelf.paths(here)

    def _stretch(self, entry: Entry, start: int, end: int) -> Path:
        """Bytes of an object; what is here of them already is not asked for again."""
        path = self._shelf.part(start, end)
        with path.open("ab", buffering=0) as file:
            for chunk in self._store.read(entry, start + file.tell(), end):
                self._check_stopped()
                file.write(chunk)
                self._watch.advance(len(chunk))
        return path

    def _loose(self, group: Group, wanted: Wanted) -> Obtained:
        """The wanted objects of a folder."""
        names = {group.member(entry): entry for entry in group.entries}
        chosen = {name: entry for name, entry in names.items() if wanted(name)}
        _check_sizes(chosen, self._limits)
        here = self._shelf.here(list(chosen))
        tasks = [
            partial(self._file, name, entry) for name, entry in chosen.items() if name not in here
        ]
        self._watch.begin(sum(e.size for name, e in chosen.items() if name not in here))
        fresh: dict[str, Kept] = {}
        try:
            for name, kept in in_parallel(tasks, _FILES_AT_ONCE, stop=lambda: None):
                fresh[name] = kept
                if len(fresh) % _NOTE_EVERY == 0:
                    self._shelf.learn(tuple(names), fresh)
        finally:
            self._shelf.learn(tuple(names), fresh)
        return tuple(names), self._shelf.paths(here | fresh)

    def _file(self, name: str, entry: Entry) -> tuple[str, Kept]:
        def fill(file: BinaryIO) -> None:
            for chunk in self._store.read(entry, 0, entry.size):
                self._check_stopped()
                file.write(chunk)
                self._watch.advance(len(chunk))

        return name, self._shelf.keep_member(name, fill)


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
