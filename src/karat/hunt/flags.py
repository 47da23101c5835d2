"""Flags: what is odd about a point's attempts: shared, flaky, never rebuilt. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from karat.changes.series import Outcome
from karat.hunt.attempt import Attempt
from karat.hunt.point import Point

FILES = "files.sha256"
"""The name under which an identity has the hash of all built files."""
REBUILT = "nothing was rebuilt"
_TOLD = ("commit.", "image", "package.", "value")


def flags(tried: Sequence[tuple[Point, Sequence[Attempt]]]) -> dict[str, tuple[str, ...]]:
    """Point → its flags, of points in the order of their timeline."""
    found: dict[str, list[str]] = {}
    before: tuple[Point, Attempt] | None = None
    for point, attempts in tried:
        said = [*_shared(attempts), *_flaky(attempts)]
        newest = next((a for a in reversed(attempts) if a.identity), None)
        if newest is not None:
            if before is not None and same_binary(before[1], newest):
                said.append(f"same binary as {before[0].label}: {REBUILT}")
            before = point, newest
        if said:
            found[point.id] = said
    return {name: tuple(said) for name, said in found.items()}


def same_binary(old: Attempt, new: Attempt) -> bool:
    """Whether two attempts, of what should be different things, had the very same files under test."""
    files = old.identity.get(FILES)
    if not files or files != new.identity.get(FILES):
        return False
    return _named(old) != _named(new)


def _named(attempt: Attempt) -> dict[str, str]:
    return {k: v for k, v in attempt.identity.items() if k != FILES and k.startswith(_TOLD)}


def _shared(attempts: Sequence[Attempt]) -> list[str]:
    sources = dict.fromkeys(a.shared_with for a in attempts if a.shared_with)
    return [f"shared with {name}: the very same thing was under test" for name in sources]


def _flaky(attempts: Sequence[Attempt]) -> list[str]:
    """Failures at a point that also succeeded; what could not be tried is no evidence either way."""
    tried = [a for a in attempts if a.outcome in (Outcome.OK, Outcome.CRASH, Outcome.HANG)]
    failed = sum(attempt.outcome is not Outcome.OK for attempt in tried)
    return [f"flaky: {failed} of {len(tried)} failed"] if 0 < failed < len(tried) else []
