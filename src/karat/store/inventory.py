"""Listing: what a store holds, by name, date and case."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import msgspec

from karat.findings import CannotVerify
from karat.report.words import byte_size, count
from karat.store import pins, references, snapshot as snapshots
from karat.store.backends import Backend
from karat.store.references import SnapshotReference


class ListedReference(msgspec.Struct, frozen=True, kw_only=True):
    """One reference, as a list shows it."""

    name: str
    digest: str
    date: str
    expires: str
    cases: int
    files: int
    size: int
    pinned: str | None = None  # Why, if it is.
    entries: int = 0  # How many references of the name there are, with this one.


class ListedCase(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    files: int
    size: int


class StoreListing(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for, as far as it could be read."""

    store: str
    references: tuple[ListedReference, ...] = ()
    cases: tuple[ListedCase, ...] | None = None


def list_names(backend: Backend, workers: int = 16) -> tuple[StoreListing, list[CannotVerify]]:
    """The newest reference of every name; beyond them, pinned snapshots that no name has any more."""
    entries = references.entries(backend)
    newest = {entry.name: entry for entry in entries}
    pinned = pins.read_all(backend)
    counts = Counter(entry.name for entry in entries)
    read, errors = references.read_each(backend, [newest[name] for name in sorted(newest)], workers)
    told = [_listed(one, pinned, counts[one.name]) for one in read]
    starts = {entry.start for entry in entries}
    told += [
        _listed(references.nameless(pin.digest, pin.name, pin.date), pinned, 0)
        for digest, pin in sorted(pinned.items())
        if digest[:12] not in starts
    ]
    return StoreListing(store=backend.url, references=tuple(told)), errors


def list_entries(backend: Backend, word: str, workers: int = 16) -> tuple[StoreListing, list[CannotVerify]]:
    """Every reference of a name, newest first; or the one that is meant."""
    wanted = references.parse(word)
    pinned = pins.read_all(backend)
    plain = wanted.digest is None and wanted.moment is None
    chosen = references.entries(backend, wanted.name)[::-1] if wanted.name and plain else []
    if not chosen:
        meant = references.resolve(backend, word)
        entries = references.entries(backend, meant.name) if meant.name else []
        return StoreListing(store=backend.url, references=(_listed(meant, pinned, len(entries)),)), []
    read, errors = references.read_each(backend, chosen, workers)
    told = tuple(_listed(one, pinned, len(chosen)) for one in read)
    return StoreListing(store=backend.url, references=told), errors


def list_cases(backend: Backend, word: str) -> StoreListing:
    meant = references.resolve(backend, word)
    snapshot = snapshots.load(backend, meant.digest)
    cases = tuple(
        ListedCase(path=case.path, files=len(case.files), size=sum(f.size for f in case.files))
        for case in snapshot.cases
    )
    files = sum(case.files for case in cases)
    counted = msgspec.structs.replace(meant, cases=len(cases), files=files, size=snapshot.size)
    listed = _listed(counted, pins.read_all(backend), 1)
    return StoreListing(store=backend.url, references=(listed,), cases=cases)


def _listed(reference: SnapshotReference, pinned: dict[str, pins.Pin], entries: int) -> ListedReference:
    pin = pinned.get(reference.digest)
    listed = msgspec.convert(reference, ListedReference, from_attributes=True)
    return msgspec.structs.replace(listed, pinned=None if pin is None else pin.reason, entries=entries)


def lines(listing: StoreListing) -> Iterator[str]:
    """A line per reference, or per case."""
    if not listing.references:
        yield f"no references in {listing.store}"
    width = max((len(one.name) for one in listing.references), default=0)
    for one in listing.references:
        counts = f"{count(one.cases, 'case')}, {byte_size(one.size)}" if one.cases else "pinned only"
        more = f", {one.entries:,} in all" if one.entries > 1 else ""
        until = f"pinned: {one.pinned}" if one.pinned else f"until {one.expires[:10]}"
        when = f"{one.date[:19]}Z" if one.date else "-" * 20
        yield f"{one.name:<{width}}  {when}  sha256:{one.digest[:12]}  {counts}  {until}{more}"
    for case in listing.cases or ():
        yield f"  {case.path}  {count(case.files, 'file')}, {byte_size(case.size)}"
