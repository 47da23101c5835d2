"""Lines: the commits from one to another, in an order in which each step is as small as it can be.

Where the newer one descends from the older, that is the first-parent line between them (or, with `all`, every commit that
descends from the one and leads to the other). Where it does not (a branch was rewritten, cut or set back), the line goes
back to what both have in common, and forward from there; each step then takes a commit away, or adds one.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from karat.hunt.history import Commit, believed
from karat.hunt.mirrors import Mirror


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """The commits after the old one, up to the new one; empty where both are the same."""

    commits: tuple[Commit, ...]
    notes: tuple[str, ...] = ()
    """Sentences: what is odd about it."""


def line_between(mirror: Mirror, old: str, new: str, *, every: bool = False) -> Line:
    """The line from one commit to another."""
    if old == new:
        return Line(commits=())
    base = mirror.merge_base(old, new)
    if base is None:
        note = (
            f"{mirror.name}: {old[:12]} and {new[:12]} have no history in common"
            f"{_because_cut(mirror)}; nothing can be put between them"
        )
        return Line(commits=_ended([], new, mirror), notes=(note,))
    if base == old:
        return _forward(mirror, old, new, every=every)
    back = [*reversed(mirror.listed("--first-parent", old, f"^{base}")[0][:-1])]
    forward = _forward(mirror, base, new, every=every) if base != new else None
    steps = [*back, *mirror.listed("--no-walk", base)[0], *(forward.commits if forward else ())]
    return Line(
        commits=_in_order(steps),
        notes=(_said_of(mirror, old, new, base), *(forward.notes if forward else ())),
    )


def branch_of_merge(mirror: Mirror, old: str, new: str) -> tuple[str, Line] | None:
    """What a merge brought: the commit its branch left from, and the branch's own line.

    None unless `new` is a merge of `old` and exactly one branch that has commits of its own; which of the two was
    checked out when they were merged says nothing of what came new (`git pull` makes it the wrong way round).
    """
    parents = mirror.parents(new)
    if old not in parents:
        return None
    sides = [side for side in parents if side != old]
    lines = [mirror.listed("--first-parent", side, f"^{old}")[0] for side in sides]
    own = [line for line in lines if line]
    if len(own) != 1:
        return None
    commits = own[0]
    base = next(iter(mirror.parents(commits[0].id)), None)
    if base is None:
        # An unrelated history was merged: before its first commit there is nothing to run.
        base, commits = commits[0].id, commits[1:]
    return base, Line(commits=tuple(commits))


def _forward(mirror: Mirror, old: str, new: str, *, every: bool) -> Line:
    words = ("--topo-order", "--ancestry-path") if every else ("--first-parent",)
    commits, _ = mirror.listed(*words, new, f"^{old}")
    beside = not every and old not in mirror.parents(commits[0].id)[:1]
    if beside:
        # Those of the line that lack the old one would be steps back.
        on_the_way = {c.id for c in mirror.listed("--ancestry-path", new, f"^{old}")[0]}
        commits = [commit for commit in commits if commit.id in on_the_way]
    line = Line(commits=_ended(commits, new, mirror))
    notes = []
    if every and _branches(mirror, old, new):
        notes.append(
            f"{mirror.name}: the commits from {old[:12]} to {new[:12]} are not one line; one that was made beside another "
            'does not have it, so a change may show as a dip (history = "first-parent" looks into merges one by one)'
        )
    elif beside:
        first = line.commits[0].id
        notes.append(
            f"{mirror.name}: {old[:12]} is not on the first-parent line of {new[:12]}; "
            f"the step from it to {first[:12]} is more than one commit"
        )
    return msgspec.structs.replace(line, notes=tuple(notes))


def _branches(mirror: Mirror, old: str, new: str) -> bool:
    """Whether a merge lies between them."""
    return bool(mirror.listed("--merges", "--ancestry-path", new, f"^{old}")[0])


def _said_of(mirror: Mirror, old: str, new: str, base: str) -> str:
    if base == new:
        return (
            f"{mirror.name}: the newer point has an older commit ({new[:12]}, before {old[:12]}); "
            "the line goes back, and each step takes a commit away"
        )
    return (
        f"{mirror.name}: {new[:12]} does not descend from {old[:12]} (a rewritten or another branch); the line goes back "
        f"to {base[:12]}, which both have, and forward from there"
    )


def _because_cut(mirror: Mirror) -> str:
    cut = mirror.shallow_at
    return f" (the history is cut off at {cut[:12]}: a shallow clone)" if cut else ""


def _ended(commits: Sequence[Commit], new: str, mirror: Mirror) -> tuple[Commit, ...]:
    """The line with its end, also where a listing leaves it out."""
    whole = (
        list(commits)
        if commits and commits[-1].id == new
        else [*(c for c in commits if c.id != new), *mirror.listed("--no-walk", new)[0]]
    )
    return _in_order(whole)


def _in_order(commits: Sequence[Commit]) -> tuple[Commit, ...]:
    times = believed([commit.time for commit in commits])
    return tuple(Commit(c.id, time) for c, time in zip(commits, times, strict=True))
