"""Files of a git range: what changed, what was renamed, and the bytes of both sides."""

from __future__ import annotations

import os
import posixpath
import re
import shlex
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path, PurePosixPath

import msgspec

from karat.findings import CannotVerify
from karat.goldens import git

_LINK, _SUBMODULE = "120000", "160000"
_DETOURS = {_LINK: "a symbolic link", _SUBMODULE: "a submodule"}
_SHORT_FOR = ("refs/{}", "refs/tags/{}", "refs/heads/{}", "refs/remotes/{}", "refs/remotes/{}/HEAD")
"""What git takes a short name for, the first that is there; tags come before branches."""
_STEPS = re.compile(r"[~^@:].*", re.DOTALL)


class Range(msgspec.Struct, frozen=True, kw_only=True):
    """Two commits of one repository."""

    root: Path
    base: str
    """The commit that the branch began at."""
    head: str


class Touched(msgspec.Struct, frozen=True, kw_only=True):
    """A file that differs between the two; None: it is not there on that side."""

    old_path: str | None
    new_path: str | None
    old: str | None
    new: str | None
    detour: str = ""
    """`a symbolic link` or `a submodule`, where it is one on the new side: what is behind it is not here."""


def touched(span: Range) -> list[Touched]:
    """Every file that differs, renames followed."""
    words = (
        "diff-tree",
        "-r",
        "-z",
        "--raw",
        "--no-abbrev",
        "--find-renames",
        span.base,
        span.head,
    )
    fields = iter(git.run_git(span.root, *words, "--").split(b"\0"))
    return [one for meta in fields if meta for one in _touched(meta, fields)]


def _touched(meta: bytes, fields: Iterator[bytes]) -> Iterator[Touched]:
    old_mode, new_mode, old, new, status = meta.lstrip(b":").decode().split(" ")
    first = os.fsdecode(next(fields))
    second = os.fsdecode(next(fields)) if status[0] in "RC" else first
    there = [mode not in {"000000", *_DETOURS} for mode in (old_mode, new_mode)]
    yield Touched(
        old_path=first if there[0] else None,
        new_path=second if there[1] or new_mode in _DETOURS else None,
        old=old if there[0] else None,
        new=new if there[1] else None,
        detour=_DETOURS.get(new_mode, ""),
    )


class Side:
    """The files of one commit, read by path."""

    def __init__(self, root: Path, commit: str) -> None:
        self._root = root
        self.commit = commit

    def read(self, path: str) -> bytes | None:
        """The bytes of a file; None if there is none."""
        entry = self.entry(path)
        if not entry:
            self._refuse_detour(path)
            return None
        mode, kind, oid = entry.partition(b"\t")[0].decode().split(" ")
        if mode == _LINK:
            raise self._elsewhere(path, path, "a symbolic link")
        return git.run_git(self._root, "cat-file", "blob", oid) if kind == "blob" else None

    def _refuse_detour(self, path: str) -> None:
        """What is not in the tree may still be on the disk, behind a folder that is a link or a submodule."""
        for folder in list(PurePosixPath(path).parents)[:-1]:
            mode = self.entry(folder.as_posix())[:6].decode()
            if mode in _DETOURS:
                raise self._elsewhere(path, folder.as_posix(), _DETOURS[mode])

    def entry(self, path: str) -> bytes:
        """What git's tree says of a path: mode, kind and object; nothing where it is not."""
        words = ("--literal-pathspecs", "ls-tree", "-z", "--full-tree", self.commit, "--", path)
        return git.run_git(self._root, *words).rstrip(b"\0")

    def _elsewhere(self, path: str, at: str, what: str) -> CannotVerify:
        return CannotVerify(
            f"expected a file at {path} of {self.commit[:12]}, found {what} at {at}, which may lead anywhere",
            next_command=f"git ls-tree {self.commit[:12]} -- {shlex.quote(at)}",
        )

    def folders_with(self, names: Collection[str]) -> set[str]:
        """Folders that hold a file of one of these names, seen from the root."""
        paths = map(PurePosixPath, git.tree_paths(self._root, self.commit))
        return {str(path.parent).removeprefix(".") for path in paths if path.name in names}

    def leads_to_a_file(self, path: str) -> bool:
        """Whether a symbolic link leads to a plain file of the same commit."""
        oid = self.entry(path).partition(b"\t")[0].split(b" ")[-1].decode()
        target = os.fsdecode(git.run_git(self._root, "cat-file", "blob", oid))
        aim = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
        return not aim.startswith(("/", "..")) and self.entry(aim)[:3] == b"100"

    def first(self, paths: Sequence[str]) -> tuple[str, bytes] | None:
        """The first of these files that is there."""
        for path in paths:
            data = self.read(path)
            if data is not None:
                return path, data
        return None


def range_of(root: Path, base: str, head: str) -> Range:
    """From where the two have parted to the head."""
    new = commit_of(root, head)
    old = commit_of(root, base)
    try:
        begin = git.merge_base(root, old, new)
    except CannotVerify as error:
        raise CannotVerify(
            f"expected {base} and {head} to have a commit in common, found none (a shallow clone has no past)",
            next_command=f"git -C {shlex.quote(str(root))} fetch --unshallow origin",
        ) from error
    return Range(root=root, base=begin, head=new)


def commit_of(root: Path, revision: str) -> str:
    """The commit that a revision names; a clear error if there is none."""
    out = git.resolve(root, f"{revision}^{{commit}}")
    if out is None:
        remote, slash, branch = revision.partition("/")
        fetch = (
            f"git fetch {shlex.quote(remote)} {shlex.quote(branch)}" if slash else "git fetch --all"
        )
        raise CannotVerify(
            f"expected a commit, found that {revision!r} names none here", next_command=fetch
        )
    _refuse_ambiguous(root, revision)
    return out


def _refuse_ambiguous(root: Path, revision: str) -> None:
    """Whoever may push a tag could call it origin/main, and appoint approvers there."""
    short = _STEPS.sub("", revision)
    names = [rule.format(short) for rule in _SHORT_FOR] if short not in {"", "HEAD"} else []
    asked = ("for-each-ref", "--format=%(refname) %(objectname) %(*objectname)", "--", *names)
    lines = git.run_git(root, *asked).decode("utf-8", "replace").splitlines() if names else []
    found = {name: oids.split()[-1] for name, _, oids in (line.partition(" ") for line in lines)}
    meant = {name: oid for name, oid in found.items() if name in names}
    if len(set(meant.values())) > 1:
        raise CannotVerify(
            f"expected {short!r} to name one commit, found {' and '.join(sorted(meant))}, which differ; "
            "say the one that is meant in full",
            next_command=f"git show-ref {shlex.quote(short)}",
        )


def blobs(root: Path, oids: Sequence[str]) -> dict[str, bytes]:
    """The bytes of many objects at once."""
    reader = git.Blobs(root)
    try:
        found = dict(zip(oids, reader.read(oids), strict=True))
    finally:
        reader.close()
    for oid, data in found.items():
        if data is None:
            raise CannotVerify(
                f"expected the object {oid} in this clone, found that git does not have it",
                next_command=f"git -C {shlex.quote(str(root))} fetch --refetch",
            )
    return {oid: data for oid, data in found.items() if data is not None}
