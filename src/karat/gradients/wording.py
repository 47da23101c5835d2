"""Wording: what a function or a framework raised, in one line."""

from __future__ import annotations

_LONGEST = 300


def said(error: Exception) -> str:
    """The kind of an error, and the first line of what it says."""
    lines = str(error).strip().splitlines()
    kind = type(error).__name__
    return f"{kind}: {lines[0][:_LONGEST]}" if lines else kind
