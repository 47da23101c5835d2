"""Words: how numbers, paths and counts are written in every report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import isnan

from karat.compare.change import Change, Diff, Verdict
from karat.findings import Severity


def number(value: float | None) -> str:
    """A number for a table: short, sign kept."""
    if value is None:
        return ""
    if value == 0:
        return "0"
    return f"{value:.2e}" if abs(value) < 1e-2 or abs(value) >= 1e4 else f"{value:.4f}"


def signed(value: float | None) -> str:
    """A number whose direction matters."""
    if value is None:
        return ""
    text = number(value)
    return f"+{text}" if value > 0 else text


def magnitude(value: float | None) -> float:
    """|value| for ranking and buckets: none is 0, and what is no number is beyond them all."""
    if value is None:
        return 0.0
    return float("inf") if isnan(value) else abs(value)


def count(n: int, noun: str) -> str:
    """`1 file`, `2 files`, `3 entries`, `4 days`."""
    changes = noun.endswith("y") and not noun.endswith(("ay", "ey", "oy"))
    plural = f"{noun[:-1]}ies" if changes else f"{noun}s"
    return f"{n:,} {noun if n == 1 else plural}"


def verdict_counts(changes: Iterable[Change]) -> str:
    """`2 incomplete, 27 drift`, gravest first."""
    tally = Counter(change.verdict for change in changes)
    return ", ".join(f"{tally[v]:,} {v.value}" for v in Verdict if tally[v])


def severity_counts(diff: Diff) -> str:
    """`2 fail, 14 warn, 3 info`."""
    tally = Counter(f.severity for f in diff.all_findings())
    return ", ".join(f"{tally[s]:,} {s.value}" for s in Severity if tally[s])


def short_path(path: str, root: str) -> str:
    """The path below the folder that all goldens share."""
    return path[len(root) + 1 :] if root and path.startswith(root + "/") else path


def printable(text: str) -> str:
    """Text without control characters or lone surrogates: file names are not to be trusted."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    # GitHub's log takes `##[…]` for a command wherever it stands.
    return shown.replace("##[", "## [")


def elide(text: str, room: int) -> str:
    """The text with its middle left out, so that it fits."""
    if len(text) <= room:
        return text
    tail = (room - 1) * 2 // 3
    return f"{text[: room - 1 - tail]}…{text[len(text) - tail :]}"


def labels(diff: Diff) -> dict[str, str]:
    """Path → the shortest name that is still one golden's alone: model/case where it is known."""
    names: dict[str, str] = {}
    taken: dict[tuple[str, str], int] = {}
    for change in diff.changes:
        case, platform = change.identity.get("case"), change.identity.get("platform", "")
        if case:
            model = change.identity.get("model")
            names[change.path] = f"{model}/{case}" if model else case
            key = (names[change.path], platform)
            taken[key] = taken.get(key, 0) + 1
    return {
        change.path: names[change.path]
        if taken.get((names.get(change.path, ""), change.identity.get("platform", ""))) == 1
        else short_path(change.path, diff.root)
        for change in diff.changes
    }
