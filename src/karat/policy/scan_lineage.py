"""Lineage: the order in which Python would look for a method, and whether a class is an op test."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeAlias

from karat.policy.scan_names import Class, Names, Outside, Target, Unknown
from karat.policy.scan_vocabulary import PLAIN, ROOT_SUFFIX, ROOTS

Ancestor: TypeAlias = Class | Outside | Unknown
_MOST_ANCESTORS = 400


class Lineage:
    """Bases and method resolution orders, each worked out once."""

    def __init__(self, names: Names, roots: Collection[str] = ()) -> None:
        self._names = names
        self._roots = ROOTS | {root.rpartition(".")[2] for root in roots}
        self._orders: dict[Class, tuple[Ancestor, ...]] = {}

    def order(self, cls: Class) -> tuple[Ancestor, ...]:
        """The class and its ancestors in the order of Python's own C3 linearisation."""
        found = self._orders.get(cls)
        if found is not None:
            return found
        # Without recursion: a line of hundreds of classes over as many files would end the interpreter's stack.
        pending, begun = [cls], dict[Class, list[Ancestor]]()
        while pending:
            top = pending[-1]
            if top not in begun and top not in self._orders:
                bases = begun[top] = self.bases(top)
                pending += [b for b in bases if isinstance(b, Class) and b not in begun]
                continue
            pending.pop()
            if top not in self._orders:
                self._orders[top] = self._linear(top, begun[top])
        return self._orders[cls]

    def _linear(self, cls: Class, bases: Sequence[Ancestor]) -> tuple[Ancestor, ...]:
        # A base whose order is not there yet stands in a circle, which ends here.
        orders = [list(self._orders.get(b, (b,)) if isinstance(b, Class) else (b,)) for b in bases]
        if len(orders) == 1:  # nearly all there are
            return (cls, *(a for a in orders[0] if a != cls))
        merged = _merge([*orders, list(bases)])
        if merged is None:
            # Python would refuse such a class; whoever reads the report still wants to know what is in it.
            merged = list(dict.fromkeys(a for order in orders for a in order))
        return (cls, *(a for a in merged[:_MOST_ANCESTORS] if a != cls))

    def bases(self, cls: Class) -> list[Ancestor]:
        """One ancestor per base expression; of several it may mean, the one that is an op test."""
        found: list[Ancestor] = []
        for base in cls.facts.bases:
            targets = self._names.refer(
                cls.path, cls.facts.scope, base, line=cls.facts.line, environment=cls.environment
            )
            chosen = self._chosen(targets, base.text)
            if chosen not in found and chosen != cls:
                found.append(chosen)
        return found

    def _chosen(self, targets: Sequence[Target], text: str) -> Ancestor:
        possible = [t for t in targets if isinstance(t, Class | Outside | Unknown)]
        if len(possible) == 1:
            return possible[0]
        for target in possible:
            if isinstance(target, Outside) and self.is_root(target):
                return target
            if isinstance(target, Class) and self.is_op_test(target):
                return target
        return possible[0] if possible else Unknown(text)

    def is_root(self, ancestor: Ancestor) -> bool:
        """Whether this is where op tests begin."""
        if isinstance(ancestor, Class):
            return ancestor.facts.name in self._roots
        return isinstance(ancestor, Outside) and (
            ancestor.last in self._roots or self.is_assumed(ancestor)
        )

    def is_assumed(self, ancestor: Ancestor) -> bool:
        """Whether only its name says that a base from elsewhere is an op test."""
        if not isinstance(ancestor, Outside) or ancestor.last in self._roots:
            return False
        return ancestor.last.endswith(ROOT_SUFFIX)

    def is_op_test(self, cls: Class) -> bool:
        """Whether the class inherits from a root."""
        return any(self.is_root(ancestor) for ancestor in self.order(cls))

    def dtype(self, cls: Class) -> str | None:
        """The dtype that the class, or the nearest ancestor that says it, tests with; None if that is not plain."""
        said = (a.facts.dtype for a in self.order(cls) if isinstance(a, Class))
        found = next((dtype for dtype in said if dtype), None)
        return None if found == "?" else found

    def open_ends(self, cls: Class) -> list[Ancestor]:
        """Ancestors of which nothing is known."""
        return [
            a
            for a in self.order(cls)
            if isinstance(a, Unknown)
            or (isinstance(a, Outside) and not self.is_root(a) and a.last not in PLAIN)
        ]


def _merge(orders: list[list[Ancestor]]) -> list[Ancestor] | None:
    """C3: take the first head that is in no other tail; None where there is none."""
    merged: list[Ancestor] = []
    rest = [order for order in orders if order]
    while rest:
        for order in rest:
            head = order[0]
            if not any(head in other[1:] for other in rest):
                break
        else:
            return None
        merged.append(head)
        rest = [kept for kept in ([a for a in order if a != head] for order in rest) if kept]
    return merged
