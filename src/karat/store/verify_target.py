"""One word of `karat verify`: a folder, a zip, a folder of packed zips, a snapshot, or a whole store."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import msgspec

from karat.bundles.capture_roots import require_root
from karat.bundles.index import file_digest
from karat.bundles.places import Place, open_place
from karat.bundles.verifying import verify_place
from karat.bundles.zips_place import SUMS
from karat.findings import Finding, KaratError, Severity, UsageError
from karat.store.opening import is_store_folder, open_store
from karat.store.pack_output import STAGING, read_sums
from karat.store.verifying import verify_store
from karat.store.words import open_word, split_word
from karat.tensors.tensor import Damaged

Kind = Literal["folder", "zip", "store", "pack"]
Progress = Callable[[int, int], None]


class Verified(msgspec.Struct, frozen=True, kw_only=True):
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
) -> Verified:
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
        return Verified(target=word, kind=None, findings=(finding_of(error, word),))


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


def _verify_opened(place: Place, word: str, progress: Progress | None) -> Verified:
    try:
        if place.kind == "folder" and place.files() and is_of_zips(place):
            return _verify_zips(place, word, [*place.findings(), _without_sums(word)], progress)
        require_root(place, lambda roots: ["karat", "verify", *roots])
        told = verify_place(place, progress)
        return Verified(
            target=word,
            kind=place.kind,
            cases=told.cases,
            tensors=told.tensors,
            size=sum(place.files().values()),
            findings=told.findings,
        )
    finally:
        place.close()


def _verify_store(word: str, progress: Progress | None) -> Verified:
    told = verify_store(open_store(word), progress=progress)
    return Verified(
        target=word, kind="store", cases=told.cases, size=told.size, orphans=told.orphans,
        orphan_size=told.orphan_bytes, findings=told.findings,
    )  # fmt: skip


def is_of_zips(place: Place) -> bool:
    """Whether a folder holds zips, and nothing else: what somebody downloaded, or half of a pack."""
    return all(path.endswith(".zip") for path in place.files())


def _verify_pack(folder: Path, word: str, progress: Progress | None) -> Verified:
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
) -> Verified:
    there = [path for path in place.files() if only is None or path in only]
    each = [verify_target(str(Path(word) / path), progress=progress) for path in there]
    findings += [finding for one in each for finding in one.findings]
    return Verified(
        target=word,
        kind="pack",
        zips=len(each),
        cases=sum(one.cases for one in each),
        tensors=sum(one.tensors for one in each),
        size=sum(one.size for one in each),
        findings=tuple(findings) if each or findings else (_nothing(word),),
    )


def _without_sums(word: str) -> Finding:
    at_work = any(Path(word).glob(f"{STAGING}*"))
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
