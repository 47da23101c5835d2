"""Conditions, as text: whether one of several always holds, and which are decided by what is known of a class."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from karat.policy.scan_expressions import negated
from karat.policy.scan_shapes import Decorator
from karat.policy.scan_vocabulary import EXPECTS_FAILURE

_MOST_SETS = 200
_DTYPE = re.compile(
    r"(?P<no>not \()?self\.dtype (?P<sign>==|!=) (?:np\.|paddle\.|')?(?P<dtype>\w+)'?(?(no)\))",
    re.ASCII,
)


def always(needs: Iterable[frozenset[str]]) -> bool:
    """Whether one of several sets of conditions holds whatever happens: `c` and `not c` between them do."""
    known = set(needs)
    fresh = list(known)
    while fresh and frozenset() not in known and len(known) < _MOST_SETS:
        each = fresh.pop()
        for condition in each:
            rest = each - {condition}
            if rest | {negated(condition)} in known and rest not in known:
                known.add(rest)
                # What was looked at before may meet its other half in this.
                fresh = list(known)
                break
    return frozenset() in known


def settled(
    when: tuple[str, ...], dtype: str | None, constants: Mapping[str, bool]
) -> tuple[str, ...] | None:
    """The conditions without those that are known to hold; None where one is never met."""
    if not when or (dtype is None and not constants):
        return when
    left = []
    for condition in when:
        # A part of what must all hold decides against it; what has an `or` in it stays open.
        whole = " or " in condition or condition.startswith("not (")
        parts = [condition] if whole else condition.split(" and ")
        known = [_known(part, dtype, constants) for part in parts]
        if False in known:
            return None
        if None in known:
            left.append(condition)
    return tuple(left)


def _known(condition: str, dtype: str | None, constants: Mapping[str, bool]) -> bool | None:
    plain = condition.removeprefix("not ")
    if plain in constants:
        return constants[plain] == (plain == condition)
    match = _DTYPE.fullmatch(condition) if dtype is not None else None
    if match is None:
        return None
    named = {"uint16": "bfloat16", "bool_": "bool"}.get(match["dtype"], match["dtype"])
    return ((named == dtype) == (match["sign"] == "==")) != bool(match["no"])


def expects_failure(decorators: Sequence[Decorator]) -> bool:
    """Whether a failure passes, whatever the condition."""
    return any(d.last in EXPECTS_FAILURE and not d.condition for d in decorators)


def conditions(decorators: Sequence[Decorator]) -> tuple[str, ...]:
    """What skip decorators ask for."""
    return tuple(d.condition for d in decorators if d.condition)
