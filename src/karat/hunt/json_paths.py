"""JSON paths: `results[0].loss`, `["lm loss"].last`, `runs[-1]["x y"]`.

A tiny language: names between dots, numbers and quoted names in brackets; the path says where one number is, and has no
wildcards. Pure.
"""

from __future__ import annotations

import re
from typing import Any

from karat.findings import UsageError

_NAME = re.compile(r"[^.\[\]\"']+")
_BRACKET = re.compile(r"""\[\s*(?:(-?\d+)|"((?:[^"\\]|\\.)*)"|'([^']*)')\s*\]""")
_ESCAPED = re.compile(r"\\(.)")

Path = tuple[str | int, ...]


def parse(text: str) -> Path:
    """The steps of a path."""
    steps: list[str | int] = []
    place = 0
    text = text.removeprefix("$")
    while place < len(text):
        bracket = _BRACKET.match(text, place)
        if bracket:
            steps.append(_bracketed(bracket))
            place = bracket.end()
            continue
        if text[place] == "." and (steps or place == 0):
            place += 1
        elif steps:
            raise _mistake(text)
        name = _NAME.match(text, place)
        if name is None:
            raise _mistake(text)
        steps.append(name[0].strip())
        place = name.end()
    if not steps:
        raise _mistake(text)
    return tuple(steps)


def find(document: Any, path: Path) -> Any:
    """What is there; LookupError with the step that leads nowhere."""
    here = document
    for step in path:
        if not _leads(here, step):
            raise LookupError(f"no {step!r} in {kind(here)}")
        here = here[step]
    return here


def _leads(here: Any, step: str | int) -> bool:
    if isinstance(here, dict):
        return isinstance(step, str) and step in here
    return isinstance(here, list) and isinstance(step, int) and -len(here) <= step < len(here)


def kind(value: Any) -> str:
    """What something of a document is, in words."""
    if isinstance(value, dict):
        return "an object with " + (", ".join(map(repr, list(value)[:5])) or "no keys")
    if isinstance(value, list):
        return f"a list of {len(value)}"
    return "null" if value is None else "a text" if isinstance(value, str) else "a number"


def _bracketed(found: re.Match[str]) -> str | int:
    if found[1] is not None:
        return int(found[1])
    if found[2] is not None:
        return _ESCAPED.sub(r"\1", found[2])
    return found[3]


def _mistake(text: str) -> UsageError:
    return UsageError(
        f"expected a path such as 'results[0].loss' or '[\"lm loss\"].last', found {text!r}",
        next_command="edit hunt.toml",
    )
