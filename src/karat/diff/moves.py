"""Moves: a golden that is gone here and new there with the same bytes is one event, not two."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from karat.compare.change import Change
from karat.findings import Finding, Severity


def mark_moves(
    changes: Sequence[Change], digests: Mapping[str, tuple[bytes | None, bytes | None]]
) -> list[Change]:
    """The changes, with removed and new goldens of equal bytes naming one another."""
    gone, came = defaultdict(list), defaultdict(list)
    for path, (old, new) in sorted(digests.items()):
        if old is not None and new is None:
            gone[old].append(path)
        elif new is not None and old is None:
            came[new].append(path)
    partner = {}
    for digest, before in gone.items():
        # Goldens with equal bytes are not told apart; which became which does not matter then.
        for one, other in zip(before, came[digest], strict=False):
            partner[one] = (other, "to")
            partner[other] = (one, "from")
    return [_marked(change, partner.get(change.path)) for change in changes]


def _marked(change: Change, partner: tuple[str, str] | None) -> Change:
    if partner is None:
        return change
    other, way = partner
    note = Finding(
        kind="moved-golden",
        severity=Severity.INFO,
        path=change.path,
        message=f"moved {way} {other}: the same bytes stand there",
    )
    kept = tuple(f for f in change.findings if f.kind not in {"removed-golden", "new-golden"})
    return replace(change, findings=(*kept, note))
