"""The test run around a check: which test runs, who listens to what checks find, and how to run a check again.

Events are told after the fact, never before; `policy` listens, and this room does not know it. A replay draws the
probes from the same seed.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections import deque
from collections.abc import Callable, Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal

import msgspec

from karat.findings import UsageError
from karat.gradients.report import GradReport


def running_test() -> str | None:
    """The id of the test that pytest runs in this process right now; None where there is none.

    A process that a test starts has inherited the variable, and may well import pytest; a part of it that every
    session loads, and that `import pytest` does not, distinguishes them.
    """
    running = os.environ.get("PYTEST_CURRENT_TEST")
    if not running or "_pytest.helpconfig" not in sys.modules:
        return None
    return re.sub(r" \((setup|call|teardown)\)$", "", running)


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    """An op test was set up: which op it tests, and what goes in and out."""

    op: str
    test: str  # `file.py::Class`, or the test's own id; the class is the unit, nothing is inherited
    file: str = ""
    line: int = 0
    # Input → dtype, by karat's names; integers and booleans need no evidence.
    inputs: Mapping[str, str] = msgspec.field(default_factory=dict)
    no_grad: tuple[str, ...] = ()  # inputs that the test says have no gradient (`no_grad_set`)
    skip_reason: str | None = None  # `skip_check_grad_ci(reason=…)` of this very class


class GradChecked(msgspec.Struct, frozen=True, kw_only=True):
    """A gradient check came to its end."""

    report: GradReport
    test: str = ""
    functions: tuple[Any, ...] = ()  # what was checked: the function, and a backward that was given beside it
    elements: Mapping[str, int] = msgspec.field(default_factory=dict)  # of each input
    unasked: tuple[str, ...] = ()  # outputs with a gradient that nobody asked for
    nondeterminism_bound: float = 0.0  # by how much the caller lets two runs of one backward differ
    untried: tuple[str, ...] = ()  # laws that the caller left out


class NoGrad(msgspec.Struct, frozen=True, kw_only=True):
    """An op that did not prove a gradient of an input was asked for it."""

    op: str
    input: str
    test: str = ""
    outcome: Literal["raises", "zero", "gradient"]
    detail: str = ""


Event = Declared | GradChecked | NoGrad
_listeners: list[Callable[[Event], None]] = []


def listen(listener: Callable[[Event], None]) -> Callable[[], None]:
    """Call the listener with every event from now on, until the returned function is called."""
    _listeners.append(listener)
    return lambda: _listeners.remove(listener)


recent: deque[GradReport] = deque(maxlen=8)
"""Reports of checks that did not pass, for a test that asserts one and fails."""


def notify(event: Event) -> None:
    if isinstance(event, GradChecked) and not event.report:
        recent.append(event.report)
    for listener in tuple(_listeners):
        listener(event)


SEED = "KARAT_GRAD_SEED"
SEED_OPTION = "--karat-grad-seed"
# What a person may have typed on a command line, and must not be repeated in a report.
_SECRET = re.compile(r"token|secret|passw|api.?key|credential|://[^/]*@", re.IGNORECASE)


def parse_seed(word: str) -> int:
    if not (word.isascii() and word.isdigit() and len(word) <= 40):
        message = f"{SEED}: expected a seed, a whole number from a report, found {word!r}"
        raise UsageError(message, next_command=f"{SEED}=7 pytest")
    return int(word)


def requested_seed() -> int | None:
    """The seed that the environment asks of every gradient check; None where not set or empty."""
    seed = os.environ.get(SEED)
    return parse_seed(seed) if seed else None


def replay_command(*, seed: int) -> str:
    """One line for a shell that runs the check again with the same probes."""
    running = running_test()
    if running is not None:
        path, mark, rest = running.partition("::")
        # pytest has it from the root of the tests; the line is pasted here, in a folder below, maybe.
        here = Path.cwd()
        found = [folder / path for folder in (here, *here.parents) if (folder / path).exists()]
        node = os.path.relpath(found[0], here) if found else path
        return shlex.join(["pytest", f"{node}{mark}{rest}", SEED_OPTION, str(seed)])
    # How this process was started, without the interpreter's own path; `python` alone if at a prompt.
    shown = list(takewhile(lambda word: word.endswith(".py") or not _SECRET.search(word), sys.orig_argv[1:]))
    if len(" ".join(shown)) > 2000 or shown == ["-c"]:
        shown = []
    return f"{SEED}={seed} {shlex.join(['python', *shown])}"
