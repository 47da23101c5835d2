"""Backends: where a store's objects lie, and the few things every kind of place must be able to do.

A backend is asked by many threads at once. What it is asked for and does not have is `Absent`; what goes
wrong otherwise is `CannotVerify` in karat's voice, after it has tried again as often as is sensible.
Third parties register theirs under the entry point `karat.stores`: a callable from a URL to a `Backend`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

STAGING, TOUCHING = ".staging/", "touching/"
"""Where backends make things that have no name yet; what is old there was left by the killed."""


class Absent(Exception):  # noqa: N818 - a state of the store, not a bug
    """There is nothing under this key."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


class Stored(msgspec.Struct, frozen=True):
    """One thing in a store."""

    key: str
    size: int
    modified: float
    """Seconds since 1970, by the clock of whoever keeps it."""


class Backend(Protocol):
    """A folder or a bucket; keys are `/`-separated and plain ASCII."""

    url: str
    """As a person would type it; no credentials are in it."""

    def put(self, key: str, data: bytes | memoryview, *, replace: bool = False) -> bool:
        """Puts it there whole; False, and nothing happens, if there is one already and it may not be replaced."""

    def get(self, key: str) -> bytes:
        """All of it."""

    def head(self, key: str) -> Stored | None:
        """What is under the key, if anything is."""

    def list(self, prefix: str) -> Iterator[Stored]:
        """Everything whose key starts with the prefix, which ends in a slash; in any order."""

    def copy(self, source: str, target: str) -> None:
        """A second one, made where the first lies; what was at the target is replaced."""

    def touch(self, key: str) -> None:
        """Makes it as young as if it had just been put there; it is readable all the while."""

    def delete(self, keys: Sequence[str]) -> None:
        """Takes them away; those that are not there are not missed."""

    def local(self, key: str) -> Path | None:
        """A file of this machine that holds it, and can be read in place."""

    def look(self, key: str) -> str:
        """The command with which a person looks at it."""
