"""Every reader of what others wrote: seeds that it accepts, and a call that must end in an answer or in one of karat's own errors.

A reader is made in the process that uses it, with a folder of its own. What karat's error tree does not name and a
reader's docstring does (`Damaged`, `Unusable`, …) is one of its `others`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from karat.findings import KaratError

Read = Callable[[bytes], object]


@dataclass(frozen=True)
class Reader:
    """Seeds, the call, and what else than `KaratError` it may raise."""

    seeds: Sequence[bytes]
    read: Read
    others: tuple[type[Exception], ...] = ()

    @property
    def told(self) -> tuple[type[Exception], ...]:
        """All that it may raise."""
        return (KaratError, *self.others)


Make = Callable[[Path], Reader]
READERS: dict[str, Make] = {}
"""By name. Each gets a folder of its own."""


def reader(name: str) -> Callable[[Make], Make]:
    def register(make: Make) -> Make:
        READERS[name] = make
        return make

    return register


def in_file(path: Path, read: Callable[[Path], object]) -> Read:
    """The same for what is read from a file."""

    def call(data: bytes) -> object:
        path.write_bytes(data)
        return read(path)

    return call


def text_of(read: Callable[[str], object]) -> Read:
    return lambda data: read(data.decode("utf-8", "replace"))
