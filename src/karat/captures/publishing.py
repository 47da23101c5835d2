"""Publishing: a staged case goes into place in one step, or not at all."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from pathlib import Path

import msgspec

from karat.bundles.manifest import NAME
from karat.goldens.atomic import exchange, sync_folder

_TRIES = 100
_CROSSED = {errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST}
"""What a rename finds if another session was quicker."""


class Occupied(Exception):  # noqa: N818 - a state of the place
    """The place of a case is taken by what must not be replaced; the message says by what."""


class SameSession(Exception):  # noqa: N818 - a state of the place
    """The place holds a case of this very session."""


class _Glance(msgspec.Struct):
    """All of a manifest that matters here."""

    session: str


def publish(staged: Path, target: Path, session: str) -> None:
    """Renames the staged folder into place; a case of an earlier session makes room for it."""
    made = _make(target.parent)
    _install(staged, target, session)
    for folder in (*made, target.parent):
        sync_folder(folder)


def _make(folder: Path) -> list[Path]:
    """Makes a folder with its parents; those that have an entry more for it."""
    made = [path.parent for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    return made


def _install(staged: Path, target: Path, session: str) -> None:
    """Again and again while other sessions move cases in and out of the very place."""
    for left in reversed(range(_TRIES)):
        try:
            if os.path.lexists(target):
                _replace(staged, target, session)
            else:
                staged.rename(target)
        except OSError as error:
            if not left or error.errno not in _CROSSED or not staged.is_dir():
                raise
        else:
            return


def _replace(staged: Path, target: Path, session: str) -> None:
    if _session_of(target) == session:
        raise SameSession
    exchange(staged, target)
    shutil.rmtree(staged, ignore_errors=True)


def _session_of(target: Path) -> str:
    # One look: what was there a moment ago may have been taken away by another session.
    if not stat.S_ISDIR(target.lstat().st_mode):
        raise Occupied(f"expected a case or nothing at {target}, found something else")
    held = os.open(target, os.O_RDONLY)
    try:
        return msgspec.json.decode(_read(held), type=_Glance).session
    except FileNotFoundError:
        # A folder that another session has taken away meanwhile has no manifest any more, either.
        if not os.path.samestat(os.fstat(held), target.stat()):
            raise
        raise Occupied(
            f"expected a case or nothing at {target}, found a folder without {NAME}"
        ) from None
    except msgspec.DecodeError:
        return ""  # a damaged case is replaced by a whole one
    finally:
        os.close(held)


def _read(folder: int) -> bytes:
    """The manifest in a folder that is held open, wherever it was moved to."""
    with open(os.open(NAME, os.O_RDONLY, dir_fd=folder), "rb") as file:  # noqa: PTH123 - no path
        return file.read()
