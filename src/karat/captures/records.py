"""What a session keeps beside its cases: claims, journals, and the removal of what dead sessions left.

`DIR/.karat/SESSION/claims/HASH.json`, one per identity, created exclusively, so that no second capture of it goes
unnoticed, by xdist workers or by shards that share the directory and the session. The claim of a test that did not
pass is withdrawn; that of a capture that failed stays and says so, and the next capture may take it over, as it may
one whose process died.

`DIR/.karat/SESSION/journal-RUN-WORKER.jsonl`, one line per event, so that a worker that dies is still counted. RUN is
one pytest session, or one process; shards that share a session id write side by side.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import time
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from karat.bundles.layout import OWN
from karat.bundles.manifest import NAME, Identity
from karat.findings import Finding, fail
from karat.system.command import Command
from karat.system.foreign.limits import CLOSED
from karat.system.hashes import sha256_hex

SCHEMA = "karat.claim/1"
Event = Literal["staged", "captured", "dropped", "failed", "twice", "left", "note"]


class CaptureClaim(msgspec.Struct, frozen=True, kw_only=True):
    """Who captures an identity in a session, and how far that is."""

    schema: str = SCHEMA
    identity: Identity
    path: str  # Of the case's folder, below the capture directory.
    state: Literal["staged", "published", "failed"] = "staged"
    """`published`: the case must be there. `failed`: its test passed, and it was not written."""
    by: str  # The test, and the worker it ran in.
    host: str
    pid: int
    run: str = ""  # The pytest session, or the process, among those of a capture session.


class AlreadyClaimed(Exception):  # noqa: N818 - a state of the claim
    """Another capture has it; `claim` is None if it is just being written."""

    def __init__(self, claim: CaptureClaim | None) -> None:
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
    return f"{name}-{sha256_hex(repr(marks).encode())[:8]}"


def claim_path(claims: Path, path: str) -> Path:
    """Where the claim of a case lies; its own path is made of the whole identity."""
    return claims / f"{sha256_hex(path.encode())[:40]}.json"


def take_claim(path: Path, claim: CaptureClaim) -> None:
    try:
        _create(path, claim)
    except FileExistsError:
        other = read_claim(path)
        # A claim is void if it failed, or if its process died before its test ended.
        void = other is not None and (
            other.state == "failed" or (other.state == "staged" and other.host == host() and not is_alive(other.pid))
        )
        if other is None or not void or not _withdraw_exactly(path, other):
            raise AlreadyClaimed(other) from None
        try:
            _create(path, claim)
        except FileExistsError:
            raise AlreadyClaimed(read_claim(path)) from None


def update_claim(path: Path, claim: CaptureClaim) -> None:
    """Change the claim's state; readers see the old claim or the new one, or for an instant one that is being written.

    In place, in one write into the room that was left for it: a new file in place of an old one has to be on the disk
    before anything else that is synced next.
    """
    handle = os.open(path, os.O_WRONLY | CLOSED)
    try:
        os.write(handle, _text(claim))
    finally:
        os.close(handle)


def withdraw_claim(path: Path) -> None:
    """The test did not pass, so nothing was captured; the identity is free again."""
    path.unlink(missing_ok=True)


def read_claim(path: Path) -> CaptureClaim | None:
    """The claim; None if it is gone, or just being written."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=CaptureClaim)
    except (OSError, ValueError, RecursionError):  # msgspec's are among the second
        return None


def _text(claim: CaptureClaim) -> bytes:
    """The claim, padded so that it is as long in every state."""
    return msgspec.json.encode(claim) + b" " * (len("published") - len(claim.state))


def _create(path: Path, claim: CaptureClaim) -> None:
    # Written beside its place and put there whole, for concurrent readers and after a kill.
    scratch = path.with_suffix(f".{os.urandom(6).hex()}.tmp")
    if not os.path.exists(path.parent):  # noqa: PTH110 - quicker
        path.parent.mkdir(parents=True, exist_ok=True)
    try:
        scratch.write_bytes(_text(claim))
        try:
            os.link(scratch, path)
        except FileExistsError:
            raise
        except OSError:  # a file system without links
            with path.open("xb") as file:
                file.write(scratch.read_bytes())
    finally:
        scratch.unlink(missing_ok=True)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it belongs to another user, but exists
        pass
    return True


def _withdraw_exactly(path: Path, claim: CaptureClaim) -> bool:
    """Remove this very claim; False if another capture was quicker."""
    aside = path.with_suffix(f".{os.urandom(6).hex()}.void")
    try:
        path.rename(aside)
    except FileNotFoundError:
        return False
    same = read_claim(aside) == claim
    if same:
        aside.unlink()
    else:
        aside.rename(path)
    return same


class JournalEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    worker: str
    number: int
    event: Event  # `dropped`: its test did not pass. `left`: its suite is not captured. `note`: nothing but a finding.
    case: int = 0  # The number of the line that staged it, or said that it could not be.
    path: str = ""  # Of the case; of what is left, the suite.
    node: str = ""
    size: int = 0
    finding: Finding | None = None


class CaptureJournal:
    """Appends; what the disk did not take is still in `entries`."""

    def __init__(self, path: Path, worker: str) -> None:
        self.path, self.worker = path, worker
        self.entries: list[JournalEntry] = []
        self._pid = os.getpid()
        self._handle: int | None = None

    def note(self, event: Event, *, path: str = "", node: str = "", finding: Finding | None = None, **rest: int) -> int:
        """Write a line, with `rest` of a JournalEntry, and return its number."""
        if os.getpid() != self._pid:
            # A fork: with the parent's lines and numbers, neither would be counted right.
            self._pid = os.getpid()
            self.worker = f"{self.worker}.{self._pid}"
            self.path = self.path.with_name(f"{self.path.stem}.{self._pid}.jsonl")
            self.entries = []
            self._handle = None
        number, where = len(self.entries) + 1, _as_utf8(node)
        if finding is not None:
            said, then = _as_utf8(finding.message), finding.next and _as_utf8(finding.next)
            finding = msgspec.structs.replace(finding, path=path, where=where, message=said, next=then)
        entry = JournalEntry(
            worker=self.worker, number=number, event=event, path=path, node=where, finding=finding, **rest
        )
        self.entries.append(entry)
        # The disk may be full, which is then what the line says; the summary has it from memory.
        with contextlib.suppress(OSError):
            if self._handle is None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | CLOSED
                self._handle = os.open(self.path, flags, 0o644)
            os.write(self._handle, msgspec.json.encode(entry) + b"\n")
        return entry.number

    def close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def read_journals(folder: Path, run: str) -> list[JournalEntry]:
    """Every whole line that the workers of a run left."""
    found = []
    for path in sorted(folder.glob(f"journal-{run}-*.jsonl")):
        for line in path.read_bytes().splitlines():
            # The last line of a worker that was killed, or that a full disk cut.
            with contextlib.suppress(ValueError, RecursionError):
                found.append(msgspec.json.decode(line, type=JournalEntry))
    return found


def mark_missing(entries: Iterable[JournalEntry], directory: Path) -> Iterator[JournalEntry]:
    """The same lines; a case that is not where it was put counts as failed."""
    for entry in entries:
        if entry.event == "captured" and not (directory / entry.path / NAME).is_file():
            said = f"{entry.node} was captured into {entry.path}, which is gone"
            then = str(Command("ls", "-la", str(directory)))
            finding = fail("capture-failed", said, path=entry.path, where=entry.node, next=then)
            yield msgspec.structs.replace(entry, event="failed", finding=finding)
        else:
            yield entry


def merge(*sources: Iterable[JournalEntry]) -> list[JournalEntry]:
    """Every line once, by worker and number."""
    known = {(entry.worker, entry.number): entry for source in sources for entry in source}
    return [known[key] for key in sorted(known)]


def _as_utf8(text: str) -> str:
    """Names of files may hold bytes that are no UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def sweep(directory: Path) -> None:
    """Remove what dead processes had staged, their claims, and sessions that nobody wrote to for a week."""
    for folder in (directory / OWN).glob("*/"):
        # Another session may tidy up at the same time.
        with contextlib.suppress(OSError):
            for staging in (folder / "staging").glob("*/"):
                where, _, rest = staging.name.partition(".")
                pid = rest.partition(".")[0]
                if where != host() or not pid.isdigit() or is_alive(int(pid)):
                    continue
                # Its tests never ended, so none of them passed: the identities are free again.
                for path in (folder / "claims").glob("*.json"):
                    claim = read_claim(path)
                    if claim and (claim.host, claim.pid, claim.state) == (where, int(pid), "staged"):
                        withdraw_claim(path)
                shutil.rmtree(staging, ignore_errors=True)
            newest = max(p.stat().st_mtime for p in (folder, *folder.glob("*"), *folder.glob("*/*")))
            if time.time() - newest > 7 * 86400:
                shutil.rmtree(folder, ignore_errors=True)


def staging_name(worker: str, pid: int) -> str:
    """The folder in which a process stages; it names the process."""
    return f"{host()}.{pid}.{worker}"
