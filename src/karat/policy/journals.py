"""One journal of evidence, read: every whole line, and what is wrong with the file."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

import msgspec

from karat.findings import Finding, Severity
from karat.policy.records import SCHEMA, Began, Ended, Record

_LINE = 1 << 20
"""No line that karat writes is longer."""
_decoder = msgspec.json.Decoder(Record)


class Journal(msgspec.Struct, frozen=True, kw_only=True):
    """What one worker left."""

    path: str
    group: str
    """The folder it lies in."""
    began: Began | None = None
    ended: Ended | None = None
    lines: tuple[tuple[bytes, Record], ...] = ()
    """With the very bytes of each, by which the same line is known again."""
    findings: tuple[Finding, ...] = ()

    @property
    def session(self) -> str:
        """Whose journal it is; empty where it does not say."""
        return self.began.session if self.began else ""

    @property
    def run(self) -> str | None:
        """The CI run and its commit; sessions of one belong together."""
        said = self.began
        return f"{said.run} {said.commit}" if said and said.run else None

    @property
    def speaker(self) -> str:
        """Who speaks in it: the run, else the session."""
        return self.run or self.session


def read_journal(path: Path) -> Journal:
    """Every whole line of a journal; what cannot be read is said, and stands for nothing."""
    journal = Journal(path=str(path), group=str(path.parent))
    try:
        with path.open("rb") as file:
            raw = iter(lambda: file.readline(_LINE + 1), b"")
            return _read(list(raw), journal)
    except OSError as error:
        return _damaged(journal, f"expected to read it, but: {error.strerror or error}")


def _read(raw: list[bytes], journal: Journal) -> Journal:
    lines: list[tuple[bytes, Record]] = []
    wrong = ""
    for number, line in enumerate(raw, 1):
        try:
            lines.append((line.rstrip(b"\n"), _decoder.decode(line)))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            wrong = wrong or f"line {number} is not a record ({error})"
    first = lines[0][1] if lines else None
    if not isinstance(first, Began):
        return _damaged(journal, f"expected a journal that says how it began, found {'something else' if lines else 'no record'}")  # fmt: skip
    if first.schema != SCHEMA:
        return _damaged(journal, f"expected schema {SCHEMA}, found {first.schema!r}")
    last = lines[-1][1]
    ended = last if isinstance(last, Ended) else None
    read = Journal(
        path=journal.path, group=journal.group, began=first, ended=ended, lines=tuple(lines[1:])
    )
    wrong = wrong or _wrong_end(first, ended, len(lines) - 1)
    return _damaged(read, wrong) if wrong else read


def _wrong_end(began: Began, ended: Ended | None, records: int) -> str:
    if ended is None:
        return "" if began.forked else "it has no end: its worker was killed, or is at work still"
    if ended.records != records:
        return f"expected {ended.records} records before its end, found {records}"
    return _uncollected(ended.uncollected) if ended.uncollected else ""


def _uncollected(files: Sequence[str]) -> str:
    if "." in files:
        return "it ended while tests were collected"
    more = f" and {len(files) - 3} more" if len(files) > 3 else ""
    return f"{', '.join(files[:3])}{more} could not be collected"


def _damaged(journal: Journal, what: str) -> Journal:
    finding = Finding(
        kind="evidence-damaged",
        severity=Severity.WARN,
        message=f"{journal.path}: {what}; what it says is taken, what it does not say is not known",
        path=journal.path,
        next=f"tail -c 300 {shlex.quote(journal.path)}",
    )
    return msgspec.structs.replace(journal, findings=(finding,))
