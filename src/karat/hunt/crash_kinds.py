"""Crash kinds: whether a run that failed is the crash that is hunted. Pure."""

from __future__ import annotations

import re

from karat.changes.signature_words import plain
from karat.engines.job import Ran
from karat.hunt.settings import CrashSettings

_SHELL_SIGNALS = 128
"""A shell, and a container, say 128 + N for what signal N killed."""


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

    number = ran.signal
    if number is None and ran.exit_code is not None and ran.exit_code > _SHELL_SIGNALS:
        number = ran.exit_code - _SHELL_SIGNALS
    if ran.timed_out:
        return False
    if not name:
        return number is not None or signature.startswith("SIG")
    return number == getattr(signal, name, None) or signature.split(maxsplit=1)[:1] == [name]


def _says(pattern: str, ran: Ran, signature: str) -> bool:
    """Whether the signature is the pattern itself, or it or a line of the output matches."""
    if not pattern or pattern == signature:
        return True
    wanted = re.compile(pattern)
    if wanted.search(signature):
        return True
    text = ran.output.decode("utf-8", errors="replace")
    return any(wanted.search(plain(line)) for line in text.split("\n"))
