"""Provenance: what git cannot hold about where golden values came from.

The record of the last refresh lives among git's private files of the work tree, so it is never
committed and vanishes with the clone. `karat refresh` writes it, `karat summary` reads it.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from karat.findings import CannotVerify
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
    not_refreshed: tuple[str, ...] = ()
    """What was asked for and not done, one sentence each."""


def record_path(root: Path) -> Path:
    """Where the record of the last refresh of this work tree is kept."""
    return git_path(root, "karat/refresh.json")


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
