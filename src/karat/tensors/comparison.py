"""What comparing two tensors, or two nested values, gave."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Literal, TypedDict

import msgspec

from karat.findings import Finding


def within(name: str) -> str:
    """How a sentence about one value begins; a tensor may well be called `expected`."""
    return f"in `{name}`: "


class Criteria(TypedDict, total=False):
    """How two values are compared; without rtol or atol, the dtype's own tolerance holds."""

    rtol: float | None
    atol: float | None
    integers: bool  # Whether both hold for integers as well, which are exact otherwise.
    equal_nan: bool
    check_dtype: bool


class Tolerance(msgspec.Struct, frozen=True, kw_only=True):
    """|actual − expected| <= atol + rtol · |expected|."""

    rtol: float
    atol: float
    equal_nan: bool = False
    origin: Literal["given", "dtype", "recorded", "integers"] = "given"
    """`integers`: one was given, and does not hold for them."""


class TensorNumbers(msgspec.Struct, frozen=True, kw_only=True):
    """Everything there is to say about two tensors of one shape; None where there is nothing to measure."""

    elements: int
    bit_equal: int  # elements whose bits are the same; NaN with the same bits among them
    mismatches: int = 0  # elements outside the tolerance; a NaN on one side, or on both unless asked, is one
    first_mismatch: tuple[int, ...] | None = None
    max_abs: float | None = None
    max_abs_at: tuple[int, ...] | None = None
    mean_abs: float | None = None
    max_rel: float | None = None  # |actual − expected| / |expected| where expected is not zero
    max_rel_at: tuple[int, ...] | None = None
    max_ulp: int | None = None  # steps between neighbouring numbers of the expected dtype; None where dtypes differ
    sqnr_db: float | None = None  # 10·log10(Σ expected² / Σ (actual − expected)²); infinite for no difference
    cosine: float | None = None
    nan_expected: int = 0
    nan_actual: int = 0
    inf_expected: int = 0
    inf_actual: int = 0
    max_expected: float | None = None  # at `max_abs_at`
    max_actual: float | None = None

    def __post_init__(self) -> None:
        """JSON has no infinity and gets null for it; what stands beside tells it from what was not measured."""
        lost: dict[str, float] = {} if self.max_rel_at is None else {"max_rel": inf}
        if self.max_abs_at is not None:
            lost |= {"max_abs": inf, "mean_abs": inf, "sqnr_db": inf if self.max_abs == 0 else -inf}
        for field, value in lost.items():
            if getattr(self, field) is None:
                msgspec.structs.force_setattr(self, field, value)


class Statistics(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of one tensor, over its finite elements; None without one, or for what is no number."""

    min: float | None = None
    max: float | None = None
    mean: float | None = None
    l2: float | None = None
    nan: int = 0
    inf: int = 0


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """One tensor or plain value, actual against expected."""

    name: str  # where in the structure: `expected`, `expected/0`, `expected/logits`
    dtype: str
    shape: tuple[int, ...]
    tolerance: Tolerance | None = None  # None for what is compared exactly (text, structure)
    numbers: TensorNumbers | None = None
    findings: tuple[Finding, ...] = ()

    @property
    def passed(self) -> bool:
        """Nothing about it is a `fail`."""
        return not any(finding.severity == "fail" for finding in self.findings)


class ComparisonReport(msgspec.Struct, frozen=True, kw_only=True):
    """Actual against expected, all of it."""

    comparisons: tuple[Comparison, ...]
    findings: tuple[Finding, ...] = ()  # of the structure: a lost key, another length, nothing compared

    @property
    def passed(self) -> bool:
        """Something was compared, and nothing failed."""
        compared = bool(self.comparisons)
        return compared and not any(finding.severity == "fail" for finding in self.all_findings())

    def all_findings(self) -> Iterator[Finding]:
        """The structure's first, then tensor by tensor."""
        yield from self.findings
        for comparison in self.comparisons:
            yield from comparison.findings
