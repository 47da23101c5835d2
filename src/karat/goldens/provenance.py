"""Provenance: where golden values came from, which git cannot hold.

goldens.lock.json has one line per golden. It lies at the root of a golden group (the fixed part of a
golden glob) and is committed. Lines are sorted and each ends in a comma, the schema closes the object; so
two branches that refresh different goldens merge without a conflict.

The record of the last refresh lies among git's private files of the work tree, so it is never committed
and vanishes with the clone. `karat refresh` writes it, `karat summary` reads it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Self

import msgspec

from karat.findings import CannotVerify
from karat.goldens.paths import glob_matcher
from karat.goldens.saves import LockFile
from karat.system.command import Command
from karat.system.files import expecting, write_bytes
from karat.system.git import git_path

NAME = "goldens.lock.json"
LOCK_SCHEMA = "karat.lock/1"
RECORD_SCHEMA = "karat.refresh/1"


class Provenance(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where values came from."""

    source: str
    run: str | None = None
    attempt: int | None = None
    commit: str | None = None
    job: str | None = None
    platform: str | None = None
    image: str | None = None
    date: str | None = None
    accepted: str | None = None  # Why it was taken although karat objected.


class LockEntry(Provenance, frozen=True, kw_only=True, omit_defaults=True):
    """One line: provenance of a golden, its hash, and of single metrics that were refreshed alone."""

    sha256: str
    metrics: Mapping[str, Provenance] = msgspec.field(default_factory=dict)

    @property
    def origin(self) -> Provenance:
        """Where the golden came from, without what is said of its bytes."""
        return Provenance(**{name: getattr(self, name) for name in Provenance.__struct_fields__})

    @classmethod
    def of(cls, origin: Provenance, sha256: str, old: Self | None, metrics: Sequence[str]) -> Self:
        """The line of a golden with these bytes; with `metrics`, only they are from `origin`."""
        if not metrics:
            return cls(**msgspec.structs.asdict(origin), sha256=sha256)
        names = Provenance.__struct_fields__
        rest = {name: getattr(old, name) for name in names} if old else {"source": "unknown"}
        alone = {**(old.metrics if old else {}), **dict.fromkeys(metrics, origin)}
        return cls(**rest, sha256=sha256, metrics=alone)


def _fixed(glob: str) -> str:
    """The folder of a glob up to its first wildcard."""
    return re.split(r"[*?{]", glob, maxsplit=1)[0].rpartition("/")[0]


def lock_names(globs: Iterable[str]) -> set[str]:
    """Every lock that a repository with these golden paths may have."""
    return {f"{folder}/{NAME}" if folder else NAME for folder in map(_fixed, globs)}


def place_of(path: str, globs: Sequence[str]) -> tuple[str, str]:
    """The lock that speaks for a golden (of the first glob that fits it), and the golden's name in it."""
    folder = next((_fixed(glob) for glob in globs if glob_matcher(glob).fullmatch(path)), "")
    return (f"{folder}/{NAME}", path[len(folder) + 1 :]) if folder else (NAME, path)


_LOCK = LockFile(LOCK_SCHEMA, LockEntry)
read_lock, decode_lock, encode_lock, write_lock = _LOCK.read, _LOCK.decode, _LOCK.encode, _LOCK.write


class RefreshRecord(msgspec.Struct, frozen=True, kw_only=True, rename={"schema_name": "schema"}):
    """What the last refresh did."""

    schema_name: str = RECORD_SCHEMA
    source: str = "github"
    run_id: str | None = None
    scope: str | None = None  # `only-failing` or `all`.
    command: str | None = None  # The command line as typed, without any secret.
    files: tuple[str, ...] = ()
    confirmed: tuple[str, ...] = ()  # Goldens that came in as they stand already.
    narrowed: bool = False  # Whether only some goldens, platforms or metrics were asked for.
    not_refreshed: tuple[str, ...] = ()  # What was asked for and not done, one sentence each.
    accepted: tuple[str, ...] = ()  # Goldens that were taken although they are incomplete, because the user said so.
    commit: str | None = None  # The commit that the run was of.
    date: str | None = None
    tests: int | None = None
    goldens: int | None = None  # The seed's two totals: tests with golden values, golden values found.


def record_path(root: Path) -> Path:
    """Where the record of the last refresh of this work tree is kept."""
    return git_path(root, "karat/refresh.json")


def write_record(root: Path, record: RefreshRecord) -> None:
    """Keep the record of a refresh, in place of the one before."""
    path = record_path(root)
    with expecting(f"write {path}", path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, msgspec.json.format(msgspec.json.encode(record)), durable=False)


def read_record(root: Path) -> RefreshRecord | None:
    path = record_path(root)
    aside = Command("mv", str(path), f"{path}.damaged")
    try:
        record = msgspec.json.decode(path.read_bytes(), type=RefreshRecord)
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as error:
        said = f"expected the record of the last refresh in {path}, found: {error}"
        raise CannotVerify(said, next_command=aside) from error
    if record.schema_name != RECORD_SCHEMA:
        raise CannotVerify(f"expected {RECORD_SCHEMA} in {path}, found {record.schema_name}", next_command=aside)
    return record
