"""The journal's file: its tables, opening it, its lock, and what to type next when that fails.

One SQLite file per hunt, also for those who come with their own SQL: `application_id` tells a hunt from any other SQLite file,
`user_version` is the version of the tables. One process writes: the kernel takes the lock back from whoever dies.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from karat.findings import CannotVerify, UsageError
from karat.system.command import Command
from karat.system.locks import hold, lock

if TYPE_CHECKING:
    import sqlite3

APPLICATION_ID = 0x6B727448  # `krtH`.
VERSION = 1

_TABLES = """
CREATE TABLE hunt (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;

CREATE TABLE metrics (
    position INTEGER NOT NULL, name TEXT PRIMARY KEY, better TEXT, unit TEXT NOT NULL,
    threshold REAL, binary INTEGER NOT NULL
) STRICT;

CREATE TABLE stages (
    key TEXT PRIMARY KEY, ordinal INTEGER NOT NULL, title TEXT NOT NULL, timeline TEXT NOT NULL,
    state TEXT NOT NULL, parent TEXT NOT NULL, levels TEXT NOT NULL, window TEXT, decision TEXT,
    notes TEXT NOT NULL DEFAULT '[]'
) STRICT;

-- A point without a position is no part of the timeline: two of its points, mixed.
CREATE TABLE points (
    stage TEXT NOT NULL, id TEXT NOT NULL, position INTEGER, label TEXT NOT NULL, at TEXT,
    missing TEXT NOT NULL, document TEXT NOT NULL,
    PRIMARY KEY (stage, id)
) STRICT;
CREATE INDEX points_in_order ON points (stage, position);

CREATE TABLE attempts (
    id INTEGER PRIMARY KEY, stage TEXT NOT NULL, point TEXT NOT NULL, number INTEGER NOT NULL,
    purpose TEXT NOT NULL, outcome TEXT NOT NULL, signature TEXT NOT NULL, identity_key TEXT NOT NULL,
    shared_with TEXT NOT NULL, lost INTEGER NOT NULL, started REAL NOT NULL, seconds REAL NOT NULL,
    document TEXT NOT NULL,
    UNIQUE (stage, point, number)
) STRICT;
CREATE INDEX attempts_by_identity ON attempts (identity_key);

CREATE TABLE samples (
    attempt INTEGER NOT NULL, metric TEXT NOT NULL, number INTEGER NOT NULL, value REAL,
    PRIMARY KEY (attempt, metric, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE commands (
    attempt INTEGER NOT NULL, number INTEGER NOT NULL, document TEXT NOT NULL,
    PRIMARY KEY (attempt, number)
) STRICT, WITHOUT ROWID;

-- zlib; size is that of the text.
CREATE TABLE logs (attempt INTEGER PRIMARY KEY, size INTEGER NOT NULL, data BLOB NOT NULL) STRICT;

CREATE TABLE changes (
    stage TEXT NOT NULL, number INTEGER NOT NULL, document TEXT NOT NULL, PRIMARY KEY (stage, number)
) STRICT;

-- Runs under way; what is left of a hunt that was killed is cleared when it goes on.
CREATE TABLE running (
    stage TEXT NOT NULL, point TEXT NOT NULL, number INTEGER NOT NULL, why TEXT NOT NULL, since REAL NOT NULL,
    PRIMARY KEY (stage, point, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE events (
    id INTEGER PRIMARY KEY, at REAL NOT NULL, stage TEXT NOT NULL, message TEXT NOT NULL
) STRICT;

-- One row per sample; a point without one has a row per metric, with no value. Points that were not tried are not here.
CREATE VIEW series (stage, position, label, at, metric, value, outcome, signature) AS
SELECT p.stage, p.position, p.label, p.at, m.name, s.value, coalesce(a.outcome, 'missing'),
       coalesce(a.signature, '')
FROM points AS p
CROSS JOIN metrics AS m
LEFT JOIN attempts AS a ON a.stage = p.stage AND a.point = p.id AND NOT a.lost
LEFT JOIN samples AS s ON s.attempt = a.id AND s.metric = m.name
WHERE p.position IS NOT NULL AND (a.id IS NOT NULL OR p.missing <> '')
ORDER BY p.stage, m.position, p.position, a.number, s.number;
"""
STATEMENTS = (
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {VERSION}",
    *filter(str.strip, _TABLES.split(";\n")),
)
"""What makes an empty file a journal."""


def show_command(point: str, *, stage: str = "", journal: str = "", log: bool = False, verb: str = "show") -> Command:
    """`karat hunt show`, or `karat hunt try`."""
    words = [*(["--stage", stage] if stage else []), *(["--log"] if log else [])]
    words += ["--journal", journal] if journal else []
    # A value may look like an option: -1, -h.
    named = [*words, "--", point] if point.startswith("-") else [point, *words]
    return Command("karat", "hunt", verb, *named)


def resume_command(journal: str, more: Sequence[str] = ()) -> Command:
    """`karat hunt resume`; with `more`, a larger budget, where that is what stopped the hunt."""
    return Command("karat", "hunt", "resume", journal, *more)


def no_journal(path: Path) -> CannotVerify:
    return CannotVerify(f"expected the journal of a hunt at {path}, found none", next_command="karat hunt run")


def connect(path: Path, *, writing: bool) -> sqlite3.Connection:
    """The file as a database; to be written, or only looked at."""
    import sqlite3
    from urllib.parse import quote

    from karat.system.foreign.sqlite import guard

    if not path.is_file():
        raise no_journal(path)
    uri = f"file:{quote(str(path.absolute()))}"
    try:
        db = sqlite3.connect(f"{uri}?mode={'rw' if writing else 'ro'}", uri=True, isolation_level=None, timeout=30)
        guard(db, writing=writing)
        application, _, tables = header(db)
        # Where somebody else keeps something in it, not even its mode is changed; whoever asked will find out.
        if writing and (application == APPLICATION_ID or not tables):
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=FULL")
            # Logs may hold what nobody knew to be a secret. What older versions made is readable to all.
            for tail in ("", "-wal", "-shm"):
                with suppress(FileNotFoundError, PermissionError):
                    path.with_name(f"{path.name}{tail}").chmod(0o600)
    except sqlite3.OperationalError as error:
        if writing or path.with_name(f"{path.name}-wal").exists():
            raise journal_error(path, "write" if writing else "read", error) from error
        # In a folder that nobody may write, WAL has no place for its index: the file alone is all there is.
        db = sqlite3.connect(f"{uri}?mode=ro&immutable=1", uri=True, isolation_level=None)
        guard(db)
        return db
    except sqlite3.Error as error:
        raise journal_error(path, "read", error) from error
    return db


def header(db: sqlite3.Connection) -> tuple[int, int, int]:
    """Whose file it is, the version of its tables, and how many there are."""
    from karat.system.foreign.sqlite import rows

    asked = ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master")
    application, version, tables = (int(rows(db, sql)[0][0]) for sql in asked)
    return application, version, tables


def is_empty(path: Path) -> bool:
    """Whether a file has no tables: what is left of a hunt that was killed before it began."""
    import sqlite3

    db = connect(path, writing=False)
    try:
        return header(db)[2] == 0
    except sqlite3.Error as error:
        raise journal_error(path, "read", error) from error
    finally:
        db.close()


def has_journal_name(path: Path) -> bool:
    """Whether a file has a journal's name: `slow.hunt`, `slow.hunt.1`. What cannot be read is a journal by that alone."""
    return ".hunt" in path.suffixes


def journal_error(path: Path, verb: str, error: Exception) -> CannotVerify:
    import sqlite3

    # An operation that fails may succeed elsewhere or later; any other error of a database is damage, if it is one of ours.
    later = isinstance(error, sqlite3.OperationalError) or not has_journal_name(path)
    way = Command("ls", "-ld", str(path)) if later else fresh_command(path)
    full = "full" in str(error)
    return CannotVerify(f"expected to {verb} the journal {path}, but: {error}", next_command="df -h" if full else way)


def fresh_command(path: Path) -> Command:
    """The command that begins anew where a journal is of no use; what is there is put aside."""
    return Command("karat", "hunt", "run", "--fresh", "--journal", str(path))


class WriterLock:
    """Held while a process writes a journal. It lies beside it: SQLite has locks of its own in the file itself."""

    def __init__(self, journal: Path) -> None:
        path = journal.with_name(f"{journal.name}.lock")
        try:
            handle = hold(path, mode=0o644)
        except OSError as error:
            said = f"expected to write {path}, but: {error.strerror}"
            raise CannotVerify(said, next_command=Command("ls", "-ld", str(path.parent))) from error
        if handle is None:
            process = path.read_text("ascii", "replace").strip() or "(unknown)"
            said = f"expected no other hunt into {journal}, found process {process} writing it"
            raise UsageError(said, next_command=Command("karat", "hunt", "status", str(journal)))
        self._handle = handle
        os.ftruncate(self._handle, 0)
        os.pwrite(self._handle, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Let others write. The file stays: removing it would let two processes lock two files of one name."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


def writing_process(journal: Path) -> int | None:
    """The process that writes a journal now; None: nobody does."""
    try:
        handle = os.open(journal.with_name(f"{journal.name}.lock"), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if lock(handle, shared=True):
            return None
        text = os.pread(handle, 64, 0).decode("ascii", "replace").strip()
        return int(text) if text.isdecimal() else 0
    except OSError:
        return 0
    finally:
        os.close(handle)
