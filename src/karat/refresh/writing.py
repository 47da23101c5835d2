"""Writing: goldens into the work tree, whole or not at all, and nothing outside of it.

One refresh writes at a time; a second one waits. An uncommitted version that would be lost is given
to git first, so that it can be had back.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from karat.findings import CannotVerify, Finding, Severity, UsageError
from karat.goldens import atomic, formats
from karat.goldens.git import git_path
from karat.goldens.shapes import Golden

_ODD = re.compile(rb"[eE]|^-?[0-9]{16,}$")
"""Exponents, and whole numbers that a float cannot hold."""
_NUMBER = re.compile(rb"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


def rendered(golden: Golden, *, old: bytes | None, incoming: bytes | None, padding: int) -> bytes:
    """The golden's bytes: in the style of the file that stands, else as they came in."""
    if old is not None and incoming is not None and same_layout(old, incoming):
        return incoming
    if old is not None and formats.read(old).golden is not None:
        try:
            data = formats.write(golden, like=old)
        except UsageError:
            data = None  # the old form cannot hold the new values
        # Style is worth nothing if a value gets lost over it.
        if data is not None and formats.read(data).golden == golden:
            return data
    if incoming is not None:
        return incoming
    data = formats.write(golden)
    if padding:
        rows = data.rstrip(b"\n").split(b"\n")
        padded = (b"\n" * (padding + 1)).join(rows) + b"\n"
        return padded if formats.read(padded).golden == golden else data
    return data


def same_layout(old: bytes, new: bytes) -> bool:
    """Whether two texts differ in numbers alone, each written as karat would write it.

    Nearly all goldens that come in do. Writing them anew in the old one's style would give the bytes
    that came in, at several times the price.
    """
    if _NUMBER.sub(b"#", old) != _NUMBER.sub(b"#", new):
        return False
    pairs = list(zip(_NUMBER.findall(old), _NUMBER.findall(new), strict=True))
    if any(_ODD.search(text) for pair in pairs for text in pair):
        return False  # one of them may change how its neighbours are written
    return all(_plainly(before, after) for before, after in pairs if before != after)


def _plainly(before: bytes, after: bytes) -> bool:
    # A value that is the same keeps its old characters, and whole numbers stay written as such.
    value = float(after)
    if value == float(before) or before.isdigit() != after.isdigit():
        return False
    return after.isdigit() or repr(value).encode() == after


@contextmanager
def only_writer(root: Path) -> Iterator[Path]:
    """Keeps other karat processes from writing goldens of this work tree at the same time.

    Gives a folder for half-written files; what a killed process left there is swept out.
    """
    path = git_path(root, "karat/writing")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise CannotVerify(
            f"expected to write {path}, but: {error.strerror}", next_command=f"ls -ld {path.parent}"
        ) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield _swept(path.parent / "workshop")
    finally:
        os.close(handle)


def _swept(workshop: Path) -> Path:
    workshop.mkdir(exist_ok=True)
    for left in workshop.iterdir():
        left.unlink(missing_ok=True)
    return workshop


def put(root: Path, path: str, data: bytes, workshop: Path | None = None) -> None:
    """Write one golden; the folder is made if need be, and must not lead out of the work tree."""
    target = root / path
    ensure_inside(root, target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        ensure_inside(root, target)
        atomic.write_bytes(target, data, workshop=workshop)
    except OSError as error:
        raise CannotVerify(
            f"expected to write {target}, but: {error.strerror or error}",
            next_command=f"ls -ld {shlex.quote(str(target.parent))}",
        ) from error


def ensure_inside(root: Path, target: Path) -> None:
    """A folder that is a link to elsewhere must not carry a write out of the work tree."""
    folder = target.parent
    while not folder.exists() and folder != root:
        folder = folder.parent
    if not folder.resolve().is_relative_to(root.resolve()):
        raise UsageError(
            f"expected {target} inside {root}, found that {folder} leads to {folder.resolve()}",
            next_command=f"ls -ld {folder}",
        )
    if target.is_symlink() or target.is_dir():
        what = "a symbolic link" if target.is_symlink() else "a folder"
        raise UsageError(
            f"expected a plain file at {target}, found {what}", next_command=f"ls -ld {target}"
        )


def keep_edits(root: Path, path: str, data: bytes, *, dry_run: bool = False) -> Finding:
    """Give an uncommitted version to git, and say how to have it back."""
    if dry_run:
        message = "the work tree holds an uncommitted version that karat did not write; git would be given it first"
        return Finding(kind="kept-edits", severity=Severity.WARN, path=path, message=message)
    oid = git_object(root, data)
    from karat.diff.advice import quoted  # noqa: PLC0415 - only where there is something to keep

    return Finding(
        kind="kept-edits",
        severity=Severity.WARN,
        path=path,
        message="the work tree held an uncommitted version that karat did not write; git keeps it",
        # From where the user stands, which may be below the root.
        next=f"git cat-file -p {oid[:16]} > {quoted(os.path.relpath(root / path))}",
    )


def git_object(root: Path, data: bytes) -> str:
    """Give bytes to git; its name for them."""
    done = subprocess.run(
        ["git", "-C", str(root), "hash-object", "-w", "--stdin"],
        input=data,
        capture_output=True,
        check=False,
    )
    oid = done.stdout.decode().strip()
    if done.returncode or not oid:
        raise CannotVerify(
            f"expected git to keep {len(data):,} bytes in {root}, but: {done.stderr.decode().strip()}",
            next_command="git status",
        )
    return oid


def sha256(data: bytes) -> str:
    """The hash that stands in the lock."""
    return hashlib.sha256(data).hexdigest()
