"""How far a metric moved before: the moves of earlier refreshes → what is usual, and a sentence about a new move. Pure.

The size of a move is mean |old − new| / |old|, of a timing the same of its medians. Refreshes differ by orders of magnitude
and some were mistakes, so what is usual is the median and its deviation on a logarithmic scale, which few bad ones cannot
shift. It is said beside the verdict and never changes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import log10

import msgspec

ENOUGH = 8
"""Earlier moves below which nothing is said about what is usual."""
_NOT_MOVED = 1e-12
_LEAST_SPREAD = 0.1
"""In powers of ten: what differs by less than a quarter is no news, however alike the earlier moves were."""
_UNUSUAL = 3.0
_RARE = 0.95


class EarlierMoves(msgspec.Struct, frozen=True, kw_only=True):
    """A move of a metric held against those of earlier refreshes."""

    size: float
    own: int
    """Earlier moves of this metric in this golden."""
    compared_with: int = 0
    """How many moves it was held against; 0 if there were too few."""
    larger_than: int = 0
    typical: float | None = None
    """Their median."""
    deviation: float | None = None
    """How many robust standard deviations the move lies above it, on a logarithmic scale."""
    pooled: str | None = None
    """Whose moves they were, if not this golden's own."""

    @property
    def unusual(self) -> bool:
        """Whether earlier refreshes hardly ever moved it as far."""
        rare = self.larger_than >= _RARE * self.compared_with
        return rare and self.deviation is not None and self.deviation >= _UNUSUAL

    @property
    def sentence(self) -> str:
        """What there is to say, also if that is nothing."""
        earlier = f"{self.own} earlier move{'' if self.own == 1 else 's'}"
        few = f"{earlier} of this golden {'is' if self.own == 1 else 'are'} too few to tell what is usual ({ENOUGH} needed)"
        if not self.compared_with:
            return few
        n = "all" if self.larger_than == self.compared_with else f"{self.larger_than:,} of"
        usual = f"typically {self.typical:.1e}" if self.typical else "most did not move it"
        if self.pooled is None:
            return f"larger than {n} {self.compared_with:,} earlier moves ({usual})"
        return f"{few}; larger than {n} {self.compared_with:,} moves of {self.pooled} ({usual})"


class Past(msgspec.Struct, frozen=True):
    """The moves that a repository's history has."""

    moves: Mapping[str, Mapping[str, Sequence[float]]]
    """Golden → metric → the size of each move."""
    platforms: Mapping[str, str]
    """Golden → its platform, where its path says so."""
    note: str = ""
    """What was looked at, and what is not there."""

    def about(self, size: float, metric: str, path: str) -> EarlierMoves:
        """A move of a metric of a golden, held against its own past; if that is short, against that of other goldens."""
        own = self.moves.get(path, {}).get(metric, ())
        if len(own) >= ENOUGH:
            return _held_against(own, size, len(own), None)
        platform = self.platforms.get(path, "")
        others = [
            moved
            for golden, metrics in self.moves.items()
            if golden != path and self.platforms.get(golden, "") == platform
            for moved in metrics.get(metric, ())
        ]
        if len(others) < ENOUGH:
            return EarlierMoves(size=size, own=len(own))
        where = f" on {platform}" if platform else ""
        return _held_against(others, size, len(own), f"{metric}{where} in other goldens")


def _held_against(sizes: Sequence[float], size: float, own: int, pooled: str | None) -> EarlierMoves:
    scaled = [log10(max(moved, _NOT_MOVED)) for moved in sizes]
    middle = _median(scaled)
    spread = max(1.4826 * _median(abs(one - middle) for one in scaled), _LEAST_SPREAD)
    return EarlierMoves(
        size=size,
        own=own,
        compared_with=len(sizes),
        larger_than=sum(moved < size for moved in sizes),
        typical=_median(sizes),
        deviation=(log10(max(size, _NOT_MOVED)) - middle) / spread,
        pooled=pooled,
    )


def _median(values: Iterable[float]) -> float:
    ordered = sorted(values)  # `statistics` takes longer to import than this to run
    middle = len(ordered) // 2
    return (ordered[middle] + ordered[-middle - 1]) / 2
