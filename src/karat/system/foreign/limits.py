"""Limits: how much of a stranger's file karat takes before it says no.

Each is an environment variable, and not a key of karat.toml: a clone could raise what it can configure.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import NamedTuple

from karat.findings import UsageError
from karat.system.command import Command


class Limit(NamedTuple):
    """One limit; a message that names it ends with `setting`."""

    variable: str
    default: int
    least: int = 1
    most: int = 10**12
    unit: int = 1
    """What the variable counts: 1 << 20 for megabytes."""

    def value(self, env: Mapping[str, str] | None = None) -> int:
        """The limit in force."""
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
GOLDEN = Limit("KARAT_MAX_GOLDEN_MB", 64, unit=_MB)
"""Bytes of one golden."""
COLUMNS = Limit("KARAT_MAX_COLUMNS", 10_000)
"""Columns of a table."""
UNPACKED = Limit("KARAT_MAX_UNPACKED_MB", 1024, unit=_MB)
"""Bytes that one member of an archive may unpack to."""
RATIO = Limit("KARAT_MAX_RATIO", 100)
"""How many times its packed size a member of more than a few megabytes may unpack to."""
LOG = Limit("KARAT_MAX_LOG_MB", 256, unit=_MB)
"""Bytes that a compressed log may unpack to."""
ROWS = Limit("KARAT_MAX_ROWS", 1_000_000)
"""Rows that a query of an SQLite file may give; its time is bounded by a multiple of them."""
