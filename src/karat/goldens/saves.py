"""Saves: a golden is written beside people who save it in an editor, and nothing that was typed is lost.

What karat has seen and replaces is given to git first. What was saved after that look is given to git, too;
where somebody is still writing to it, the file itself is kept among git's private files.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from karat.findings import CannotVerify, Finding, warn
from karat.system import git
from karat.system.command import Command, quoted
from karat.system.files import Displaced, bytes_of, expecting, swap_bytes, take_away
from karat.system.foreign.limits import GOLDEN, read_plain

Entry = TypeVar("Entry")

_PATIENCE = 2.0  # Seconds for whoever saves a file again and again.


def keep_edits(root: Path, path: str, data: bytes, *, dry_run: bool = False) -> Finding:
    """Give an uncommitted version to git, and say how to have it back."""
    if dry_run:
        message = "the work tree holds an uncommitted version that karat did not write; git would be given it first"
        return warn("kept-edits", message, path=path)
    oid = git.write_object(root, data)
    return warn(
        "kept-edits",
        "the work tree held an uncommitted version that karat did not write; git keeps it",
        path=path,
        # From where the user is, which may be below the root.
        next=f"{Command('git', 'cat-file', '-p', oid[:16])} > {quoted(os.path.relpath(root / path))}",
    )


def save(
    file: Path, data: bytes, seen: bytes | None, *, root: Path | None, temporary: Path | None = None
) -> list[Finding]:
    """Put a golden in place of the version that was `seen`; a finding names what was saved meanwhile.

    A file that holds something else by now is left alone: CannotVerify. Without a `root` there is no git.
    """
    with expecting(f"write {file}", file.parent):
        file.parent.mkdir(parents=True, exist_ok=True)
        displaced = swap_bytes(file, data, seen, workshop=temporary)
    return [] if displaced is None else keep_displaced(displaced, file, root)


def update(file: Path, change: Callable[[bytes | None], bytes | None], temporary: Path | None = None) -> bool:
    """Put what `change` makes of a file in its place, and lose no save; True if its bytes changed.

    It is asked again with whatever was saved meanwhile. None stands for no file.
    """
    end = time.monotonic() + _PATIENCE
    seen = base = bytes_of(file)
    written = False
    while True:
        try:
            data = change(base)
            if data == seen:
                return written
            if data is not None:
                displaced = swap_bytes(file, data, seen, workshop=temporary)
            else:
                displaced = take_away(file, temporary or file.parent)
                if displaced is not None and displaced.data == seen:
                    displaced.file.unlink()
                    displaced = None
        except OSError as error:
            said = f"expected to write {file}, but: {error.strerror or error}"
            raise CannotVerify(said, next_command=Command("ls", "-ld", str(file.parent))) from error
        except CannotVerify:
            if time.monotonic() > end:
                raise
            time.sleep(0.02)
            seen = base = bytes_of(file)
            continue
        if displaced is None:
            return True
        # Saved at the very moment: put together with ours. git has it, in case that it cannot be.
        (kept,) = keep_displaced(displaced, file, git.find_root(file.absolute().parent))
        written, seen, base = True, data, displaced.data
        if base is None:
            raise CannotVerify(f"{file}: {kept.message}", next_command=kept.next or "git status")


def keep_displaced(displaced: Displaced, file: Path, root: Path | None) -> list[Finding]:
    """Keep what was saved into a file while karat replaced it."""
    path = str(file if root is None else file.resolve().relative_to(root.resolve()))
    if root is not None and displaced.data is not None:
        kept = keep_edits(root, path, displaced.data)
        displaced.file.unlink()
        return [kept]
    # Out of the workshop, which is swept.
    folder = file.parent if root is None else git.git_path(root, "karat/kept")
    there = folder / f"{file.name[:40]}.{os.urandom(4).hex()}.kept"
    try:
        folder.mkdir(exist_ok=True)
        displaced.file.rename(there)
    except OSError:
        there = displaced.file
    said = f"it was saved while karat wrote it; that version is kept as {there}"
    return [warn("kept-edits", said, path=path, next=Command("cp", str(there), os.path.relpath(file)))]


def is_committed(root: Path, path: str, data: bytes) -> bool:
    """Whether HEAD has these bytes, as git checks them out."""
    with suppress(CannotVerify):
        oid = git.run_git(root, "rev-parse", "--verify", "--quiet", f"HEAD:{path}").decode().strip()
        return git.checked_out(root, [(path, oid)]) == [data]
    return False


class LockFile(msgspec.Struct, Generic[Entry], frozen=True):
    """A committed object with a line per name: sorted, each with its comma, the schema last, so that two branches merge."""

    schema: str
    line: type[Entry]

    def read(self, file: Path) -> dict[str, Entry]:
        """Every line by its name; empty where there is no lock."""
        with expecting(f"read {self.schema} in {file}", file), suppress(FileNotFoundError):
            return self.decode(read_plain(file, GOLDEN), file)
        return {}

    def decode(self, data: bytes, file: Path) -> dict[str, Entry]:
        """The lines in a lock's bytes; `file` is where they are from."""
        try:
            raw = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
            schema = msgspec.json.decode(raw.pop("schema", msgspec.Raw(b"null")), type=str)
            if schema != self.schema:
                raise ValueError(f"schema {schema!r}")  # noqa: TRY301 - told like any other defect
            return {name: msgspec.json.decode(line, type=self.line) for name, line in raw.items()}
        except (ValueError, RecursionError) as error:  # msgspec's are among the former
            found = "merge-conflict markers" if b"<<<<<<<" in data else str(error)
            said = f"expected {self.schema} in {file}, found: {found}"
            raise CannotVerify(said, next_command=Command("git", "checkout", "HEAD", "--", str(file))) from error

    def encode(self, lines: Mapping[str, Entry]) -> bytes:
        text = [
            f"{json.dumps(name, ensure_ascii=False)}: {msgspec.json.encode(lines[name]).decode()},\n"
            for name in sorted(lines)
        ]
        return ("{\n" + "".join(text) + f'"schema": "{self.schema}"\n}}\n').encode("utf-8", "surrogateescape")

    def write(self, file: Path, changes: Mapping[str, Entry | None], temporary: Path | None = None) -> bool:
        """Put lines into the lock, or take them out (None); True if its bytes changed.

        All other lines stay as they are at that moment: somebody may be saving the lock, or checking out another.
        """

        def merged(there: bytes | None) -> bytes | None:
            lines = {**({} if there is None else self.decode(there, file)), **changes}
            kept = {name: line for name, line in lines.items() if line is not None}
            return self.encode(kept) if kept else None

        return update(file, merged, temporary)
