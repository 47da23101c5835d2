"""The journal's tables: one SQLite file per hunt, also for those who come with their own SQL.

`application_id` tells a hunt from any other SQLite file, `user_version` is the version of these tables.
"""

from __future__ import annotations

from collections.abc import Iterator

APPLICATION_ID = 0x6B727448
"""`krtH`."""
VERSION = 1

TABLES = """
CREATE TABLE hunt (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;

CREATE TABLE metrics (
    position INTEGER NOT NULL, name TEXT PRIMARY KEY, better TEXT, unit TEXT NOT NULL,
    threshold REAL, binary INTEGER NOT NULL
) STRICT;

CREATE TABLE stages (
    key TEXT PRIMARY KEY,
    ordinal INTEGER NOT NULL,
    title TEXT NOT NULL,
    timeline TEXT NOT NULL,
    state TEXT NOT NULL,
    parent TEXT NOT NULL,
    levels TEXT NOT NULL,
    window TEXT,
    decision TEXT,
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
    id INTEGER PRIMARY KEY,
    stage TEXT NOT NULL,
    point TEXT NOT NULL,
    number INTEGER NOT NULL,
    purpose TEXT NOT NULL,
    outcome TEXT NOT NULL,
    signature TEXT NOT NULL,
    identity_key TEXT NOT NULL,
    shared_with TEXT NOT NULL,
    lost INTEGER NOT NULL,
    started REAL NOT NULL,
    seconds REAL NOT NULL,
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


def statements() -> Iterator[str]:
    """What makes an empty file a journal, one statement at a time."""
    import sqlite3  # noqa: PLC0415 - help must be quick

    yield f"PRAGMA application_id = {APPLICATION_ID}"
    yield f"PRAGMA user_version = {VERSION}"
    part = ""
    for line in TABLES.splitlines(keepends=True):
        part += line
        if sqlite3.complete_statement(part):
            yield part
            part = ""
