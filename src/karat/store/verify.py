"""Verify: folders, zips, folders of packed zips, snapshots and whole stores; nothing is unpacked or changed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Literal

import msgspec

from karat.bundles.extents import file_digest
from karat.bundles.layout import SUMS
from karat.bundles.places import Place, open_place, require_root
from karat.bundles.verify import verify_place
from karat.findings import CannotVerify, ExitCode, Finding, KaratError, UsageError, exit_code, fail, warn
from karat.report.json import encode, finding_json
from karat.report.words import byte_size, count
from karat.store import backends, pins, references, snapshot as snapshots
from karat.store.backends import (
    STAGING,
    TOUCHING,
    Absent,
    Backend,
    StoredObject,
    StoreProblem,
    is_store_folder,
    lifecycle,
    open_store,
)
from karat.store.leases import COLLECTORS, LEASES
from karat.store.objects import EXPIRING, KEPT, Part, described, digest_of, key_of, missing
from karat.store.packs.output import STAGING as PACK_STAGING, read_sums
from karat.store.packs.pack import grouped_lines
from karat.store.place import open_word, split_word
from karat.system.command import Command
from karat.system.hashes import sha256_hex
from karat.system.pool import in_parallel
from karat.system.processes import available_cores
from karat.tensors.tensor import Damaged

SCHEMA = "karat.verify/1"
_FILES = {backends.NAME, lifecycle.KEY}
_FOLDERS = (references.PREFIX, pins.PREFIX, LEASES, COLLECTORS, STAGING, TOUCHING)
Progress = Callable[[int, int], None]


class StoreVerification(msgspec.Struct, frozen=True, kw_only=True):
    references: int
    snapshots: int
    cases: int  # Of all snapshots together.
    objects: int
    size: int
    orphans: int  # Objects that no reference or pin needs; `karat gc` deletes them once they are old enough.
    orphan_size: int
    findings: tuple[Finding, ...]


class VerifiedTarget(msgspec.Struct, frozen=True, kw_only=True):
    target: str
    kind: Literal["folder", "zip", "store", "pack"] | None  # None where nothing could be opened.
    zips: int = 0  # Of a pack; a case counts once for each zip that it is in.
    cases: int = 0
    tensors: int = 0
    size: int = 0  # Bytes of the files that were read.
    orphans: int = 0
    """Objects of a store that no reference or pin needs; `karat gc` deletes them once they are old enough."""
    orphan_size: int = 0  # Bytes of these.
    findings: tuple[Finding, ...] = ()


class VerifyReport(msgspec.Struct, frozen=True, kw_only=True):
    """Every target of one command."""

    targets: tuple[VerifiedTarget, ...]
    seconds: float

    @property
    def findings(self) -> Sequence[Finding]:
        return [finding for target in self.targets for finding in target.findings]

    @property
    def exit_code(self) -> ExitCode:
        return exit_code(self.findings)


def verify_store(backend: Backend, *, progress: Progress | None = None, workers: int = 16) -> StoreVerification:
    """Read every reference, snapshot and object; change nothing."""
    findings: list[Finding] = []

    def note(kind: str, message: str, key: str) -> None:
        findings.append(fail(kind, message, path=key, next=backend.look(key)))

    entries = references.entries(backend)
    named = _named_snapshots(backend, entries, note)
    cases, needed = 0, {digest: digest for digest in named}
    for digest, who in named.items():
        try:
            snapshot = snapshots.load(backend, digest)
        except StoreProblem as problem:
            note("bundle-damaged", f"{problem} ({who} names it)", key_of(digest))
            continue
        cases += len(snapshot.cases)
        for part in snapshot.parts():
            needed.setdefault(part.sha256, digest)
    there: list[StoredObject] = []
    for one in backend.list(""):
        if one.key.startswith((f"{EXPIRING}/", f"{KEPT}/")):
            there.append(one)
        elif one.key not in _FILES and not one.key.startswith(_FOLDERS):
            said = f"{one.key}: expected only what belongs to a store, found another file"
            note("unexpected-file", said, one.key)
    tasks = [partial(_verify_object, backend, one) for one in there]
    for done, found in enumerate(in_parallel(tasks, workers), 1):
        findings += [found] if found is not None else []
        if progress is not None:
            progress(done, len(tasks))
    known = {digest_of(one.key) for one in there}
    for digest, snapshot_digest in needed.items():
        if digest not in known and digest not in named:
            said = f"{missing(backend, digest)} (sha256:{snapshot_digest[:12]} needs it)"
            note("bundle-damaged", said, key_of(digest))
    orphans = [one for one in there if digest_of(one.key) not in needed]
    return StoreVerification(
        references=len(entries),
        snapshots=len(named),
        cases=cases,
        objects=len(there),
        size=sum(one.size for one in there),
        orphans=len(orphans),
        orphan_size=sum(one.size for one in orphans),
        findings=tuple(findings),
    )


def _named_snapshots(
    backend: Backend, entries: Sequence[references.ReferenceEntry], note: Callable[[str, str, str], None]
) -> dict[str, str]:
    """Each snapshot's digest, with what names it."""
    for key in references.unrecognised(backend):
        note("unexpected-file", f"{key}: expected a reference, found another name", key)
    named: dict[str, str] = {}
    for entry in entries:
        try:
            reference = references.read(backend, entry)
        except CannotVerify as error:
            if backend.head(entry.key) is not None:  # else deleted by gc meanwhile
                note("bundle-damaged", str(error), entry.key)
        else:
            named.setdefault(reference.digest, reference.name)
    try:
        for digest in pins.read_all(backend):
            named.setdefault(digest, "a pin")
    except CannotVerify as error:
        note("bundle-damaged", str(error), pins.PREFIX)
    return named


def _verify_object(backend: Backend, one: StoredObject) -> Finding | None:
    digest = digest_of(one.key)
    kind, said = "bundle-damaged", ""
    if digest is None:
        kind, said = "unexpected-file", f"{one.key}: expected an object, found another name"
    else:
        try:
            data = backend.get(one.key)
            found = sha256_hex(data)
            if found != digest:
                said = f"{one.key}: {described(data, Part(digest, -1), found)}"
        except Absent:
            return None  # deleted by gc meanwhile; the caller knows whether it is missed
        except KaratError as error:
            kind, said = "cannot-read", str(error)
    return fail(kind, said, path=one.key, next=backend.look(one.key)) if said else None


def verify_target(
    word: str, *, store: str | None = None, whole: bool = False, progress: Progress | None = None
) -> VerifiedTarget:
    """Verify what a word names; only wrong usage raises.

    `whole`: the word is the URL or folder of a store, even if nothing is there.
    """
    if not word:  # Path("") is this folder; nobody who wrote "$BUNDLE" meant that
        said = "expected a folder, a zip or a store to verify, found an empty word"
        raise UsageError(said, next_command="karat verify --help")
    try:
        if whole or is_whole_store(word):
            told = verify_store(open_store(word), progress=progress)
            shared = ("cases", "size", "orphans", "orphan_size", "findings")
            return VerifiedTarget(target=word, kind="store", **{name: getattr(told, name) for name in shared})
        if (Path(word) / SUMS).is_file():  # `karat pack` filled the folder
            return _verify_pack(Path(word), word, progress)
        # Zips of a folder are verified one by one, each with its own index.
        path = split_word(word, store) is None
        place = open_place(word) if path else open_word(word, store=store)
        return _verify_place(place, word, progress)
    except UsageError:
        raise
    except KaratError as error:
        known: Finding | None = getattr(error, "finding", None)
        found = known or fail("cannot-read", str(error), path=word, next=error.next_command)
        return VerifiedTarget(target=word, kind=None, findings=(found,))


def is_whole_store(word: str) -> bool:
    """Whether it names a store rather than something in one."""
    return "#" not in word if "://" in word else is_store_folder(Path(word))


def _verify_place(place: Place, word: str, progress: Progress | None) -> VerifiedTarget:
    with closing(place):
        # Only zips: a download, or half of a pack.
        if place.kind == "folder" and place.files() and all(path.endswith(".zip") for path in place.files()):
            half = any(Path(word).glob(f"{PACK_STAGING}*"))
            found = "a pack that is in progress or was killed" if half else "zips alone"
            lost = "" if half else "; each is verified, but a missing one would not be noticed"
            said = f"{word}: expected {SUMS} beside the zips, found {found}{lost}"
            say, then = fail if half else warn, str(Command("ls", "-la", word))
            without_sums = say("sums-missing", said, path=word, next=then)
            return _verify_zips(place, word, [*place.findings(), without_sums], progress)
        require_root(place, lambda roots: ["karat", "verify", *roots])
        told = verify_place(place, progress)
        size, shared = sum(place.files().values()), msgspec.structs.asdict(told)
        return VerifiedTarget(target=word, kind=place.kind, size=size, **shared)


def _verify_pack(folder: Path, word: str, progress: Progress | None) -> VerifiedTarget:
    """The zips against SHA256SUMS, then each zip."""
    place = open_place(folder)
    sums: dict[str, str] = {}
    try:
        sums = {path: digest for digest, path in read_sums(place.read(SUMS))}
        findings = [*place.findings(), *_check_sums(place, sums)]
    except (Damaged, ValueError) as error:
        sums = {}
        said = f"{SUMS}: expected what `karat pack` writes; {error}"
        findings = [fail("bundle-damaged", said, path=SUMS, next=str(Command("ls", "-l", word)))]
    finally:
        place.close()
    return _verify_zips(place, word, findings, progress, only=sums)


def _verify_zips(
    place: Place, word: str, findings: list[Finding], progress: Progress | None, only: Collection[str] | None = None
) -> VerifiedTarget:
    there = [path for path in place.files() if only is None or path in only]
    each = [verify_target(str(Path(word) / path), progress=progress) for path in there]
    findings += [finding for one in each for finding in one.findings]
    if not each and not findings:
        said = f"{word}: expected captured cases, found none; nothing was verified"
        findings = [fail("nothing-compared", said, path=word, next=str(Command("ls", "-la", word)))]
    return VerifiedTarget(target=word, kind="pack", **{**_totals(each), "zips": len(each)}, findings=tuple(findings))


def _check_sums(place: Place, sums: dict[str, str]) -> Iterator[Finding]:
    there = place.files()
    then = str(Command("ls", "-l", place.name))
    for path in sums.keys() - there.keys():
        said = f"{path}: expected by {SUMS}, found nothing"
        yield fail("bundle-damaged", said, path=path, next=then)

    def digest(path: str) -> tuple[str, str]:
        return path, file_digest(place.extent(path))

    listed = [partial(digest, path) for path in sums if path in there]
    for path, found in sorted(in_parallel(listed, min(8, available_cores()))):
        if found != sums[path]:
            said = f"{path}: expected sha256 {sums[path]} by {SUMS}, found {found}"
            yield fail("bundle-damaged", said, path=path, next=then)
    for path in there.keys() - sums.keys() - {SUMS}:
        said = f"{path}: expected only what {SUMS} lists, found a file that it does not know"
        yield fail("unexpected-file", said, path=path, next=then)


def document(report: VerifyReport) -> bytes:
    targets = [
        {
            **msgspec.to_builtins(msgspec.structs.replace(target, findings=())),
            "findings": [finding_json(finding) for finding in target.findings],
        }
        for target in report.targets
    ]
    head = {"schema": SCHEMA, "exit_code": int(report.exit_code), "seconds": round(report.seconds, 3)}
    return encode({**head, **_totals(report.targets), "targets": targets})


def _totals(targets: Sequence[VerifiedTarget]) -> dict[str, int]:
    names = ("zips", "cases", "tensors", "size")
    return {name: sum(getattr(target, name) for target in targets) for name in names}


def lines(report: VerifyReport) -> Iterator[str]:
    """The report for people: a line per problem, then the counts."""

    def counted(targets: Sequence[VerifiedTarget]) -> str:
        zips, cases, tensors, size = _totals(targets).values()
        packed = f"{count(zips, 'zip')}: " if zips else ""
        return f"{packed}{count(cases, 'case')}, {count(tensors, 'tensor')}, {byte_size(size)}"

    for target in report.targets:
        name = target.target
        yield from grouped_lines(
            (f, f.message if f.message.startswith(name) else f"{name}: {f.message}") for f in target.findings
        )
    for one in report.targets if len(report.targets) > 1 else ():
        yield f"{one.target}: {counted([one])}"
    for target in report.targets:
        if target.orphans:
            objects = f"{count(target.orphans, 'object')} ({byte_size(target.orphan_size)})"
            yield f"{target.target}: no reference needs {objects}; `karat gc` deletes them once old enough"
    words = {ExitCode.OK: "verified", ExitCode.FAIL: "damaged:", ExitCode.CANNOT_VERIFY: "not verified:"}
    yield f"{words[report.exit_code]} {counted(report.targets)} in {report.seconds:.1f} s"
