"""Words: commands as hunt.toml writes them: a list, or a text that is split as a shell would, and never handed to one."""

from __future__ import annotations

import shlex

from karat.findings import UsageError
from karat.hunt.settings import Words

EDIT = "edit hunt.toml"


def split(words: Words) -> tuple[str, ...]:
    """The words of a command; what a shell would do beyond quoting (`|`, `$X`, `>`) is not done."""
    try:
        found = tuple(shlex.split(words)) if isinstance(words, str) else words
    except ValueError as error:
        raise UsageError(
            f"expected a command with closed quotes, found {words!r}", next_command=EDIT
        ) from error
    if found and not found[0].strip():
        raise UsageError(
            f"expected a command that begins with a program, found {words!r}", next_command=EDIT
        )
    return found
