"""Git: what changed between two trees, and blobs in one batch.

git is run by name with argument lists; nothing here ever reaches a shell. Paths come and go as raw
bytes (`-z`), so that spaces, newlines and any encoding survive.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

from karat.findings import CannotVerify, UsageError

_LINK, _SUBMODULE = "120000", "160000"


@dataclass(frozen=True, slots=True)
class GitChange:
    """One path that differs: its old and new blob (None: absent on that side)."""

    path: str
    old: str | None
    new: str | None
    new_in_worktree: bool = False
    special: str | None = None
    """`symbolic link` or `submodule` where it is no plain file."""


def _environment() -> dict[str, str]:
    # Read-only work must not take the index lock or translate messages that people will search for.
    return {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}


def run_git(root: Path, *arguments: str) -> bytes:
    """The output of a git command; its own words on failure."""
    command = ["git", "-C", str(root), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, check=False, env=_environment())
    except FileNotFoundError as error:
        raise CannotVerify(
            "git was expected on PATH and not found; karat reads the old side from it",
            next_command="karat diff OLD_FOLDER NEW_FOLDER",
        ) from error
    if done.returncode:
        words = done.stderr.decode("utf-8", "replace").strip()
        raise CannotVerify(
            f"git {arguments[0]} failed in {root}: {words}",
            next_command=f"git -C {shlex.quote(str(root))} status",
        )
    return done.stdout


def find_root(start: Path) -> Path | None:
    """The top folder of the work tree that holds `start`, or None outside of one."""
    try:
        out = run_git(start, "rev-parse", "--show-toplevel")
    except CannotVerify as error:
        # Any other refusal (ownership, a broken .git) is git's to explain, not "no repository".
        if "not a git repository" in str(error) or "must be run in a work tree" in str(error):
            return None
        raise
    return Path(os.fsdecode(out.rstrip(b"\n")))


def git_path(root: Path, name: str) -> Path:
    """Where git keeps private files of this work tree; never committed."""
    out = run_git(root, "rev-parse", "--git-path", name).rstrip(b"\n")
    return root / os.fsdecode(out)


def resolve(root: Path, revision: str) -> str | None:
    """The commit (or tree) a revision names, or None."""
    if revision.startswith("-"):
        return None
    for kind in ("commit", "tree"):
        try:
            out = run_git(root, "rev-parse", "--verify", "--quiet", f"{revision}^{{{kind}}}")
        except CannotVerify:
            continue
        return out.decode().strip()
    return None


def has_commits(root: Path) -> bool:
    """False in a repository without a first commit."""
    return resolve(root, "HEAD") is not None


def is_shallow_or_partial(root: Path) -> bool:
    """True where objects may be missing because the clone left them out."""
    shallow = run_git(root, "rev-parse", "--is-shallow-repository").strip() == b"true"
    promisor = run_git(root, "config", "--default", "", "--get", "extensions.partialclone").strip()
    return shallow or bool(promisor)


def tree_paths(root: Path, revision: str) -> dict[str, str]:
    """Every file of a revision: path → blob."""
    out = run_git(root, "ls-tree", "-r", "-z", "--full-tree", revision)
    found = {}
    for entry in out.split(b"\0"):
        if entry:
            meta, _, path = entry.partition(b"\t")
            mode, _, oid = meta.split(b" ")
            if mode.decode() not in {_LINK, _SUBMODULE}:
                found[os.fsdecode(path)] = oid.decode()
    return found


def changes_between(root: Path, old: str, new: str | None) -> Iterator[GitChange]:
    """What differs from revision `old` to revision `new`, or to the work tree (None)."""
    if new is None:
        raw = run_git(root, "diff-index", "--raw", "-z", "--no-renames", "--no-abbrev", old, "--")
    else:
        raw = run_git(
            root, "diff-tree", "-r", "--raw", "-z", "--no-renames", "--no-abbrev", old, new, "--"
        )
    yield from _parse_raw(raw, worktree=new is None)
    if new is None:
        yield from _untracked(root)


def _parse_raw(raw: bytes, *, worktree: bool) -> Iterator[GitChange]:
    fields = raw.split(b"\0")
    for meta, path in zip(fields[::2], fields[1::2], strict=False):
        old_mode, new_mode, old, new, status = meta.lstrip(b":").decode().split(" ")
        special = {_LINK: "symbolic link", _SUBMODULE: "submodule"}.get(new_mode)
        there = status[0] != "D"
        yield GitChange(
            path=os.fsdecode(path),
            old=None if not old.strip("0") or old_mode in {_LINK, _SUBMODULE} else old,
            new=new if there and new.strip("0") else None,
            new_in_worktree=worktree and there,
            special=special,
        )


def _untracked(root: Path) -> Iterator[GitChange]:
    out = run_git(root, "ls-files", "-z", "--others", "--exclude-standard", "--full-name", ":/")
    for path in out.split(b"\0"):
        if path:
            yield GitChange(os.fsdecode(path), None, None, new_in_worktree=True)


def read_blobs(root: Path, blobs: Sequence[str]) -> Generator[bytes | None, None, None]:
    """The bytes of many blobs, in order, from one git process; None for a missing object."""
    if not blobs:
        return
    command = ["git", "-C", str(root), "cat-file", "--batch", "--buffer"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        env=_environment(), bufsize=1 << 20,
    ) as process:  # fmt: skip
        feeder = Thread(target=_feed, args=(process, blobs), daemon=True)
        feeder.start()
        try:
            yield from _parse_batch(process, len(blobs))
        finally:
            process.kill()
            feeder.join()


def _feed(process: subprocess.Popen[bytes], blobs: Iterable[str]) -> None:
    # A thread, because git answers while it is still being asked: one pipe full would stop both.
    if process.stdin is None:
        return
    try:
        process.stdin.write("".join(f"{oid}\n" for oid in blobs).encode())
        process.stdin.close()
    except OSError:
        return  # git is gone; the reading side notices and says so


def _parse_batch(process: subprocess.Popen[bytes], count: int) -> Iterator[bytes | None]:
    out = process.stdout
    if out is None:
        return
    for _ in range(count):
        header = out.readline().split()
        if not header:
            raise CannotVerify(
                "git cat-file ended before it had sent every blob", next_command="git fsck"
            )
        if header[-1] == b"missing":
            yield None
            continue
        size = int(header[2])
        data = out.read(size)
        out.read(1)
        yield data if header[1] == b"blob" and len(data) == size else None


def ensure_repository(start: Path) -> Path:
    """The root of the work tree around `start`; a clear error outside of one."""
    root = find_root(start)
    if root is None:
        raise UsageError(
            f"expected a git work tree, found none around {start}; the old side is read from git",
            next_command="karat diff OLD_FOLDER NEW_FOLDER",
        )
    return root
