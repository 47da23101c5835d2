from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from karat.findings import UsageError
from karat.optests.subject import (
    convert_float_to_uint16,
    convert_uint16_to_float,
    copy_bits_from_float_to_uint16,
    in_double,
    members,
    read_slots,
)

X = np.arange(6.0).reshape(2, 3)


def test_an_array_an_array_with_lengths_and_a_list_of_named_arrays() -> None:
    slots = read_slots({"X": X, "Y": (X, [[2]]), "Z": [("z0", X), ("z1", (X, [[2]]))]}, "inputs")
    assert [(slot.name, slot.listed) for slot in slots] == [("X", False), ("Y", False), ("Z", True)]
    assert [one.name for one in members(slots)] == ["X", "Y", "z0", "z1"]
    assert all(np.array_equal(one.array, X) for one in members(slots))


def test_bare_arrays_in_a_list_are_named_by_their_place() -> None:
    (slot,) = read_slots({"X": [X, X]}, "inputs")
    assert [one.name for one in slot.members] == ["X.0", "X.1"]


def test_what_is_none_is_left_out() -> None:
    assert read_slots({"X": None}, "inputs") == ()


def test_uint16_is_bfloat16() -> None:
    (slot,) = read_slots({"X": convert_float_to_uint16(X)}, "inputs")
    assert slot.members[0].dtype == "bfloat16"
    assert np.array_equal(slot.members[0].array, X)


def test_small_floats_of_ml_dtypes_keep_their_name() -> None:
    (slot,) = read_slots({"X": X.astype(ml_dtypes.float8_e4m3fn)}, "inputs")
    assert slot.members[0].dtype == "float8_e4m3fn"
    assert slot.members[0].differentiable


@pytest.mark.parametrize(
    ("dtype", "has_one"), [("float64", True), ("float16", True), ("complex64", True), ("int32", False), ("bool", False)]
)
def test_integers_and_booleans_have_no_gradient(dtype: str, *, has_one: bool) -> None:
    (slot,) = read_slots({"X": X.astype(dtype)}, "inputs")
    assert slot.members[0].differentiable is has_one


def test_low_precision_is_widened_and_nothing_else() -> None:
    slots = read_slots({"X": X.astype("float16"), "Y": X.astype("float32")}, "inputs")
    assert [one.dtype for one in members(in_double(slots))] == ["float64", "float32"]


@pytest.mark.parametrize("value", ["text", object(), ["a", "b"]])
def test_what_is_no_number_is_refused(value: object) -> None:
    with pytest.raises(UsageError, match=r"inputs\['X'\]: expected an array of numbers"):
        read_slots({"X": value}, "inputs")


def test_inputs_are_a_dict() -> None:
    with pytest.raises(UsageError, match="expected a dict of arrays, found list"):
        read_slots([X], "inputs")


@pytest.mark.parametrize(
    "values", [{"X": [("a", np.ones(2)), ("a", np.ones(2))]}, {"X": [("a", np.ones(2))], "a": np.ones(2)}]
)
def test_names_must_differ(values: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="outputs: expected names that differ, found 'a' 2 times"):
        read_slots(values, "outputs")


bits = arrays(np.uint16, array_shapes(min_dims=0, max_dims=3, min_side=0))


@given(bits)
def test_bits_come_back_through_floats(held: np.ndarray) -> None:
    wide = convert_uint16_to_float(held)
    assert wide.dtype == np.float32
    assert np.array_equal(convert_float_to_uint16(wide), held)


@given(bits)
def test_floats_are_what_bfloat16_means(held: np.ndarray) -> None:
    expected = held.view(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(convert_uint16_to_float(held), expected)


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_bits_are_cut_off_not_rounded(number: float) -> None:
    back = float(convert_uint16_to_float(np.uint16(copy_bits_from_float_to_uint16(number))))
    assert abs(back) <= abs(number)
    assert abs(back - number) <= max(abs(number) * 2**-7, 2**-133)


def test_the_layout_does_not_change_an_element() -> None:
    held = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
    assert np.array_equal(convert_float_to_uint16(held, "NHWC"), convert_float_to_uint16(held))
