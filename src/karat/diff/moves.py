"""Moves: a golden that is gone here and new there with the same bytes is one event, not two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from karat.compare.change import Change
from karat.findings import Finding, Severity


def mark_moves(
    changes: Sequence[Change], digests: Mapping[str, tuple[bytes | None, bytes | None]]
) -> list[Change]:
    """The changes, with removed and new goldens of equal bytes naming one another."""
    gone = {old: path for path, (old, new) in digests.items() if old is not None and new is None}
    came = {new: path for path, (old, new) in digests.items() if new is not None and old is None}
    partner = {}
    for digest in gone.keys() & came.keys():
        partner[gone[digest]] = (came[digest], "to")
        partner[came[digest]] = (gone[digest], "from")
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
