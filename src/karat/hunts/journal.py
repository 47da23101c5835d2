"""The journal: everything a hunt did and saw, in one SQLite file, also for those who come with their own SQL.

Each attempt is one transaction that is on the disk before the search hears of it (WAL, synchronous=FULL): a process that is
killed, or a machine that loses its power, loses the runs in flight and nothing else. One writes (`Journal.create`,
`Journal.resume`; the kernel takes its lock back from whoever dies), any number of the same user read meanwhile
(`Journal(path)`). Values of environment variables are not kept.
"""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec
from msgspec import structs

from karat.changepoints.series import Better
from karat.findings import CannotVerify, KaratError, UsageError
from karat.hunts.model import Attempt, ChangeRow, CommandRow, Decision, HuntRow, Metric, Point, StageRow, Window
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

    with closing(connect(path, writing=False)) as db:
        try:
            return header(db)[2] == 0
        except sqlite3.Error as error:
            raise journal_error(path, "read", error) from error


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


def lock_for_writing(journal: Path) -> int:
    """A descriptor to be held while this process writes a journal; closing it lets others write.

    The lock lies beside it: SQLite has locks of its own in the file itself. It stays there: removing it would let two
    processes lock two files of one name.
    """
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
    os.ftruncate(handle, 0)
    os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
    return handle


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


LOG_LIMIT = 4 << 20  # Of a longer log, the first quarter and the end are kept.
_POINT = "INSERT INTO points (stage, id, position, label, at, missing, document) VALUES (?, ?, ?, ?, ?, ?, ?)"
_OF_ATTEMPT = "WHERE attempt = (SELECT id FROM attempts WHERE stage = ? AND point = ? AND number = ?)"


class Journal:
    """Everything a hunt did and saw. Made by its path, it is opened for reading."""

    def __init__(self, path: Path | str, *, writing: bool = False) -> None:
        self.path = Path(path)
        self._lock = lock_for_writing(self.path) if writing else None
        try:
            self._db = connect(self.path, writing=writing)
            self._file = self.path.stat().st_ino
            with self._errors("read"):
                application, version, tables = header(self._db)
            if application != APPLICATION_ID and (tables or not writing):  # else it is new: create() goes on
                what = "another SQLite file" if tables else "an empty file"
                said = f"expected the journal of a hunt at {self.path}, found {what}"
                raise CannotVerify(said, next_command="karat hunt status --help" if tables else "karat hunt run")
            if version > VERSION:
                said = f"expected a journal of version {VERSION} at {self.path}, found version {version}"
                raise CannotVerify(f"{said}: a newer karat made it", next_command="pip install --upgrade karat")
        except KaratError:
            self._unlock()
            raise

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def close(self) -> None:
        with self._errors("write"):
            self._db.close()
        self._unlock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _errors(self, verb: str) -> Iterator[None]:
        import sqlite3

        try:
            yield
        except sqlite3.Error as error:
            raise journal_error(self.path, verb, error) from error

    def _rows(self, shape: Any, sql: str, *values: Any) -> list[Any]:
        """What a query gives, each row of the types that it should have: a stranger's tables may hold anything."""
        from karat.system.foreign.sqlite import rows

        with self._errors("read"):
            found = rows(self._db, sql, values)
        try:
            return msgspec.convert(found, list[shape])
        except msgspec.ValidationError as error:
            raise self.damaged(str(error)) from error

    def facts(self) -> dict[str, str]:
        return dict(self._rows(tuple[str, str], "SELECT key, value FROM hunt"))

    def fact(self, key: str, shape: Any, otherwise: str = "") -> Any:
        return self._read(self.facts().get(key, otherwise), shape)

    def metrics(self) -> tuple[Metric, ...]:
        shape = tuple[str, Better | None, str, float | None, int]
        rows = self._rows(shape, "SELECT name, better, unit, threshold, binary FROM metrics ORDER BY position")
        return tuple(Metric(name=n, better=b, unit=u, threshold=t, binary=bool(x)) for n, b, u, t, x in rows)

    def stages(self) -> tuple[StageRow, ...]:
        sql = "SELECT key, title, timeline, state, parent, levels, window, decision, notes FROM stages ORDER BY ordinal"
        shape = tuple[str, str, str, str, str, str, str | None, str | None, str]
        return tuple(
            StageRow(
                **dict(zip(("key", "title", "timeline", "state", "parent"), row, strict=True)),
                levels=self._read(levels, dict[str, tuple[float, float]]),
                window=None if window is None else self._read(window, Window),
                decision=None if decision is None else self._read(decision, Decision),
                notes=self._read(notes, tuple[str, ...]),
            )
            for *row, levels, window, decision, notes in self._rows(shape, sql)
        )

    def stage(self, key: str) -> StageRow | None:
        return next((stage for stage in self.stages() if stage.key == key), None)

    def points(self, stage: str) -> tuple[Point, ...]:
        sql = "SELECT document FROM points WHERE stage = ? AND position IS NOT NULL ORDER BY position"
        return tuple(self._read(text, Point) for (text,) in self._rows(tuple[str], sql, stage))

    def point(self, stage: str, name: str) -> Point | None:
        rows = self._rows(tuple[str], "SELECT document FROM points WHERE stage = ? AND id = ?", stage, name)
        return self._read(rows[0][0], Point) if rows else None

    def every_point(self) -> tuple[tuple[str, Point], ...]:
        """Stage and point, mixed ones included, in the order of the stages."""
        sql = "SELECT stage, document FROM points JOIN stages ON key = stage ORDER BY ordinal, position NULLS LAST, id"
        return tuple((stage, self._read(text, Point)) for stage, text in self._rows(tuple[str, str], sql))

    def attempts(self, stage: str | None = None, point: str | None = None) -> tuple[Attempt, ...]:
        """Attempts, oldest first: all, of a stage, or of one of its points."""
        sql = "SELECT document FROM attempts WHERE ifnull(stage = ?1, 1) AND ifnull(point = ?2, 1) ORDER BY id"
        return tuple(self._read(text, Attempt) for (text,) in self._rows(tuple[str], sql, stage, point))

    def runs(self) -> int:
        """How many attempts were really run; shared ones cost nothing."""
        (row,) = self._rows(tuple[int], "SELECT count(*) FROM attempts WHERE shared_with = ''")
        return int(row[0])

    def log(self, stage: str, point: str, number: int) -> bytes:
        """The output of an attempt's commands; empty where there was none."""
        rows = self._rows(tuple[bytes], f"SELECT data FROM logs {_OF_ATTEMPT}", stage, point, number)  # noqa: S608 - our own
        unpacker = zlib.decompressobj()
        try:
            log = unpacker.decompress(rows[0][0], 2 * LOG_LIMIT) if rows else b""
        except zlib.error as error:
            raise self.damaged(str(error)) from error
        if rows and not unpacker.eof:
            raise self.damaged(f"a log unpacks to more than {2 * LOG_LIMIT:,} bytes, or is cut")
        return log

    def commands(self, stage: str, point: str, number: int) -> tuple[CommandRow, ...]:
        sql = f"SELECT document FROM commands {_OF_ATTEMPT} ORDER BY number"  # noqa: S608 - our own words
        rows = self._rows(tuple[str], sql, stage, point, number)
        return tuple(self._read(text, CommandRow) for (text,) in rows)

    def changes(self, stage: str) -> dict[int, ChangeRow]:
        rows = self._rows(tuple[int, str], "SELECT number, document FROM changes WHERE stage = ?", stage)
        return {number: self._read(text, ChangeRow) for number, text in rows}

    def running(self) -> tuple[tuple[str, str, str, float], ...]:
        """Stage, point, why and since when, of the runs under way."""
        sql = "SELECT stage, point, why, since FROM running ORDER BY since"
        return tuple(self._rows(tuple[str, str, str, float], sql))

    def events(self) -> tuple[tuple[float, str, str], ...]:
        return tuple(self._rows(tuple[float, str, str], "SELECT at, stage, message FROM events ORDER BY id"))

    def writer(self) -> int | None:
        """The process that writes it now; None: nobody does."""
        return writing_process(self.path)

    @classmethod
    def create(cls, path: Path, hunt: HuntRow) -> Journal:
        """A new journal, open for writing; there must be none at that path, or an empty one."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600, exist_ok=True)
        except OSError as error:
            said = f"expected to write the journal {path}, but: {error.strerror}"
            raise CannotVerify(said, next_command=Command("ls", "-ld", str(path.parent))) from error
        journal = cls(path, writing=True)
        if journal._rows(tuple[int], "SELECT 1 FROM sqlite_master LIMIT 1"):
            journal.close()
            said = f"expected no journal at {path} yet, found one"
            raise CannotVerify(said, next_command=resume_command(str(path)))
        from karat import __version__

        facts = {name: getattr(hunt, name) for name in ("name", "file", "root", "hunt", "settings")}
        facts |= {"command": _text(hunt.command), "karat": __version__, "state": "running"}
        # All in one transaction: a journal is whole, or it is empty.
        with journal._writing() as db:
            for statement in STATEMENTS:
                db.execute(statement)
            db.executemany("INSERT INTO hunt VALUES (?, ?)", facts.items())
            rows = [(i, m.name, m.better, m.unit, m.threshold, m.binary) for i, m in enumerate(hunt.metrics)]
            db.executemany("INSERT INTO metrics VALUES (?, ?, ?, ?, ?, ?)", rows)
        return journal

    @classmethod
    def resume(cls, path: Path) -> Journal:
        if not path.is_file():
            raise no_journal(path)
        journal = cls(path, writing=True)
        if not journal._rows(tuple[int], "SELECT 1 FROM sqlite_master LIMIT 1"):
            journal.close()
            raise no_journal(path)
        return journal

    @contextmanager
    def _writing(self, *, durable: bool = True) -> Iterator[sqlite3.Connection]:
        """A transaction. What need not survive a power cut, only the end of this process, does not wait for the disk."""
        with self._errors("write"), self._db:
            self._db.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            self._db.execute("BEGIN IMMEDIATE")
            yield self._db

    def _write(self, sql: str, *values: Any, durable: bool = True) -> None:
        with self._writing(durable=durable) as db:
            db.execute(sql, values)

    def set_fact(self, key: str, value: str) -> None:
        self._write("INSERT OR REPLACE INTO hunt VALUES (?, ?)", key, value)

    def add_event(self, message: str, stage: str = "") -> None:
        self._write("INSERT INTO events (at, stage, message) VALUES (?, ?, ?)", time.time(), stage, message)

    def begin_stage(self, stage: StageRow, points: Sequence[Point]) -> None:
        window = None if stage.window is None else _text(stage.window)
        with self._writing() as db:
            db.execute(
                "INSERT INTO stages (key, ordinal, title, timeline, state, parent, levels, window) "
                "VALUES (:key, (SELECT count(*) FROM stages), :title, :timeline, :state, :parent, :levels, :window)",
                {**structs.asdict(stage), "levels": _text(stage.levels), "window": window},
            )
            db.executemany(_POINT, [_point_row(stage.key, i, p) for i, p in enumerate(points)])

    def add_mixed_point(self, stage: str, point: Point) -> None:
        self._write(f"{_POINT} ON CONFLICT DO NOTHING", *_point_row(stage, None, point))

    def update_point(self, stage: str, position: int, point: Point) -> None:
        """A point is available now that was not, or the other way round."""
        with self._writing() as db:
            db.execute("DELETE FROM points WHERE stage = ? AND id = ?", (stage, point.id))
            db.execute(_POINT, _point_row(stage, position, point))

    def save_decision(self, stage: str, decision: Decision) -> None:
        """Keep what is known of a stage; it can be worked out again."""
        self._write("UPDATE stages SET decision = ? WHERE key = ?", _text(decision), stage, durable=False)

    def finish_stage(self, stage: str, notes: Sequence[str] = ()) -> None:
        self._write("UPDATE stages SET state = 'done', notes = ? WHERE key = ?", _text(notes), stage)

    def run_started(self, stage: str, point: str, number: int, why: str) -> None:
        row = (stage, point, number, why, time.time())
        self._write("INSERT OR REPLACE INTO running VALUES (?, ?, ?, ?, ?)", *row, durable=False)

    def clear_running(self) -> None:
        """Nothing is under way: the hunt begins, or has ended."""
        self._write("DELETE FROM running")

    def add_attempt(self, attempt: Attempt, *, log: bytes = b"", commands: Sequence[CommandRow] = ()) -> None:
        """Keep an attempt with all that belongs to it, all or nothing."""
        # SQLite writes on into a file that was removed: everything from then on would be lost, and nobody told.
        if not self.path.exists() or self.path.stat().st_ino != self._file:
            said = f"expected the journal {self.path}, which this hunt writes, found that it was removed or replaced"
            raise CannotVerify(f"{said}: its measurements are lost", next_command="karat hunt run")
        with self._writing() as db:
            row = db.execute(
                "INSERT INTO attempts (stage, point, number, purpose, outcome, signature, identity_key, shared_with, "
                "lost, started, seconds, document) VALUES (:stage, :point, :number, :purpose, :outcome, :signature, "
                ":identity_key, :shared_with, :lost, :started, :seconds, :document)",
                {**structs.asdict(attempt), "outcome": attempt.outcome.value, "document": _text(attempt)},
            ).lastrowid
            sql = "DELETE FROM running WHERE stage = ? AND point = ? AND number = ?"
            db.execute(sql, (attempt.stage, attempt.point, attempt.number))
            samples = [(row, m, i, v) for m, vs in attempt.samples.items() for i, v in enumerate(vs)]
            db.executemany("INSERT INTO samples VALUES (?, ?, ?, ?)", samples)
            printed = [(row, i, _text(command)) for i, command in enumerate(commands)]
            db.executemany("INSERT INTO commands VALUES (?, ?, ?)", printed)
            if log:
                db.execute("INSERT INTO logs VALUES (?, ?, ?)", (row, len(log), zlib.compress(cut_log(log))))

    def save_change(self, stage: str, number: int, found: ChangeRow) -> None:
        self._write("INSERT OR REPLACE INTO changes VALUES (?, ?, ?)", stage, number, _text(found))

    def _read(self, text: str, shape: Any) -> Any:
        try:
            return msgspec.json.decode(text, type=shape)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise self.damaged(str(error)) from error

    def damaged(self, said: str) -> CannotVerify:
        said = f"expected the journal {self.path} to be whole, but: {said}"
        return CannotVerify(said, next_command=fresh_command(self.path))


def _point_row(stage: str, position: int | None, point: Point) -> tuple[Any, ...]:
    when = None if point.when is None else point.when.isoformat()
    return stage, point.id, position, point.label, when, point.missing, _text(point)


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def cut_log(log: bytes, limit: int = LOG_LIMIT) -> bytes:
    """A log that fits: of a longer one the first quarter and the end, with a line that says so."""
    if len(log) <= limit:
        return log
    head = limit // 4
    return b"%s\n[karat: %d bytes left out]\n%s" % (log[:head], len(log) - limit, log[-(limit - head) :])


def discard(path: Path) -> None:
    for tail in ("-wal", "-shm", ""):
        path.with_name(f"{path.name}{tail}").unlink(missing_ok=True)


def archive(path: Path) -> Path:
    """Rename a journal to `NAME.hunt.1`, `.2`, …; nobody may be writing it."""
    os.close(lock_for_writing(path))
    try:
        # Closing it as its writer leaves one whole file. One that cannot be read is all the more reason to begin anew.
        Journal.resume(path).close()
    except CannotVerify as error:
        if not has_journal_name(path) and path.stat().st_size:
            said = f"expected the journal of a hunt in {path}, found another file, which was not touched"
            following = Command("karat", "hunt", "run", "--journal", f"{path.stem}.hunt")
            raise UsageError(said, next_command=following) from error
    names = (path.with_name(f"{path.name}.{number}") for number in range(1, 1_000_000))
    target = next(name for name in names if not name.exists())
    try:
        for tail in ("-wal", "-shm", ""):
            beside = path.with_name(f"{path.name}{tail}")
            if beside.exists():
                beside.rename(target.with_name(f"{target.name}{tail}"))
    except OSError as error:
        said = f"expected to archive {path} as {target.name}, but: {error.strerror}"
        raise CannotVerify(said, next_command=Command("ls", "-ld", str(path.parent))) from error
    return target
