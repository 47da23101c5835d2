"""Wording: what a function or a framework raised, in one line."""

from __future__ import annotations

from karat.gradients.problem import Unsupported

_LONGEST = 300


def said(error: Exception) -> str:
    """The kind of an error, and the first line of what it says; a refusal of karat's own is said as it is."""
    lines = str(error).strip().splitlines()
    if lines and isinstance(error, Unsupported):
        return lines[0][:_LONGEST]
    kind = type(error).__name__
    return f"{kind}: {lines[0][:_LONGEST]}" if lines else kind
