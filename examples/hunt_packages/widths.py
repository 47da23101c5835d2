"""What wcwidth says of a family of three, and how many lines of Python it runs to measure plain text."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from wcwidth import wcswidth

lines = 0


def count(_frame: FrameType, event: str, _argument: Any) -> Any:
    """One more line; a count is the same on every machine, and a time is not."""
    global lines  # noqa: PLW0603 - a probe of one page
    lines += event == "line"
    return count


print("family:", wcswidth("\N{WOMAN}\u200d\N{WOMAN}\u200d\N{GIRL}"))
wcswidth("plain text")  # what is done only once is done
sys.settrace(count)
wcswidth("plain text")
sys.settrace(None)
print("lines:", lines)
