"""Identities: whether what was under test is what was asked for. Pure.

The trap: a checkout moves, a build does nothing, and every point measures the same old binary. Whoever lets `identify`
print `commit.NAME` (or hashes the built files; see `hunt.flags`) learns of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from karat.hunt.point import Point

_COMMIT = re.compile(r"[0-9a-f]{7,64}")
_SHORT = 10


def another_than_asked(point: Point, identity: Mapping[str, str]) -> str:
    """A sentence, if a repository was under test at another commit than the point's; else nothing."""
    for name, asked in point.parts.items():
        found = identity.get(f"commit.{name}", asked)
        if _COMMIT.fullmatch(asked) and _COMMIT.fullmatch(found) and not _same(asked, found):
            return f"asked for {name} {asked[:_SHORT]}, and {name} {found[:_SHORT]} was under test: nothing was rebuilt"
    return ""


def _same(one: str, other: str) -> bool:
    """Whether two commit ids are one, of which either may be shortened."""
    return one.startswith(other) or other.startswith(one)
