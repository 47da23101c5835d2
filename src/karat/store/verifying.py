"""Verifying a store: every reference, every snapshot, every object's hash."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha256

import msgspec

from karat.findings import CannotVerify, Finding, KaratError, Severity
from karat.store import lifecycle, opening, pins, references, snapshot as snapshots
from karat.store.backend import STAGING, TOUCHING, Absent, Backend, Stored
from karat.store.objects import EXPIRING, KEPT, Part, described, digest_of, key_of, missing
from karat.store.presence import COLLECTORS, LEASES
from karat.store.problem import Problem
from karat.store.teamwork import together

_FILES = {opening.NAME, lifecycle.KEY}
_FOLDERS = (references.PREFIX, pins.PREFIX, LEASES, COLLECTORS, STAGING, TOUCHING)
Progress = Callable[[int, int], None]


class StoreVerification(msgspec.Struct, frozen=True, kw_only=True):
    """What verifying a store came to."""

    references: int
    snapshots: int
    cases: int
    """Of all snapshots together."""
    objects: int
    size: int
    orphans: int
    """Objects that no reference or pin needs; `karat gc` takes them once they are old enough."""
    orphan_bytes: int
    findings: tuple[Finding, ...]


class _Expected(msgspec.Struct):
    """What the references and pins say should be there."""

    references: int = 0
    cases: int = 0
    snapshots: dict[str, str] = msgspec.field(default_factory=dict)
    """Digest → who names it."""
    objects: dict[str, str] = msgspec.field(default_factory=dict)
    """Digest → one snapshot that needs it."""


def verify_store(
    backend: Backend, *, progress: Progress | None = None, workers: int = 16
) -> StoreVerification:
    """Reads everything; changes nothing."""
    findings: list[Finding] = []
    expected = _Expected()
    _named(backend, expected, findings)
    for digest, who in expected.snapshots.items():
        _expand(backend, digest, who, expected, findings)
    there = list(_objects(backend, findings))
    tasks = [partial(_object, backend, one) for one in there]
    for done, found in enumerate(together(tasks, workers), 1):
        findings += [found] if found is not None else []
        if progress is not None:
            progress(done, len(tasks))
    known = {digest_of(one.key) for one in there}
    findings += _lost(backend, expected, known)
    orphans = [one for one in there if digest_of(one.key) not in expected.objects]
    return StoreVerification(
        references=expected.references,
        snapshots=len(expected.snapshots),
        cases=expected.cases,
        objects=len(there),
        size=sum(one.size for one in there),
        orphans=len(orphans),
        orphan_bytes=sum(one.size for one in orphans),
        findings=tuple(findings),
    )


def _objects(backend: Backend, findings: list[Finding]) -> Iterator[Stored]:
    """Everything in the two drawers; what lies beside all drawers is somebody's mistake."""
    for one in backend.list(""):
        if one.key.startswith((f"{EXPIRING}/", f"{KEPT}/")):
            yield one
        elif one.key not in _FILES and not one.key.startswith(_FOLDERS):
            said = f"{one.key}: expected only what belongs to a store, found another file"
            findings.append(_finding("unexpected-file", said, one.key, backend))


def _named(backend: Backend, expected: _Expected, findings: list[Finding]) -> None:
    findings += [
        _finding(
            "unexpected-file", f"{key}: expected a reference, found another name", key, backend
        )
        for key in references.strangers(backend)
    ]
    for entry in references.entries(backend):
        expected.references += 1
        try:
            reference = references.read(backend, entry)
        except CannotVerify as error:
            if backend.head(entry.key) is not None:  # else collected meanwhile
                findings.append(_finding("bundle-damaged", str(error), entry.key, backend))
        else:
            expected.snapshots.setdefault(reference.digest, reference.name)
    try:
        for digest in pins.every(backend):
            expected.snapshots.setdefault(digest, "a pin")
    except CannotVerify as error:
        findings.append(_finding("bundle-damaged", str(error), pins.PREFIX, backend))


def _expand(
    backend: Backend, digest: str, who: str, expected: _Expected, findings: list[Finding]
) -> None:
    expected.objects[digest] = digest
    try:
        snapshot = snapshots.load(backend, digest)
    except Problem as problem:
        said = f"{problem} ({who} names it)"
        findings.append(_finding("bundle-damaged", said, key_of(digest), backend))
        return
    expected.cases += len(snapshot.cases)
    for part in snapshot.parts():
        expected.objects.setdefault(part.sha256, digest)


def _object(backend: Backend, one: Stored) -> Finding | None:
    digest = digest_of(one.key)
    if digest is None:
        said = f"{one.key}: expected an object, found another name"
        return _finding("unexpected-file", said, one.key, backend)
    try:
        data = backend.get(one.key)
    except Absent:
        return None  # collected meanwhile; whether it is missed is asked below
    except KaratError as error:
        return _finding("cannot-read", str(error), one.key, backend)
    found = sha256(data).hexdigest()
    if found == digest:
        return None
    said = f"{one.key}: {described(data, Part(digest, -1), found)}"
    return _finding("bundle-damaged", said, one.key, backend)


def _lost(backend: Backend, expected: _Expected, known: set[str | None]) -> Iterator[Finding]:
    for digest, snapshot in expected.objects.items():
        if digest not in known and digest not in expected.snapshots:
            said = f"{missing(backend, digest)} (sha256:{snapshot[:12]} needs it)"
            yield _finding("bundle-damaged", said, key_of(digest), backend)


def _finding(kind: str, message: str, path: str, backend: Backend) -> Finding:
    return Finding(
        kind=kind, severity=Severity.FAIL, message=message, path=path, next=backend.look(path)
    )
