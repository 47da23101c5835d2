"""Lifecycle: what is known of an op test class while it runs. Kept beside the class, never in it.

A class speaks for itself: what its parent ran, skipped or declared is the parent's. What a test sets by hand on
the class (`exist_check_grad`, `no_need_check_grad`) is read by nobody.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from karat.gradients import events
from karat.gradients.running import running_test
from karat.optests.skipping import skip_reason
from karat.optests.values import members, read_slots


class Life:
    """What one class did so far in this process."""

    def __init__(self) -> None:
        self.declared: list[events.Declared] = []
        self.ran: set[str] = set()
        """Test methods that came to their end, whatever it was."""
        self.passed = False
        """Whether one of them passed, as far as plain unittest tells."""
        self.told: list[events.Event] = []
        """Every event that was told while a test of the class ran."""
        self.begun = False
        self.last: Any = None
        """The last instance that was set up: its inputs are what a probe at the end needs."""


_lives: WeakKeyDictionary[type, Life] = WeakKeyDictionary()


def life_of(cls: type) -> Life:
    """The life of this very class."""
    if cls not in _lives:
        _lives[cls] = Life()
    return _lives[cls]


def forget(cls: type) -> None:
    """Ends a life: a class that runs again starts anew."""
    _lives.pop(cls, None)


def test_id(cls: type) -> str:
    """`file.py::Class`, seen from pytest's root, or from the current folder."""
    running = running_test()
    if running:
        path, _, rest = running.partition("[")[0].partition("::")
        names = rest.split("::")
        if len(names) > 1 and names[-2] == cls.__name__:
            return "::".join([path, *names[:-1]])
    return f"{source(cls)[0]}::{cls.__name__}"


def source(cls: type) -> tuple[str, int]:
    """The file of a class, seen from the current folder, and its line; `` and 0 if nobody knows."""
    import inspect  # noqa: PLC0415 - once per class
    import sys  # noqa: PLC0415

    module = sys.modules.get(cls.__module__)
    path = getattr(module, "__file__", None)
    if path is None:
        return cls.__module__, 0
    try:
        line = inspect.getsourcelines(cls)[1]
    except (OSError, TypeError):
        line = 0  # made by a function at run time
    here = Path(path).resolve()
    try:
        return here.relative_to(Path.cwd()).as_posix(), line
    except ValueError:
        return here.name, line


def declare(test: Any, op: str, no_grad: frozenset[str] = frozenset()) -> None:
    """Tells which op a class tests and what goes in, once for each thing that is new."""
    cls = type(test)
    life = life_of(cls)
    life.last = test
    file, line = source(cls)
    inputs = {one.name: one.dtype for one in members(read_slots(test.inputs, "inputs"))}
    event = events.Declared(
        op=op,
        test=test_id(cls),
        file=file,
        line=line,
        inputs=inputs,
        no_grad=tuple(sorted(no_grad & inputs.keys())),
        skip_reason=skip_reason(cls),
    )
    if event not in life.declared:
        life.declared.append(event)
        events.tell(event)
