"""A line on a terminal that says how many bytes are done."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import IO

_SOON = 64 << 20
"""Less than this is done before anyone has read the line."""


def bytes_bar(stream: IO[str], verb: str) -> Callable[[int, int], None] | None:
    """Someone to tell how far it is, or None where nobody looks."""
    if not stream.isatty() or os.environ.get("TERM") == "dumb":
        return None

    def show(done: int, total: int) -> None:
        if total >= _SOON:
            end = "\r\033[K" if done >= total else ""
            stream.write(f"\r{verb} {done / 1e6:,.0f}/{total / 1e6:,.0f} MB{end}")
            stream.flush()

    return show
