"""Advice: commands that a person may paste next. Pure."""

from __future__ import annotations

import shlex


def show(point: str, *, stage: str = "", journal: str = "", log: bool = False) -> str:
    """`karat hunt show` of one point."""
    words = [*(["--stage", stage] if stage else []), *(["--log"] if log else [])]
    words += ["--journal", journal] if journal else []
    # A value may look like an option: -1, -h.
    named = [*words, "--", point] if point.startswith("-") else [point, *words]
    return shlex.join(["karat", "hunt", "show", *named])


def resume(journal: str, *, budget: int = 0) -> str:
    """`karat hunt resume`; with a larger budget where that is what stopped the hunt."""
    more = ["--max-runs", str(budget)] if budget else []
    return shlex.join(["karat", "hunt", "resume", journal, *more])
