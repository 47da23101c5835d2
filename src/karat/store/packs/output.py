"""The folder that `karat pack` fills: built in a hidden folder, moved into place as a whole, SHA256SUMS last.

OUT/cases/suite/flow/case.zip
OUT/golden_artifacts_yymmddHH.zip
OUT/SHA256SUMS                      what `sha256sum -c` reads; a folder without it was not finished
OUT/.karat-pack-*                   a pack in progress, or one that was killed: the next one removes it, and
                                    puts back what it had begun to replace
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from karat.bundles.layout import SUMS
from karat.findings import CannotVerify, UsageError
from karat.system.command import Command
from karat.system.files import sync_folder
from karat.system.hashes import is_sha256
from karat.system.locks import hold, holding

STAGING = ".karat-pack-"
_NEW, _OLD, _COMING = "new", "old", "coming.json"


class PackedFile(msgspec.Struct, frozen=True, kw_only=True):
    path: str  # Below OUT.
    size: int
    sha256: str


class StagedOutput:
    """A hidden folder inside OUT; nothing of it is seen before `publish`."""

    def __init__(self, out: Path, staging: Path, handle: int, again: str) -> None:
        self.folder = staging / _NEW  # what is to be published
        self.scratch = staging / "scratch"  # what is not
        self._out, self._staging, self._handle, self._again = out, staging, handle, again

    def publish(self, outputs: Iterable[PackedFile], *, replace: bool) -> None:
        """Move everything into place; existing files are replaced only if asked, and only a pack's own."""
        sums = "".join(f"{o.sha256}  {o.path}\n" for o in sorted(outputs, key=lambda o: o.path))
        _write(self.folder / SUMS, sums.encode())
        for path in [*self.folder.rglob("*/"), self.folder]:
            sync_folder(path)
        with holding(self._out):
            standing = check_output(self._out, replace=replace, again=self._again)
            old = self._staging / _OLD
            # The sums go first and come last: whenever they are there, they are true.
            leaving = sorted(standing, key=lambda name: name != SUMS)
            coming = sorted((path.name for path in self.folder.iterdir()), key=lambda n: n == SUMS)
            _write(self._staging / _COMING, msgspec.json.encode(coming))
            old.mkdir()
            sync_folder(self._staging)
            try:
                _move(leaving, self._out, old)
                _move(coming, self.folder, self._out)
                sync_folder(self._out)
            except BaseException:
                _undo(self._staging)
                raise

    def close(self) -> None:
        if not _is_amid(self._staging):
            shutil.rmtree(self._staging, ignore_errors=True)
        os.close(self._handle)


@contextlib.contextmanager
def staged_output(out: Path, *, replace: bool, again: str) -> Iterator[StagedOutput]:
    """Create OUT and a folder to work in; if nothing is published, nothing stays.

    `again`: the command that would replace what is there.
    """
    made = [path for path in (out, *out.parents) if not os.path.lexists(path)]
    there = made[-1].parent if made else out
    try:
        out.mkdir(parents=True, exist_ok=True)
        with holding(out):
            for left in out.glob(f"{STAGING}*"):
                _clear(left)
            check_output(out, replace=replace, again=again)
            staging = out / f"{STAGING}{os.urandom(6).hex()}"
            (staging / _NEW).mkdir(parents=True)
            # Whoever holds the lock is alive; the kernel takes it from the dead.
            handle = hold(staging, wait=True)
        assert handle is not None, "waited for"  # noqa: S101
        work = StagedOutput(out, staging, handle, again)
    except OSError as error:
        _forget(made)
        raise _cannot_write(out, there, error) from error
    try:
        yield work
    except OSError as error:
        raise _cannot_write(out, there, error) from error
    finally:
        work.close()
        _forget(made)


def check_output(out: Path, *, replace: bool, again: str) -> list[str]:
    """What is in OUT and may be replaced; raises for what must not."""
    names = sorted(path.name for path in out.iterdir())
    standing = [name for name in names if not name.startswith(STAGING)]
    strange = standing[0] if standing else None
    if SUMS in standing:
        listed = {SUMS}
        with contextlib.suppress(OSError, ValueError):
            listed |= {path for _, path in read_sums((out / SUMS).read_bytes())}
        # Lazily: whoever says `-o /` does not wait for all of it to be listed.
        strange = next((name for name in _files(out, standing) if name not in listed), None)
    look = str(Command("ls", "-l", str(out)))
    if strange and replace:
        left = f"expected only what an earlier pack left, found {strange}, which its {SUMS} does not list"
        raise UsageError(f"-o {out}: {left}; nothing was replaced", next_command=look)
    if standing and not replace:
        said = f"-o {out}: expected an empty or new folder, found {standing[0]} in it"
        raise UsageError(said, next_command=look if strange else again)
    return standing


def _cannot_write(out: Path, there: Path, error: OSError) -> CannotVerify:
    """A full disk, or one that may not be written; `there` existed before."""
    full = error.errno in {errno.ENOSPC, errno.EDQUOT}
    said = f"expected to write into {out}, but: {error.strerror or error}; nothing was put there"
    return CannotVerify(said, next_command=Command(*(("df", "-h") if full else ("ls", "-ld")), str(there)))


def _move(names: Iterable[str], source: Path, target: Path) -> None:
    for name in names:
        (source / name).rename(target / name)


def _clear(left: Path) -> None:
    """Remove what a killed pack left; a running one is left alone."""
    handle = None
    with contextlib.suppress(OSError):
        handle = hold(left)
    if handle is None:
        return
    try:
        _undo(left)
        shutil.rmtree(left, ignore_errors=True)
    finally:
        os.close(handle)


def _is_amid(staging: Path) -> bool:
    """Whether OUT may have been moved in part."""
    return (staging / _OLD).is_dir() and (staging / _NEW / SUMS).is_file()


def _undo(staging: Path) -> None:
    """Restore OUT to what it was before anything was moved; can be repeated if killed."""
    if not _is_amid(staging):
        return
    out, new, old = staging.parent, staging / _NEW, staging / _OLD
    coming = msgspec.json.decode((staging / _COMING).read_bytes(), type=list[str])
    _move((name for name in coming if not (new / name).exists()), out, new)
    _move(sorted((path.name for path in old.iterdir()), key=lambda n: n == SUMS), old, out)
    sync_folder(out)
    old.rmdir()


def _write(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _files(out: Path, names: Iterable[str]) -> Iterator[str]:
    for name in names:
        path = out / name
        if path.is_dir() and not path.is_symlink():
            below = (p for p in sorted(path.rglob("*")) if p.is_symlink() or not p.is_dir())
            yield from (p.relative_to(out).as_posix() for p in below)
        else:
            yield name


def read_sums(data: bytes) -> list[tuple[str, str]]:
    """(sha256, path) per line of a SHA256SUMS; ValueError for any other form."""
    found = []
    for number, line in enumerate(data.decode().splitlines(), 1):
        digest, gap, path = line[:64], line[64:66], line[66:]
        if not is_sha256(digest) or gap != "  " or not path or path.startswith("/") or ".." in path.split("/"):
            raise ValueError(f"expected a sha256, two spaces and a path in line {number}")
        found.append((digest, path))
    if not data.endswith(b"\n"):
        raise ValueError("expected a newline at the end")
    return found


def _forget(made: Iterable[Path]) -> None:
    """Remove folders made for nothing; one that holds something stays."""
    with contextlib.suppress(OSError):
        for path in made:
            path.rmdir()
