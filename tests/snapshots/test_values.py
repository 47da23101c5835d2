from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from karat.findings import UsageError
from karat.goldens.shapes import Document, Series, Table
from karat.snapshots.values import as_written, document_of, not_finite, series_of, table_of

FLOATS = st.floats(allow_nan=False, allow_infinity=False)


def points(series: Series, name: str = "loss") -> dict[int, float]:
    metric = series.metrics[name]
    return dict(zip(metric.steps.tolist(), metric.values.tolist(), strict=True))


@pytest.mark.parametrize(
    "values",
    [
        [2, 1.5],
        (2, np.float32(1.5)),
        {0: 2, np.int64(1): 1.5},
        {1: 1.5, 0: 2},
        np.array([2, 1.5], np.float16),
        [np.array(2), np.array([1.5])],
        {"loss": [2, 1.5]},
    ],
)
def test_a_curve_may_come_in_many_forms(values: Any) -> None:
    assert points(series_of("loss", values, 0)) == {0: 2.0, 1: 1.5}


def test_steps_begin_where_the_caller_says_and_none_is_no_sample() -> None:
    series = series_of("loss", [3, None, 1], 10)
    assert points(series) == {10: 3.0, 12: 1.0}
    assert (series.metrics["loss"].start, series.metrics["loss"].end, series.metrics["loss"].interval) == (10, 12, 2)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([], "at least one value"),
        ([None], "at least one value"),
        ("0.5", "expected a list"),
        (3.5, "expected a list"),
        ([1, "2"], "value 1: expected a number"),
        ([1, True], "value 1: expected a number"),
        ([1, np.ones(2)], "value 1: expected a number"),
        (np.ones((2, 2)), "array of shape (2, 2)"),
        ({1.5: 1}, "whole numbers as steps"),
        ({"a": 1}, "expected a list"),
    ],
)
def test_what_is_no_curve_is_refused_with_a_sentence(values: Any, said: str) -> None:
    with pytest.raises(UsageError, match=r".") as error:
        series_of("loss", values, 0)
    assert said in str(error.value)


@given(st.dictionaries(st.integers(-(10**6), 10**6), FLOATS, min_size=1, max_size=20))
def test_what_is_written_is_read_back_to_the_last_digit(values: dict[int, float]) -> None:
    reading = as_written(series_of("loss", values, 0))[1]
    assert isinstance(reading.golden, Series)
    assert (points(reading.golden), reading.findings) == (values, ())


@pytest.mark.parametrize(
    ("rows", "columns", "cells"),
    [
        ({"resnet": 0.761}, ("name", "value"), [("resnet", "0.761")]),
        ({"resnet": {"top1": np.float64(0.5), "breaks": 3}}, ("name", "top1", "breaks"), [("resnet", "0.5", "3")]),
        ([{"model": "a", "acc": 1.0}, {"model": "b", "acc": None}], ("model", "acc"), [("a", "1.0"), ("b", "")]),
        ({"a": {"status": "pass"}, "b": {"x": 1}}, ("name", "status", "x"), [("a", "pass", ""), ("b", "", "1")]),
    ],
)
def test_a_table_may_come_in_many_forms(rows: Any, columns: tuple[str, ...], cells: list[tuple[str, ...]]) -> None:
    table = as_written(table_of("accuracy", rows))[1].golden
    assert isinstance(table, Table)
    assert (table.columns, list(table.rows.values())) == (columns, cells)


@pytest.mark.parametrize("rows", [{}, [], [1], "text", [{"name": "a"}], [{"name": "a", "x": 1}, {"name": "a", "x": 2}]])
def test_what_is_no_table_is_refused(rows: Any) -> None:
    with pytest.raises(UsageError, match="accuracy: expected"):
        table_of("accuracy", rows)


def test_arrays_in_a_document_are_lists() -> None:
    value = document_of({"a": np.arange(3), "b": (1, None, "x", True), "c": np.float32(0.5)})
    assert value == Document({"a": [0.0, 1.0, 2.0], "b": [1, None, "x", True], "c": 0.5})


@pytest.mark.parametrize(
    ("golden", "found"),
    [
        (series_of("loss", [1, math.nan, math.inf], 0), ["loss: nan at step 1 and at 1 more"]),
        (table_of("t", {"a": math.nan, "b": 1}), ["value: nan in the row a"]),
        (document_of({"a": [1, -math.inf]}), ["-inf at $['a'][1]"]),
        (series_of("loss", [1], 0), []),
    ],
)
def test_what_is_not_finite_is_named(golden: Any, found: list[str]) -> None:
    assert list(not_finite(golden)) == found
