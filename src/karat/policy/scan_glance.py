"""A glance at a file: its facts where it can matter, else only what it imports.

A class is an op test because its bases lead to a root. In the file that spells the root's name, that name stands
as a word; in any other, the way leads over an import of a file that matters. So a file with neither needs no
parser, and a file with an import is parsed once the file that it imports is known to matter, and it spells a name
that means an op test there.
"""

from __future__ import annotations

import re
from collections.abc import Collection

import msgspec

from karat.policy.scan_facts import facts_of
from karat.policy.scan_imports import Tangled, imported_modules
from karat.policy.scan_shapes import FileFacts
from karat.policy.scan_source import words
from karat.policy.scan_vocabulary import MARK

_WORDS = re.compile(rb"[\w\x80-\xff]+")


class Glance(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one file came to."""

    path: str
    facts: FileFacts | None = None
    """None for a file that can only matter through its imports."""
    imports: tuple[str, ...] = ()
    """Modules that it may import, as its statements name them."""
    error: str = ""
    """Why its bytes could not be had."""
    marked: bool = False
    """It names something of op tests."""


def glance(path: str, roots: Collection[str] = ()) -> Glance:
    """Read a file, and parse it if it names what op tests are made of."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - a path may not be UTF-8, and there are thousands
            source = file.read()
    except OSError as error:
        return Glance(path=path, error=error.strerror or str(error))
    plain = words(source)
    marked = MARK.search(plain) is not None
    if marked or any(root.rpartition(".")[2].encode() in plain for root in roots):
        return Glance(path=path, facts=facts_of(source, path), marked=True)
    try:
        return Glance(path=path, imports=tuple(sorted(imported_modules(plain))))
    except Tangled:
        return Glance(path=path, facts=facts_of(source, path))


def spelled(path: str) -> frozenset[str]:
    """Every word of a file; nothing where it went away meanwhile."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            found = set(_WORDS.findall(words(file.read())))
    except OSError:
        return frozenset()
    return frozenset(word.decode("utf-8", "replace") for word in found)


def parsed(path: str) -> FileFacts:
    """The facts of a file that turned out to matter."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            return facts_of(file.read(), path)
    except OSError as error:
        return FileFacts(path=path, problem=error.strerror or str(error))
