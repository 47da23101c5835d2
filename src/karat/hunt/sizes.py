"""Sizes: `50 GB`, `512 MiB`, `1000`: bytes, decimal or binary as the unit says."""

from __future__ import annotations

import re

from karat.findings import UsageError

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
          "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}  # fmt: skip
_DIGITS = 18
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")


def size(text: str) -> int:
    """How many bytes that is; an empty text is 0."""
    if not text.strip():
        return 0
    found = _SIZE.fullmatch(text.strip())
    unit = _UNITS.get(found[2].upper()) if found else None
    if found is None or unit is None or len(found[1]) > _DIGITS:
        raise UsageError(
            f"expected a size such as '50 GB' or '512 MiB', found {text!r}",
            next_command="edit hunt.toml",
        )
    return int(float(found[1]) * unit)
