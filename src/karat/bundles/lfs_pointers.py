"""Git LFS pointers: small texts that lie where a file should, until somebody fetches it."""

from __future__ import annotations

import re

from karat.bundles.extents import read_all
from karat.tensors.tensor import Damaged, Extent

LONGEST = 1024
_POINTER = re.compile(
    rb"version https://git-lfs\.github\.com/spec/[^\n]*\n(?:ext-[^\n]*\n)*oid sha256:([0-9a-f]{64})\nsize (\d{1,18})\n"
)
FETCH = "git lfs pull"


def pointer(data: bytes) -> tuple[str, int] | None:
    """sha256 and size of the file that a pointer stands for; None for what is no pointer."""
    match = _POINTER.fullmatch(data) if len(data) <= LONGEST else None
    return None if match is None else (match[1].decode(), int(match[2]))


def pointed_size(extent: Extent, name: str) -> int | None:
    """The size of the file that an extent only points to; None for what is no pointer, or cannot be read."""
    if extent.size > LONGEST:
        return None
    try:
        found = pointer(read_all(extent, name=name))
    except Damaged:
        return None
    return None if found is None else found[1]


def not_fetched(size: int) -> str:
    """What is said of a pointer, after the name of the file."""
    return f"expected {size:,} bytes, found a Git LFS pointer to them, and they were not fetched"
