"""Patterns: a regular expression of hunt.toml, put to every line of an output.

Lines are bounded and have no colours. A search that does not come to an end, as `(a+)+b` would not, is called off.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Iterator

from karat.changes.signature_words import plain
from karat.runs.watch import StuckError, Watch


class Endless(Exception):  # noqa: N818 - a state of knowledge
    """A search was called off; the text says which."""


def lines(output: bytes) -> Iterator[str]:
    """The lines of an output without colours, also those that a bar overwrote."""
    for line in output.decode("utf-8", errors="replace").replace("\r", "\n").split("\n"):
        yield plain(line)


def matches(pattern: str, texts: Iterable[str]) -> Generator[re.Match[str], None, None]:
    """Every match in every text, in order. Exhaust or close it: while it is open, searches are watched."""
    wanted = re.compile(pattern)
    with Watch() as watch:
        try:
            for number, text in enumerate(texts, 1):
                watch.search = number
                yield from wanted.finditer(text)
        except StuckError as error:
            raise Endless(
                f"the pattern {pattern!r} does not come to an end on a line of {len(text)} characters: it tries the same"
                " text over and over, as (a+)+ and (.*)* do"
            ) from error
