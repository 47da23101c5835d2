"""A store in a folder: every object is a file, written in full under a temporary name and then linked into place."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from karat.bundles.extents import FileExtent, open_plain
from karat.findings import CannotVerify, UsageError
from karat.store.backends import STAGING, Absent, StoredObject
from karat.system.command import Command
from karat.system.files import copy_range, sync_folder
from karat.system.foreign.limits import CLOSED, read_plain


def open_folder(url: str) -> FolderBackend:
    """The store in a folder, which need not be there yet."""
    return FolderBackend(Path(url.removeprefix("file://")).expanduser())


class FolderBackend:
    def __init__(self, root: Path) -> None:
        self.root = _plain(root)
        self.url = str(self.root)
        try:
            mode = self.root.stat().st_mode
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:  # the latter for a NUL
            raise self._no_folder(getattr(error, "strerror", None) or str(error)) from error
        if not stat.S_ISDIR(mode):
            raise self._no_folder("a file")

    def put(self, key: str, data: bytes | memoryview, *, replace: bool = False) -> bool:
        """Write a file; it is complete and on disk before it has its name."""

        def fill(handle: int) -> None:
            with os.fdopen(handle, "wb", closefd=False) as opened:
                opened.write(data)

        return self._put(key, fill, replace=replace)

    def put_file(self, key: str, source: FileExtent, check: Callable[[int], None], *, replace: bool = False) -> bool:
        """The same with bytes of another file, shared with it where the disk can; `check` looks at what was written."""

        def fill(handle: int) -> None:
            opened = open_plain(source.path, source.name)
            try:
                copy_range(opened, source.start, handle, 0, source.size)
            finally:
                os.close(opened)
            check(handle)

        return self._put(key, fill, replace=replace)

    def _put(self, key: str, fill: Callable[[int], None], *, replace: bool) -> bool:
        target = self._path(key)
        with self._trying("write", key):
            if not replace and target.exists():
                return False
            temporary = self._staged()
            try:
                handle = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | CLOSED, 0o666)
                try:
                    fill(handle)
                    os.fsync(handle)
                finally:
                    os.close(handle)
                target.parent.mkdir(parents=True, exist_ok=True)
                if replace:
                    temporary.replace(target)
                else:
                    try:
                        os.link(temporary, target)  # the one atomic step that decides who came first
                    except FileExistsError:
                        return False
                    except PermissionError:
                        raise
                    except OSError:  # a file system without links
                        if target.exists():
                            return False
                        temporary.replace(target)
                sync_folder(target.parent)
            finally:
                with contextlib.suppress(OSError):
                    temporary.unlink()
        return True

    def get(self, key: str) -> bytes:
        with self._trying("read", key):
            try:
                return read_plain(self._path(key), follow=False)
            except (FileNotFoundError, NotADirectoryError):
                raise Absent(key) from None

    def head(self, key: str) -> StoredObject | None:
        with self._trying("look at", key):
            try:
                found = self._path(key).lstat()
            except (FileNotFoundError, NotADirectoryError):
                return None
        return StoredObject(key, found.st_size, found.st_mtime)

    def list(self, prefix: str) -> Iterator[StoredObject]:
        folder = self._path(prefix.rstrip("/")) if prefix else self.root
        with self._trying("list", prefix):
            yield from self._walk(folder, prefix)

    def copy(self, source: str, target: str) -> None:
        """Add a hard link where the file system has them, else a copy."""
        file = self._path(target)
        temporary = self._staged()
        with self._trying("write", target):
            try:
                os.link(self._path(source), temporary)
            except FileNotFoundError:
                raise Absent(source) from None
            except OSError:  # no links here, or too many of this file
                temporary.write_bytes(self.get(source))
            file.parent.mkdir(parents=True, exist_ok=True)
            # Of two names for one file, a rename would keep both.
            if file.exists() and file.samefile(temporary):
                temporary.unlink()
            else:
                temporary.replace(file)
            sync_folder(file.parent)

    def touch(self, key: str) -> None:
        with self._trying("touch", key):
            try:
                os.utime(self._path(key))
            except FileNotFoundError:
                raise Absent(key) from None

    def delete(self, keys: Sequence[str]) -> None:
        """Remove files; folders stay, since another process may be about to use them."""
        for key in keys:
            with self._trying("remove", key):
                self._path(key).unlink(missing_ok=True)

    def local(self, key: str) -> Path | None:
        return self._path(key)

    def look(self, key: str) -> str:
        return str(Command("ls", "-l", str(self._path(key))))

    def _walk(self, folder: Path, prefix: str) -> Iterator[StoredObject]:
        try:
            entries = list(os.scandir(folder))
        except (FileNotFoundError, NotADirectoryError):
            return
        for entry in entries:
            key = f"{prefix}{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                yield from self._walk(folder / entry.name, f"{key}/")
                continue
            with contextlib.suppress(FileNotFoundError):  # another process was quicker
                found = entry.stat(follow_symlinks=False)
                yield StoredObject(key, found.st_size, found.st_mtime)

    def _staged(self) -> Path:
        folder = self.root / STAGING
        folder.mkdir(parents=True, exist_ok=True)
        return folder / os.urandom(12).hex()

    def _path(self, key: str) -> Path:
        return self.root.joinpath(*key.split("/"))

    def _no_folder(self, found: str) -> UsageError:
        said = f"expected a folder for the store at {self.root}, found: {found}"
        return UsageError(said, next_command=Command("ls", "-ld", self.url))

    @contextlib.contextmanager
    def _trying(self, verb: str, key: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            found = "it is no plain file" if error.errno == errno.ELOOP else error.strerror or error
            said = f"expected to {verb} {key} of the store in {self.root}, but: {found}"
            look = ("df", "-h") if error.errno == errno.ENOSPC else ("ls", "-ld")
            raise CannotVerify(said, next_command=Command(*look, self.url)) from error


def _plain(path: Path) -> Path:
    """An absolute path without `..`; symbolic links stay as written unless that changes what is meant."""
    written = path.absolute()
    plain = Path(os.path.normpath(written))
    try:
        return plain if plain.resolve() == written.resolve() else written.resolve()
    except (OSError, ValueError):
        return written  # whoever opens it says what is wrong
