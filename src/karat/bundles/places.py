"""Places: where captured cases are, and what every kind of place can do.

A place lists files by their path and hands out their bytes; it judges nothing and writes nothing. Folders
and zips are here, snapshots of a store in `karat.store`. `karat.bundles.cases` finds the cases in one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

from karat.findings import Finding
from karat.tensors.tensor import Extent


class Place(Protocol):
    """Files under `/`-separated names that have been looked at: no `..`, no links, no two that collide."""

    name: str
    """As the user typed it."""
    kind: Literal["folder", "zip", "store"]

    def files(self) -> Mapping[str, int]:
        """Path → size, sorted."""

    def extent(self, path: str) -> Extent:
        """The bytes of one file; a read raises `Damaged` if they are not whole."""

    def read(self, path: str, limit: int = 64 << 20) -> bytes:
        """A small file whole; `Damaged` if it is larger than the limit, or not whole."""

    def findings(self) -> tuple[Finding, ...]:
        """What is wrong with the place itself: a link in a folder, an index that does not fit."""

    def close(self) -> None:
        """Lets go of everything."""
