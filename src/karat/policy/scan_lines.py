"""The lines of a file, to see at a glance whether a method may come to a check, without going through its tree."""

from __future__ import annotations

import ast
import re
from functools import lru_cache

# Flags and checks have `grad` in their names.
_SETS = re.compile(rb"grad|op_type|dtype|[tT]est|class|setattr")


class Lines:
    """Source by line numbers; where bytes may not be what Python reads, nothing is plain to see."""

    def __init__(self, source: bytes = b"") -> None:
        plain = source.isascii() and b"coding" not in source[:400]
        self._lines = source.splitlines(keepends=True) if plain else []

    def leads_nowhere(self, body: list[ast.stmt], me: str) -> bool:
        """Whether statements surely neither call anything of `me`, nor hand it over, nor check a gradient."""
        return self._lacks(_asks(me), body) if me.isascii() else False

    def sets_nothing(self, body: list[ast.stmt]) -> bool:
        """Whether statements surely set nothing that is kept of an object, and define no class."""
        return self._lacks(_SETS, body)

    def _lacks(self, pattern: re.Pattern[bytes], body: list[ast.stmt]) -> bool:
        first, last = body[0].lineno, body[-1].end_lineno
        if not self._lines or last is None:
            return False
        return pattern.search(b"".join(self._lines[first - 1 : last])) is None


@lru_cache(maxsize=100)
def _asks(me: str) -> re.Pattern[bytes]:
    """`me` that is anything but the owner of an attribute that is not called; every check has `grad` in its name."""
    alone = rb"\b%b\b(?!\s*\.\s*\w+\b(?![\s\\]*[(\#]))" % re.escape(me).encode()
    return re.compile(rb"grad|super" + (rb"|" + alone if me else rb""))
