"""The journal: everything a hunt did and saw, in one SQLite file.

Each attempt is one transaction that is on the disk before the search hears of it (WAL, synchronous=FULL): a process that is
killed, or a machine that loses its power, loses the runs in flight and nothing else. One writes (`Journal.create`,
`Journal.resume`), any number of the same user read meanwhile (`Journal(path)`). Values of environment variables are not kept.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec
from msgspec import structs

from karat.changepoints.series import Better
from karat.findings import CannotVerify, KaratError, UsageError
from karat.hunts.journal import database
from karat.hunts.journal.records import AttemptRow, ChangeRow, CommandRow, HuntRow, StageRow
from karat.hunts.model import Attempt, Decision, Metric, Point, Window
from karat.system.command import Command

if TYPE_CHECKING:
    import sqlite3


LOG_LIMIT = 4 << 20  # Of a longer log, the first quarter and the end are kept.
_POINT = "INSERT INTO points (stage, id, position, label, at, missing, document) VALUES (?, ?, ?, ?, ?, ?, ?)"
_OF_ATTEMPT = "WHERE attempt = (SELECT id FROM attempts WHERE stage = ? AND point = ? AND number = ?)"


class Journal:
    """Everything a hunt did and saw. Made by its path, it is opened for reading."""

    def __init__(self, path: Path | str, *, writing: bool = False) -> None:
        self.path = Path(path)
        self._lock = database.WriterLock(self.path) if writing else None
        try:
            self._db = database.connect(self.path, writing=writing)
            self._file = self.path.stat().st_ino
            with self._errors("read"):
                application, version, tables = database.header(self._db)
            if application != database.APPLICATION_ID and (tables or not writing):  # else it is new: create() goes on
                what = "another SQLite file" if tables else "an empty file"
                said = f"expected the journal of a hunt at {self.path}, found {what}"
                raise CannotVerify(said, next_command="karat hunt status --help" if tables else "karat hunt run")
            if version > database.VERSION:
                said = f"expected a journal of version {database.VERSION} at {self.path}, found version {version}"
                raise CannotVerify(f"{said}: a newer karat made it", next_command="pip install --upgrade karat")
        except KaratError:
            if self._lock is not None:
                self._lock.release()
            raise

    def close(self) -> None:
        with self._errors("write"):
            self._db.close()
        if self._lock is not None:
            self._lock.release()

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
            raise database.journal_error(self.path, verb, error) from error

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
        """A fact that is kept as JSON."""
        return self._read(self.facts().get(key, otherwise), shape)

    def metrics(self) -> tuple[tuple[Metric, str], ...]:
        shape = tuple[str, Better | None, str, float | None, int]
        rows = self._rows(shape, "SELECT name, better, unit, threshold, binary FROM metrics ORDER BY position")
        return tuple((Metric(name=n, better=b, threshold=t, binary=bool(x)), unit) for n, b, unit, t, x in rows)

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
        """One stage; None: it was not begun."""
        return next((stage for stage in self.stages() if stage.key == key), None)

    def points(self, stage: str) -> tuple[Point, ...]:
        """The points of a stage's timeline, oldest first."""
        sql = "SELECT document FROM points WHERE stage = ? AND position IS NOT NULL ORDER BY position"
        return tuple(self._read(text, Point) for (text,) in self._rows(tuple[str], sql, stage))

    def point(self, stage: str, name: str) -> Point | None:
        """One point of a stage, mixed ones included."""
        rows = self._rows(tuple[str], "SELECT document FROM points WHERE stage = ? AND id = ?", stage, name)
        return self._read(rows[0][0], Point) if rows else None

    def every_point(self) -> tuple[tuple[str, Point], ...]:
        """Stage and point, mixed ones included, in the order of the stages."""
        rows = self._rows(
            tuple[str, str],
            "SELECT p.stage, p.document FROM points AS p JOIN stages AS s ON s.key = p.stage "
            "ORDER BY s.ordinal, p.position IS NULL, p.position, p.id",
        )
        return tuple((stage, self._read(text, Point)) for stage, text in rows)

    def attempts(self, stage: str | None = None, point: str | None = None) -> tuple[AttemptRow, ...]:
        """Attempts, oldest first: all, of a stage, or of one of its points."""
        sql = (
            "SELECT document, purpose, lost FROM attempts WHERE (?1 IS NULL OR stage = ?1) "
            "AND (?2 IS NULL OR point = ?2) ORDER BY id"
        )
        rows = self._rows(tuple[str, str, int], sql, stage, point)
        return tuple(AttemptRow(attempt=self._read(d, Attempt), purpose=p, lost=bool(x)) for d, p, x in rows)

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
        """What became of the changes of a stage, by their number."""
        rows = self._rows(tuple[int, str], "SELECT number, document FROM changes WHERE stage = ?", stage)
        return {number: self._read(text, ChangeRow) for number, text in rows}

    def running(self) -> tuple[tuple[str, str, str, float], ...]:
        """Stage, point, why and since when, of the runs under way."""
        sql = "SELECT stage, point, why, since FROM running ORDER BY since"
        return tuple(self._rows(tuple[str, str, str, float], sql))

    def events(self) -> tuple[tuple[float, str, str], ...]:
        """When, in which stage, what."""
        return tuple(self._rows(tuple[float, str, str], "SELECT at, stage, message FROM events ORDER BY id"))

    def writer(self) -> int | None:
        """The process that writes it now; None: nobody does."""
        return database.writing_process(self.path)

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
            raise CannotVerify(said, next_command=database.resume_command(str(path)))
        from karat import __version__

        facts = {
            **{name: getattr(hunt, name) for name in ("name", "file", "root", "hunt", "settings")},
            "command": _text(hunt.command),
            "karat": __version__,
            "state": "running",
        }
        # All in one transaction: a journal is whole, or it is empty.
        with journal._writing() as db:
            for statement in database.STATEMENTS:
                db.execute(statement)
            db.executemany("INSERT INTO hunt VALUES (?, ?)", facts.items())
            metrics = enumerate(hunt.metrics)
            rows = [(i, m.name, m.better, hunt.units.get(m.name, ""), m.threshold, m.binary) for i, m in metrics]
            db.executemany("INSERT INTO metrics VALUES (?, ?, ?, ?, ?, ?)", rows)
        return journal

    @classmethod
    def resume(cls, path: Path) -> Journal:
        if not path.is_file():
            raise database.no_journal(path)
        journal = cls(path, writing=True)
        if not journal._rows(tuple[int], "SELECT 1 FROM sqlite_master LIMIT 1"):
            journal.close()
            raise database.no_journal(path)
        return journal

    @contextmanager
    def _writing(self, *, durable: bool = True) -> Iterator[sqlite3.Connection]:
        """A transaction. What need not survive a power cut, only the end of this process, does not wait for the disk."""
        with self._errors("write"), self._db:
            self._db.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            self._db.execute("BEGIN IMMEDIATE")
            yield self._db

    def set_fact(self, key: str, value: str) -> None:
        with self._writing() as db:
            db.execute("INSERT OR REPLACE INTO hunt VALUES (?, ?)", (key, value))

    def add_event(self, message: str, stage: str = "") -> None:
        with self._writing() as db:
            db.execute("INSERT INTO events (at, stage, message) VALUES (?, ?, ?)", (time.time(), stage, message))

    def begin_stage(self, stage: StageRow, points: Sequence[Point]) -> None:
        """Keep a new stage with its points, all or nothing."""
        window = None if stage.window is None else _text(stage.window)
        with self._writing() as db:
            db.execute(
                "INSERT INTO stages (key, ordinal, title, timeline, state, parent, levels, window) "
                "VALUES (:key, (SELECT count(*) FROM stages), :title, :timeline, :state, :parent, :levels, :window)",
                {**structs.asdict(stage), "levels": _text(stage.levels), "window": window},
            )
            db.executemany(_POINT, [_point_row(stage.key, i, p) for i, p in enumerate(points)])

    def add_mixed_point(self, stage: str, point: Point) -> None:
        """Keep a point that is no part of the timeline."""
        with self._writing() as db:
            db.execute(f"{_POINT} ON CONFLICT DO NOTHING", _point_row(stage, None, point))

    def update_point(self, stage: str, position: int, point: Point) -> None:
        """A point is available now that was not, or the other way round."""
        with self._writing() as db:
            db.execute("DELETE FROM points WHERE stage = ? AND id = ?", (stage, point.id))
            db.execute(_POINT, _point_row(stage, position, point))

    def save_decision(self, stage: str, decision: Decision) -> None:
        """Keep what is known of a stage; it can be worked out again.

        JSON has no infinite bounds: an analysis that has some is left out, and can be had from the series.
        """
        text = _text(decision)
        if decision.analyses:
            try:
                msgspec.json.decode(text, type=Decision)
            except msgspec.ValidationError:
                text = _text(structs.replace(decision, analyses=()))
        with self._writing(durable=False) as db:
            db.execute("UPDATE stages SET decision = ? WHERE key = ?", (text, stage))

    def finish_stage(self, stage: str, notes: Sequence[str] = ()) -> None:
        with self._writing() as db:
            db.execute("UPDATE stages SET state = 'done', notes = ? WHERE key = ?", (_text(notes), stage))

    def run_started(self, stage: str, point: str, number: int, why: str) -> None:
        """Keep that a run is under way, for those who look on."""
        with self._writing(durable=False) as db:
            row = (stage, point, number, why, time.time())
            db.execute("INSERT OR REPLACE INTO running VALUES (?, ?, ?, ?, ?)", row)

    def clear_running(self) -> None:
        """Nothing is under way: the hunt begins, or has ended."""
        with self._writing() as db:
            db.execute("DELETE FROM running")

    def add_attempt(self, entry: AttemptRow, *, log: bytes = b"", commands: Sequence[CommandRow] = ()) -> None:
        """Keep an attempt with all that belongs to it, all or nothing."""
        attempt = entry.attempt
        # SQLite writes on into a file that was removed: everything from then on would be lost, and nobody told.
        if not self.path.exists() or self.path.stat().st_ino != self._file:
            said = f"expected the journal {self.path}, which this hunt writes, found that it was removed or replaced"
            raise CannotVerify(f"{said}: its measurements are lost", next_command="karat hunt run")
        with self._writing() as db:
            kept = {"purpose": entry.purpose, "lost": entry.lost, "document": _text(attempt)}
            row = db.execute(
                "INSERT INTO attempts (stage, point, number, purpose, outcome, signature, identity_key, shared_with, "
                "lost, started, seconds, document) VALUES (:stage, :point, :number, :purpose, :outcome, :signature, "
                ":identity_key, :shared_with, :lost, :started, :seconds, :document)",
                {**structs.asdict(attempt), **kept, "outcome": attempt.outcome.value},
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
        with self._writing() as db:
            db.execute("INSERT OR REPLACE INTO changes VALUES (?, ?, ?)", (stage, number, _text(found)))

    def _read(self, text: str, shape: Any) -> Any:
        try:
            return msgspec.json.decode(text, type=shape)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise self.damaged(str(error)) from error

    def damaged(self, said: str) -> CannotVerify:
        said = f"expected the journal {self.path} to be whole, but: {said}"
        return CannotVerify(said, next_command=database.fresh_command(self.path))


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
    """Remove the journal of a hunt that never ran anything."""
    for tail in ("-wal", "-shm", ""):
        path.with_name(f"{path.name}{tail}").unlink(missing_ok=True)


def archive(path: Path) -> Path:
    """Rename a journal to `NAME.hunt.1`, `.2`, …; nobody may be writing it."""
    database.WriterLock(path).release()
    try:
        # Closing it as its writer leaves one whole file. One that cannot be read is all the more reason to begin anew.
        Journal.resume(path).close()
    except CannotVerify as error:
        if not database.has_journal_name(path) and path.stat().st_size:
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
