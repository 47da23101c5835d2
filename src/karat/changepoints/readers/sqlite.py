"""SQLite: the journal of a hunt, or any table; opened read-only, also while somebody writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from karat.changepoints.readers.columns import SourceTable
from karat.changepoints.readers.sheets import (
    Cell,
    NoSample,
    ReadOptions,
    Sheet,
    SheetRow,
    join_cells,
    parse_date,
    read_cell,
    since_1970,
    utc,
)
from karat.changepoints.series import Better, Outcome, no_such, wrong_usage
from karat.findings import CannotVerify
from karat.system.command import Command

if TYPE_CHECKING:
    from sqlite3 import Connection

HEAD = b"SQLite format 3\0"
_VIEW = "series"
_BETTER: Mapping[str, Better] = {"higher": "higher", "lower": "lower", "equal": "equal"}
_JOURNAL = ("stage", "position", "label", "at", "metric", "value", "outcome", "signature")


def read_database(path: Path, source: str, options: ReadOptions) -> tuple[SourceTable | Sheet, ...]:
    """One sheet per stage of a hunt, or the table that was asked for."""
    import sqlite3

    try:
        with closing(sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro", uri=True)) as connection:
            found = connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")
            names = [name for (name,) in found if not name.startswith("sqlite_")]
            table = options.table or (_VIEW if _VIEW in names or len(names) != 1 else names[0])
            if not options.table and table not in names:
                raise wrong_usage(
                    f"expected --table to say which table of {source} is meant, found {', '.join(names[:20]) or 'none'}"
                )
            if table not in names:
                raise no_such("--table", f"name a table of {source}", table, names)
            columns = _columns(connection, table)
            if table == _VIEW and set(_JOURNAL) <= set(columns):
                return _journal(connection, source, options)
            if options.stage:
                raise wrong_usage(f"expected the journal of a hunt for --stage, found the table {table!r} of {source}")
            rows = connection.execute(f"SELECT * FROM {_quoted(table)}").fetchall()  # noqa: S608 - a name from the database
            return (SourceTable(source=f"{source}:{table}", names=tuple(columns), rows=rows),)
    except sqlite3.Error as error:
        said = f"expected to read the SQLite database {source}, but: {error}"
        raise CannotVerify(said, next_command=Command("sqlite3", source, "PRAGMA integrity_check")) from error


def _columns(connection: Connection, table: str) -> list[str]:
    return [str(row[1]) for row in connection.execute(f"PRAGMA table_info({_quoted(table)})")]


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _journal(connection: Connection, source: str, options: ReadOptions) -> tuple[Sheet, ...]:
    """The stages of a hunt, one sheet each."""
    query = f"SELECT {', '.join(map(_quoted, _JOURNAL))} FROM {_VIEW} ORDER BY stage, position"  # noqa: S608 - our own names
    stages: dict[str, list[tuple[Any, ...]]] = {}
    for row in connection.execute(query):
        stages.setdefault(str(row[0]), []).append(row)
    if options.stage and options.stage not in stages:
        raise no_such("--stage", "be a stage of the hunt", options.stage, list(stages))
    wanted = {options.stage: stages[options.stage]} if options.stage else stages
    settings: dict[str, tuple[str, str]] = {}
    if {"name", "better", "unit"} <= set(_columns(connection, "metrics")):
        found = connection.execute("SELECT name, better, unit FROM metrics ORDER BY rowid")
        settings = {str(name): (str(better or ""), str(unit or "")) for name, better, unit in found}
    return tuple(
        _stage(source, stage, rows, settings, options, several=len(wanted) > 1) for stage, rows in wanted.items()
    )


def _stage(
    source: str,
    stage: str,
    rows: Sequence[Sequence[Any]],
    settings: Mapping[str, tuple[str, str]],
    options: ReadOptions,
    *,
    several: bool,
) -> Sheet:
    """`settings`: metric → which direction is better, and its unit."""
    there = dict.fromkeys(str(row[4]) for row in rows if row[4] is not None)
    # Those of the hunt first, in its order.
    metrics = sorted(there, key=lambda name: list(settings).index(name) if name in settings else len(settings))
    for name in options.metrics:
        if name not in metrics:
            raise no_such("--metric", f"be a metric of {source}", name, metrics)
    wanted = tuple(name for name in metrics if not options.metrics or name in options.metrics)
    points: dict[Any, list[Sequence[Any]]] = {}
    for row in rows:
        points.setdefault(row[1], []).append(row)

    def cell(row: Sequence[Any]) -> Cell:
        value, outcome, signature = row[5], row[6], row[7]
        if value is not None:
            return read_cell(value, nan=options.nan)
        kind = Outcome(outcome) if outcome in set(Outcome) else Outcome.BROKEN
        return NoSample(Outcome.MISSING if kind is Outcome.OK else kind, str(signature or ""))

    made = []
    for held in points.values():
        label, at = str(held[0][2]), held[0][3]
        when = since_1970(at) or parse_date(at)
        of_metric = {name: [row for row in held if row[4] is None or str(row[4]) == name] for name in wanted}
        made.append(
            SheetRow(
                label=label,
                cells={name: join_cells(map(cell, own)) for name, own in of_metric.items()},
                when=None if when is None else utc(when),
                log=str(Command("karat", "hunt", "show", label, "--stage", stage, "--journal", source)),
            )
        )
    known = {name: settings[name] for name in wanted if name in settings}
    return Sheet(
        source=f"{source} stage {stage}" if several else source,
        metrics=wanted,
        rows=tuple(made),
        units={name: unit for name, (_, unit) in known.items()},
        better={name: _BETTER[said] for name, (said, _) in known.items() if said in _BETTER},
        ordered=True,
    )
