"""Verify: folders, zips, folders of packed zips, snapshots and whole stores; nothing is unpacked or changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Literal

import msgspec

from karat.bundles.extents import file_digest
from karat.bundles.layout import MANIFEST, SUMS, is_of_zips
from karat.bundles.places import Place, open_place, require_root
from karat.bundles.verify import verify_place
from karat.findings import CannotVerify, ExitCode, Finding, KaratError, UsageError, exit_code, fail
from karat.report.json import encode, finding_json
from karat.report.words import byte_size, count, grouped_lines
from karat.store import backends
from karat.store.backends import (
    STAGING,
    TOUCHING,
    Absent,
    Backend,
    StoredObject,
    StoreProblem,
    is_store_folder,
    open_store,
)
from karat.store.objects import EXPIRING, KEPT, Part, described, digest_of, key_of, missing, name_of
from karat.store.place import SnapshotPlace, open_word
from karat.store.survey import lost_cases
from karat.system.command import Command
from karat.system.pool import in_parallel
from karat.system.processes import available_cores
from karat.tensors.tensor import Damaged

SCHEMA = "karat.verify/1"
Progress = Callable[[int, int], None]


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


def verify_store(backend: Backend, *, progress: Progress | None = None, workers: int = 16) -> VerifiedTarget:
    """Read every reference, snapshot and object; change nothing."""
    from karat.store import leases, pins, references  # Whoever verifies files does without.
    from karat.store.backends import lifecycle

    folders = (references.PREFIX, references.LINKS, pins.PREFIX, leases.LEASES, leases.COLLECTORS, STAGING, TOUCHING)
    findings: list[Finding] = []

    def note(kind: str, message: str, key: str) -> None:
        findings.append(fail(kind, message, path=key, next=backend.look(key)))

    named = _named_snapshots(backend, note)
    cases = tensors = 0
    needed, counts = {digest: digest for digest in named}, dict[str, int]()
    for digest, who in named.items():
        try:
            place = SnapshotPlace(backend, digest, who)
        except StoreProblem as problem:
            note("bundle-damaged", f"{problem} ({who} names it)", key_of(digest))
            continue
        except CannotVerify as error:
            note("cannot-read", f"{error} ({who} names it)", key_of(digest))
            continue
        cases += len(place.snapshot.cases)
        tensors += sum(_tensors(place, path, counts) for path in place.files() if path.endswith(f"/{MANIFEST}"))
        for part in place.snapshot.parts():
            needed.setdefault(part.digest, digest)
    there: list[StoredObject] = []
    for one in backend.list(""):
        if one.key.startswith((f"{EXPIRING}/", f"{KEPT}/")):
            there.append(one)
        elif one.key not in {backends.NAME, lifecycle.KEY} and not one.key.startswith(folders):
            said = f"{one.key}: expected only what belongs to a store, found another file"
            note("unexpected-file", said, one.key)
        elif one.key.startswith(references.LINKS) and one.size:
            note("bundle-damaged", f"{one.key}: expected an empty file, found {one.size:,} bytes", one.key)
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
    return VerifiedTarget(
        target=backend.url,
        kind="store",
        cases=cases,
        tensors=tensors,
        size=sum(one.size for one in there),
        orphans=len(orphans),
        orphan_size=sum(one.size for one in orphans),
        findings=tuple(findings),
    )


class _Manifest(msgspec.Struct):
    tensors: tuple[msgspec.Raw, ...]


def _tensors(place: SnapshotPlace, path: str, known: dict[str, int]) -> int:
    """How many a manifest names; those of most cases are the same every night."""
    digest = place.digest_of(path)
    if digest not in known:
        try:
            known[digest] = len(msgspec.json.decode(place.read(path), type=_Manifest).tensors)
        except (Damaged, KaratError, ValueError, RecursionError):
            known[digest] = 0  # its object says what is wrong
    return known[digest]


def _named_snapshots(backend: Backend, note: Callable[[str, str, str], None]) -> dict[str, str]:
    """Each snapshot's digest, with what names it."""
    from karat.store import pins, references

    for key in references.unrecognised(backend):
        note("unexpected-file", f"{key}: expected a reference, found another name", key)
    named: dict[str, str] = {}
    for entry in references.entries(backend):
        try:
            reference = references.read(backend, entry)
        except CannotVerify as error:
            if any(key and backend.head(key) for key in (entry.key, entry.link)):  # else deleted by gc meanwhile
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
            found = name_of(data, digest)
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
        # A word that names a store, rather than something in one.
        if whole or ("#" not in word if "://" in word else is_store_folder(Path(word))):
            return msgspec.structs.replace(verify_store(open_store(word), progress=progress), target=word)
        if (Path(word) / SUMS).is_file():  # `karat pack` filled the folder
            return _verify_pack(Path(word), word, progress)
        if is_of_zips(Path(word)):
            said = (
                f"{word}: expected {SUMS} beside the zips, found none: a pack in progress or killed, or a part of one"
            )
            raise StoreProblem("sums-missing", said, next_command=Command("ls", "-la", word), path=word)
        with closing(open_word(word, store=store)) as place:
            require_root(place, lambda roots: ["karat", "verify", *roots])
            told = msgspec.structs.asdict(verify_place(place, progress))
            if place.kind == "folder":
                told["findings"] += tuple(lost_cases(place))
            return VerifiedTarget(target=word, kind=place.kind, size=sum(place.files().values()), **told)
    except UsageError:
        raise
    except KaratError as error:
        known: Finding | None = getattr(error, "finding", None)
        found = known or fail("cannot-read", str(error), path=word, next=error.next_command)
        return VerifiedTarget(target=word, kind=None, findings=(found,))


def _verify_pack(folder: Path, word: str, progress: Progress | None) -> VerifiedTarget:
    """The zips against SHA256SUMS, then each zip with its own index."""
    from karat.store.pack import read_sums

    with closing(open_place(folder)) as place:
        try:
            sums = {path: digest for digest, path in read_sums(place.read(SUMS))}
            findings = [*place.findings(), *_check_sums(place, sums)]
        except (Damaged, ValueError) as error:
            sums = {}
            said = f"{SUMS}: expected what `karat pack` writes; {error}"
            findings = [fail("bundle-damaged", said, path=SUMS, next=str(Command("ls", "-l", word)))]
        each = [verify_target(str(folder / path), progress=progress) for path in place.files() if path in sums]
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
        return path, file_digest(place.extent(path), "sha256").removeprefix("sha256:")

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
