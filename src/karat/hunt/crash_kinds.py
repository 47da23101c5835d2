"""Crash kinds: whether a run that failed is the crash that is hunted. Pure."""

from __future__ import annotations

import re
from contextlib import closing
from itertools import chain

from karat.engines.job import Ran
from karat.hunt.patterns import lines, matches
from karat.hunt.settings import CrashSettings

_SHELL_SIGNALS = range(129, 193)
"""A shell, and a container, say 128 + N for what signal N killed."""
_NAMED = re.compile(r"(?:.*died with <Signals\.)?(SIG[A-Z0-9]+)\b")
"""Of a grandchild Python says `died with <Signals.SIGSEGV: 11>`."""


def is_hunted(crash: CrashSettings, ran: Ran, signature: str) -> bool:
    """Whether this failure is the one; any other is another error, not good and not bad."""
    if crash.kind == "hang":
        return ran.timed_out and _says(crash.pattern, ran, signature)
    if crash.kind == "signal" and not _killed(crash.signal, ran, signature):
        return False
    if crash.kind == "exception" and ran.timed_out:
        return False
    return _says(crash.pattern, ran, signature)


def _killed(name: str, ran: Ran, signature: str) -> bool:
    """Whether a signal ended it: seen by the runner, told by a shell's exit code, or named by the signature."""
    import signal  # noqa: PLC0415 - only for hunted signals

    if ran.timed_out:
        return False
    number = ran.signal
    if number is None and ran.exit_code is not None and ran.exit_code in _SHELL_SIGNALS:
        number = ran.exit_code - 128
    said = _NAMED.match(signature)
    if not name:
        return number is not None or said is not None
    return number == signal.Signals[name] or (said is not None and said[1] == name)


def _says(pattern: str, ran: Ran, signature: str) -> bool:
    """Whether the signature is the pattern itself, or it or a line of the output matches."""
    if not pattern or pattern == signature:
        return True
    with closing(matches(pattern, chain([signature], lines(ran.output)))) as found:
        return next(found, None) is not None
