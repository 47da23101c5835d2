"""Skips: which classes say that they need no gradient check, and why. A class speaks for itself, never for a child.

Nothing is written into the class, so that nothing can be inherited, copied or set by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar
from weakref import WeakKeyDictionary

from karat.findings import UsageError

Class = TypeVar("Class", bound=type)
_gradient: WeakKeyDictionary[type, str] = WeakKeyDictionary()
_in_place: WeakKeyDictionary[type, str] = WeakKeyDictionary()


def skip_check_grad_ci(reason: str | None = None) -> Callable[[Class], Class]:
    """A decorator: this very class needs no gradient check, for a reason that somebody must approve."""
    said = _said("skip_check_grad_ci", reason)

    def decorate(cls: Class) -> Class:
        _gradient[cls] = said
        return cls

    return decorate


def skip_check_inplace_ci(reason: str | None = None) -> Callable[[Class], Class]:
    """A decorator: this very class needs no check of its in-place form."""
    said = _said("skip_check_inplace_ci", reason)

    def decorate(cls: Class) -> Class:
        _in_place[cls] = said
        return cls

    return decorate


def skip_reason(cls: type) -> str | None:
    """Why this very class skips its gradient check; None if it does not."""
    return _gradient.get(cls)


def _said(name: str, reason: object) -> str:
    if isinstance(reason, str) and reason.strip():
        return reason.strip()
    raise UsageError(
        f"{name}: expected reason='…' that says why, found {reason!r}",
        next_command=f"@{name}(reason='why this op has nothing to check')",
    )
