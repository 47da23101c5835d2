"""The files of a scan: every Python file below the paths, and what was left out on the way."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from karat.findings import CannotVerify, Finding, Severity
from karat.goldens.paths import glob_regex

LEFT_OUT = frozenset({
    ".git", ".hg", ".svn", ".tox", ".nox", ".venv", "venv", "node_modules", "__pycache__", "build", "dist",
    ".eggs", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".ipynb_checkpoints", "site-packages",
})  # fmt: skip
"""Folders that hold what nobody wrote as a test; named on the command line they are scanned."""


@dataclass(slots=True)
class Found:
    """What walking the paths came to."""

    files: list[tuple[str, str]] = field(default_factory=list)
    """(as shown, absolute), sorted; each file once."""
    links: list[tuple[str, str]] = field(default_factory=list)
    """Other names of the same files: (as shown, absolute)."""
    left_out: int = 0
    """Folders that were left out."""
    excluded: int = 0
    """Files that --exclude left out."""
    findings: list[Finding] = field(default_factory=list)
    by_path: dict[str, list[str]] = field(default_factory=dict)
    """PATH → the files below it, as shown."""


def find(paths: Sequence[str], exclude: Sequence[str] = ()) -> Found:
    """Every Python file below the paths, links followed to files but not into folders."""
    found = Found()
    unwanted = [
        glob_regex(form)
        for glob in exclude
        for form in (glob, f"**/{glob}", f"**/{glob.rstrip('/')}/**")
    ]
    seen: dict[tuple[int, int], str] = {}
    for path in paths:
        here = found.by_path.setdefault(path, [])
        for shown in _walk(path, found):
            plain = shown.removeprefix("./")
            if any(pattern.fullmatch(plain) for pattern in unwanted):
                found.excluded += 1
                continue
            _take(shown, found, seen, here)
    found.files.sort()
    return found


def _take(shown: str, found: Found, seen: dict[tuple[int, int], str], here: list[str]) -> None:
    try:
        status = os.stat(shown)  # noqa: PTH116 - strings, by the thousand
    except OSError as error:
        found.findings.append(cannot_read(shown, error))
        return
    key = (status.st_dev, status.st_ino)
    absolute = os.path.abspath(shown)  # noqa: PTH100
    if key in seen and key[1]:
        found.links.append((seen[key], absolute))
        here.append(seen[key])
        return
    seen[key] = shown
    found.files.append((shown, absolute))
    here.append(shown)


def _walk(path: str, found: Found) -> Iterator[str]:
    if not os.path.lexists(path):
        raise CannotVerify(
            f"expected a folder or a Python file, found nothing at {path}",
            next_command=f"ls -d {shlex.quote(os.path.dirname(path) or '.')}/*",  # noqa: PTH120
        )
    if not os.path.isdir(path):  # noqa: PTH112
        yield path
        return
    pending = [path]
    while pending:
        folder = pending.pop()
        try:
            with os.scandir(folder) as entries:
                listed = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            found.findings.append(cannot_read(folder, error))
            continue
        for entry in listed:
            if _is_folder(entry):
                if entry.name in LEFT_OUT or os.path.lexists(f"{entry.path}/pyvenv.cfg"):
                    found.left_out += 1
                else:
                    pending.append(entry.path)
            elif entry.name.endswith(".py") and _is_file(entry):
                yield entry.path


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def _is_file(entry: os.DirEntry[str]) -> bool:
    """Files, and what cannot be told; pipes and folders behind links are no tests."""
    try:
        return entry.is_file() or (entry.is_symlink() and not os.path.exists(entry.path))  # noqa: PTH110
    except OSError:
        return True


def cannot_read(path: str, error: OSError) -> Finding:
    """A file or folder whose bytes could not be had."""
    return Finding(
        kind="cannot-read",
        severity=Severity.FAIL,
        message=f"expected to read it, but: {error.strerror or error}",
        path=path,
        next=f"ls -ld {shlex.quote(path)}",
    )
