"""Log files: which files a glob, a folder or a name means, and what is in them, packed by gzip or not.

Links to folders are not followed, so that none is a loop.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path
from shlex import quote
from typing import BinaryIO

from karat.findings import UsageError
from karat.goldens.paths import glob_regex

_WILD = frozenset("*?{")
_PACKED = b"\x1f\x8b"
_MOST = 1 << 28
"""Bytes that a packed log may have: a small file can unpack to any size."""


def find_logs(words: Sequence[str], root: Path) -> tuple[str, ...]:
    """The files that the words mean, as paths seen from `root`; each once."""
    found: dict[str, None] = {}
    for word in words:
        matches = sorted(_meant(word, root))
        if not matches:
            raise UsageError(
                f"expected --logs to be a glob, a folder or a file, found nothing that {word!r} means",
                next_command=f"ls -ld {quote(_base(word) or '.')}",
            )
        found.update(dict.fromkeys(matches))
    return tuple(found)


def _meant(word: str, root: Path) -> Iterator[str]:
    path = root / word
    if path.is_dir():
        for name in os.listdir(path):  # noqa: PTH208 - names, also of those that are no UTF-8
            if (path / name).is_file() and not name.startswith("."):
                yield f"{word.rstrip('/')}/{name}" if word not in {"", "."} else name
    elif path.is_file():
        yield word
    elif _WILD & set(word):
        yield from _glob(word, root)


def _base(word: str) -> str:
    """The folders before the first wild card."""
    parts = word.split("/")[:-1]
    wild = next((n for n, part in enumerate(parts) if _WILD & set(part)), len(parts))
    return "/".join(parts[:wild])


def _glob(word: str, root: Path) -> Iterator[str]:
    base = _base(word)
    start = f"{base}/" if base else ("/" if word.startswith("/") else "")
    pattern = glob_regex(word)
    depth = None if "**" in word else word.count("/")
    for folder, folders, names in os.walk(root / (start or ".")):
        below = Path(folder).relative_to(root / (start or ".")).as_posix()
        here = start if below == "." else f"{start}{below}/"
        if depth is not None and here.count("/") >= depth:
            folders.clear()
        for name in names:
            path = f"{here}{name}"
            if pattern.fullmatch(path) and (root / path).is_file():
                yield path


def opened(path: Path) -> BinaryIO:
    """The bytes of a log, unpacked if it is packed."""
    with path.open("rb") as stream:
        packed = stream.read(2) == _PACKED
    return BytesIO(_unpacked(path)) if packed else path.open("rb")


def _unpacked(path: Path) -> bytes:
    import gzip  # noqa: PLC0415 - few logs are packed

    with gzip.open(path) as stream:
        data = stream.read(_MOST + 1)
    if len(data) > _MOST:
        raise OSError(f"it unpacks to more than {_MOST >> 20} MiB")
    return data


def tail_of(path: Path, room: int) -> bytes:
    """The end of a log, which is where a program says what it died of."""
    with opened(path) as stream:
        head = stream.read(2)
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(size - room, 0))
        data = stream.read(room)
    utf16 = head in {b"\xff\xfe", b"\xfe\xff"} and size > room
    return head + data if utf16 else data
