"""The pytest sessions that capture in this process, so that the plain functions join in."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from karat.captures.capturing import Capturing

_running: list[Capturing] = []


def push(capturing: Capturing) -> None:
    """A session begins; it may be one inside another."""
    _running.append(capturing)


def remove(capturing: Capturing) -> None:
    """A session ends."""
    if capturing in _running:
        _running.remove(capturing)


def current() -> Capturing | None:
    """The innermost session, if a test of it runs right now."""
    last = _running[-1] if _running else None
    return last if last is not None and last.trial is not None else None
