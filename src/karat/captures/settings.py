"""The table [bundles] of karat.toml, and the capture directory: who named it, and whether it can be written to."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from karat.findings import UsageError

OPTION = "--karat-capture"
VARIABLES = ("KARAT_CAPTURE_DIR", "GOLDEN_ARTIFACTS_DIR")
"""The first that is set wins; karat's own name stands before the one that suites already use."""

RECORDS = ".karat"  # The folder in a capture directory where sessions keep their records.

_LOW_SPACE = 256 << 20


class BundleSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The table [bundles]."""

    capture: tuple[str, ...] = ("*",)  # Globs of the suites to capture, once capturing is on.
    raw: bool = False  # Also write headerless .bin files for readers without karat.
    strides: bool = False  # Record the strides that tensors had.
    flow: str | None = None  # The flow of tests that do not name theirs.

    def __post_init__(self) -> None:
        if not self.capture:
            raise ValueError("capture must have at least one glob, found none")

    def chooses(self, suite: str) -> bool:
        from karat.goldens.paths import glob_matcher

        return any(glob_matcher(glob).fullmatch(suite) for glob in self.capture)


class CaptureDirectory(msgspec.Struct, frozen=True, kw_only=True):
    path: Path
    origin: str  # The option or variable that named it.
    note: str | None = None  # Another name that disagreed, and lost.


def capture_directory(option: str | None, environ: Mapping[str, str], base: Path) -> CaptureDirectory | None:
    """Option before KARAT_CAPTURE_DIR before GOLDEN_ARTIFACTS_DIR; empty is unset; None is off."""
    named = [(OPTION, option), *((name, environ.get(name)) for name in VARIABLES)]
    given = [(name, Path(os.path.normpath(base / Path(text).expanduser()))) for name, text in named if text]
    if not given:
        return None
    origin, path = given[0]
    lost = [f"{name}={other}" for name, other in given[1:] if other != path]
    note = f"{origin} wins over {' and '.join(lost)}" if lost else None
    return CaptureDirectory(path=path, origin=origin, note=note)


def prepare(directory: CaptureDirectory) -> str | None:
    """Make the directory and try to write to it; returns a note if its disk is nearly full."""
    from importlib.util import find_spec

    from karat.system.command import Command

    path = directory.path
    if find_spec("safetensors") is None:
        said = f"{directory.origin}: capturing needs safetensors, which is not installed"
        raise UsageError(said, next_command="pip install 'karat[capture]'")
    try:
        (path / RECORDS).mkdir(parents=True, exist_ok=True)
        # A few pages that really reach the disk: a full or read-only one says so now, not in a test.
        name = path / RECORDS / f"probe-{os.urandom(8).hex()}"
        try:
            with name.open("xb") as file:
                file.write(b"\0" * 8192)
                file.flush()
                os.fsync(file.fileno())
        finally:
            name.unlink(missing_ok=True)
        room = os.statvfs(path) if hasattr(os, "statvfs") else None
    except OSError as error:
        look = ("df", "-h") if error.errno in {errno.ENOSPC, errno.EDQUOT} else ("ls", "-ld")
        found = f"found {_obstacle(path)}: {error.strerror or error}"
        said = f"{directory.origin}: expected a directory that can be written to at {path}, {found}"
        raise UsageError(said, next_command=Command(*look, str(nearest_existing(path)))) from error
    if room is not None and (free := room.f_bavail * room.f_frsize) < _LOW_SPACE:
        return f"only {free / 1e6:,.0f} MB are free in {path}"
    return None


def nearest_existing(path: Path) -> Path:
    """The path, or the nearest of its parents, that exists in some form."""
    return next((p for p in (path, *path.parents) if os.path.lexists(p)), path)


def _obstacle(path: Path) -> str:
    there = nearest_existing(path)
    if there.is_symlink() and not there.exists():
        return f"a broken symbolic link ({there})"
    if not there.is_dir():
        return f"a file ({there})"
    return "one that takes no file" if there == path else f"{there} without it"
