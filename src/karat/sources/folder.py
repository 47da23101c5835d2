"""Folder: artifacts that somebody already downloaded; and which files make up an artifact.

Every `.zip` is an artifact of its own, under its whole name. All other files belong to the folder directly below the root
in which they lie, as `gh run download` lays artifacts out; files in the root itself make up the artifact `.`. Files are
used where they lie. A link that leaves the folder, a pipe or a device is never opened; if it is wanted, its artifact is
refused.
"""

from __future__ import annotations

import errno
import itertools
import os
import stat
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import msgspec

from karat.findings import CannotVerify, Finding, Severity, UsageError
from karat.sources.source import Artifact, Fetched, Listing, Obtained, Progress, TransferProgress, Wanted, fetch_one
from karat.system.archives import Archive, Unusable, no_room
from karat.system.command import Command
from karat.system.foreign.limits import CLOSED, NO_WAIT
from karat.system.names import not_plain, shown

ROOT = "."


class StoredFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file below the root of a bucket or folder."""

    name: str  # Relative to the root, with `/`.
    size: int = 0
    modified: float | None = None
    tag: str | None = None  # What tells two contents of one name apart, where the store knows it.


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """The files of one artifact."""

    name: str
    packed: bool  # One zip archive, rather than loose files.
    entries: tuple[StoredFile, ...]

    @property
    def id(self) -> str:
        """Unlike the name, unique: a bucket may hold `x.zip` and `x.zip/y`."""
        return self.name if self.packed else f"{self.name}/"

    def member(self, entry: StoredFile) -> str:
        """A loose file's name within the artifact."""
        return entry.name if self.name == ROOT else entry.name.removeprefix(f"{self.name}/")

    def artifact(self) -> Artifact:
        times = [entry.modified for entry in self.entries if entry.modified is not None]
        return Artifact(
            id=self.id, name=self.name, size=sum(entry.size for entry in self.entries), created=max(times, default=None)
        )


def group_files(entries: Iterable[StoredFile]) -> tuple[Group, ...]:
    """Entries as artifacts, sorted by name, whatever order they came in."""
    groups: list[Group] = []
    loose: dict[str, list[StoredFile]] = {}
    for entry in sorted(entries, key=lambda entry: entry.name):
        if entry.name.lower().endswith(".zip"):
            groups.append(Group(name=entry.name, packed=True, entries=(entry,)))
        else:
            first, slash, _ = entry.name.partition("/")
            loose.setdefault(first if slash else ROOT, []).append(entry)
    groups += [Group(name=name, packed=False, entries=tuple(found)) for name, found in loose.items()]
    return tuple(sorted(groups, key=lambda group: group.id))


class Folder:
    """A source on this disk."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._unpacked_files = itertools.count(1)
        self._groups: dict[str, Group] = {}  # As the listing found them.
        self._root = self._path

    def listing(self) -> Listing:
        """Zip archives and folders of loose files; nothing is opened yet."""
        try:
            self._root = self._path.resolve(strict=True)
            is_folder = self._root.is_dir()
        except (OSError, RuntimeError) as error:
            if not isinstance(error, FileNotFoundError | NotADirectoryError):
                said = f"expected a folder at {self._path}; it cannot be read ({_why(error)})"
                raise CannotVerify(said, next_command=Command("ls", "-ld", str(self._path))) from None
            is_folder = False
        if not is_folder:
            said = f"expected a folder at {self._path}, found none there"
            raise UsageError(said, next_command="karat refresh --help")
        findings: list[Finding] = []
        groups = group_files(_walk(self._root, findings))
        self._groups = {group.id: group for group in groups}
        return Listing(
            source="folder",
            origin=str(self._path),
            artifacts=tuple(group.artifact() for group in groups),
            findings=tuple(findings),
        )

    def fetch(
        self, artifacts: Sequence[Artifact], wanted: Wanted, progress: Progress | None = None
    ) -> Iterator[Fetched]:
        """The wanted files: of archives unpacked, of folders as they lie."""
        for artifact in artifacts:
            group = self._groups.get(artifact.id)
            obtain = partial(self._obtain, group, wanted)
            yield fetch_one(artifact, progress, obtain, partial(self._then, group))

    def close(self) -> None:
        """Delete what was unpacked."""
        if self._scratch is not None:
            self._scratch.cleanup()
            self._scratch = None

    def _then(self, group: Group | None, problem: Unusable) -> str:
        """The command with which a person looks for themselves."""
        if problem.next_command:
            return problem.next_command
        if group is not None and group.packed:
            return str(Command("python3", "-m", "zipfile", "--test", str(self._root / group.entries[0].name)))
        # A name that cannot be printed cannot be pasted either.
        inside = group.name if group is not None and group.name != ROOT and group.name.isprintable() else ""
        return str(Command("ls", "-lR", str(self._root / inside)))

    def _obtain(self, group: Group | None, wanted: Wanted, watch: TransferProgress) -> Obtained:
        watch.begin(None)
        if group is None:
            raise Unusable("artifact-missing", f"expected it in {self._path}, found no such files")
        if not group.packed:
            names = {group.member(entry): entry for entry in group.entries}
            return {name: self._usable(entry) for name, entry in names.items() if wanted(name)}
        path = self._usable(group.entries[0])
        members = {}
        try:
            with path.open("rb") as file:
                archive = Archive(file)
                for member in archive.wanted(wanted):
                    if self._scratch is None:
                        self._scratch = tempfile.TemporaryDirectory(prefix="karat-")
                    # A number for a name: what an archive calls its files never becomes a path.
                    target = Path(self._scratch.name) / f"{next(self._unpacked_files):06}"
                    with target.open("xb") as opened:
                        archive.extract(member, opened)
                    members[member.name] = target
        except OSError as error:
            full = error.errno in {errno.ENOSPC, errno.EDQUOT}
            raise (no_room(error) if full else _unreadable(group.name, error)) from None
        return members

    def _usable(self, entry: StoredFile) -> Path:
        """A plain, readable file under the root, whatever was there when it was listed: disks change."""
        wrong = not_plain(entry.name)
        try:
            path = self._root / entry.name if wrong else (self._root / entry.name).resolve(strict=True)
            if not wrong and not path.is_relative_to(self._root):
                wrong = "is a link that leaves the folder; expected plain files inside it"
            if not wrong and not stat.S_ISREG(path.stat().st_mode):
                wrong = "is a device, pipe or socket; expected a plain file"
            if not wrong:
                # Without O_NONBLOCK, opening a pipe that has just come here would wait for ever.
                os.close(os.open(path, os.O_RDONLY | NO_WAIT | CLOSED))
        except (OSError, RuntimeError) as error:
            raise _unreadable(entry.name, error) from None
        if wrong:
            raise Unusable("archive-refused", f"{shown(entry.name)} {wrong}")
        return path


def _walk(root: Path, findings: list[Finding]) -> Iterator[StoredFile]:
    """Every file below the root; folders behind links are named, not entered."""

    def note(kind: str, severity: Severity, name: str, message: str) -> None:
        look = Command("ls", "-ld", _printable(str(root / name)))
        text = f"{shown(name or ROOT)}: {message}"
        findings.append(Finding(kind=kind, severity=severity, message=text, path=_printable(name or ROOT), next=look))

    waiting = [""]
    while waiting:
        prefix = waiting.pop()
        try:
            with os.scandir(root / prefix) as found:
                inside = list(found)
        except OSError as error:
            note("cannot-read", Severity.FAIL, prefix, f"the folder cannot be read ({_why(error)})")
            continue
        for one in inside:
            name = f"{prefix}{one.name}"
            if one.is_dir(follow_symlinks=False):
                waiting.append(f"{name}/")
            elif one.is_symlink() and os.path.isdir(root / name):  # noqa: PTH112 - a link in a circle is no error
                message = "it is a link to a folder, and not followed"
                note("archive-refused", Severity.WARN, name, message)
            else:
                try:
                    facts = one.stat()
                    yield StoredFile(name=_printable(name), size=facts.st_size, modified=facts.st_mtime)
                except OSError:  # what is wrong with it is said when it is wanted
                    yield StoredFile(name=_printable(name))


def _printable(name: str) -> str:
    """A name that can be printed and written, whatever bytes the disk has."""
    return name.encode("utf-8", "backslashreplace").decode()


def _unreadable(name: str, error: Exception) -> Unusable:
    return Unusable("cannot-read", f"{shown(name)} cannot be read ({_why(error)})")


def _why(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or type(error).__name__
