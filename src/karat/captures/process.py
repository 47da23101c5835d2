"""The capture sessions of this process, for who captures without pytest: one per directory."""

from __future__ import annotations

import atexit
import os
import shlex
from functools import cache
from pathlib import Path

import msgspec

from karat.bundles.settings import BundleSettings
from karat.captures.directory import Chosen, chosen, prepare
from karat.captures.session import Session, session_name
from karat.captures.sweeping import sweep
from karat.findings import Finding, Severity, UsageError

_sessions: dict[tuple[Path, str, int], Session] = {}
_names: dict[tuple[Path, str], str] = {}
"""Of the same session in the processes that this one forks: what two of them capture must not go unnoticed."""


@cache
def settings() -> BundleSettings:
    """`[bundles]` of the configuration that holds where the process was started."""
    from karat.config import load  # noqa: PLC0415 - it brings the settings of every room

    return load(Path.cwd()).bundles


def of_process(directory: str | os.PathLike[str] | None) -> Session | Finding | None:
    """The session that captures into a directory; None if none was named; a finding if it cannot be used."""
    place = _place(directory)
    if place is None:
        return None
    key = (place.path, os.environ.get("KARAT_SESSION", ""), os.getpid())
    if key not in _sessions:
        try:
            prepare(place)
        except UsageError as error:
            return _unusable(error)
        name = _names.setdefault(key[:2], session_name(None, os.environ))
        _sessions[key] = _open(place, name)
    return _sessions[key]


def _place(directory: str | os.PathLike[str] | None) -> Chosen | None:
    if directory is None:
        return chosen(None, os.environ, Path.cwd())
    found = chosen(os.fspath(directory), {}, Path.cwd())
    return found and msgspec.structs.replace(found, origin="directory")


def _open(place: Chosen, name: str) -> Session:
    sweep(place.path)
    run = os.urandom(6).hex()
    session = Session(place.path, name, run=run, worker=f"p{os.getpid()}", root=Path.cwd())
    atexit.register(session.close)
    return session


def _unusable(error: UsageError) -> Finding:
    return Finding(
        kind="capture-failed",
        severity=Severity.FAIL,
        message=str(error),
        next=error.next_command or f"ls -ld {shlex.quote(str(Path.cwd()))}",
    )
