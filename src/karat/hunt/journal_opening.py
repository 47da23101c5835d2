"""Opening a journal's file, and what to say when that fails."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from karat.findings import CannotVerify
from karat.hunt.journal_schema import APPLICATION_ID

if TYPE_CHECKING:
    import sqlite3


def no_journal(path: Path) -> CannotVerify:
    """There is no hunt at that path."""
    return CannotVerify(
        f"expected the journal of a hunt at {path}, found none", next_command="karat hunt run"
    )


def connected(path: Path, *, writing: bool) -> sqlite3.Connection:
    """The file as a database; to be written, or only looked at."""
    import sqlite3  # noqa: PLC0415 - help must be quick
    from urllib.parse import quote  # noqa: PLC0415

    if not path.is_file():
        raise no_journal(path)
    uri = f"file:{quote(str(path.absolute()))}"
    try:
        db = sqlite3.connect(
            f"{uri}?mode={'rw' if writing else 'ro'}", uri=True, isolation_level=None, timeout=30
        )
        if writing and not _is_foreign(db):
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=FULL")
        else:
            db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
    except sqlite3.OperationalError as error:
        if writing or path.with_name(f"{path.name}-wal").exists():
            raise cannot(path, "write" if writing else "read", error) from error
        # In a folder that nobody may write, WAL has no place for its index: the file alone is all there is.
        return sqlite3.connect(f"{uri}?mode=ro&immutable=1", uri=True, isolation_level=None)
    except sqlite3.Error as error:
        raise cannot(path, "read", error) from error
    return db


def _is_foreign(db: sqlite3.Connection) -> bool:
    """Whether somebody else keeps something in it: then not even its mode is changed, and whoever asked will find out."""
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    return bool(tables) and application != APPLICATION_ID


def is_empty(path: Path) -> bool:
    """Whether a file has no tables: what is left of a hunt that was killed before it began."""
    import sqlite3  # noqa: PLC0415 - help must be quick

    db = connected(path, writing=False)
    try:
        (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        return int(tables) == 0
    except sqlite3.Error as error:
        raise cannot(path, "read", error) from error
    finally:
        db.close()


def is_named_so(path: Path) -> bool:
    """Whether a file has a journal's name: `slow.hunt`, `slow.hunt.1`. What cannot be read is a journal by that alone."""
    return ".hunt" in path.suffixes


def cannot(path: Path, verb: str, error: Exception) -> CannotVerify:
    """What SQLite says, in karat's voice."""
    import sqlite3  # noqa: PLC0415 - help must be quick

    words = shlex.quote(str(path))
    # An operation that fails may succeed elsewhere or later; any other error of a database is damage, if it is one of ours.
    later = isinstance(error, sqlite3.OperationalError) or not is_named_so(path)
    way = f"ls -ld {words}" if later else fresh(path)
    return CannotVerify(
        f"expected to {verb} the journal {path}, but: {error}",
        next_command="df -h" if "full" in str(error) else way,
    )


def fresh(path: Path) -> str:
    """The command that begins anew where a journal is of no use; what is there is put aside."""
    return f"karat hunt run --fresh --journal {shlex.quote(str(path))}"
