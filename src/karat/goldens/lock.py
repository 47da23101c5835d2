"""goldens.lock.json: where each golden came from, one line per golden.

It stands at the root of a golden group (the fixed part of a golden glob) and is committed. Lines are
sorted and each ends in a comma, the schema closes the object; so two branches that refresh different
goldens merge without a conflict.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path

import msgspec

from karat.findings import CannotVerify
from karat.goldens.atomic import write_bytes

NAME = "goldens.lock.json"
SCHEMA = "karat.lock/1"
_FIXED = re.compile(r"[^*?{]*")


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
    accepted: str | None = None
    """Why it was taken although karat objected."""


class Entry(Provenance, frozen=True, kw_only=True, omit_defaults=True):
    """One line: provenance of a golden, its hash, and of single metrics that were refreshed alone."""

    sha256: str
    metrics: Mapping[str, Provenance] = msgspec.field(default_factory=dict)


def group_root(path: str, globs: tuple[str, ...]) -> str:
    """The folder whose lock speaks for this golden: the fixed part of the first glob that fits it."""
    from karat.goldens.paths import glob_regex  # noqa: PLC0415 - paths knows this module's name

    for glob in globs:
        if glob_regex(glob).fullmatch(path):
            return _fixed(glob)
    return ""


def _fixed(glob: str) -> str:
    fixed = _FIXED.match(glob)
    return fixed[0].rpartition("/")[0] if fixed else ""


def lock_names(globs: Iterable[str]) -> set[str]:
    """Every lock that a repository with these golden paths may have."""
    return {f"{folder}/{NAME}" if folder else NAME for folder in map(_fixed, globs)}


def place_of(path: str, globs: tuple[str, ...]) -> tuple[str, str]:
    """The lock that speaks for a golden, and the golden's name in it."""
    folder = group_root(path, globs)
    return (f"{folder}/{NAME}", path[len(folder) + 1 :]) if folder else (NAME, path)


def read_lock(file: Path) -> dict[str, Entry]:
    """Every entry by path relative to the lock's folder; empty where there is no lock."""
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        return {}
    return decode_lock(data, file)


def lines_of(root: Path, paths: Iterable[str], globs: tuple[str, ...]) -> dict[str, Entry]:
    """The lines of those goldens that are still the files the lock speaks of."""
    locks: dict[str, dict[str, Entry]] = {}
    found = {}
    for path in paths:
        lock, name = place_of(path, globs)
        if lock not in locks:
            locks[lock] = read_lock(root / lock)
        entry, file = locks[lock].get(name), root / path
        if entry and file.is_file() and sha256(file.read_bytes()).hexdigest() == entry.sha256:
            found[path] = entry
    return found


def decode_lock(data: bytes, file: Path) -> dict[str, Entry]:
    """The entries in a lock's bytes; `file` is where they are from."""
    try:
        raw = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        schema = msgspec.json.decode(raw.pop("schema", msgspec.Raw(b"null")), type=str)
        if schema != SCHEMA:
            raise ValueError(f"schema {schema!r}")  # noqa: TRY301 - told like any other defect
        return {path: msgspec.json.decode(entry, type=Entry) for path, entry in raw.items()}
    except (ValueError, msgspec.MsgspecError) as error:
        conflict = b"<<<<<<<" in data
        found = "merge-conflict markers" if conflict else str(error)
        raise CannotVerify(
            f"expected {SCHEMA} in {file}, found: {found}",
            next_command=f"git checkout HEAD -- {shlex.quote(str(file))}",
        ) from error


def write_lock(file: Path, entries: Mapping[str, Entry], workshop: Path | None = None) -> bool:
    """Write the lock; True if its bytes changed."""
    data = encode_lock(entries)
    if file.is_file() and file.read_bytes() == data:
        return False
    write_bytes(file, data, workshop=workshop)
    return True


def encode_lock(entries: Mapping[str, Entry]) -> bytes:
    """The lock's bytes: one sorted line per golden."""
    lines = [
        f"{json.dumps(path, ensure_ascii=False)}: {msgspec.json.encode(entries[path]).decode()},\n"
        for path in sorted(entries)
    ]
    return ("{\n" + "".join(lines) + f'"schema": "{SCHEMA}"\n}}\n').encode(
        "utf-8", "surrogateescape"
    )
