"""What karat.toml says about capturing: the table [bundles]."""

from __future__ import annotations

import errno
import os
import shlex
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import msgspec

from karat.findings import UsageError


class BundleSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The table [bundles]."""

    capture: tuple[str, ...] = ("*",)
    """Globs of the suites to capture, once capturing is asked for at all."""
    raw: bool = False
    """Also write headerless .bin files for readers without karat."""
    strides: bool = False
    """Record the strides that tensors had."""
    flow: str | None = None
    """The flow of tests that do not say theirs."""

    def __post_init__(self) -> None:
        if not self.capture:
            raise ValueError("capture must have at least one glob, found none")


# DOC-HERE directory: The capture directory: who named it, and whether it can be written to before any test runs.

OPTION = "--karat-capture"
VARIABLES = ("KARAT_CAPTURE_DIR", "GOLDEN_ARTIFACTS_DIR")
"""The first that is set wins; karat's own name stands before the one that suites already use."""

BOOKS = ".karat"
"""The folder of the sessions' own bookkeeping in a capture directory."""

_PROBE = 8192
_LITTLE = 256 << 20


class Chosen(msgspec.Struct, frozen=True, kw_only=True):
    """The directory that was asked for."""

    path: Path
    origin: str
    """The option or variable that named it."""
    note: str | None = None
    """Another name that disagreed, and lost."""


def chosen(option: str | None, environ: Mapping[str, str], base: Path) -> Chosen | None:
    """Option before KARAT_CAPTURE_DIR before GOLDEN_ARTIFACTS_DIR; empty is unset; None is off."""
    named = [(OPTION, option), *((name, environ.get(name)) for name in VARIABLES)]
    given = [(name, _absolute(text, base)) for name, text in named if text]
    if not given:
        return None
    origin, path = given[0]
    lost = [f"{name}={other}" for name, other in given[1:] if other != path]
    note = f"{origin} wins over {' and '.join(lost)}" if lost else None
    return Chosen(path=path, origin=origin, note=note)


def _absolute(text: str, base: Path) -> Path:
    return Path(os.path.normpath(base / Path(text).expanduser()))


def prepare(place: Chosen) -> str | None:
    """Makes the directory and writes to it for a try; a note if little room is left on its disk."""
    path = place.path
    if find_spec("safetensors") is None:
        raise UsageError(
            f"{place.origin}: capturing needs safetensors, which is not installed",
            next_command="pip install 'karat[capture]'",
        )
    try:
        (path / BOOKS).mkdir(parents=True, exist_ok=True)
        _probe(path / BOOKS)
        free = _free(path)
    except OSError as error:
        raise UsageError(
            f"{place.origin}: expected a directory that can be written to at {path}, "
            f"found {_obstacle(path)}: {error.strerror or error}",
            next_command=f"{_look(error)} {shlex.quote(str(standing(path)))}",
        ) from error
    if free is not None and free < _LITTLE:
        return f"only {free / 1e6:,.0f} MB are free in {path}"
    return None


def _look(error: OSError) -> str:
    return "df -h" if error.errno in {errno.ENOSPC, errno.EDQUOT} else "ls -ld"


def _probe(folder: Path) -> None:
    # A few pages that really reach the disk: a full or read-only one says so now, not in a test.
    name = folder / f"probe-{os.urandom(8).hex()}"
    try:
        with name.open("xb") as file:
            file.write(b"\0" * _PROBE)
            file.flush()
            os.fsync(file.fileno())
    finally:
        name.unlink(missing_ok=True)


def _free(path: Path) -> int | None:
    if not hasattr(os, "statvfs"):
        return None
    room = os.statvfs(path)
    return room.f_bavail * room.f_frsize


def standing(path: Path) -> Path:
    """The nearest of a path's parents, or itself, that is there in some form."""
    return next((p for p in (path, *path.parents) if os.path.lexists(p)), path)


def _obstacle(path: Path) -> str:
    there = standing(path)
    if there.is_symlink() and not there.exists():
        return f"a symbolic link that leads nowhere ({there})"
    if not there.is_dir():
        return f"a file ({there})"
    return "one that takes no file" if there == path else f"{there} without it"
