"""The journal: everything a hunt did and saw, in one SQLite file.

Each attempt is one transaction that is on the disk before the search hears of it (WAL, synchronous=FULL): a process that is
killed, or a machine that loses its power, loses the runs in flight and nothing else. One writes (`Journal.create`,
`Journal.resume`), any number read meanwhile (`Journal(path)`). Values of environment variables are never kept.
"""

from __future__ import annotations

import shlex
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import structs

from karat.findings import CannotVerify
from karat.hunt.advice import resume
from karat.hunt.journal_opening import no_journal
from karat.hunt.journal_reading import JournalReader
from karat.hunt.journal_rows import CommandRow, Entry, Found, HuntRow, StageRow
from karat.hunt.journal_schema import statements
from karat.hunt.point import Point
from karat.hunt.searching import Decision

if TYPE_CHECKING:
    import sqlite3

LOG_LIMIT = 4 << 20
"""Of a longer log, the first quarter and the end are kept."""


class Journal(JournalReader):
    """Everything a hunt did and saw. Made by its path, it is opened for reading."""

    @classmethod
    def create(cls, path: Path, hunt: HuntRow) -> Journal:
        """A new journal, open for writing; there must be none at that path, or an empty one."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(exist_ok=True)
        except OSError as error:
            raise CannotVerify(
                f"expected to write the journal {path}, but: {error.strerror}",
                next_command=f"ls -ld {shlex.quote(str(path.parent))}",
            ) from error
        journal = cls(path, writing=True)
        journal._begin(hunt)
        return journal

    @classmethod
    def resume(cls, path: Path) -> Journal:
        """A journal that exists, open for writing."""
        if not path.is_file():
            raise no_journal(path)
        journal = cls(path, writing=True)
        if not journal._rows("SELECT 1 FROM sqlite_master LIMIT 1"):
            journal.close()
            raise no_journal(path)
        return journal

    @contextmanager
    def _writing(self, *, durable: bool = True) -> Iterator[sqlite3.Connection]:
        """A transaction. What need not survive a power cut, only the end of this process, does not wait for the disk."""
        with self._told("write"), self._db:
            self._db.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            self._db.execute("BEGIN IMMEDIATE")
            yield self._db

    def _begin(self, hunt: HuntRow) -> None:
        from karat import __version__  # noqa: PLC0415 - only here

        if self._rows("SELECT 1 FROM sqlite_master LIMIT 1"):
            self.close()
            raise CannotVerify(
                f"expected no journal at {self.path} yet, found one",
                next_command=resume(str(self.path)),
            )
        facts = {
            **{name: getattr(hunt, name) for name in ("name", "file", "root", "hunt", "settings")},
            "command": _text(hunt.command),
            "karat": __version__,
            "state": "running",
        }
        # All in one transaction: a journal is whole, or it is empty.
        with self._writing() as db:
            for statement in statements():
                db.execute(statement)
            db.executemany("INSERT INTO hunt VALUES (?, ?)", facts.items())
            db.executemany(
                "INSERT INTO metrics VALUES (?, ?, ?, ?, ?, ?)",
                [
                    (i, m.name, m.better, hunt.units.get(m.name, ""), m.threshold, m.binary)
                    for i, m in enumerate(hunt.metrics)
                ],
            )

    def note(self, key: str, value: str) -> None:
        """Keep one fact of the hunt: its state, its settings."""
        with self._writing() as db:
            db.execute("INSERT OR REPLACE INTO hunt VALUES (?, ?)", (key, value))

    def event(self, message: str, stage: str = "") -> None:
        """Keep one thing that happened."""
        with self._writing() as db:
            db.execute(
                "INSERT INTO events (at, stage, message) VALUES (?, ?, ?)",
                (time.time(), stage, message),
            )

    def begin_stage(self, stage: StageRow, points: Sequence[Point]) -> None:
        """Keep a new stage with its points, all or nothing."""
        with self._writing() as db:
            db.execute(
                "INSERT INTO stages (key, ordinal, title, timeline, state, parent, levels, window) "
                "VALUES (?, (SELECT count(*) FROM stages), ?, ?, ?, ?, ?, ?)",
                (
                    stage.key, stage.title, stage.timeline, stage.state, stage.parent, _text(stage.levels),
                    None if stage.window is None else _text(stage.window),
                ),
            )  # fmt: skip
            db.executemany(_POINT, [_point_row(stage.key, i, p) for i, p in enumerate(points)])

    def mixed(self, stage: str, point: Point) -> None:
        """Keep a point that is no part of the timeline."""
        with self._writing() as db:
            db.execute(f"{_POINT} ON CONFLICT DO NOTHING", _point_row(stage, None, point))

    def update_point(self, stage: str, position: int, point: Point) -> None:
        """A point that could not be had can be now, or the other way round."""
        with self._writing() as db:
            db.execute("DELETE FROM points WHERE stage = ? AND id = ?", (stage, point.id))
            db.execute(_POINT, _point_row(stage, position, point))

    def decided(self, stage: str, decision: Decision) -> None:
        """Keep what is known of a stage; it can be worked out again."""
        with self._writing(durable=False) as db:
            db.execute("UPDATE stages SET decision = ? WHERE key = ?", (_decision(decision), stage))

    def stage_done(self, stage: str, notes: Sequence[str] = ()) -> None:
        """A stage has its answer."""
        with self._writing() as db:
            sql = "UPDATE stages SET state = 'done', notes = ? WHERE key = ?"
            db.execute(sql, (_text(notes), stage))

    def started(self, stage: str, point: str, number: int, why: str) -> None:
        """Keep that a run is under way, for those who look on."""
        with self._writing(durable=False) as db:
            row = (stage, point, number, why, time.time())
            db.execute("INSERT OR REPLACE INTO running VALUES (?, ?, ?, ?, ?)", row)

    def none_running(self) -> None:
        """Nothing is under way: the hunt begins, or has ended."""
        with self._writing() as db:
            db.execute("DELETE FROM running")

    def attempted(
        self, entry: Entry, *, log: bytes = b"", commands: Sequence[CommandRow] = ()
    ) -> None:
        """Keep an attempt with all that belongs to it, all or nothing."""
        attempt = entry.attempt
        self._still_there()
        with self._writing() as db:
            cursor = db.execute(
                "INSERT INTO attempts (stage, point, number, purpose, outcome, signature, identity_key, shared_with, "
                "lost, started, seconds, document) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    attempt.stage, attempt.point, attempt.number, entry.purpose, attempt.outcome.value,
                    attempt.signature, attempt.identity_key, attempt.shared_with, entry.lost, attempt.started,
                    attempt.seconds, _text(attempt),
                ),
            )  # fmt: skip
            row = cursor.lastrowid
            db.execute(
                "DELETE FROM running WHERE stage = ? AND point = ? AND number = ?",
                (attempt.stage, attempt.point, attempt.number),
            )
            db.executemany(
                "INSERT INTO samples VALUES (?, ?, ?, ?)",
                [(row, m, i, v) for m, vs in attempt.samples.items() for i, v in enumerate(vs)],
            )
            db.executemany(
                "INSERT INTO commands VALUES (?, ?, ?)",
                [(row, i, _text(command)) for i, command in enumerate(commands)],
            )
            if log:
                data = zlib.compress(capped(log))
                db.execute("INSERT INTO logs VALUES (?, ?, ?)", (row, len(log), data))

    def _still_there(self) -> None:
        """SQLite writes on into a file that was removed: everything from then on would be lost, and nobody told."""
        if not self.path.exists() or self.path.stat().st_ino != self._file:
            raise CannotVerify(
                f"expected the journal {self.path}, which this hunt writes, found it removed or replaced meanwhile: what "
                "was measured is lost with it",
                next_command="karat hunt run",
            )

    def found(self, stage: str, number: int, found: Found) -> None:
        """Keep what became of a change."""
        with self._writing() as db:
            db.execute(
                "INSERT OR REPLACE INTO changes VALUES (?, ?, ?)", (stage, number, _text(found))
            )


_POINT = "INSERT INTO points (stage, id, position, label, at, missing, document) VALUES (?, ?, ?, ?, ?, ?, ?)"


def _point_row(stage: str, position: int | None, point: Point) -> tuple[Any, ...]:
    when = None if point.when is None else point.when.isoformat()
    return stage, point.id, position, point.label, when, point.missing, _text(point)


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _decision(decision: Decision) -> str:
    """As JSON, which has no infinite bounds: an analysis that has some is left out, and can be had from the series."""
    text = _text(decision)
    if decision.analyses:
        try:
            msgspec.json.decode(text, type=Decision)
        except msgspec.ValidationError:
            return _text(structs.replace(decision, analyses=()))
    return text


def capped(log: bytes, limit: int = LOG_LIMIT) -> bytes:
    """A log that fits: of a longer one the first quarter and the end, with a line that says so."""
    if len(log) <= limit:
        return log
    head = limit // 4
    left = len(log) - limit
    return b"%s\n[karat: %d bytes left out]\n%s" % (log[:head], left, log[-(limit - head) :])
