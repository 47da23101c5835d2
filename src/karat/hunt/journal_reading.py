"""Reading a journal: also while another process writes it."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import msgspec

from karat.findings import CannotVerify, KaratError
from karat.hunt.attempt import Attempt
from karat.hunt.journal_lock import WriterLock, writer_of
from karat.hunt.journal_opening import cannot, connected, fresh
from karat.hunt.journal_rows import CommandRow, Entry, Found, StageRow
from karat.hunt.journal_schema import APPLICATION_ID, VERSION
from karat.hunt.point import Point, Window
from karat.hunt.searching import Decision, Metric


class JournalReader:
    """What can be asked of a journal."""

    def __init__(self, path: Path | str, *, writing: bool = False) -> None:
        self.path = Path(path)
        self._lock = WriterLock(self.path) if writing else None
        try:
            self._db = connected(self.path, writing=writing)
            self._file = self.path.stat().st_ino
            with self._told("read"):
                self._check()
        except KaratError:
            self._release()
            raise

    def close(self) -> None:
        """Give the file back."""
        with self._told("write"):
            self._db.close()
        self._release()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _told(self, verb: str) -> Iterator[None]:
        import sqlite3  # noqa: PLC0415 - help must be quick

        try:
            yield
        except sqlite3.Error as error:
            raise cannot(self.path, verb, error) from error

    def _rows(self, sql: str, *values: Any) -> list[Any]:
        with self._told("read"):
            return self._db.execute(sql, values).fetchall()

    def _check(self) -> None:
        (application,) = self._db.execute("PRAGMA application_id").fetchone()
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        (tables,) = self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if self._lock is not None and not tables:
            return  # new: create() goes on
        if application != APPLICATION_ID:
            what = "an empty file" if not tables else "another SQLite file"
            raise CannotVerify(
                f"expected the journal of a hunt at {self.path}, found {what}",
                next_command="karat hunt run" if not tables else "karat hunt status --help",
            )
        if version > VERSION:
            raise CannotVerify(
                f"expected a journal of version {VERSION} at {self.path}, found version {version}: a newer karat "
                "made it",
                next_command="pip install --upgrade karat",
            )

    def facts(self) -> dict[str, str]:
        """Everything that was noted of the hunt."""
        return dict(self._rows("SELECT key, value FROM hunt"))

    def metrics(self) -> tuple[tuple[Metric, str], ...]:
        """The metrics, each with its unit."""
        rows = self._rows(
            "SELECT name, better, unit, threshold, binary FROM metrics ORDER BY position"
        )
        return tuple(
            (Metric(name=n, better=b, threshold=t, binary=bool(x)), unit)
            for n, b, unit, t, x in rows
        )

    def stages(self) -> tuple[StageRow, ...]:
        """All stages in the order in which they were begun."""
        rows = self._rows(
            "SELECT key, title, timeline, state, parent, levels, window, decision, notes "
            "FROM stages ORDER BY ordinal"
        )
        return tuple(self._stage(row) for row in rows)

    def stage(self, key: str) -> StageRow | None:
        """One stage; None: it was not begun."""
        return next((stage for stage in self.stages() if stage.key == key), None)

    def _stage(self, row: Sequence[Any]) -> StageRow:
        key, title, timeline, state, parent, levels, window, decision, notes = row
        return StageRow(
            key=key,
            title=title,
            timeline=timeline,
            state=state,
            parent=parent,
            levels=self._read(levels, dict[str, tuple[float, float]]),
            window=None if window is None else self._read(window, Window),
            decision=None if decision is None else self._read(decision, Decision),
            notes=self._read(notes, tuple[str, ...]),
        )

    def points(self, stage: str) -> tuple[Point, ...]:
        """The points of a stage's timeline, oldest first."""
        sql = (
            "SELECT document FROM points WHERE stage = ? AND position IS NOT NULL ORDER BY position"
        )
        return tuple(self._read(text, Point) for (text,) in self._rows(sql, stage))

    def point(self, stage: str, name: str) -> Point | None:
        """One point of a stage, mixed ones included."""
        rows = self._rows("SELECT document FROM points WHERE stage = ? AND id = ?", stage, name)
        return self._read(rows[0][0], Point) if rows else None

    def every_point(self) -> tuple[tuple[str, Point], ...]:
        """Stage and point, mixed ones included, in the order of the stages."""
        rows = self._rows(
            "SELECT p.stage, p.document FROM points AS p JOIN stages AS s ON s.key = p.stage "
            "ORDER BY s.ordinal, p.position IS NULL, p.position, p.id"
        )
        return tuple((stage, self._read(text, Point)) for stage, text in rows)

    def entries(self, stage: str | None = None, point: str | None = None) -> tuple[Entry, ...]:
        """Attempts, oldest first: all, of a stage, or of one of its points."""
        rows = self._rows(
            "SELECT document, purpose, lost FROM attempts WHERE (?1 IS NULL OR stage = ?1) "
            "AND (?2 IS NULL OR point = ?2) ORDER BY id",
            stage,
            point,
        )
        return tuple(
            Entry(attempt=self._read(text, Attempt), purpose=purpose, lost=bool(lost))
            for text, purpose, lost in rows
        )

    def runs(self) -> int:
        """How many attempts were really run; shared ones cost nothing."""
        (row,) = self._rows("SELECT count(*) FROM attempts WHERE shared_with = ''")
        return int(row[0])

    def log(self, stage: str, point: str, number: int) -> bytes:
        """The output of an attempt's commands; empty where there was none."""
        rows = self._rows(
            "SELECT l.data FROM logs AS l JOIN attempts AS a ON a.id = l.attempt "
            "WHERE a.stage = ? AND a.point = ? AND a.number = ?",
            stage, point, number,
        )  # fmt: skip
        try:
            return zlib.decompress(rows[0][0]) if rows else b""
        except zlib.error as error:
            raise self._damaged(str(error)) from error

    def commands(self, stage: str, point: str, number: int) -> tuple[CommandRow, ...]:
        """What an attempt ran, in order."""
        rows = self._rows(
            "SELECT c.document FROM commands AS c JOIN attempts AS a ON a.id = c.attempt "
            "WHERE a.stage = ? AND a.point = ? AND a.number = ? ORDER BY c.number",
            stage, point, number,
        )  # fmt: skip
        return tuple(self._read(text, CommandRow) for (text,) in rows)

    def changes(self, stage: str) -> dict[int, Found]:
        """What became of the changes of a stage, by their number."""
        rows = self._rows("SELECT number, document FROM changes WHERE stage = ?", stage)
        return {number: self._read(text, Found) for number, text in rows}

    def running(self) -> tuple[tuple[str, str, str, float], ...]:
        """Stage, point, why and since when, of the runs under way."""
        return tuple(self._rows("SELECT stage, point, why, since FROM running ORDER BY since"))

    def events(self) -> tuple[tuple[float, str, str], ...]:
        """When, in which stage, what."""
        return tuple(self._rows("SELECT at, stage, message FROM events ORDER BY id"))

    def writer(self) -> int | None:
        """The process that writes it now; None: nobody does."""
        return writer_of(self.path)

    def _read(self, text: str, shape: Any) -> Any:
        try:
            return msgspec.json.decode(text, type=shape)
        except (msgspec.DecodeError, UnicodeError) as error:
            raise self._damaged(str(error)) from error

    def _damaged(self, said: str) -> CannotVerify:
        return CannotVerify(
            f"expected the journal {self.path} to be whole, but: {said}",
            next_command=fresh(self.path),
        )
