"""Lookup: what agrees with an identity, among thousands, without asking each. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

from karat.refresh.identity import COMPARED_NEVER, Identity, clashes, in_common

T = TypeVar("T")


class Lookup(Generic[T]):
    """Things with an identity each, found by any part of it."""

    def __init__(self, things: Iterable[tuple[Identity, T]]) -> None:
        self._things = list(things)
        self._by_value: dict[tuple[str, str], list[int]] = {}
        self._without: dict[str, list[int]] = {}
        names = {name for identity, _ in self._things for name in identity}
        for i, (identity, _) in enumerate(self._things):
            for name in names:
                if name in identity:
                    self._by_value.setdefault((name, identity[name].casefold()), []).append(i)
                else:
                    self._without.setdefault(name, []).append(i)
        self._names = names - COMPARED_NEVER

    def agreeing(self, identity: Identity) -> tuple[T, ...]:
        """Everything that shares a name with the identity and disagrees on none, in order."""
        near = min(
            (
                (
                    self._by_value.get((name, identity[name].casefold()), ()),
                    self._without.get(name, ()),
                )
                for name in identity.keys() & self._names
            ),
            key=lambda found: len(found[0]) + len(found[1]),
            default=((), ()),
        )
        return tuple(
            thing
            for i in sorted((*near[0], *near[1]))
            for known, thing in (self._things[i],)
            if in_common(identity, known) and not clashes(identity, known)
        )
