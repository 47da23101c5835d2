"""Words of a command as they can be pasted into a shell, whatever a terminal and a report do to what cannot be printed. Pure."""

from __future__ import annotations

import re
import shlex

from karat.report.words import printable

_BEFORE_A_BREAK = re.compile(r"\s\n")


def quoted(word: str) -> str:
    """A word for a shell. Line breaks stay breaks, in quotes; what would be lost in printing is written as `$'…'`.

    The former is understood by every shell, the latter by bash, zsh and ksh.
    """
    lines = word.split("\n")
    if all(printable(line) == line for line in lines) and not _BEFORE_A_BREAK.search(word):
        return shlex.quote(word)
    # What a log would take for a command of its own is broken up as well.
    escaped = "".join(map(_character, word)).replace("##[", "#\\043[")
    return f"$'{escaped}'"


def _character(one: str) -> str:
    if one in "\\'":
        return f"\\{one}"
    if one.isprintable():
        return one
    # As bytes, which may be no text at all.
    return "".join(f"\\{byte:03o}" for byte in one.encode("utf-8", "surrogateescape"))
