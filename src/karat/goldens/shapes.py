"""The shapes a golden can have, as frozen data.

A Series is metric → step → value, a Table is row key → columns, a Document is any other JSON.
(The fourth shape of the design, the Bundle of tensors, comes with `karat.capture`.)
Arrays are numpy arrays that nobody writes to; equality is by value, NaN equal to NaN.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

import msgspec
import numpy as np

from karat.findings import Finding, UsageError

if TYPE_CHECKING:
    # numpy.typing takes longer to import than the rest of karat.
    from numpy.typing import NDArray

    Steps: TypeAlias = NDArray[np.int64]
    Values: TypeAlias = NDArray[np.float64]
    Flags: TypeAlias = NDArray[np.bool_]
else:
    Steps = Values = Flags = np.ndarray

Shape: TypeAlias = Literal["series", "table", "document", "bundle"]


class Metric(msgspec.Struct, frozen=True, eq=False):
    """One curve: sorted steps and their values; NaN where the golden says "no sample".

    A Struct rather than a dataclass: a refresh holds thousands.
    """

    steps: Steps
    values: Values
    start: int | None = None
    end: int | None = None
    interval: int | None = None
    precision: int | None = None  # `value_precision`, the number of decimals the writer says it kept.
    extra: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """Fields of the block that karat does not interpret; kept, and compared by structure."""
    listed: bool = False
    """The block holds a list, whose `end_step` is the first step that is not in it; how it is spelled, not what it says."""

    @classmethod
    def of(cls, values: Mapping[int, float]) -> Metric:
        """The curve of values by step, in any order."""
        steps = sorted(values)
        return cls(np.array(steps, np.int64), np.array([values[s] for s in steps], np.float64))

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


class Series(msgspec.Struct, frozen=True):
    """Metric → step → value, with scalars and anything else that stood beside the curves."""

    metrics: Mapping[str, Metric]
    scalars: Mapping[str, float] = msgspec.field(default_factory=dict)
    others: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """Neither curve nor number (text fields, lists); compared by structure."""

    shape: ClassVar[Shape] = "series"


RowKey: TypeAlias = tuple[str, ...]


class Table(msgspec.Struct, frozen=True):
    """Row key → columns, every cell the text that stands in the file (stripped)."""

    columns: tuple[str, ...]
    key: tuple[str, ...]  # The names of the columns that make a row's identity; a prefix or subset of `columns`.
    rows: Mapping[RowKey, tuple[str, ...]]
    """All cells of a row, in the order of `columns`; for a duplicate key, the first row."""
    header: bool = True  # False where the file has no header line and the columns are known by their form.

    shape: ClassVar[Shape] = "table"


class Document(msgspec.Struct, frozen=True):
    """Any other JSON value."""

    value: Any

    shape: ClassVar[Shape] = "document"


Golden: TypeAlias = Series | Table | Document


def with_curves(base: Series, source: Series, names: Collection[str]) -> Series:
    """`base` with what `source` has under these names; without them where that has none."""

    def taken(field: str) -> dict[str, Any]:
        mine, theirs = getattr(base, field), getattr(source, field)
        both = {**mine, **{name: value for name, value in theirs.items() if name in names}}
        return {name: value for name, value in both.items() if name in theirs or name not in names}

    return Series(taken("metrics"), taken("scalars"), taken("others"))


def with_columns(base: Table, source: Table, names: Collection[str]) -> Table:
    """`base` with these columns of `source`, in the rows that both have."""
    places = [(base.columns.index(name), source.columns.index(name)) for name in names]
    rows = {}
    for key, cells in base.rows.items():
        changed = list(cells)
        for here, there in places if key in source.rows else ():
            changed[here] = source.rows[key][there]
        rows[key] = tuple(changed)
    return msgspec.structs.replace(base, rows=rows)


class Reading(msgspec.Struct, frozen=True):
    """What reading some bytes gave: a golden, or none, and what there is to say about it."""

    golden: Golden | None
    findings: tuple[Finding, ...] = ()
    format: str | None = None  # Name of the format that read it, e.g. `series-json`.


def same(old: Any, new: Any) -> bool:
    """True for two scalars of one type and value; NaN is the same as NaN, and 1 is neither 1.0 nor true."""
    if isinstance(old, float) and isinstance(new, float):
        return float.__repr__(old) == float.__repr__(new)
    return type(old) is type(new) and bool(old == new)


def alike(one: Any, other: Any) -> bool:
    """The same of anything that a golden holds; a tuple is a list."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(alike(one[name], other[name]) for name in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(alike, one, other))
    return same(one, other)


def ensure_held(name: str, golden: Golden, back: Golden | None) -> None:
    """Refuses what the format of that name cannot hold: `back` is what would be read of what it wrote."""
    fields = () if back == golden else golden.__struct_fields__
    lost = [field for field in fields if not alike(getattr(golden, field), getattr(back, field, None))]
    if back is None or lost:
        what = " and ".join(lost) or "it"
        raise UsageError(
            f"{name} cannot hold this {golden.shape}: expected {what} to be read back as written, found others"
        )
