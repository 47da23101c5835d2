"""Verifying a store: every reference, every snapshot, every object's hash."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Literal

import msgspec

from karat.bundles.folders import SUMS
from karat.bundles.index import file_digest
from karat.bundles.places import Place, open_place, require_root
from karat.bundles.verify import verify_place
from karat.findings import (
    CannotVerify,
    ExitCode,
    Finding,
    KaratError,
    Severity,
    UsageError,
    exit_code,
)
from karat.report.json import encode, finding_json
from karat.report.words import count
from karat.store import backends, pins, references, snapshot as snapshots
from karat.store.backends import (
    STAGING,
    TOUCHING,
    Absent,
    Backend,
    Stored,
    StoreProblem,
    is_store_folder,
    lifecycle,
    open_store,
)
from karat.store.leases import COLLECTORS, LEASES
from karat.store.objects import (
    EXPIRING,
    KEPT,
    Part,
    described,
    digest_of,
    key_of,
    missing,
)
from karat.store.packing.output import STAGING as PACK_STAGING, read_sums
from karat.store.packing.pack import size, told as finding_lines
from karat.store.place import open_word, split_word
from karat.system.pool import in_parallel
from karat.tensors.tensor import Damaged

_FILES = {backends.NAME, lifecycle.KEY}
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
    for done, found in enumerate(in_parallel(tasks, workers), 1):
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
    """Everything in the two areas; what lies beside all areas is somebody's mistake."""
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
        for key in references.unrecognised(backend)
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
        for digest in pins.read_all(backend):
            expected.snapshots.setdefault(digest, "a pin")
    except CannotVerify as error:
        findings.append(_finding("bundle-damaged", str(error), pins.PREFIX, backend))


def _expand(
    backend: Backend, digest: str, who: str, expected: _Expected, findings: list[Finding]
) -> None:
    expected.objects[digest] = digest
    try:
        snapshot = snapshots.load(backend, digest)
    except StoreProblem as problem:
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


# DOC-HERE verify_target: One word of `karat verify`: a folder, a zip, a folder of packed zips, a snapshot, or a whole store.

Kind = Literal["folder", "zip", "store", "pack"]


class VerifiedTarget(msgspec.Struct, frozen=True, kw_only=True):
    """What verifying one target came to."""

    target: str
    kind: Kind | None
    """None where nothing could be opened."""
    zips: int = 0
    """Of a pack; a case counts once for each zip that it is in."""
    cases: int = 0
    tensors: int = 0
    size: int = 0
    """Bytes of files that were looked at."""
    orphans: int = 0
    """Objects of a store that no reference or pin needs; `karat gc` takes them once they are old enough."""
    orphan_size: int = 0
    """Bytes of these."""
    findings: tuple[Finding, ...] = ()


def verify_target(
    word: str, *, store: str | None = None, whole: bool = False, progress: Progress | None = None
) -> VerifiedTarget:
    """Verifies what a word means, without unpacking it; only wrong usage raises.

    `whole`: the word is the URL or folder of a store, even if nothing is there.
    """
    if not word:  # Path("") is this folder; nobody who wrote "$BUNDLE" meant that
        said = "expected a folder, a zip or a store to verify, found an empty word"
        raise UsageError(said, next_command="karat verify --help")
    try:
        if whole or is_whole_store(word):
            return _verify_store(word, progress)
        if is_pack(Path(word)):
            return _verify_pack(Path(word), word, progress)
        # Zips of a folder are verified one by one, each with its own index.
        path = split_word(word, store) is None
        place = open_place(word) if path else open_word(word, store=store)
        return _verify_opened(place, word, progress)
    except UsageError:
        raise
    except KaratError as error:
        return VerifiedTarget(target=word, kind=None, findings=(finding_of(error, word),))


def is_whole_store(word: str) -> bool:
    """Whether it names a store rather than something in one."""
    if "://" in word:
        return "#" not in word
    return is_store_folder(Path(word))


def is_pack(path: Path) -> bool:
    """Whether `karat pack` filled the folder, or was about to."""
    return (path / SUMS).is_file()


def finding_of(error: KaratError, word: str) -> Finding:
    """An error as the finding that a report shows."""
    told = getattr(error, "finding", None)
    if isinstance(told, Finding):
        return told
    return Finding(
        kind="cannot-read",
        severity=Severity.FAIL,
        message=str(error),
        path=word,
        next=error.next_command,
    )


def _verify_opened(place: Place, word: str, progress: Progress | None) -> VerifiedTarget:
    try:
        if place.kind == "folder" and place.files() and is_of_zips(place):
            return _verify_zips(place, word, [*place.findings(), _without_sums(word)], progress)
        require_root(place, lambda roots: ["karat", "verify", *roots])
        told = verify_place(place, progress)
        return VerifiedTarget(
            target=word,
            kind=place.kind,
            cases=told.cases,
            tensors=told.tensors,
            size=sum(place.files().values()),
            findings=told.findings,
        )
    finally:
        place.close()


def _verify_store(word: str, progress: Progress | None) -> VerifiedTarget:
    told = verify_store(open_store(word), progress=progress)
    return VerifiedTarget(
        target=word, kind="store", cases=told.cases, size=told.size, orphans=told.orphans,
        orphan_size=told.orphan_bytes, findings=told.findings,
    )  # fmt: skip


def is_of_zips(place: Place) -> bool:
    """Whether a folder holds zips, and nothing else: what somebody downloaded, or half of a pack."""
    return all(path.endswith(".zip") for path in place.files())


def _verify_pack(folder: Path, word: str, progress: Progress | None) -> VerifiedTarget:
    """The zips against the sums, then each zip."""
    place = open_place(folder)
    try:
        sums = {path: digest for digest, path in read_sums(place.read(SUMS))}
        findings = [*place.findings(), *_check_sums(place, sums)]
    except (Damaged, ValueError) as error:
        said = f"{SUMS}: expected what `karat pack` writes; {error}"
        findings, sums = [_wrong("bundle-damaged", SUMS, said, word)], {}
    finally:
        place.close()
    return _verify_zips(place, word, findings, progress, only=sums)


def _verify_zips(
    place: Place,
    word: str,
    findings: list[Finding],
    progress: Progress | None,
    only: Collection[str] | None = None,
) -> VerifiedTarget:
    there = [path for path in place.files() if only is None or path in only]
    each = [verify_target(str(Path(word) / path), progress=progress) for path in there]
    findings += [finding for one in each for finding in one.findings]
    return VerifiedTarget(
        target=word,
        kind="pack",
        zips=len(each),
        cases=sum(one.cases for one in each),
        tensors=sum(one.tensors for one in each),
        size=sum(one.size for one in each),
        findings=tuple(findings) if each or findings else (_nothing(word),),
    )


def _without_sums(word: str) -> Finding:
    at_work = any(Path(word).glob(f"{PACK_STAGING}*"))
    found = "a pack that is at work or was killed" if at_work else "zips alone"
    lost = "" if at_work else "; each is verified, but one that is missing would not be noticed"
    return Finding(
        kind="sums-missing",
        severity=Severity.FAIL if at_work else Severity.WARN,
        message=f"{word}: expected {SUMS} beside the zips, found {found}{lost}",
        path=word,
        next=f"ls -la {shlex.quote(word)}",
    )


def _check_sums(place: Place, sums: dict[str, str]) -> Iterator[Finding]:
    there = place.files()
    listed = [path for path in sums if path in there]
    for path in sums.keys() - there.keys():
        said = f"{path}: expected by {SUMS}, found nothing"
        yield _wrong("bundle-damaged", path, said, place.name)
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        digests = [*pool.map(lambda path: file_digest(place.extent(path)), listed)]
    for path, found in zip(listed, digests, strict=True):
        expected = sums[path]
        if found != expected:
            said = f"{path}: expected sha256 {expected} by {SUMS}, found {found}"
            yield _wrong("bundle-damaged", path, said, place.name)
    for path in there.keys() - sums.keys() - {SUMS}:
        said = f"{path}: expected only what {SUMS} lists, found a file that it does not know"
        yield _wrong("unexpected-file", path, said, place.name)


def _nothing(word: str) -> Finding:
    return Finding(
        kind="nothing-compared",
        severity=Severity.FAIL,
        message=f"{word}: expected captured cases, found none; nothing was verified",
        path=word,
        next=f"ls -la {shlex.quote(word)}",
    )


def _wrong(kind: str, path: str, said: str, where: str) -> Finding:
    return Finding(
        kind=kind, severity=Severity.FAIL, message=said, path=path,
        next=f"ls -l {shlex.quote(where)}",
    )  # fmt: skip


# DOC-HERE verify_report: What verifying found: for people as lines, for programs as schema karat.verify/1.

SCHEMA = "karat.verify/1"


class VerifyReport(msgspec.Struct, frozen=True, kw_only=True):
    """Every target of one command."""

    targets: tuple[VerifiedTarget, ...]
    seconds: float

    @property
    def findings(self) -> Sequence[Finding]:
        """Of all targets."""
        return [finding for target in self.targets for finding in target.findings]

    @property
    def exit_code(self) -> ExitCode:
        """As findings say."""
        return exit_code(self.findings)


def document(told: VerifyReport) -> bytes:
    """The JSON text of a report."""
    return encode(
        {
            "schema": SCHEMA,
            "exit_code": int(told.exit_code),
            "seconds": round(told.seconds, 3),
            **_totals(told),
            "targets": [_target(target) for target in told.targets],
        }
    )


def _totals(told: VerifyReport) -> dict[str, int]:
    names = ("zips", "cases", "tensors", "size")
    return {name: sum(getattr(target, name) for target in told.targets) for name in names}


def _target(target: VerifiedTarget) -> dict[str, object]:
    plain = msgspec.to_builtins(msgspec.structs.replace(target, findings=()))
    return {**plain, "findings": [finding_json(finding) for finding in target.findings]}


def lines(told: VerifyReport) -> Iterator[str]:
    """The report for people: a line per problem, then the counts."""
    for target in told.targets:
        yield from finding_lines((f, _in(target.target, f.message)) for f in target.findings)
    for target in told.targets if len(told.targets) > 1 else ():
        yield f"{target.target}: {_counted(target.zips, target.cases, target.tensors, target.size)}"
    for target in told.targets:
        if target.orphans:
            objects = f"{count(target.orphans, 'object')} ({size(target.orphan_size)})"
            yield f"{target.target}: no reference needs {objects}, which `karat gc` takes once old enough"
    totals = _totals(told)
    words = {
        ExitCode.OK: "verified",
        ExitCode.FAIL: "damaged:",
        ExitCode.CANNOT_VERIFY: "not verified:",
    }
    counted = _counted(totals["zips"], totals["cases"], totals["tensors"], totals["size"])
    yield f"{words[told.exit_code]} {counted} in {told.seconds:.1f} s"


def _in(target: str, message: str) -> str:
    return message if message.startswith(target) else f"{target}: {message}"


def _counted(zips: int, cases: int, tensors: int, n: int) -> str:
    packed = f"{count(zips, 'zip')}: " if zips else ""
    return f"{packed}{count(cases, 'case')}, {count(tensors, 'tensor')}, {size(n)}"
