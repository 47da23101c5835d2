"""Pairing: which waivers of the new side the old side had already. Pure."""

from __future__ import annotations

from collections import defaultdict, deque
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

    order = {id(w): i for i, w in enumerate(waiting)}
    waiting, _ = table.pair(waiting, lambda w: (place(w), w.identity, w.grant))
    waiting, _ = table.pair(waiting, _moved)
    waiting, same = table.pair(waiting, lambda w: (place(w), w.identity))
    found = [
        PolicyChange(waiver=w, before=before) for w, before in same if not w.no_laxer_than(before)
    ]
    waiting, same = table.pair(
        waiting, lambda w: (place(w), w.rule, w.kind, w.scope, w.about, w.grant)
    )
    found += [PolicyChange(waiver=w, before=b, note=_other_op(w, b)) for w, b in same]
    waiting, same = table.pair(waiting, lambda w: (place(w), w.rule, w.kind, w.about, w.grant))
    found += [PolicyChange(waiver=w, before=b, note=_other_scope(w, b)) for w, b in same]
    found += [PolicyChange(waiver=w) for w in waiting]
    return sorted(found, key=lambda change: order[id(change.waiver)])


def _moved(waiver: Waiver) -> Hashable | None:
    """The same in another file: only a whole definition can be known again."""
    return (waiver.identity, waiver.grant, waiver.body) if waiver.body and waiver.scope else None


def _laxness(waiver: Waiver) -> tuple[float, ...]:
    return tuple(-amount for amount in waiver.amounts)


def _other_op(waiver: Waiver, before: Waiver) -> str:
    return f"it was about op {before.op or '(unnamed)'}, and is about {waiver.op or '(unnamed)'}"


def _other_scope(waiver: Waiver, before: Waiver) -> str:
    if waiver.kind == "exemption":
        return f"its scope was {before.scope}"
    return f"it stood on {before.scope or 'the module'}; under another name it is approved again"


Paired = list[tuple[Waiver, Waiver]]


class _Table:
    """Old waivers that explain no new one yet."""

    def __init__(self, waivers: Iterable[Waiver]) -> None:
        # The laxest excuses most, so it is the first to be used, and by the laxest.
        self._left = sorted(waivers, key=_laxness)

    def pair(self, waiters: list[Waiver], key: Key) -> tuple[list[Waiver], Paired]:
        """New waivers without an old one of the same key, and those with one, which is used up; None is nobody's key."""
        by_key: dict[Hashable, deque[Waiver]] = defaultdict(deque)
        for candidate in self._left:
            by_key[key(candidate)].append(candidate)
        by_key.pop(None, None)
        rest: list[Waiver] = []
        paired: Paired = []
        for waiver in sorted(waiters, key=_laxness):
            same = by_key.get(key(waiver))
            if same:
                paired.append((waiver, same.popleft()))
            else:
                rest.append(waiver)
        gone = {id(before) for _, before in paired}
        self._left = [w for w in self._left if id(w) not in gone]
        return rest, paired
