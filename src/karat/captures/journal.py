"""The journal: one line per thing that happened to a capture, so that a worker that dies is still counted.

`DIR/.karat/SESSION/journal-RUN-WORKER.jsonl`. RUN is one pytest session, or one process; shards that share
a session id write side by side.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

import msgspec

from karat.bundles.manifest import NAME
from karat.findings import Finding, Severity

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
