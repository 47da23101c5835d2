"""Replaying: one line that runs a failed gradient check again, and the words in it read back.

The seed makes the probes, so the seed replays them. A focus leaves only one comparison to be made; a report made
under a focus says so, and is no evidence for the rest.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from itertools import takewhile
from pathlib import Path
from urllib.parse import quote, unquote

import msgspec

from karat.findings import UsageError
from karat.gradients.report import Comparison
from karat.gradients.running import running_test

SEED = "KARAT_GRAD_SEED"
FOCUS = "KARAT_GRAD_FOCUS"
SEED_OPTION = "--karat-grad-seed"
FOCUS_OPTION = "--karat-grad-focus"
_EXAMPLE = f"{SEED}=7 {FOCUS}=x:out:float64 pytest"
_LONGEST = 2000
# What a person may have typed on a command line, and must not be repeated in a report.
_SECRET = re.compile(r"token|secret|passw|api.?key|credential|://[^/]*@", re.IGNORECASE)


class Focus(msgspec.Struct, frozen=True, kw_only=True):
    """The one comparison that a replay makes."""

    input: str
    output: str
    dtype: str

    def covers(self, *, input: str, output: str, dtype: str) -> bool:  # noqa: A002 - the report's own word
        """Whether this is the comparison that was asked for."""
        return (self.input, self.output, self.dtype) == (input, output, dtype)

    def __str__(self) -> str:
        """`x:out:float64`; a colon inside a name is written %3A."""
        return ":".join(_part(word) for word in (self.input, self.output, self.dtype))


class Overrides(msgspec.Struct, frozen=True, kw_only=True):
    """What the environment asks of every gradient check."""

    seed: int | None = None
    focus: Focus | None = None


def focus_of(comparison: Comparison) -> Focus:
    """The focus that leaves only this comparison."""
    return Focus(input=comparison.input, output=comparison.output, dtype=comparison.dtype)


def parse_focus(word: str, where: str = FOCUS) -> Focus:
    """A focus from `x:out:float64`."""
    parts = word.split(":")
    if len(parts) != 3 or not all(parts):
        raise UsageError(
            f"{where}: expected INPUT:OUTPUT:DTYPE, found {word!r}", next_command=_EXAMPLE
        )
    first, second, third = (unquote(part) for part in parts)
    return Focus(input=first, output=second, dtype=third)


def parse_seed(word: str, where: str = SEED) -> int:
    """A seed from its digits."""
    if not (word.isascii() and word.isdigit() and len(word) <= 40):
        raise UsageError(
            f"{where}: expected a seed, a whole number from a report, found {word!r}",
            next_command=_EXAMPLE,
        )
    return int(word)


def overrides() -> Overrides:
    """What KARAT_GRAD_SEED and KARAT_GRAD_FOCUS ask for; nothing where they are not set or empty."""
    seed, focus = os.environ.get(SEED), os.environ.get(FOCUS)
    return Overrides(
        seed=parse_seed(seed) if seed else None, focus=parse_focus(focus) if focus else None
    )


def command(*, seed: int, focus: Focus | Comparison | None = None) -> str:
    """One line for a shell that runs the check again with the same probes."""
    aim = focus_of(focus) if isinstance(focus, Comparison) else focus
    node = _running_test()
    if node is not None:
        words = ["pytest", node, SEED_OPTION, str(seed)]
        return shlex.join([*words, FOCUS_OPTION, str(aim)] if aim else words)
    settings = [f"{SEED}={seed}", *([f"{FOCUS}={shlex.quote(str(aim))}"] if aim else [])]
    return " ".join([*settings, _program()])


def _running_test() -> str | None:
    """The id of the test that pytest runs right now, seen from here."""
    running = running_test()
    if running is None:
        return None
    path, mark, rest = running.partition("::")
    return f"{_from_here(path)}{mark}{rest}"


def _from_here(path: str) -> str:
    """A path from the root of the tests, as pytest has it, from where the line is pasted: a folder below, maybe."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / path).exists():
            return os.path.relpath(folder / path, here)
    return path


def _program() -> str:
    """How this process was started, without the interpreter's own path; `python` alone if at a prompt."""
    words = sys.orig_argv[1:]
    shown = list(takewhile(lambda word: word.endswith(".py") or not _SECRET.search(word), words))
    if len(" ".join(shown)) > _LONGEST or shown == ["-c"]:
        shown = []
    return shlex.join(["python", *shown])


def _part(word: str) -> str:
    # What reads well in a shell and a report stays; a colon, a percent sign or a space would not come back.
    return quote(word, safe="+-.,_[]()<>")
