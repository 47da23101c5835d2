"""Events: what op tests and gradient checks tell whoever keeps evidence. Told after the fact, never before.

`policy` listens; this room does not know it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import msgspec

from karat.gradients.report import GradReport


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    """An op test was set up: which op it tests, and what goes in and out."""

    op: str
    test: str
    """`file.py::Class`, or the test's own id; the class is the unit, nothing is inherited."""
    file: str = ""
    line: int = 0
    inputs: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Input → dtype, by karat's names; integers and booleans need no evidence."""
    no_grad: tuple[str, ...] = ()
    """Inputs that the test says have no gradient (`no_grad_set`)."""
    skip_reason: str | None = None
    """`skip_check_grad_ci(reason=…)` of this very class."""


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """A gradient check came to its end."""

    report: GradReport
    test: str = ""


class NoGrad(msgspec.Struct, frozen=True, kw_only=True):
    """An op that did not prove a gradient of an input was asked for it."""

    op: str
    input: str
    test: str = ""
    outcome: Literal["raises", "zero", "gradient"]
    detail: str = ""


Event = Declared | Checked | NoGrad
_listeners: list[Callable[[Event], None]] = []


def listen(listener: Callable[[Event], None]) -> Callable[[], None]:
    """Hears every event from now on, until the function that comes back is called."""
    _listeners.append(listener)
    return lambda: _listeners.remove(listener)


def tell(event: Event) -> None:
    """Whoever listens hears it."""
    for listener in tuple(_listeners):
        listener(event)
