"""Claims: one file per identity and session, so that no second capture of it goes unnoticed.

`DIR/.karat/SESSION/claims/HASH.json`, made only if it is not there: it holds between xdist workers and between shards
that share the directory and the session. A claim of a test that did not pass is withdrawn; that of a
capture that failed stays and says so, and the next capture may take it over, as it may one whose process
died.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import socket
import time
from collections.abc import Iterable, Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Literal

import msgspec

from karat.bundles.manifest import NAME, Identity
from karat.captures.settings import BOOKS
from karat.findings import Finding, Severity

SCHEMA = "karat.claim/1"


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """Who captures an identity in a session, and how far that is."""

    schema: str = SCHEMA
    identity: Identity
    path: str
    """Of the case's folder, below the capture directory."""
    state: Literal["staged", "published", "failed"] = "staged"
    """`published`: the case must be there. `failed`: its test passed, and it was not written."""
    by: str
    """The test, and the worker it ran in."""
    host: str
    pid: int
    run: str = ""
    """The pytest session, or the process, among those of a capture session."""


class Taken(Exception):  # noqa: N818 - a state of the claim
    """Somebody else has it; `claim` is None where it is just being written."""

    def __init__(self, claim: Claim | None) -> None:
        super().__init__()
        self.claim = claim


@cache
def host() -> str:
    """A name for the space that process ids of this machine are unique in.

    Containers may share a machine's name but not its processes, and machines may be named alike.
    """
    marks = [socket.gethostname()]
    with contextlib.suppress(OSError):  # Linux alone has both
        marks.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii"))
        marks.append(str(Path("/proc/self/ns/pid").readlink()))
    name = re.sub(r"[^A-Za-z0-9_-]+", "_", marks[0])[:40]
    return f"{name}-{sha256(repr(marks).encode()).hexdigest()[:8]}"


def claim_path(claims: Path, path: str) -> Path:
    """Where the claim of a case lies; its own path is made of the whole identity."""
    return claims / f"{sha256(path.encode()).hexdigest()[:40]}.json"


def take(path: Path, claim: Claim) -> None:
    """Makes the claim, or raises `Taken`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        _create(path, claim)
    except FileExistsError:
        standing = read(path)
        if standing is None or not _is_void(standing) or not _withdraw_exactly(path, standing):
            raise Taken(standing) from None
        try:
            _create(path, claim)
        except FileExistsError:
            raise Taken(read(path)) from None


def update(path: Path, claim: Claim) -> None:
    """Says how far it is; readers see the old words or the new ones."""
    scratch = path.with_suffix(f".{os.getpid()}.tmp")
    scratch.write_bytes(msgspec.json.encode(claim))
    scratch.replace(path)


def withdraw(path: Path) -> None:
    """The test did not pass, so nothing was captured; the identity is free again."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()


def read(path: Path) -> Claim | None:
    """The claim as it stands; None if it is gone, or just being written."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Claim)
    except (OSError, msgspec.DecodeError):
        return None


def _create(path: Path, claim: Claim) -> None:
    """Whole or not there, also for who reads it meanwhile, and after a kill."""
    scratch = path.with_suffix(f".{os.urandom(6).hex()}.tmp")
    try:
        scratch.write_bytes(msgspec.json.encode(claim))
        try:
            os.link(scratch, path)
        except FileExistsError:
            raise
        except OSError:  # a file system without links
            with path.open("xb") as file:
                file.write(scratch.read_bytes())
    finally:
        scratch.unlink(missing_ok=True)


def _is_void(claim: Claim) -> bool:
    """It failed, or its process died before its test ended."""
    if claim.state == "failed":
        return True
    return claim.state == "staged" and claim.host == host() and not is_alive(claim.pid)


def is_alive(pid: int) -> bool:
    """Whether a process of this machine still runs."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # somebody else's, but there
        return True
    return True


def _withdraw_exactly(path: Path, claim: Claim) -> bool:
    """Takes away this very claim; False if another capture was quicker."""
    aside = path.with_suffix(f".{os.urandom(6).hex()}.void")
    try:
        path.rename(aside)
    except FileNotFoundError:
        return False
    same = read(aside) == claim
    if same:
        aside.unlink()
    else:
        aside.rename(path)
    return same


# DOC-HERE journal: The journal: one line per thing that happened to a capture, so that a worker that dies is still counted.
#
# `DIR/.karat/SESSION/journal-RUN-WORKER.jsonl`. RUN is one pytest session, or one process; shards that share
# a session id write side by side.

Event = Literal["staged", "captured", "dropped", "failed", "twice", "left", "note"]


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line."""

    worker: str
    number: int
    event: Event
    """`dropped`: its test did not pass. `left`: its suite is not captured. `note`: nothing but a finding."""
    case: int = 0
    """The number of the line that staged it, or said that it could not be."""
    path: str = ""
    """Of the case; of what is left, the suite."""
    node: str = ""
    size: int = 0
    kind: str = ""
    severity: str = ""
    message: str = ""
    next: str | None = None

    def finding(self) -> Finding | None:
        """What a person should know about it."""
        if not self.kind:
            return None
        return Finding(
            kind=self.kind,
            severity=Severity(self.severity),
            message=self.message,
            path=self.path,
            where=self.node,
            next=self.next,
        )


class Journal:
    """Appends; what the disk did not take is still in `entries`."""

    def __init__(self, path: Path, worker: str) -> None:
        self.path = path
        self.worker = worker
        self.entries: list[Entry] = []
        self._pid = os.getpid()
        self._handle: int | None = None

    def note(
        self,
        event: Event,
        *,
        case: int = 0,
        path: str = "",
        node: str = "",
        size: int = 0,
        finding: Finding | None = None,
    ) -> int:
        """Writes a line and gives its number."""
        if os.getpid() != self._pid:
            self._begin_anew()
        entry = Entry(
            worker=self.worker,
            number=len(self.entries) + 1,
            event=event,
            case=case,
            path=path,
            node=_plain(node),
            size=size,
        )
        if finding is not None:
            entry = msgspec.structs.replace(
                entry,
                kind=finding.kind,
                severity=finding.severity.value,
                message=_plain(finding.message),
                next=finding.next and _plain(finding.next),
            )
        self.entries.append(entry)
        # The disk may be full, which is then what the line says; the summary has it from memory.
        with contextlib.suppress(OSError):
            self._append(msgspec.json.encode(entry) + b"\n")
        return entry.number

    def _begin_anew(self) -> None:
        """In a forked process: with the parent's lines and numbers, neither would be counted right."""
        self._pid = os.getpid()
        self.worker = f"{self.worker}.{self._pid}"
        self.path = self.path.with_name(f"{self.path.stem}.{self._pid}.jsonl")
        self.entries = []
        self._handle = None

    def _append(self, line: bytes) -> None:
        if self._handle is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._handle = os.open(self.path, flags, 0o644)
        os.write(self._handle, line)

    def close(self) -> None:
        """Lets go of the file."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def read_journals(books: Path, run: str) -> list[Entry]:
    """Every whole line that the workers of a run left."""
    found = []
    for path in sorted(books.glob(f"journal-{run}-*.jsonl")):
        for line in path.read_bytes().splitlines():
            # The last line of a worker that was killed, or that a full disk cut.
            with contextlib.suppress(msgspec.DecodeError):
                found.append(msgspec.json.decode(line, type=Entry))
    return found


def still_there(entries: Iterable[Entry], directory: Path) -> Iterator[Entry]:
    """The same lines; a case that is not where it was put is no captured one."""
    for entry in entries:
        if entry.event == "captured" and not (directory / entry.path / NAME).is_file():
            yield msgspec.structs.replace(
                entry,
                event="failed",
                kind="capture-failed",
                severity=Severity.FAIL.value,
                message=f"{entry.node} was captured into {entry.path}, and is not there any more",
                next=f"ls -la {shlex.quote(str(directory))}",
            )
        else:
            yield entry


def merged(*sources: Iterable[Entry]) -> list[Entry]:
    """Every line once, by worker and number."""
    known = {(entry.worker, entry.number): entry for source in sources for entry in source}
    return [known[key] for key in sorted(known)]


def _plain(text: str) -> str:
    """The same in UTF-8: names of files may hold bytes that are none."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


# DOC-HERE sweeping: Sweeping: what killed sessions left in a capture directory is taken away, and what ended long ago.

_KEPT_DAYS = 7


def sweep(directory: Path) -> None:
    """Takes away what dead processes had staged, their claims, and books that nobody wrote in for a week."""
    for books in (directory / BOOKS).glob("*/"):
        # Another session may tidy up at the same time.
        with contextlib.suppress(OSError):
            for staging in (books / "staging").glob("*/"):
                _bury(books, staging)
            if _days_since(books) > _KEPT_DAYS:
                shutil.rmtree(books, ignore_errors=True)


def staging_name(worker: str, pid: int) -> str:
    """The folder in which a process stages; it tells whose it is."""
    return f"{host()}.{pid}.{worker}"


def _bury(books: Path, staging: Path) -> None:
    where, _, rest = staging.name.partition(".")
    pid = rest.partition(".")[0]
    if where != host() or not pid.isdigit() or is_alive(int(pid)):
        return
    # Its tests never ended, so none of them passed: the identities are free again.
    for path in (books / "claims").glob("*.json"):
        claim = read(path)
        if claim and (claim.host, claim.pid, claim.state) == (where, int(pid), "staged"):
            withdraw(path)
    shutil.rmtree(staging, ignore_errors=True)


def _days_since(books: Path) -> float:
    """Since anything in it changed."""
    newest = max(path.stat().st_mtime for path in (books, *books.glob("*"), *books.glob("*/*")))
    return (time.time() - newest) / 86400
