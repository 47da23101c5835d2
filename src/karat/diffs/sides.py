"""Sides: what OLD and NEW name, and which goldens each has.

A side is a git revision, the work tree, a folder, one file, or captured cases in a zip or a store. In: the
words of the command line. Out: `Items`, each golden path with a reference to its old and new bytes, and nothing read yet.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TypeAlias

import msgspec

from karat.bundles.layout import MANIFEST, candidates, is_of_zips
from karat.findings import CannotVerify, Finding, UsageError, fail, info, warn
from karat.goldens.paths import PathFilter, walk
from karat.system import git
from karat.system.command import Command


class Revision(msgspec.Struct, frozen=True):
    """A commit or tree of a repository."""

    root: Path
    name: str
    commit: str


class WorkTree(msgspec.Struct, frozen=True):
    """The files of a repository as they stand."""

    root: Path
    name: str = "working tree"
    up: str = ""  # The way from where the user stands to the root: empty there, `../` one folder below.


class Index(Revision, frozen=True):
    """What is staged, as a tree."""


class AnyFolder(msgspec.Struct, frozen=True):
    """Any folder; git is not asked."""

    root: Path
    name: str


class OneFile(msgspec.Struct, frozen=True):
    root: Path
    name: str


class Bundles(msgspec.Struct, frozen=True):
    """Captured cases that are no folder of cases: a zip, a folder of zips, or a reference into a store."""

    root: Path
    name: str
    word: str  # What `karat.store.place.open_word` opens.


Side: TypeAlias = Revision | WorkTree | AnyFolder | OneFile | Bundles

Listing: TypeAlias = tuple[Sequence[git.GitChange], Mapping[str, str]]
"""What git says differs between two sides of one repository, and all files of the old one."""


class Blob(msgspec.Struct, frozen=True):
    """Bytes that git keeps."""

    root: str
    oid: str


class OnDisk(msgspec.Struct, frozen=True):
    path: str
    follow: bool = False
    """Whether a symbolic link may be followed: in a folder that the user named, not in a work tree."""


Ref: TypeAlias = Blob | OnDisk


class Item(msgspec.Struct, frozen=True):
    """One golden path and where its two sides are."""

    path: str
    old: Ref | None
    new: Ref | None
    certain: bool = False  # The sides are known to differ, or are to be read even if they do not.


class Items(msgspec.Struct, frozen=True):
    """Everything to compare between two sides."""

    items: Sequence[Item]
    unchanged: int = 0
    findings: tuple[Finding, ...] = ()


def resolve_sides(old: str | None, new: str | None, cwd: Path) -> tuple[Side, Side]:
    """OLD and NEW as sides, also as git's `OLD..NEW`; by default HEAD and the work tree."""
    if old is not None and new is None and re.fullmatch(r"[^.].*[^./]\.\.[^./].*", old) and not (cwd / old).exists():
        old, _, new = old.partition("..")
    if old is not None:
        left = _resolve(old, cwd)
    else:
        try:
            root, commit = git.root_and_head(cwd)
        except CannotVerify:
            root = git.ensure_repository(cwd)
            said = f"expected a commit to compare with, found none: {root} has no commit yet; commit the goldens first, or name two folders"
            raise UsageError(said, next_command="karat diff OLD NEW") from None
        left = Revision(root, "HEAD", commit)
    if new is not None:
        right = _resolve(new, cwd)
    elif isinstance(left, Revision):
        depth = len(cwd.resolve().relative_to(left.root.resolve()).parts)
        right = WorkTree(left.root, up="../" * depth)
    else:
        said = f"expected a second side to compare {old} with, found none: a folder or file has no HEAD"
        raise UsageError(said, next_command=Command("karat", "diff", str(old), "NEW"))
    one_file = next((side.name for side in (left, right) if isinstance(side, OneFile)), None)
    wrong = ""
    if one_file and (isinstance(left, Bundles) or isinstance(right, Bundles)):
        wrong = f"captured cases on both sides (a folder, revision, zip or reference into a store), found {one_file}"
    elif isinstance(left, OneFile) != isinstance(right, OneFile):
        wrong = f"two files or two trees, found {left.name} and {right.name}: one of each"
    if wrong:
        raise UsageError(f"expected {wrong}", next_command="karat diff --help")
    return left, right


def resolve_cached(old: str | None, cwd: Path) -> tuple[Side, Side]:
    """A revision, by default HEAD, and what is staged."""
    left, _ = resolve_sides(old, "HEAD" if old else None, cwd)
    if not isinstance(left, Revision):
        said = f"expected a revision to compare what is staged with, found {old}"
        raise UsageError(said, next_command="karat diff --cached")
    tree = git.run_git(left.root, "write-tree").decode().strip()
    return left, Index(left.root, "index", tree)


def _resolve(word: str, cwd: Path) -> Side:
    path = Path(os.path.normpath(cwd / word))
    exists = path.exists()
    if not exists and (word.startswith("store:") or "#" in word):
        return Bundles(cwd, word, word)
    try:
        root = git.find_root(cwd)
        commit = git.resolve(root, word) if root else None
    except CannotVerify:
        if not exists:
            raise
        root, commit = None, None  # a folder needs no git
    if commit and exists and os.sep not in word:
        either = f"{Command('karat', 'diff', f'./{word}')} …   (the path)   or   {Command('karat', 'diff', f'refs/heads/{word}')} …"
        raise UsageError(f"{word} is both a revision and a path", next_command=either)
    if exists:
        if path.is_dir():
            return Bundles(path, word, str(path)) if is_of_zips(path) else AnyFolder(path, word)
        return Bundles(path, word, str(path)) if _is_zip(path) else OneFile(path, word)
    if commit and root:
        return Revision(root, word, commit)
    where = "no git repository here" if root is None else f"no revision of {root}"
    said = f"expected a git revision, a folder or a file, found {word!r}: no such path, and {where} knows it"
    raise UsageError(said, next_command="karat diff --help")


def _is_zip(path: Path) -> bool:
    """Whether a file is meant as a zip; one that is called so and is none will be told apart later."""
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            return file.read(4) == b"PK\x03\x04" or path.suffix.lower() == ".zip"
    except OSError:
        return path.suffix.lower() == ".zip"


def start_listing(old: Side, new: Side) -> git.TreeComparison | None:
    """Git's comparison of two sides of one repository, under way; None for any other two sides."""
    if isinstance(old, Revision) and isinstance(new, Revision | WorkTree) and old.root == new.root:
        commit = new.commit if isinstance(new, Revision) else None
        return git.TreeComparison(old.root, old.commit, commit)
    return None


def pair_up(
    old: Side,
    new: Side,
    is_golden: PathFilter,
    listing: Listing | None,
    *,
    everything: bool = False,
    owned: Callable[[str], bool] = lambda _: False,
) -> Items:
    """The goldens of two sides, paired by path; with `everything`, also those with equal bytes.

    What `owned` says yes to is part of a captured case, and is left to those who compare cases.
    """
    if isinstance(old, OneFile) and isinstance(new, OneFile):
        if not is_golden.asked_for(new.name):
            return Items([])
        left, right = OnDisk(str(old.root), follow=True), OnDisk(str(new.root), follow=True)
        return Items([Item(new.name, left, right, certain=True)])
    if listing is not None:
        changes = [c for c in listing[0] if is_golden(c.path) and not owned(c.path)]
        known = {p: oid for p, oid in listing[1].items() if is_golden(p) and not owned(p)}
        return _git_items(str(old.root), changes, known, everything=everything)
    # A zip or a store holds captured cases and nothing else that a revision could be compared with.
    apart = {type(old), type(new)} == {Revision, Bundles}
    return Items([]) if apart else _listed_items(old, new, is_golden, owned)


def _git_items(root: str, changes: Sequence[git.GitChange], known: Mapping[str, str], *, everything: bool) -> Items:
    items, findings = [], []
    for change in changes:
        if change.special:
            message = f"expected a plain file, found a {change.special}; karat does not follow it"
            findings.append(warn("cannot-read", message, path=change.path, next=Command("ls", "-ld", change.path)))
            continue
        left = Blob(root, change.old) if change.old else None
        right: Ref | None = Blob(root, change.new) if change.new else None
        if change.new_in_worktree:
            right = OnDisk(os.path.join(root, change.path))  # noqa: PTH118 - quicker, for thousands
        items.append(Item(change.path, left, right, certain=right is None or left is None))
    same = known.keys() - {item.path for item in items} - {f.path for f in findings}
    if everything:
        items = [Item(i.path, i.old, i.new, certain=True) for i in items]
        blobs = ((path, Blob(root, known[path])) for path in same)
        items += [Item(path, blob, blob, certain=True) for path, blob in blobs]
    items.sort(key=lambda item: item.path)
    return Items(items, 0 if everything else len(same), tuple(findings))


def _listed_items(old: Side, new: Side, is_golden: PathFilter, owned: Callable[[str], bool]) -> Items:
    left, right = _listing(old, new), _listing(new, old)
    wanted: Callable[[str], bool] = is_golden
    findings: list[Finding] = []
    paths = sorted(p for p in left.keys() | right.keys() if not owned(p))
    if not any(is_golden(path) for path in paths):
        wanted = is_golden.by_extension()
        if any(wanted(path) for path in paths):
            message = "no file matches the golden patterns, so every .json, .jsonl, .csv and .txt file was taken"
            findings.append(info("taken-by-extension", message))
    items = [Item(p, left.get(p), right.get(p), certain=True) for p in paths if wanted(p)]
    sides = any(item.old for item in items) and any(item.new for item in items)
    if sides and not any(item.old and item.new for item in items):
        message = f"the two sides share no path ({items[0].path}, …), so nothing was compared; do both begin at the same folder?"
        findings.append(fail("nothing-compared", message, next="karat diff --help"))
    return Items(items, 0, tuple(findings))


def _listing(side: Side, other: Side) -> dict[str, Ref]:
    if isinstance(side, Bundles):
        return {}
    if not isinstance(side, Revision):
        start = len(str(side.root).rstrip("/")) + 1
        files = (os.path.join(folder, name) for folder, _, names in walk(side.root) for name in names)  # noqa: PTH118 - quicker, for thousands
        return {path[start:]: OnDisk(path, follow=True) for path in files}
    found, prefix = git.tree_paths(side.root, side.commit), below(side, other)
    return {path[len(prefix) :]: Blob(str(side.root), oid) for path, oid in found.items() if path.startswith(prefix)}


def below(revision: Revision, other: Side) -> str:
    """Where in a revision to begin: `karat diff HEAD goldens/` means that folder of it, not its root."""
    root = revision.root.resolve()
    if not (isinstance(other, AnyFolder) and other.root.resolve().is_relative_to(root)):
        return ""
    inside = other.root.resolve().relative_to(root).as_posix()
    return "" if inside == "." else f"{inside}/"


def may_hold_cases(old: Side, new: Side, listing: Listing | None) -> bool:
    """Whether there may be captured cases to look for; it is quick to say no."""
    if listing is not None:
        changes, tree = listing
        return any(candidates(chain(tree, (change.path for change in changes))))
    return any(
        isinstance(side, Bundles)
        or (isinstance(side, AnyFolder) and any(MANIFEST in files for _, _, files in os.walk(side.root)))
        or (isinstance(side, Revision) and any(candidates(git.tree_paths(side.root, side.commit))))
        for side in (old, new)
    )
