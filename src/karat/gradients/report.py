"""What a gradient check found: comparisons, properties, a diagnosis, one verdict."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Literal

import msgspec

__unittest = (
    True  # unittest leaves these frames out of failures, and so does pytest for its classes
)


class GradVerdict(StrEnum):
    """What may be said of a gradient after a check."""

    PASS = "PASS"  # noqa: S105 - no password
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"


Oracle = Literal["complex-step", "differences", "reference", "float64", "user"]
"""Where the expected derivative came from, best first; `float64` is the verified run that low precision meets."""
Mode = Literal["reverse", "forward"]


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """One input against one output, in one dtype, mode and order: the unit of evidence."""

    input: str
    output: str
    dtype: str
    """The precision the gradient was computed in."""
    mode: Mode = "reverse"
    order: int = 1
    verdict: GradVerdict
    reason: str = ""
    oracle: Oracle
    strength: Literal["strong", "weak"] = "strong"
    """`weak`: only the author's own gradients were there to compare with."""
    error: float
    """The worst deviation over all probes, in the unit of `tolerance`."""
    tolerance: float
    """The oracle's own error estimate plus the round-off floor, capped per dtype."""
    scale: float
    """The size of the derivative that was compared."""
    smallest_error: float
    """The smallest error of a single gradient element that this check could have seen."""
    probes: int = 0
    controls: Mapping[str, bool] = msgspec.field(default_factory=dict)
    """Corruption → whether the same check failed on it, as it must."""
    vacuous: bool = False
    """A corruption went unnoticed: the check could not have failed, and is no evidence."""
    kinks: int = 0
    """Elements where only one-sided slopes exist; the gradient lay between them."""
    widened: float | None = None
    """The relative tolerance that the test asked for, where it is wider than the derived one."""

    @property
    def counts(self) -> bool:
        """Whether this is evidence: it passed, could have failed, and did not rest on its author alone."""
        return self.verdict is GradVerdict.PASS and not self.vacuous and self.strength == "strong"


class Property(msgspec.Struct, frozen=True, kw_only=True):
    """One law that every backward obeys, tried."""

    name: str
    verdict: GradVerdict
    detail: str = ""
    measured: float | None = None
    bound: float | None = None
    dtype: str = "float64"


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """Where a wrong gradient is wrong, and what it looks like."""

    input: str
    output: str
    dtype: str
    coordinate: tuple[int, ...] | None = None
    expected: float | complex | None = None
    found: float | complex | None = None
    hint: str = ""
    """The pattern: `twice the expected gradient`, `transposed`, …"""
    forwards: int = 0
    replay: str = ""
    """One line that runs this check again with the same probes."""


class Excluded(msgspec.Struct, frozen=True, kw_only=True):
    """An input or output that has no gradient to check, and why."""

    name: str
    why: str


class GradReport(msgspec.Struct, frozen=True, kw_only=True):
    """All that a gradient check found."""

    op: str
    framework: str
    device: str
    seed: int
    identity: str
    """What the seed was made from."""
    verdict: GradVerdict
    reason: str
    comparisons: tuple[Comparison, ...] = ()
    properties: tuple[Property, ...] = ()
    diagnoses: tuple[Diagnosis, ...] = ()
    excluded: tuple[Excluded, ...] = ()
    notes: tuple[str, ...] = ()
    forwards: int = 0
    backwards: int = 0
    seconds: float = 0.0

    def __bool__(self) -> bool:
        """`assert karat.gradcheck(…)`: true for PASS alone."""
        return self.verdict is GradVerdict.PASS

    def __repr__(self) -> str:
        """What `assert karat.gradcheck(…)` shows where it fails; `str` has the rest."""
        return f"<GradReport {self.verdict} {self.op}: {self.reason}>"

    def __str__(self) -> str:
        """The whole story, for a person."""
        from karat.gradients.text import text  # noqa: PLC0415 - nobody prints the thousands that pass

        return text(self)

    @property
    def smallest_error(self) -> float:
        """The smallest error of one element that every comparison could have seen."""
        return max((one.smallest_error for one in self.comparisons), default=float("inf"))

    @property
    def vacuous(self) -> bool:
        """Whether a comparison could not have failed."""
        return any(one.vacuous for one in self.comparisons)

    def require(self) -> GradReport:
        """Itself if it passed and could have failed; else AssertionError with the whole story."""
        __tracebackhide__ = True  # a failure is of the line that asked
        if not self or self.vacuous or not self.comparisons:
            raise AssertionError(str(self))
        return self
