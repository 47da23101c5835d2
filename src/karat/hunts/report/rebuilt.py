"""What built files say of builds: which repositories were never rebuilt, however far they moved. Pure.

That two neighbouring points have the same built files says little: most commits are about tests and texts. That a repository
moves, and moves, and no build of its own ever comes out, is the trap: every point then measures the same old binary.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from karat.engines.files import FILES
from karat.hunts.model import Attempt

_MOVES = 4  # So many commits without a build of their own, and be they about texts, are no chance any more.


def never_rebuilt(attempts: Iterable[Attempt]) -> dict[str, int]:
    """Repository → through how many commits it moved while its built files stayed the same; of those alone that were never rebuilt.

    Its own files are those in its folder (`files.NAME`); beside them count points between which nothing else moved.
    """
    seen = [attempt.identity for attempt in attempts if FILES in attempt.identity]
    found = {}
    for key in dict.fromkeys(name for identity in seen for name in identity if name.startswith("commit.")):
        name = key.removeprefix("commit.")
        own = {identity.get(f"files.{name}") for identity in seen} - {None}
        alone: dict[tuple[str, ...], dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        for identity in seen:
            if key in identity:
                alone[_others(identity, key)][identity[FILES]].add(identity[key])
        moved = sum(len(set().union(*builds.values())) - 1 for builds in alone.values())
        if len(own) == 1:
            moved = max(moved, len({identity[key] for identity in seen if key in identity}) - 1)
        if len(own) < 2 and all(len(builds) == 1 for builds in alone.values()) and moved >= _MOVES:
            found[name] = moved
    return found


def _others(identity: Mapping[str, str], but: str) -> tuple[str, ...]:
    """What else was to be under test: commits, image, packages, value."""
    told = ("commit.", "image", "package.", "value")
    return tuple(f"{n}={v}" for n, v in sorted(identity.items()) if n != but and n.startswith(told))
