"""Installing: a folder appears under its name whole, or not at all."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shlex
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from karat.findings import CannotVerify, UsageError
from karat.goldens.atomic import exchange, sync_folder


@contextmanager
def staging(target: Path, mark: str) -> Iterator[Path]:
    """A hidden folder beside the target, left there for the next attempt; one process at a time."""
    folder = target.parent / f"{_prefix(target)}{mark}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        raise CannotVerify(
            f"expected to make {folder}, but: {error.strerror}",
            next_command=f"ls -ld {shlex.quote(str(target.parent))}",
        ) from error
    try:
        _alone(handle, target)
        yield folder
    finally:
        os.close(handle)


def check_target(target: Path, *, replace: bool) -> None:
    """Nothing stands in the way, or it may be replaced; asked before anything is fetched."""
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise UsageError(
            f"expected a folder's name, or nothing yet, at {target}, found something else",
            next_command=f"ls -ld {shlex.quote(str(target))}",
        )
    if target == Path.cwd() or target in Path.cwd().parents:
        raise UsageError(
            f"expected a folder of its own for what is pulled, found {target}, in which this command runs",
            next_command="karat pull --help",
        )
    if target.is_dir() and any(target.iterdir()) and not replace:
        raise UsageError(
            f"expected nothing at {target} yet, found a folder with something in it; "
            "--replace puts the new one in its place",
            next_command=f"ls -A {shlex.quote(str(target))}",
        )


def discard_others(folder: Path, wanted: Collection[str]) -> None:
    """Takes away what an earlier attempt wanted and this one does not."""
    for path in sorted(folder.rglob("*"), reverse=True):
        name = path.relative_to(folder).as_posix()
        if path.is_dir() and not path.is_symlink():
            with contextlib.suppress(OSError):  # not empty
                path.rmdir()
        elif name not in wanted:
            path.unlink()


def install(folder: Path, target: Path, *, replace: bool) -> None:
    """Gives the folder its name; one that has it already is exchanged for it in one step, then removed."""
    check_target(target, replace=replace)  # once more: another pull may have been quicker
    try:
        sync_folder(folder)
        if target.is_dir() and any(target.iterdir()):
            exchange(folder, target)
            shutil.rmtree(folder, ignore_errors=True)
        else:
            folder.replace(target)
        sync_folder(target.parent)
    except OSError as error:
        raise CannotVerify(
            f"expected to move {folder} to {target}, but: {error.strerror}",
            next_command=f"ls -ld {shlex.quote(str(target.parent))}",
        ) from error


def clear(target: Path) -> None:
    """Takes away what pulls to this folder left when they were killed; those at work keep theirs."""
    for folder in target.parent.glob(".karat-pull-*"):
        name = folder.name.removeprefix(_prefix(target))
        if not re.fullmatch("[0-9a-f]{12}(-old[0-9a-f]*)?", name) or folder.is_symlink():
            continue
        with contextlib.suppress(OSError, CannotVerify):
            handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                _alone(handle, target)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(handle)


def _prefix(target: Path) -> str:
    """How the hidden folders of a target begin; a name may be as long as a name can be."""
    name = target.name
    if len(os.fsencode(name)) > 100:
        name = sha256(os.fsencode(name)).hexdigest()
    return f".karat-pull-{name}-"


def _alone(handle: int, target: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise CannotVerify(
            f"expected to be the only `karat pull` to {target}, found another at work",
            next_command=f"ls -ld {shlex.quote(str(target.parent))}/.karat-pull-*",
        ) from error
