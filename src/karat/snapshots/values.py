"""What a test hands over, as a golden: lists, mappings and arrays of numpy, torch and jax.

A value that is no finite number is never turned into a golden, because NaN in a golden demands nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from karat.findings import UsageError
from karat.goldens import formats
from karat.goldens.shapes import Document, Golden, Metric, Reading, Series, Table, Values
from karat.goldens.table_csv import Form, key_columns

_KEY = "name"  # The first column of a table: what its rows are called.
_VALUE = "value"


def series_of(name: str, values: Any, start: int) -> Series:
    """One curve called `name`, or a curve for each text key of a mapping."""
    if isinstance(values, Mapping) and values and all(isinstance(key, str) for key in values):
        return Series({key: _metric(key, curve, start) for key, curve in values.items()})
    return Series({name: _metric(name, values, start)})


def _metric(name: str, values: Any, start: int) -> Metric:
    if isinstance(values, Mapping):
        steps = [_step(name, key) for key in values]
        numbers = _numbers(name, values.values())
    else:
        numbers = _numbers(name, values)
        steps = list(range(start, start + len(numbers)))
    pairs = {step: value for step, value in zip(steps, numbers, strict=True) if value is not None}
    if len(set(steps)) != len(steps):
        raise UsageError(f"{name}: expected each step once, found one twice", next_command=_HELP)
    if not pairs:
        raise UsageError(f"{name}: expected at least one value, found none", next_command=_HELP)
    known = Metric.of(pairs)
    first, last = int(known.steps[0]), int(known.steps[-1])
    gaps = set(np.diff(known.steps).tolist()) or {1}
    return Metric(known.steps, known.values, first, last, gaps.pop() if len(gaps) == 1 else None)


def _step(name: str, key: Any) -> int:
    try:
        return key.__index__()  # type: ignore[no-any-return]  # of Python and numpy alike
    except AttributeError:
        said = f"{name}: expected whole numbers as steps, or texts as the names of curves, found {key!r:.60}"
        raise UsageError(said, next_command=_HELP) from None


def _numbers(name: str, values: Any) -> list[float | None]:
    """Numbers as Python has them; None, a step without a sample, stays None."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        said = f"{name}: expected a list, an array or a mapping of values, found {_kind(values)}"
        raise UsageError(said, next_command=_HELP)
    if hasattr(values, "shape"):
        array = _array(values)
        if array.ndim != 1:
            said = f"{name}: expected one value per step, found an array of shape {tuple(array.shape)}"
            raise UsageError(said, next_command="golden.tensors(name, value)")
        return list(array.tolist())
    return [None if value is None else _number(f"{name}, value {at}", value) for at, value in enumerate(values)]


def _number(where: str, value: Any) -> float:
    if type(value) in {int, float}:  # nearly all
        return float(value)
    try:
        array = _array(value) if hasattr(value, "shape") else np.asarray(value, np.float64)
    except (TypeError, ValueError, OverflowError):
        array = np.empty(0)
    if array.size != 1 or isinstance(value, str | bytes | bool):
        said = f"{where}: expected a number, found {_kind(value)}"
        raise UsageError(said, next_command=_HELP)
    return float(array.reshape(()))


def _array(value: Any) -> Values:
    """An array of any framework in double precision, which holds each smaller float exactly."""
    if hasattr(value, "detach"):  # torch's: off the graph, and off the device
        value = value.detach().cpu().double().numpy()
    array = np.asarray(value)
    if array.dtype.kind not in "fiubV":  # V: bfloat16 and its like, which numpy knows through ml_dtypes
        raise TypeError(array.dtype)
    return array.astype(np.float64)


def _kind(value: Any) -> str:
    return f"{type(value).__name__} {value!r:.40}"


def table_of(name: str, rows: Any) -> Table:
    """A row for each key of a mapping, or for each mapping of a list; the first column names it."""
    if isinstance(rows, Mapping):
        listed: list[Mapping[str, Any]] = [
            {_KEY: str(key), **(_texts(cells) if isinstance(cells, Mapping) else {_VALUE: cells})}
            for key, cells in rows.items()
        ]
    elif isinstance(rows, Sequence) and all(isinstance(row, Mapping) for row in rows):
        listed = [_texts(row) for row in rows]
    else:
        said = f"{name}: expected a mapping of rows, or a list of mappings, found {_kind(rows)}"
        raise UsageError(said, next_command=_HELP)
    columns = tuple(dict.fromkeys(column for row in listed for column in row))
    if not listed or len(columns) < 2:
        said = f"{name}: expected rows of a name and a value at least, found {_kind(rows)}"
        raise UsageError(said, next_command=_HELP)
    cells = [tuple(_cell(f"{name}, {column}", row.get(column)) for column in columns) for row in listed]
    key = key_columns(Form(columns, None))
    places = [columns.index(column) for column in key]
    keyed = {tuple(row[at] for at in places): row for row in cells}
    if len(keyed) != len(cells):
        said = f"{name}: expected each row once, but two have the same {' and '.join(key)}"
        raise UsageError(said, next_command=_HELP)
    return Table(columns, key, keyed)


def _texts(row: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(key): value for key, value in row.items()}


def _cell(where: str, value: Any) -> str:
    if value is None or isinstance(value, str):
        return (value or "").strip()
    if isinstance(value, bool | int):
        return str(value)
    return repr(_number(where, value))


def document_of(value: Any) -> Document:
    """A value of JSON, in which arrays are lists."""

    def plain(item: Any) -> Any:
        if item is None or isinstance(item, str | bool | int):
            return item
        if isinstance(item, Mapping):
            return {str(key): plain(inner) for key, inner in item.items()}
        if isinstance(item, list | tuple):
            return [plain(inner) for inner in item]
        if hasattr(item, "shape") and tuple(item.shape):
            return _array(item).tolist()
        return _number("document", item)

    return Document(plain(value))


def as_written(golden: Golden, like: bytes | None = None) -> tuple[bytes, Reading]:
    """The bytes of a golden, and what everybody will read in them."""
    data = formats.write(golden, like=like)
    reading = formats.read(data)
    if reading.golden is None:
        said = f"expected a {golden.shape} that can be read back, found: {reading.findings[0].message}"
        raise UsageError(said, next_command=_HELP)
    return data, reading


def not_finite(golden: Golden) -> Iterator[str]:
    """Where a golden holds NaN or an infinity, in words."""
    if isinstance(golden, Series):
        for name, metric in golden.metrics.items():
            odd = np.flatnonzero(~np.isfinite(metric.values))
            if len(odd):
                first = f"{metric.values[odd[0]]} at step {metric.steps[odd[0]]}"
                yield f"{name}: {first}" + (f" and at {len(odd) - 1:,} more" if len(odd) > 1 else "")
    elif isinstance(golden, Table):
        for row in golden.rows.values():
            for column, cell in zip(golden.columns, row, strict=True):
                if column not in golden.key and cell.lower().lstrip("+-") in {"nan", "inf", "infinity"}:
                    yield f"{column}: {cell} in the row {row[0]}"
    else:
        yield from _odd_leaves(golden.value, "$")


def _odd_leaves(value: Any, where: str) -> Iterator[str]:
    if isinstance(value, float) and not math.isfinite(value):
        yield f"{value} at {where}"
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from _odd_leaves(inner, f"{where}[{key!r}]")


_HELP = "see docs/snapshots.md"
