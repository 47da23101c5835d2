"""The command to run next: words, quoted once, so that a person can paste what they read."""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection
from typing import Self


class Command(str):
    """A command line as it is shown, which remembers its words: options can be changed without parsing it.

    Whoever encodes it passes `str(command)`.
    """

    __slots__ = ("words",)
    words: tuple[str, ...]

    def __new__(cls, *words: str) -> Self:
        """The command of these words, each of which may be any text."""
        made = super().__new__(cls, " ".join(map(quoted, words)))
        made.words = words
        return made

    def plus(self, *words: str) -> Command:
        """The command with more words."""
        return Command(*self.words, *words)

    def without(self, names: Collection[str], *, flags: Collection[str]) -> Command:
        """The command without these options and, unless they are `flags`, without their values."""
        kept: list[str] = []
        is_value = False
        for word in self.words:
            name, equals, _ = word.partition("=")
            if is_value:
                is_value = False
            elif name in names:
                is_value = not equals and name not in flags
            else:
                kept.append(word)
        return Command(*kept)


def quoted(text: str) -> str:
    """Text as one word of a shell command that a person can read, and run as it stands."""
    if text.isprintable():
        return shlex.quote(text)
    # A control character in a file name must reach the shell, but not the terminal.
    raw = os.fsencode(text)
    plain = (chr(b) if 32 <= b < 127 and b not in b"\\'" else f"\\x{b:02x}" for b in raw)
    return f"$'{''.join(plain)}'"
