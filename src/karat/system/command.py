"""The command to run next: words, quoted once, so that a person can paste what they read."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection
from typing import Self

_CHANGED_IN_PRINT = re.compile(r"##\w*\[|\n\s*::|[^\S\n]\n")
"""What a log of CI takes for a command, and blanks that are lost at the end of a line."""

_TAKES = re.compile(
    r"(?:git (?:add|commit|stage)|karat (?:accept|record|stage))\b(?!.*(?:--help|--dry-run))"
    r"|--(?:accept-incomplete|add-to-baseline|force|karat-update|reason)\b"
)
_PLAIN = re.compile(r"[\w@%+=:,./-]+", re.ASCII)  # nearly every word, and what shlex.quote leaves as it is


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


def takes(command: str) -> bool:
    """Whether a command takes a change for good. No report may advise that as the next step: whoever follows it, a person in a
    hurry or a program, would accept what nobody has looked at.
    """
    return _TAKES.search(command) is not None


def quoted(text: str, *, lines: bool = False) -> str:
    """Text as one word of a shell command that a person can read, and run as it stands.

    What would not survive a terminal or the log of CI is written as `$'…'`, which bash, zsh and ksh understand. With
    `lines`, line breaks stay breaks, in quotes that every shell understands.
    """
    if _PLAIN.fullmatch(text):
        return text
    shown = text.replace("\n", "") if lines else text
    if shown.isprintable() and not _CHANGED_IN_PRINT.search(text):
        return shlex.quote(text)
    escaped = ""
    for one in text:
        try:
            data = one.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            data = one.encode("utf-8", "surrogatepass")
        plain = one.isprintable() and one not in "\\'"
        escaped += one if plain else "".join(f"\\{byte:03o}" for byte in data)
    return "$'" + re.sub(r"##(?=\w*\[)", r"#\\043", escaped).replace("::", ":\\072") + "'"
