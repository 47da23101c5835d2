"""Wildcards without backtracking: a stranger's pattern takes time that grows with its length times the text's, and no more.

A pattern is a list of steps. A step takes the places in a text, in order, up to which everything before it fits, and gives
the places up to which it fits as well. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

Step = Callable[[str, Sequence[int]], Sequence[int]]


def fits(steps: Iterable[Step], text: str) -> bool:
    """Whether the steps lead from the beginning of a text to its end."""
    return len(text) in _walk(steps, text, (0,))


def _walk(steps: Iterable[Step], text: str, places: Sequence[int]) -> Sequence[int]:
    for step in steps:
        if not places:
            break
        places = step(text, places)
    return places


def words(*choices: str) -> Step:
    return lambda text, places: sorted(
        {at + len(word) for word in set(choices) for at in places if text.startswith(word, at)}
    )


def one(character: re.Pattern[str]) -> Step:
    return lambda text, places: [at + 1 for at in places if at < len(text) and character.match(text, at)]


def ahead(character: re.Pattern[str]) -> Step:
    """Nothing, before a character of a kind."""
    return lambda text, places: [at for at in places if at < len(text) and character.match(text, at)]


def any_number(text: str, places: Sequence[int]) -> Sequence[int]:
    return range(places[0], len(text) + 1)


def within_folder(text: str, places: Sequence[int]) -> Sequence[int]:
    found: list[int] = []
    covered = 0
    for at in places:
        if at >= covered:
            slash = text.find("/", at)
            covered = (len(text) if slash < 0 else slash) + 1
            found += range(at, covered)
    return found


def any_folders(text: str, places: Sequence[int]) -> Sequence[int]:
    """Nothing, or any characters and a slash."""
    slashes = (match.end() for match in re.compile("/").finditer(text, places[0]))
    return sorted({*places, *slashes})


def named_folders(text: str, places: Sequence[int]) -> Sequence[int]:
    """Any number of folders, each with a name."""
    found = set(places)
    for start in places:
        at, slash = start, text.find("/", start)
        while slash > at and slash + 1 not in found:
            found.add(slash + 1)
            at, slash = slash + 1, text.find("/", slash + 1)
    return sorted(found)


def nothing(_text: str, _places: Sequence[int]) -> Sequence[int]:
    """What nothing fits."""
    return ()


def maybe(*steps: Step) -> Step:
    """The steps, or nothing."""
    return lambda text, places: sorted({*places, *_walk(steps, text, places)})
