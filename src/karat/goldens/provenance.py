"""Provenance: what git cannot hold about where golden values came from.

The record of the last refresh lives among git's private files of the work tree, so it is never
committed and vanishes with the clone. `karat refresh` writes it, `karat summary` reads it.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from karat.findings import CannotVerify
from karat.goldens.atomic import write_bytes
from karat.goldens.git import git_path

SCHEMA = "karat.refresh/1"


class RefreshRecord(msgspec.Struct, frozen=True, kw_only=True, rename={"schema_name": "schema"}):
    """What the last refresh did."""

    schema_name: str = SCHEMA
    source: str = "github"
    run_id: str | None = None
    scope: str | None = None
    """`only-failing` or `all`."""
    command: str | None = None
    """The command line as typed, without any secret."""
    files: tuple[str, ...] = ()
    confirmed: tuple[str, ...] = ()
    """Goldens that came in as they stand already."""
    narrowed: bool = False
    """Whether only some goldens, platforms or metrics were asked for."""
    not_refreshed: tuple[str, ...] = ()
    """What was asked for and not done, one sentence each."""
    accepted: tuple[str, ...] = ()
    """Goldens that were taken although they are incomplete, because the user said so."""
    commit: str | None = None
    """The commit that the run was of."""
    date: str | None = None
    tests: int | None = None
    goldens: int | None = None
    """The seed's two totals: tests with golden values, golden values found."""


def record_path(root: Path) -> Path:
    """Where the record of the last refresh of this work tree is kept."""
    return git_path(root, "karat/refresh.json")


def write_record(root: Path, record: RefreshRecord) -> None:
    """Keep the record of a refresh, in place of the one before."""
    path = record_path(root)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, msgspec.json.format(msgspec.json.encode(record)), durable=False)
    except OSError as error:
        raise CannotVerify(
            f"expected to write {path}, but: {error.strerror or error}",
            next_command=f"ls -ld {path.parent}",
        ) from error


def read_record(root: Path) -> RefreshRecord | None:
    """The record of the last refresh, or None if there was none."""
    path = record_path(root)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        record = msgspec.json.decode(data, type=RefreshRecord)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise CannotVerify(
            f"expected the record of the last refresh in {path}, found: {error}",
            next_command=f"rm {path}",
        ) from error
    if record.schema_name != SCHEMA:
        raise CannotVerify(
            f"expected {SCHEMA} in {path}, found {record.schema_name}", next_command=f"rm {path}"
        )
    return record
