"""Pairing: which waivers of the new side the old side had already. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping

from karat.policy.changed_policies_waiver import PolicyChange, Waiver

Key = Callable[[Waiver], Hashable]


def changes(
    old: Iterable[Waiver], new: Iterable[Waiver], renamed: Mapping[str, str] | None = None
) -> list[PolicyChange]:
    """What the new side grants and the old one did not, in the new side's order.

    `renamed`: new path → old path. Each old waiver explains one new one: what stands unchanged in its file, or
    moved to another with all of its definition, is no change, and neither is what became stricter or went away.
    """
    home = renamed or {}
    table = _Table(old)
    waiting = list(new)
    pool = {id(w): home.get(w.path, w.path) for w in waiting}

    def place(waiver: Waiver) -> str:
        return pool.get(id(waiver), waiver.path)

    waiting = table.strike(waiting, lambda w: (place(w), w.identity, w.grant))
    waiting = table.strike(waiting, _moved)
    found: dict[int, PolicyChange] = {}
    # The laxest first, so that a stricter one does not use up what would have excused it.
    for waiver in sorted(waiting, key=_laxness):
        before = table.take(waiver, lambda w: (place(w), w.identity))
        if before is None:
            found[id(waiver)] = _renamed(waiver, table, place)
        elif not waiver.no_laxer_than(before):
            found[id(waiver)] = PolicyChange(waiver=waiver, before=before)
    return [found[id(w)] for w in waiting if id(w) in found]


def _moved(waiver: Waiver) -> Hashable | None:
    """The same in another file: only a whole definition can be known again."""
    return (waiver.identity, waiver.grant, waiver.body) if waiver.body and waiver.scope else None


def _laxness(waiver: Waiver) -> tuple[float, ...]:
    return tuple(-amount for amount in waiver.amounts)


def _renamed(waiver: Waiver, table: _Table, place: Callable[[Waiver], str]) -> PolicyChange:
    """An addition, unless the same stood on a class or an op of another name."""
    before = table.take(waiver, lambda w: (place(w), w.rule, w.kind, w.scope, w.about, w.grant))
    if before is not None:
        note = (
            f"it was about op {before.op or '(unnamed)'}, and is about {waiver.op or '(unnamed)'}"
        )
        return PolicyChange(waiver=waiver, before=before, note=note)
    before = table.take(waiver, lambda w: (place(w), w.rule, w.kind, w.about, w.grant))
    if before is not None:
        stood = (
            f"it stood on {before.scope or 'the module'}; under another name it is approved again"
        )
        note = f"its scope was {before.scope}" if waiver.kind == "exemption" else stood
        return PolicyChange(waiver=waiver, before=before, note=note)
    return PolicyChange(waiver=waiver)


class _Table:
    """Old waivers that explain no new one yet."""

    def __init__(self, waivers: Iterable[Waiver]) -> None:
        # The laxest first: it excuses most.
        self._left = sorted(waivers, key=_laxness)

    def take(self, waiver: Waiver, key: Key) -> Waiver | None:
        """The first old waiver with the same key; it is used up."""
        wanted = key(waiver)
        for i, candidate in enumerate(self._left):
            if key(candidate) == wanted:
                return self._left.pop(i)
        return None

    def strike(self, waiters: list[Waiver], key: Key) -> list[Waiver]:
        """Those that no old waiver with the same key explains; None is nobody's key."""
        by_key: dict[Hashable, list[Waiver]] = defaultdict(list)
        for candidate in self._left:
            by_key[key(candidate)].append(candidate)
        by_key.pop(None, None)
        gone, rest = set(), []
        for waiver in waiters:
            same = by_key.get(key(waiver))
            if same:
                gone.add(id(same.pop()))
            else:
                rest.append(waiver)
        self._left = [w for w in self._left if id(w) not in gone]
        return rest
