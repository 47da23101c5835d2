"""What to run next: words of a command, and the one line that a person can read and run as it stands."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Command:
    """A command by its words; `str()` is the line to paste."""

    words: tuple[str, ...]

    @classmethod
    def of(cls, *words: str) -> Command:
        """The command of these words, none of them quoted yet."""
        return cls(words)

    def plus(self, *words: str) -> Command:
        """The same with more words behind it."""
        return Command((*self.words, *words))

    def __str__(self) -> str:
        return " ".join(map(quoted, self.words))


def quoted(text: str) -> str:
    """Text as one word of a shell command that a person can read."""
    if text.isprintable():
        return shlex.quote(text)
    # A control character in a file name must reach the shell, but not the terminal.
    raw = os.fsencode(text)
    plain = (chr(b) if 32 <= b < 127 and b not in b"\\'" else f"\\x{b:02x}" for b in raw)
    return f"$'{''.join(plain)}'"
