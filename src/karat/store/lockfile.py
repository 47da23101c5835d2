"""bundles.lock.json: which snapshot a consumer uses, one line per name; committed beside what uses it.

Lines are sorted and each ends in a comma, the schema closes the object; so two branches that move different
names merge without a conflict. What a lock names, `karat gc --lock` never takes away.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

import msgspec

from karat.findings import CannotVerify
from karat.goldens.atomic import write_bytes

SCHEMA = "karat.bundle-lock/1"


class Locked(msgspec.Struct, frozen=True, kw_only=True):
    """One line: the snapshot that a name stands for here."""

    store: str
    """A URL, or a folder; one that starts with a dot is taken from where the lock is (`store_of`)."""
    digest: str
    date: str


def read_lock(file: Path) -> dict[str, Locked]:
    """Every line by its name; empty where there is no lock."""
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise _unreadable(file, error.strerror or str(error)) from error
    try:
        raw = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        schema = msgspec.json.decode(raw.pop("schema", msgspec.Raw(b"null")), type=str)
        if schema != SCHEMA:
            raise ValueError(f"schema {schema!r}")  # noqa: TRY301 - told like any other defect
        found = {name: msgspec.json.decode(line, type=Locked) for name, line in raw.items()}
        for name, line in found.items():
            if not re.fullmatch("[0-9a-f]{64}", line.digest):
                raise ValueError(f"digest {line.digest[:80]!r} of {name}")  # noqa: TRY301
    except (ValueError, RecursionError) as error:  # msgspec's are among the former
        conflict = b"<<<<<<<" in data
        raise _unreadable(file, "merge-conflict markers" if conflict else str(error)) from error
    return found


def write_lock(file: Path, lines: Mapping[str, Locked]) -> bool:
    """Writes the lock; True if its bytes changed."""
    text = [
        f"{json.dumps(name)}: {msgspec.json.encode(lines[name]).decode()},\n"
        for name in sorted(lines)
    ]
    data = ("{\n" + "".join(text) + f'"schema": "{SCHEMA}"\n}}\n').encode()
    try:
        if file.is_file() and file.read_bytes() == data:
            return False
        write_bytes(file, data)
    except OSError as error:
        raise CannotVerify(
            f"expected to write {file}, but: {error.strerror or error}",
            next_command=f"ls -ld {shlex.quote(str(file.parent))}",
        ) from error
    return True


def store_in(file: Path, url: str) -> str:
    """A store as a lock names it: a folder of the same checkout by its path from the lock."""
    here = file.absolute().parent
    root = next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), here)
    if "://" in url or not Path(url).is_relative_to(root):
        return url
    path = Path(os.path.relpath(url, here)).as_posix()
    return path if path.startswith("..") else f"./{path}"


def store_of(file: Path, written: str) -> str:
    """The store that a line of a lock means, wherever one stands."""
    return str(file.absolute().parent / written) if written.startswith(("./", "../")) else written


def _unreadable(file: Path, found: str) -> CannotVerify:
    return CannotVerify(
        f"expected {SCHEMA} in {file}, found: {found}",
        next_command=f"git checkout HEAD -- {shlex.quote(str(file))}",
    )
