"""Folder: artifacts that somebody already downloaded, or one zip archive; and which files make up an artifact.

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
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import msgspec

from karat.findings import CannotVerify, Finding, Severity, UsageError
from karat.net.buckets import StoredFile
from karat.sources.source import Artifact, Fetched, Listing, Obtained, Progress, TransferProgress, Wanted, fetch_one
from karat.system.archives import Archive, Unusable, no_room
from karat.system.command import Command
from karat.system.names import shown

ROOT = "."


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
        """The group as a source lists it."""
        times = [entry.modified for entry in self.entries if entry.modified is not None]
        return Artifact(
            id=self.id, name=self.name, size=sum(entry.size for entry in self.entries), created=max(times, default=None)
        )


def is_archive(name: str) -> bool:
    """Whether a file is an artifact of its own."""
    return name.lower().endswith(".zip")


def group_files(entries: Iterable[StoredFile]) -> tuple[Group, ...]:
    """Entries as artifacts, sorted by name, whatever order they came in."""
    groups: list[Group] = []
    loose: dict[str, list[StoredFile]] = {}
    for entry in sorted(entries, key=lambda entry: entry.name):
        if is_archive(entry.name):
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
        self._groups: dict[str, Group] | None = None
        self._root = self._path

    def listing(self) -> Listing:
        """Zip archives and folders of loose files; nothing is opened yet."""
        findings: list[Finding] = []
        groups = self._find(findings)
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
        if self._groups is None:
            self.listing()
        for artifact in artifacts:
            group = (self._groups or {}).get(artifact.id)
            obtain = partial(self._obtain, group, wanted)
            yield fetch_one(artifact, progress, obtain, partial(self._then, group))

    def close(self) -> None:
        """Delete what was unpacked."""
        if self._scratch is not None:
            self._scratch.cleanup()
            self._scratch = None

    def _find(self, findings: list[Finding]) -> tuple[Group, ...]:
        try:
            mode = self._path.stat().st_mode
            self._root = self._path.resolve(strict=True)
        except (FileNotFoundError, NotADirectoryError):
            said = f"expected a folder or a zip archive at {self._path}, found nothing there"
            raise UsageError(said, next_command="karat refresh --help") from None
        except (OSError, RuntimeError) as error:
            said = f"expected a folder or a zip archive at {self._path}; it cannot be read ({_why(error)})"
            raise CannotVerify(said, next_command=Command("ls", "-ld", str(self._path))) from None
        if stat.S_ISDIR(mode):
            return group_files(_walk(self._root, findings))
        if not stat.S_ISREG(mode) or not is_archive(self._path.name):
            said = f"expected a folder or a zip archive at {self._path}, found another kind of file"
            raise UsageError(said, next_command="karat refresh --help")
        self._root = self._root.parent
        entry = _entry(self._path.resolve().name, self._path.stat())
        return (Group(name=self._path.name, packed=True, entries=(entry,)),)

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
            return tuple(names), {name: self._usable(entry) for name, entry in names.items() if wanted(name)}
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
        return archive.names, members

    def _usable(self, entry: StoredFile) -> Path:
        """A plain, readable file under the root, looked at once more: disks change."""
        if entry.trouble is not None:
            raise Unusable("archive-refused", f"{shown(entry.name)} {entry.trouble}")
        try:
            path = (self._root / entry.name).resolve(strict=True)
            if not path.is_relative_to(self._root):
                raise Unusable("archive-refused", f"{shown(entry.name)} {_LEAVES}")
            # Without O_NONBLOCK, opening a pipe that has just come here would wait for ever.
            number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                plain = stat.S_ISREG(os.fstat(number).st_mode)
            finally:
                os.close(number)
        except (OSError, RuntimeError) as error:
            raise _unreadable(entry.name, error) from None
        if not plain:
            raise Unusable("archive-refused", f"{shown(entry.name)} {_SPECIAL}")
        return path


_LEAVES = "is a link that leaves the folder; expected plain files inside it"
_SPECIAL = "is a device, pipe or socket; expected a plain file"


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
                yield _looked_at(root, name, one)


def _looked_at(root: Path, name: str, one: os.DirEntry[str]) -> StoredFile:
    """A file as the listing says it; what is wrong with it is said when it is wanted."""
    try:
        facts = one.stat()
        # Only a link leads elsewhere: no folder behind one is ever entered.
        inside = not one.is_symlink() or (root / name).resolve(strict=True).is_relative_to(root)
    except (OSError, RuntimeError) as error:
        return StoredFile(name=_printable(name), trouble=f"is a link to nowhere ({_why(error)})")
    if not inside or not stat.S_ISREG(facts.st_mode):
        return StoredFile(name=_printable(name), trouble=_SPECIAL if inside else _LEAVES)
    return _entry(name, facts)


def _entry(name: str, facts: os.stat_result) -> StoredFile:
    if any(unicodedata.category(c) in {"Cc", "Cs"} for c in name):
        trouble = "has a name that is no text; expected a plain name"
        return StoredFile(name=_printable(name), trouble=trouble)
    return StoredFile(name=name, size=facts.st_size, modified=facts.st_mtime)


def _printable(name: str) -> str:
    """A name that can be printed and written, whatever bytes the disk has."""
    return name.encode("utf-8", "backslashreplace").decode()


def _unreadable(name: str, error: Exception) -> Unusable:
    return Unusable("cannot-read", f"{shown(name)} cannot be read ({_why(error)})")


def _why(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or type(error).__name__
