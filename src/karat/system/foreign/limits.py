"""Limits: how much of a stranger's file karat takes before it says no, and reading one up to there.

Each is an environment variable, and not a key of karat.toml: a clone could raise what it can configure.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from karat.findings import UsageError
from karat.system.command import Command


class Limit(NamedTuple):
    """One limit; a message that names it ends with `setting`."""

    variable: str
    default: int
    least: int = 1
    most: int = 10**12
    unit: int = 1  # What the variable counts: 1 << 20 for megabytes.

    def value(self, env: Mapping[str, str] | None = None) -> int:
        text = (os.environ if env is None else env).get(self.variable)
        if not text:
            return self.default * self.unit
        if not (re.fullmatch("[0-9]{1,13}", text) and self.least <= int(text) <= self.most):
            what = "a number of megabytes" if self.unit > 1 else "a number"
            said = f"expected {what} from {self.least} to {self.most} in {self.variable}, found {text[:40]!r}"
            raise UsageError(said, next_command=Command("unset", self.variable))
        return int(text) * self.unit

    @property
    def setting(self) -> str:
        return f"{self.variable} changes the limit"


_MB = 1 << 20
GOLDEN = Limit("KARAT_MAX_GOLDEN_MB", 64, unit=_MB)  # Bytes of one golden.
VALUES = Limit("KARAT_MAX_VALUES", 1_000_000)
"""Lines, and values between commas, of one golden: what takes its time and memory."""
TEXT = Limit("KARAT_MAX_TEXT_MB", 4, unit=_MB)
"""Bytes of karat.toml, hunt.toml, exemptions.toml, a manifest, a list of keys, and whatever else people write by hand."""
TOML = Limit("KARAT_MAX_TOML_MB", 1, unit=_MB)
"""Characters of a text in TOML, a megabyte of which takes seconds to read."""
INDEX = Limit("KARAT_MAX_INDEX_MB", 32, unit=_MB)
"""Bytes that a package index may answer with; a quarter of them in HTML. PyPI's longest has six megabytes."""
SOURCE = Limit("KARAT_MAX_SOURCE_MB", 32, unit=_MB)  # Bytes of one Python file.
COLUMNS = Limit("KARAT_MAX_COLUMNS", 10_000)  # Columns of a table.
UNPACKED = Limit("KARAT_MAX_UNPACKED_MB", 1024, unit=_MB)  # Bytes that one member of an archive may unpack to.
MEMBERS = Limit("KARAT_MAX_MEMBERS", 20_000)
"""Members of an archive; a zip of captured cases may have 50 times as many."""
TOTAL = Limit("KARAT_MAX_TOTAL_MB", 4096, unit=_MB)
"""Bytes that all wanted members of an archive may unpack to, and of an archive whose size nobody has said."""
DENSE = Limit("KARAT_MAX_DENSE_MB", 64 << 10, unit=_MB)
"""Bytes that members of a zip of captured cases may unpack to, all together, which are packed denser than the ratio."""
RATIO = Limit("KARAT_MAX_RATIO", 100)
"""How many times its packed size a member of more than a few megabytes may unpack to."""
LOG = Limit("KARAT_MAX_LOG_MB", 256, unit=_MB)  # Bytes of a journal, or of what a query of an SQLite file gives.
ROWS = Limit("KARAT_MAX_ROWS", 1_000_000)
"""Rows that a query of an SQLite file may give; its time is bounded by a multiple of them."""


# What a file is opened with where a system has it; Windows would translate ends of lines in what is not opened as binary.
CLOSED = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
NO_FOLLOW: int = getattr(os, "O_NOFOLLOW", 0)
NO_WAIT: int = getattr(os, "O_NONBLOCK", 0)


class TooLong(OSError):  # noqa: N818 - a state of the file
    """A file of more bytes than the limit; none of them was read."""

    def __init__(self, path: str | Path, size: int, limit: Limit) -> None:
        said = f"it has {size:,} bytes, at most {limit.value():,} are taken; {limit.setting}"
        super().__init__(errno.EFBIG, said, str(path))
        self.size = size


def read_plain(path: str | Path, limit: Limit | None = None, *, follow: bool = True) -> bytes:
    """The bytes of a plain file. Whatever else is there is an OSError, as is a file beyond the limit.

    A pipe would wait for ever and a device never end, so it is opened without waiting, and looked at before it is read.
    """
    flags = NO_WAIT | CLOSED | (0 if follow else NO_FOLLOW)
    with open(path, "rb", buffering=0, opener=lambda name, mode: os.open(name, mode | flags)) as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "it is no plain file", str(path))
        if limit is not None and found.st_size > limit.value():
            raise TooLong(path, found.st_size, limit)
        return file.read()
