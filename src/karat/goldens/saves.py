"""Saves: a golden is written beside people who save it in an editor, and nothing that was typed is lost.

What karat has seen and replaces is given to git first. What was saved after that look is given to git, too;
where somebody is still writing to it, the file itself is kept among git's private files.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from karat.findings import CannotVerify, Finding, warn
from karat.system import git
from karat.system.command import Command, quoted
from karat.system.files import Displaced, swap_bytes


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
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        displaced = swap_bytes(file, data, seen, workshop=temporary)
    except OSError as error:
        said = f"expected to write {file}, but: {error.strerror or error}"
        raise CannotVerify(said, next_command=Command("ls", "-ld", str(file.parent))) from error
    return [] if displaced is None else keep_displaced(displaced, file, root)


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
