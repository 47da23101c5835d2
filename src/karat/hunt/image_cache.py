"""Image cache: how much disk the images of a hunt may take.

Known are only images that this hunt has pulled: what was there before it is never removed, nor is what was asked for last,
since a job that is under way may be about to use it. Engines refuse to remove what a container uses. Sizes are the
engine's own; layers that images share are counted for each of them, so that the limit is never passed by them.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

Sizes = Callable[[Sequence[str]], Mapping[str, int]]
"""Bytes of those images that are here."""


class ImageCache:
    """The images that a hunt has pulled onto this machine, oldest use first."""

    def __init__(self, file: Path, limit: int, sizes: Sizes, *, keep: int) -> None:
        self._file, self._limit, self._sizes, self._keep = file, limit, sizes, keep
        self._lock = threading.Lock()
        self._images = _read(file)

    def use(self, image: str) -> tuple[str, ...]:
        """Notes that an image is used now; returns those that should be removed first."""
        if not self._limit:
            return ()
        with self._lock:
            sizes = self._sizes([image, *self._images])
            if image in sizes and image not in self._images:
                return ()  # it was here before the hunt
            self._images = [one for one in self._images if one in sizes and one != image]
            surplus = over_limit(
                [(one, sizes[one]) for one in self._images], self._limit, self._keep
            )
            self._images = [*(one for one in self._images if one not in surplus), image]
            _write(self._file, self._images)
            return surplus

    def expect(self, image: str) -> None:
        """Notes that an image is about to be pulled, before it is used."""
        if not self._limit:
            return
        with self._lock:
            if image not in self._images and image not in self._sizes([image]):
                self._images.append(image)
                _write(self._file, self._images)


def over_limit(images: Sequence[tuple[str, int]], limit: int, keep: int) -> tuple[str, ...]:
    """The oldest images that must go, so that the others stay below a limit; the newest `keep` stay. Pure."""
    total = sum(size for _, size in images)
    gone = []
    for image, size in images[: max(0, len(images) - keep)]:
        if total <= limit:
            break
        gone.append(image)
        total -= size
    return tuple(gone)


def _read(file: Path) -> list[str]:
    try:
        return msgspec.json.decode(file.read_bytes(), type=list[str])
    except (OSError, ValueError):
        return []  # then nothing is known to be the hunt's, and nothing is removed


def _write(file: Path, images: Sequence[str]) -> None:
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        beside = file.with_suffix(".new")
        beside.write_bytes(msgspec.json.encode(images))
        os.replace(beside, file)  # noqa: PTH105 - one of the two would do; this one says that it replaces
