"""A glance at a file: its facts where it can matter, else only what it imports.

A class is an op test because its bases lead to a root. In the file that spells the root's name, that name stands
as a word; in any other, the way leads over an import of a file that matters. So a file with neither needs no
parser, and a file with an import is parsed once the file that it imports is known to matter.
"""

from __future__ import annotations

import re
from collections.abc import Collection

import msgspec

from karat.policy.scan_facts import facts_of
from karat.policy.scan_shapes import FileFacts
from karat.policy.scan_source import words
from karat.policy.scan_vocabulary import MARK, ROOT_MARK

# Whatever may be an import statement, in strings and comments as well: too much does no harm.
_IMPORT = re.compile(
    rb"\b(?:from|import)\b((?:[^\n;()\\]|\\\r?\n|\\|\((?:\#[^\n]*|[^\#)])*\)?)*)", re.DOTALL
)
_WORDS = re.compile(rb"[^\W\d]\w*", re.ASCII)
_RELATIVE = re.compile(rb"\s*\.+\s*(?:\\\r?\n\s*)?import\b")


class Glance(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one file came to."""

    path: str
    facts: FileFacts | None = None
    """None for a file that can only matter through its imports."""
    imports: tuple[str, ...] = ()
    """Words of its import statements; `.` for an import from its own package."""
    error: str = ""
    """Why its bytes could not be had."""
    marked: bool = False
    """It names something of op tests."""
    rooted: bool = False
    """It names a root, or something like one."""


def glance(path: str, roots: Collection[str] = ()) -> Glance:
    """Read a file, and parse it if it names what op tests are made of."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - a path may not be UTF-8, and there are thousands
            source = file.read()
    except OSError as error:
        return Glance(path=path, error=error.strerror or str(error))
    plain = words(source)
    named = any(root.rpartition(".")[2].encode() in plain for root in roots)
    if named or MARK.search(plain):
        rooted = named or ROOT_MARK.search(plain) is not None
        return Glance(path=path, facts=facts_of(source, path), marked=True, rooted=rooted)
    return Glance(path=path, imports=imported_words(plain))


def imported_words(source: bytes) -> tuple[str, ...]:
    """Every word that an import statement of the file may hold."""
    found: set[bytes] = set()
    for match in _IMPORT.finditer(source):
        statement = match[1]
        found.update(_WORDS.findall(statement))
        if _RELATIVE.match(statement):
            found.add(b".")
    return tuple(sorted(word.decode() for word in found))


def parsed(path: str) -> FileFacts:
    """The facts of a file that turned out to matter."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            return facts_of(file.read(), path)
    except OSError as error:
        return FileFacts(path=path, problem=error.strerror or str(error))
