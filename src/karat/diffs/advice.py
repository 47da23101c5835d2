"""Advice: the exact command to run next, for every finding.

`compare` is pure and does not know where the two sides came from; this is where they meet.
"""

from __future__ import annotations

import os
import shlex
from dataclasses import replace

from karat.compare.change import Change
from karat.diffs.sides import Bundles, OneFile, Revision, Side, WorkTree
from karat.findings import Finding


def quoted(text: str) -> str:
    """Text as one word of a shell command that a person can read, and run as it stands."""
    if text.isprintable():
        return shlex.quote(text)
    # A control character in a file name must reach the shell, but not the terminal.
    raw = os.fsencode(text)
    plain = (chr(b) if 32 <= b < 127 and b not in b"\\'" else f"\\x{b:02x}" for b in raw)
    return f"$'{''.join(plain)}'"


def advise(
    change: Change, old: Side, new: Side, preset: str | None = None, store: str | None = None
) -> Change:
    """The change with `next` filled in on each finding that has none."""
    if not change.findings:
        return change
    findings = tuple(
        f
        if f.next
        else replace(f, next=_next(f, change, old, new, _again(old, new, preset, store)))
        for f in change.findings
    )
    return replace(change, findings=findings)


def _again(old: Side, new: Side, preset: str | None, store: str | None) -> list[str]:
    """The options without which the same sides would be judged otherwise, or not be found."""
    words = ["--preset", preset] if preset else []
    in_store = any(
        isinstance(side, Bundles) and side.word.startswith("store:") for side in (old, new)
    )
    return [*words, "--store", quoted(store)] if store and in_store else words


def _next(finding: Finding, change: Change, old: Side, new: Side, again: list[str]) -> str:
    if isinstance(new, WorkTree):
        name = quoted(new.up + change.path)
        if finding.condemns:
            if change.has_baseline:
                return f"git restore --source={quoted(old.name)} -- {name}"
            # New, perhaps already staged: neither `git clean` nor `git restore` knows both.
            return f"git rm --cached --quiet --ignore-unmatch -- {name} && rm -- {name}"
        if finding.kind == "new-golden":
            return f"git add -- {name}"
    words = ["karat", "diff", *_sides(old, new), *again]
    if not isinstance(new, OneFile):
        words += ["--only", quoted(change.path)]
    if finding.metric and finding.kind == "value-drift":
        words += ["--only-metric", quoted(finding.metric)]
    return " ".join([*words, "--html", "report.html"])


def _sides(old: Side, new: Side) -> list[str]:
    if isinstance(new, WorkTree):
        return [] if isinstance(old, Revision) and old.name == "HEAD" else [quoted(old.name)]
    return [quoted(old.name), quoted(new.name)]
