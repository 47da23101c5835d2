"""How far a metric moved before: the moves of earlier refreshes → what is usual, and a sentence about a new move. Pure.

The size of a move is mean |old − new| / |old|, of a timing the same of its medians. Refreshes differ by orders of magnitude
and some were mistakes, so what is usual is the median and its deviation on a logarithmic scale, which few bad ones cannot
shift. It is said beside the verdict and never changes it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from math import log10

import msgspec

ENOUGH = 8  # Earlier moves below which nothing is said about what is usual.
_NOT_MOVED = 1e-12
_LEAST_SPREAD = 0.1
"""In powers of ten: what differs by less than a quarter is no news, however alike the earlier moves were."""
_UNUSUAL = 3.0
_RARE = 0.95


class EarlierMoves(msgspec.Struct, frozen=True, kw_only=True):
    """A move of a metric held against those of earlier refreshes."""

    size: float
    own: int  # Earlier moves of this metric in this golden.
    compared_with: int = 0  # How many moves it was held against; 0 if there were too few.
    larger_than: int = 0
    typical: float | None = None  # Their median.
    deviation: float | None = None
    """How many robust standard deviations the move lies above it, on a logarithmic scale."""
    pooled: str | None = None  # Whose moves they were, if not this golden's own.

    @property
    def unusual(self) -> bool:
        """Whether earlier refreshes hardly ever moved it as far."""
        rare = self.larger_than >= _RARE * self.compared_with
        return rare and self.deviation is not None and self.deviation >= _UNUSUAL

    def data(self) -> dict[str, object]:
        return {**msgspec.structs.asdict(self), "unusual": self.unusual, "sentence": self.sentence}

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


class Usual(msgspec.Struct, frozen=True):
    """What some earlier moves have in common."""

    sizes: Sequence[float]  # In ascending order.
    middle: float
    spread: float  # Median and deviation on the logarithmic scale.

    @classmethod
    def of(cls, sizes: Iterable[float]) -> Usual:
        """What is usual among these moves, of which there is at least one."""
        ordered = sorted(sizes)
        scaled = [log10(max(size, _NOT_MOVED)) for size in ordered]
        middle = _median(scaled)
        deviations = sorted(abs(one - middle) for one in scaled)
        return cls(ordered, middle, max(1.4826 * _median(deviations), _LEAST_SPREAD))

    def against(self, size: float, own: int, pooled: str | None = None) -> EarlierMoves:
        """A new move held against these."""
        return EarlierMoves(
            size=size,
            own=own,
            compared_with=len(self.sizes),
            larger_than=bisect_left(self.sizes, size),
            typical=_median(self.sizes),
            deviation=(log10(max(size, _NOT_MOVED)) - self.middle) / self.spread,
            pooled=pooled,
        )


class Past(msgspec.Struct, frozen=True):
    """The moves that a repository's history has."""

    moves: Mapping[str, Mapping[str, Sequence[float]]]  # Golden → metric → the size of each move.
    platforms: Mapping[str, str] = {}  # Golden → its platform, where its path says so.
    note: str = ""  # What was looked at, and what is not there.
    pools: dict[tuple[str, str], Usual | None] = msgspec.field(default_factory=dict)
    """Metric and platform → what is usual there; filled when asked."""

    def about(self, size: float, metric: str, path: str, platform: str = "") -> EarlierMoves:
        """A move of a metric of a golden, held against its own past; if that is short, against that of all goldens."""
        own = self.moves.get(path, {}).get(metric, ())
        if len(own) >= ENOUGH:
            return Usual.of(own).against(size, len(own))
        key = metric, platform
        if key not in self.pools:
            goldens = (moved for golden, moved in self.moves.items() if self.platforms.get(golden, "") == platform)
            sizes = [one for moved in goldens for one in moved.get(metric, ())]
            self.pools[key] = Usual.of(sizes) if len(sizes) >= ENOUGH else None
        if (pool := self.pools[key]) is None:
            return EarlierMoves(size=size, own=len(own))
        return pool.against(size, len(own), f"{metric}{f' on {platform}' if platform else ''} in all goldens")


def _median(ordered: Sequence[float]) -> float:
    middle = len(ordered) // 2
    return (ordered[middle] + ordered[-middle - 1]) / 2
