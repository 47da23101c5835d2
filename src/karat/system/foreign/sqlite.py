"""SQLite files of strangers: a schema may call functions, and a view may never end."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from karat.system.foreign.limits import LOG, ROWS

_STEPS = 200  # Of SQLite's machine, per row that is allowed: what a join of several tables takes, and some more.
_AT_ONCE = 100_000
_LONGEST, _MEMORY = 16 << 20, 256 << 20  # Bytes of one value, and of all that SQLite holds: a row may have thousands.
_READING = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE})
_PRAGMAS = frozenset({"application_id", "user_version", "table_info"})


def guard(connection: sqlite3.Connection, *, writing: bool = False) -> None:
    """Let nothing in the file do more than be read, or be read and written."""
    connection.execute("PRAGMA trusted_schema=OFF")
    connection.execute("PRAGMA cell_size_check=ON")
    connection.execute(f"PRAGMA hard_heap_limit={_MEMORY}")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST)

    def may(action: int, first: str | None, second: str | None, *_: object) -> int:
        if action == sqlite3.SQLITE_FUNCTION:
            allowed = second != "load_extension"
        elif writing:
            allowed = action not in {sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH}
        else:
            allowed = action in _READING or (action == sqlite3.SQLITE_PRAGMA and first in _PRAGMAS)
        return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY

    connection.set_authorizer(may)


def rows(connection: sqlite3.Connection, sql: str, values: Sequence[Any] = ()) -> list[Any]:
    """What a query gives; sqlite3.OperationalError where it gives too much, or does not end."""
    most, room = ROWS.value(), LOG.value()
    ticks = iter(range(_STEPS * most // _AT_ONCE + 1))
    connection.set_progress_handler(lambda: next(ticks, None) is None, _AT_ONCE)
    found: list[Any] = []
    try:
        for row in connection.execute(sql, values):
            found.append(row)
            for value in row:
                if isinstance(value, str | bytes):
                    room -= len(value)
            if len(found) > most or room < 0:
                break
    except sqlite3.OperationalError as error:
        if next(ticks, None) is None and "interrupted" in str(error):
            said = f"a query takes longer than {most:,} rows should; {ROWS.setting}"
            raise sqlite3.OperationalError(said) from None
        raise
    except UnicodeDecodeError:  # SQLite quotes the file in its messages
        raise sqlite3.DatabaseError("its schema is malformed, and not in UTF-8") from None
    except MemoryError:
        raise sqlite3.OperationalError(f"a query needs more than {_MEMORY:,} bytes of memory") from None
    finally:
        connection.set_progress_handler(None, 0)
    if len(found) > most or room < 0:
        what = f"{most:,} rows; {ROWS.setting}" if room >= 0 else f"{LOG.value():,} bytes; {LOG.setting}"
        raise sqlite3.OperationalError(f"a query gives more than {what}")
    return found
