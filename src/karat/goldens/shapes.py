"""The shapes a golden can have, as frozen data.

A Series is metric → step → value, a Table is row key → columns, a Document is any other JSON.
(The fourth shape of the design, the Bundle of tensors, comes with `karat.capture`.)
Arrays are numpy arrays that nobody writes to; equality is by value, NaN equal to NaN.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec
import numpy as np

from karat.findings import Finding

if TYPE_CHECKING:
    # numpy.typing takes longer to import than the rest of karat.
    from numpy.typing import NDArray

    Steps: TypeAlias = NDArray[np.int64]
    Values: TypeAlias = NDArray[np.float64]
else:
    Steps = Values = np.ndarray

Shape: TypeAlias = Literal["series", "table", "document"]


class Metric(msgspec.Struct, frozen=True, eq=False):
    """One curve: sorted steps and their values; NaN where the golden says "no sample".

    A Struct rather than a dataclass: a refresh holds thousands.
    """

    steps: Steps
    values: Values
    start: int | None = None
    end: int | None = None
    interval: int | None = None
    precision: int | None = None
    """`value_precision`, the number of decimals the writer says it kept."""
    extra: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """Fields of the block that karat does not interpret; kept, and compared by structure."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Metric):
            return NotImplemented
        return (
            (self.start, self.end, self.interval, self.precision, self.extra)
            == (other.start, other.end, other.interval, other.precision, other.extra)
            and np.array_equal(self.steps, other.steps)
            and np.array_equal(self.values, other.values, equal_nan=True)
        )

    __hash__ = None  # type: ignore[assignment]  # arrays are not hashable


@dataclass(frozen=True, slots=True)
class Series:
    """Metric → step → value, with scalars and anything else that stood beside the curves."""

    metrics: Mapping[str, Metric]
    scalars: Mapping[str, float] = field(default_factory=dict)
    others: Mapping[str, Any] = field(default_factory=dict)
    """Neither curve nor number (text fields, lists); compared by structure."""

    shape: Shape = field(default="series", init=False)


RowKey: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """Row key → columns, every cell the text that stands in the file (stripped)."""

    columns: tuple[str, ...]
    key: tuple[str, ...]
    """The names of the columns that make a row's identity; a prefix or subset of `columns`."""
    rows: Mapping[RowKey, tuple[str, ...]]
    """All cells of a row, in the order of `columns`; for a duplicate key, the first row."""
    header: bool = True
    """False where the file has no header line and the columns are known by their form."""

    shape: Shape = field(default="table", init=False)


@dataclass(frozen=True, slots=True)
class Document:
    """Any other JSON value."""

    value: Any

    shape: Shape = field(default="document", init=False)


Golden: TypeAlias = Series | Table | Document


@dataclass(frozen=True, slots=True)
class Reading:
    """What reading some bytes gave: a golden, or none, and what there is to say about it."""

    golden: Golden | None
    findings: tuple[Finding, ...] = ()
    format: str | None = None
    """Name of the format that read it, e.g. `series-json`."""
