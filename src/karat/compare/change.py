"""Change: one golden, old against new: numbers, findings, a verdict. And the Diff that holds them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from karat.findings import Finding, Ranked, Severity

if TYPE_CHECKING:
    # Shapes bring numpy along, which those who only pass changes around need not wait for.
    from karat.compare.history import EarlierMoves
    from karat.goldens.shapes import Metric, Shape
    from karat.tensors.comparison import Comparison
else:
    EarlierMoves, Metric, Shape, Comparison = Any, Any, str, Any


class Verdict(Ranked):
    """What became of a golden, gravest first."""

    UNREADABLE = "unreadable"
    INCOMPLETE = "incomplete"
    REMOVED = "removed"
    BREAK = "break"
    DRIFT = "drift"
    NEW = "new"
    NOISE = "noise"
    SAME = "same"


MOVES = frozenset({"late-drift", "precision-cut", "reordered", "rescaled", "shifted", "stuck", "value-drift"})
"""The kinds of findings that say how the values of a metric moved."""

StepOrKey = int | str  # Where in a metric: a step of a curve, a row of a table, an index path of a document.


class Explanation(msgspec.Struct, frozen=True, gc=False):
    """One sentence about how a curve moved."""

    kind: str
    sentence: str
    fit: float  # The share of the difference that it accounts for; 1: all of it, to the last digit.
    wrong: bool = False  # Nobody refreshes on purpose into this; `kind` is then the kind of a finding.

    def __str__(self) -> str:
        share = "every value, to the last digit" if self.fit >= 1 else f"{self.fit:.0%} of the difference"
        return f"{self.sentence} ({share})"


class Numbers(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The numbers of one pair of curves: the seed's two, and those that keep them honest.

    A Struct rather than a dataclass: thousands are made, and they travel between processes.
    Relative differences are the seed's (old − new) / old, for the CSV; `change` is what people see.
    """

    n_steps: int = 0
    avg_rel_diff: float | None = None
    change: float | None = None  # mean((new − old) / |old|): positive where values rose, whatever their sign.
    mean_abs_rel_diff: float | None = None
    max_abs_rel_diff: float | None = None
    mean_diff: float | None = None
    """mean(new − old) over values finite on both sides: its sign is the direction, also where old values are negative."""
    max_step: StepOrKey | None = None
    max_old: float | None = None
    max_new: float | None = None
    first_diff_step: StepOrKey | None = None
    bit_equal: int = 0
    n_shared: int = 0  # Shared steps, usable or not.
    steps_lost: int = 0  # Steps that had a sample and are now absent.
    steps_gained: int = 0
    nan_gained: int = 0  # Steps present on both sides whose value was finite and is not any more.
    nan_lost: int = 0
    tolerance_ratio: float | None = None
    """Largest |old − new| as a multiple of the metric's own tolerance, where a rule gives one."""
    steady_rel_diff: float | None = None  # (old − new) / old of the medians after warm-up; only for timing rules.


class MetricChange(Numbers, frozen=True, kw_only=True, gc=False):
    """One (file, metric) row: its numbers and the verdict on them."""

    metric: str
    verdict: Verdict
    because: str  # The rule and threshold that caused the verdict, for people.
    threshold_ratio: float | None = None
    """How far beyond the thresholds of its verdict, as a multiple; below 1 within those of drift."""
    rule: str = "*"  # The pattern of the rule that judged it.
    in_csv: bool = False  # True for step curves with a usable step: the rows of the seed's CSV.
    old: Metric | None = None
    new: Metric | None = None  # The curves themselves, kept only when a report needs to draw them.
    tensor: Comparison | None = None
    """Of a bundle's tensor: dtype, shape, tolerance and numbers of its own; its findings are the change's."""
    explanation: Explanation | None = None  # How a curve moved, where one sentence says it.
    history: EarlierMoves | None = None  # How far earlier refreshes moved it, where the repository's history was asked.

    @property
    def size(self) -> float | None:
        """How far it moved, as history counts it; None where steps or values came or went, so that it says nothing."""
        other_steps = self.steps_lost or self.steps_gained or self.nan_gained or self.nan_lost
        if other_steps or self.verdict in {Verdict.INCOMPLETE, Verdict.NEW} or self.tensor is not None:
            return None
        return self.mean_abs_rel_diff if self.steady_rel_diff is None else abs(self.steady_rel_diff)

    @property
    def movement(self) -> float | None:
        """The relative change that decided, new − old: of steady medians for timings, else the signed mean."""
        return self.change if self.steady_rel_diff is None else -self.steady_rel_diff

    @property
    def direction(self) -> str:
        """`up`, `down`, or nothing."""
        shift = self.movement or self.mean_diff
        if not shift or shift != shift:  # noqa: PLR0124 - NaN has no direction
            return ""
        return "up" if shift > 0 else "down"


class _Packed(MetricChange, frozen=True, kw_only=True, gc=False, array_like=True):
    """A row that is written without the names of its fields."""


_UNPACK = msgspec.msgpack.Decoder(tuple[_Packed, ...])


class PackedRows(msgspec.Struct, frozen=True, gc=False):
    """The rows of a golden in a third of the room, read anew whenever they are asked for: for very many goldens."""

    data: bytes
    count: int

    @classmethod
    def of(cls, rows: Iterable[MetricChange]) -> PackedRows:
        plain = [msgspec.structs.astuple(row) for row in rows]
        return cls(msgspec.msgpack.encode(plain), len(plain))

    def __iter__(self) -> Iterator[MetricChange]:
        return iter(_UNPACK.decode(self.data))

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, at: int) -> MetricChange:
        return _UNPACK.decode(self.data)[at]


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One golden, old against new."""

    path: str
    verdict: Verdict
    shape: Shape | None = None
    metrics: tuple[MetricChange, ...] | PackedRows = ()
    findings: tuple[Finding, ...] = ()
    identity: Mapping[str, str] = {}
    """Case and environment as read from the path, e.g. model, case, platform."""
    has_baseline: bool = True
    restorable: bool = True
    """The old side, if there is one, can be read and holds something: it is worth going back to."""
    same_bytes: bool = False  # Both sides are the same file; it was read all the same, to see what it holds.

    @property
    def severity(self) -> Severity | None:
        """The gravest finding's severity, or None without findings."""
        return min((f.severity for f in self.findings), key=lambda s: s.rank, default=None)

    @property
    def beyond(self) -> float:
        """How far its rows are beyond their thresholds, the farthest one; 0 without rows."""
        gravest = [m for m in self.metrics if m.verdict is self.verdict]
        return max((m.threshold_ratio for m in gravest if m.threshold_ratio is not None), default=0.0)
