"""Two tensors compared: each number, and each way in which they can differ."""

from __future__ import annotations

from fractions import Fraction
from math import inf, nan
from typing import Any

import numpy as np
import pytest

from factories.bit_patterns import ODD_NAMES, tensor
from karat.tensors.arrays import tensor_of
from karat.tensors.compare import compare_tensors
from karat.tensors.comparison import Comparison, TensorNumbers
from karat.tensors.dtypes import TABLE
from karat.tensors.tensor import Tensor


def kinds(result: Comparison) -> list[str]:
    return [finding.kind for finding in result.findings]


def compare(expected: Any, actual: Any, **options: Any) -> Comparison:
    return compare_tensors("out", tensor_of(np.asarray(expected)), tensor_of(np.asarray(actual)), **options)


def numbers(expected: Any, actual: Any, **options: Any) -> TensorNumbers:
    found = compare(expected, actual, **options).numbers
    assert found is not None
    return found


def test_all_the_numbers_of_a_small_example() -> None:
    result = compare([[1.0, 2.0], [-4.0, 0.0]], [[1.0, 2.5], [-3.0, 0.0]], rtol=0.1, atol=0.0)
    n = result.numbers
    assert n is not None
    assert (n.elements, n.bit_equal, n.mismatches) == (4, 2, 2)
    assert n.first_mismatch == (0, 1)
    assert (n.max_abs, n.max_abs_at, n.max_expected, n.max_actual) == (1.0, (1, 0), -4.0, -3.0)
    assert n.mean_abs == 1.5 / 4
    assert (n.max_rel, n.max_rel_at) == (0.25, (0, 1))
    assert n.max_ulp == 1 << 51  # a quarter and half a binade, of 2 ** 52 steps
    assert n.sqnr_db == pytest.approx(10 * np.log10(21 / 1.25))
    assert n.cosine == pytest.approx(18 / np.sqrt(21 * 16.25))
    assert kinds(result) == ["tensor-mismatch"]
    assert not result.passed
    message = result.findings[0].message
    assert message == (
        "in `out`: expected |Δ| <= 0 + 0.1·|expected|, found 2 of 4 elements outside; first at [0, 1];"
        " worst at [1, 0]: expected -4, found -3 (|Δ| 1)"
    )


def test_equal_tensors_pass_and_have_numbers() -> None:
    result = compare(np.arange(6.0), np.arange(6.0))
    n = result.numbers
    assert result.passed
    assert n is not None
    assert (n.bit_equal, n.max_abs, n.max_rel, n.max_ulp) == (6, 0, 0, 0)
    assert (n.sqnr_db, n.cosine) == (inf, 1)


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2"])
@pytest.mark.parametrize(
    ("expected", "actual", "equal_nan", "wrong"),
    [
        ([nan], [nan], False, 1),
        ([nan], [nan], True, 0),
        ([1.0], [nan], True, 1),
        ([nan], [1.0], True, 1),
        ([inf], [inf], False, 0),
        ([inf], [-inf], False, 1),
        ([inf], [1.0], False, 1),
        ([1.0], [inf], False, 1),
        ([inf], [nan], True, 1),
        ([-inf], [-inf], False, 0),
        ([nan, 1.0], [1.0, nan], True, 2),
    ],
)
def test_nan_and_infinity(
    dtype: str,
    expected: list[float],
    actual: list[float],
    equal_nan: bool,  # noqa: FBT001
    wrong: int,
) -> None:
    e, a = np.array(expected, dtype), np.array(actual, dtype)
    n = numbers(e, a, rtol=1e6, atol=1e6, equal_nan=equal_nan)
    assert n.mismatches == wrong
    assert n.nan_expected == np.isnan(e).sum()
    assert n.nan_actual == np.isnan(a).sum()
    assert n.inf_expected == np.isinf(e).sum()
    assert n.inf_actual == np.isinf(a).sum()
    if not (np.isfinite(e) & np.isfinite(a)).any():
        assert (n.max_abs, n.mean_abs, n.max_rel, n.max_ulp, n.sqnr_db, n.cosine) == (None,) * 6


def test_a_nan_that_was_a_number_is_said_apart() -> None:
    result = compare([1.0, 2.0, 3.0], [1.0, nan, inf])
    assert kinds(result) == ["new-nan"]
    assert "2 of 3 elements" in result.findings[0].message
    assert "first at [1]" in result.findings[0].message
    result = compare([1.0, 2.0, 3.0], [5.0, nan, 3.0])
    assert kinds(result) == ["new-nan", "tensor-mismatch"]


def test_nan_on_both_sides_fails_and_says_how_to_allow_it() -> None:
    result = compare([nan, 1.0], [nan, 1.0])
    assert kinds(result) == ["tensor-mismatch"]
    assert "equal_nan" in result.findings[0].message
    assert compare([nan, 1.0], [nan, 1.0], equal_nan=True).passed


def test_nan_payloads_differ_in_bits_and_not_in_kind() -> None:
    quiet = np.array([0x7FC00000, 0x7FC00001], "u4").view("f4")
    n = numbers(quiet[:1], quiet[1:], equal_nan=True)
    assert (n.bit_equal, n.mismatches) == (0, 0)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_zeros_of_both_signs_are_equal_but_not_bit_equal(dtype: str) -> None:
    n = numbers(np.array([0.0, 1], dtype), np.array([-0.0, 1], dtype), rtol=0, atol=0)
    assert (n.bit_equal, n.mismatches, n.max_ulp, n.max_abs) == (1, 0, 0, 0)


def test_steps_across_zero_are_counted_through_it() -> None:
    tiny = np.finfo("f4").smallest_subnormal
    assert numbers(np.array([tiny, 1], "f4"), np.array([-tiny, 1], "f4")).max_ulp == 2
    assert numbers([-1.0], [1.0]).max_ulp == 2 * 0x3FF << 52


@pytest.mark.parametrize(
    ("dtype", "expected", "actual", "apart"),
    [
        ("int64", 2**63 - 1, -(2**63), 2**64 - 1),
        ("uint64", 2**64 - 1, 2**64 - 2, 1),
        ("uint64", 0, 2**64 - 1, 2**64 - 1),
        ("int64", 2**53 + 1, 2**53, 1),
        ("int64", -(2**62), -(2**62) - 1, 1),
        ("int32", -(2**31), 2**31 - 1, 2**32 - 1),
        ("uint32", 0, 2**32 - 1, 2**32 - 1),
        ("int8", -128, 127, 255),
        ("uint8", 255, 0, 255),
        ("int16", -1, 1, 2),
    ],
)
def test_integers_are_exact(dtype: str, expected: int, actual: int, apart: int) -> None:
    e, a = np.array([7, expected], dtype), np.array([7, actual], dtype)
    n = numbers(e, a)
    assert (n.mismatches, n.first_mismatch, n.bit_equal) == (1, (1,), 1)
    assert n.max_abs == float(apart)
    assert n.max_ulp is None
    assert numbers(e, a, rtol=0, atol=apart).mismatches == 1  # a tolerance is for floats
    assert numbers(e, a, rtol=0, atol=apart, integers=True).mismatches == 0
    if apart > 1 and float(apart - 1) < float(apart):
        assert numbers(e, a, rtol=0, atol=apart - 1, integers=True).mismatches == 1


def test_bools_are_exact_and_any_byte_but_zero_is_true() -> None:
    assert numbers([True, False], [True, True]).mismatches == 1
    two = Tensor(dtype="bool", shape=(1,), data=memoryview(b"\2"))
    one = Tensor(dtype="bool", shape=(1,), data=memoryview(b"\1"))
    found = compare_tensors("b", one, two).numbers
    assert found is not None
    assert (found.mismatches, found.bit_equal) == (0, 0)


def test_complex_numbers_differ_by_the_size_of_their_difference() -> None:
    n = numbers(np.array([3 + 4j, 1j]), np.array([3 + 4j, 1]), rtol=0, atol=1.0)
    assert n.max_abs == pytest.approx(np.sqrt(2))
    assert (n.mismatches, n.max_expected, n.max_actual) == (1, 1, 1)
    assert numbers(np.array([1j]), np.array([1]) + 0j, rtol=0, atol=1.5).mismatches == 0
    assert numbers(np.array([complex(nan, 0)]), np.array([complex(nan, 0)])).nan_actual == 1


@pytest.mark.parametrize(
    "values", [(1.7e308, -1.7e308), (1e308, 9e307), (5e-324, 1e-323), (1e-200, 2e-200), (1e200, 1e-200)]
)
def test_the_ends_of_float64_neither_overflow_nor_vanish(values: tuple[float, float]) -> None:
    e, a = np.array([values[0], values[0]]), np.array([values[1], values[0]])
    n = numbers(e, a, rtol=0.01, atol=0)
    assert n.mismatches == 1
    true = abs(Fraction(values[1]) - Fraction(values[0])) / abs(Fraction(values[0]))
    assert n.max_rel == pytest.approx(float(true), rel=1e-15)
    assert n.sqnr_db == pytest.approx(10 * np.log10(2) - 20 * np.log10(float(true)), abs=1e-6)
    assert n.cosine is not None
    assert -1 <= n.cosine <= 1
    assert numbers(e, a, rtol=1e300, atol=0).mismatches == 0


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("scale", [1e-30, 1e-18, 1e-4, 1.0, 1e4, 1e15, 1e30])
def test_scale_is_no_matter_to_quotients_of_sums(dtype: str, scale: float) -> None:
    """Squares that float32 cannot hold, and sides of very different size."""
    rng = np.random.default_rng(0)
    e, noise = rng.standard_normal((2, 70_000))
    near = numbers((scale * e).astype(dtype), (scale * (e + 1e-3 * noise)).astype(dtype))
    assert near.sqnr_db == pytest.approx(10 * np.log10((e @ e) / (1e-6 * noise @ noise)), abs=1e-3)
    assert near.mean_abs == pytest.approx(scale * 1e-3 * np.abs(noise).mean(), rel=1e-4)
    moved = e + 1e-3 * noise
    apart = 1 - e @ moved / np.sqrt((e @ e) * (moved @ moved))
    assert near.cosine is not None
    assert 1 - near.cosine == pytest.approx(apart, rel=1e-4)  # a millionth of a millionth counts
    far = numbers(e.astype(dtype), (scale * (e + noise)).astype(dtype))
    true = e @ (e + noise) / np.sqrt((e @ e) * ((e + noise) @ (e + noise)))
    assert far.cosine == pytest.approx(true, abs=1e-6)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_differences_too_small_to_be_squared_are_not_lost(dtype: str) -> None:
    e = np.array([1.0, 0.0, 0.0], dtype)
    small = 1e-30 if dtype == "f4" else 1e-200
    a = np.array([1.0, small, 0.0], dtype)
    assert numbers(e, a).sqnr_db == pytest.approx(-20 * np.log10(small), rel=1e-6)
    assert numbers(a[1:], e[1:]).sqnr_db == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("zero", [0.0, -0.0])
@pytest.mark.parametrize("value", [2.5, -2.5, 1e-3, -1e-3])
def test_steps_from_zero_are_the_magnitude(zero: float, value: float) -> None:
    e, a = np.array([zero, 1], "f4"), np.array([value, 1], "f4")
    assert numbers(e, a).max_ulp == int(np.abs(a[:1]).view("u4")[0])


def test_both_sides_infinite_differences_do_not_pass() -> None:
    """inf <= inf is true, and 1e308 against −1e308 still is no match."""
    assert numbers(np.array([1.5e308]), np.array([-1.5e308]), rtol=1.9, atol=0).mismatches == 1
    assert numbers(np.array([1.5e308]), np.array([-1.5e308]), rtol=2.1, atol=0).mismatches == 0


@pytest.mark.parametrize(
    "name",
    ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e5m2fnuz", "float4_e2m1fn", "float6_e3m2fn", "float8_e8m0fnu"],
)
def test_a_step_is_one_ulp_in_every_width(name: str) -> None:
    """Neighbouring magnitudes of the dtype, from zero to the largest finite number."""
    of = TABLE[name]
    top = (1 << (of.width - 1)) - 1 if of.signed else 254
    if name in {"bfloat16", "float8_e5m2"}:
        top = (1 << (of.width - 1)) - (1 << (of.layout.mantissa if of.layout else 0)) - 1
    elif name == "float8_e4m3fn":
        top -= 1
    codes = np.arange(top + 1).astype(of.bits)
    lower, upper = codes[:-1], codes[1:]
    made = [Tensor(dtype=name, shape=lower.shape, data=side.view("u1").data) for side in (lower, upper)]
    found = compare_tensors("x", *made).numbers
    assert found is not None
    assert found.max_ulp == 1
    assert found.bit_equal == 0
    ends = [Tensor(dtype=name, shape=(1,), data=side.view("u1").data) for side in (codes[:1], codes[-1:])]
    whole = compare_tensors("x", *ends).numbers
    assert whole is not None
    assert whole.max_ulp == top


def test_packed_numbers_are_counted_one_by_one() -> None:
    e = Tensor(dtype="float4_e2m1fn_x2", shape=(2, 2), data=memoryview(bytes([0x21, 0x43, 0x21, 0x43])))
    a = Tensor(dtype="float4_e2m1fn_x2", shape=(2, 2), data=memoryview(bytes([0x21, 0x43, 0x21, 0x73])))
    n = compare_tensors("x", e, a, rtol=0, atol=0).numbers
    assert n is not None
    assert (n.elements, n.bit_equal, n.mismatches) == (8, 7, 1)
    assert (n.first_mismatch, n.max_abs, n.max_ulp) == ((1, 3), 4.0, 3)


@pytest.mark.parametrize("name", [*ODD_NAMES, "bits8", "bits16"])
def test_what_is_no_number_is_equal_or_not(name: str) -> None:
    one, same, other = tensor(name, (2, 3)), tensor(name, (2, 3)), tensor(name, (2, 3), seed=1)
    assert compare_tensors("x", one, same).passed
    result = compare_tensors("x", one, other, rtol=1e9, atol=1e9)
    n = result.numbers
    assert n is not None
    assert n.mismatches == 6
    assert (n.max_abs, n.cosine, result.tolerance) == (None, None, None)
    assert kinds(result) == ["tensor-mismatch"]
    assert "equal elements" in result.findings[0].message


def test_elements_without_bytes_are_equal() -> None:
    none = Tensor(dtype="|V0", shape=(3,), data=memoryview(b""))
    result = compare_tensors("x", none, none)
    assert result.passed
    assert result.numbers is not None
    assert result.numbers.elements == 3


@pytest.mark.parametrize("shape", [(0,), (3, 0, 2)])
def test_empty_tensors_pass_only_in_their_own_shape(shape: tuple[int, ...]) -> None:
    result = compare(np.zeros(shape), np.zeros(shape))
    assert result.passed
    assert result.numbers is not None
    assert (result.numbers.elements, result.numbers.max_abs) == (0, None)
    assert kinds(compare(np.zeros(shape), np.zeros((0, 7)))) == ["shape-changed"]


def test_a_single_number_has_an_empty_index() -> None:
    n = numbers(np.float32(1), np.float32(2))
    assert (n.elements, n.first_mismatch, n.max_abs_at) == (1, (), ())


def test_another_shape_is_a_finding_and_nothing_is_compared() -> None:
    result = compare(np.zeros((2, 3)), np.zeros((3, 2)))
    assert kinds(result) == ["shape-changed"]
    assert result.numbers is None
    assert result.findings[0].message == "in `out`: expected the shape [2, 3], found [3, 2]"
    assert not compare(np.zeros((1,)), np.zeros(())).passed  # nothing is broadcast


def test_another_dtype_is_a_finding_and_the_values_are_compared_all_the_same() -> None:
    result = compare(np.array([1, 2], "f4"), np.array([1, 2], "f8"))
    assert kinds(result) == ["dtype-changed"]
    assert result.numbers is not None
    assert (result.numbers.mismatches, result.numbers.max_ulp) == (0, None)


@pytest.mark.parametrize(
    ("expected", "actual"),
    [("f4", "f8"), ("i4", "f4"), ("i8", "u8"), ("?", "i1"), ("f4", "c8"), ("g", "f4"), ("f2", "u8")],
)
def test_dtypes_may_differ_if_asked_for(expected: str, actual: str) -> None:
    e, a = np.array([0, 1, 1], expected), np.array([0, 1, 0], actual)
    result = compare(e, a, check_dtype=False)
    assert kinds(result) == ["tensor-mismatch"]
    assert result.numbers is not None
    assert (result.numbers.mismatches, result.numbers.bit_equal) == (1, 2)
    assert compare(e, e.astype(actual), check_dtype=False).passed


def test_the_wider_default_holds_for_two_dtypes() -> None:
    import ml_dtypes

    e = np.array([1.0], "f4")
    assert compare(e, np.array([1.0078125], ml_dtypes.bfloat16), check_dtype=False).passed
    assert not compare(e, np.array([1.0078125], "f4")).passed


def test_text_and_numbers_are_never_the_same() -> None:
    result = compare(np.array(["1"]), np.array([1.0]), check_dtype=False)
    assert kinds(result) == ["dtype-changed"]
    assert result.numbers is None


def test_long_doubles_are_told_apart_beyond_float64() -> None:
    one = np.array([1], np.longdouble)
    more = one + np.finfo(np.longdouble).eps
    assert float(more[0]) == 1.0
    n = numbers(one, more, rtol=0, atol=0)
    assert (n.mismatches, n.bit_equal) == (1, 0)


def test_long_doubles_beyond_float64_neither_overflow_nor_vanish() -> None:
    for exponent in (4000, -4000):
        e = np.array([1, 2], np.longdouble) * np.exp2(np.longdouble(exponent))
        n = numbers(e, e * np.longdouble(1.5), rtol=0.4, atol=0)
        assert (n.mismatches, n.max_rel, n.cosine) == (2, 0.5, 1)
        assert n.sqnr_db == pytest.approx(20 * np.log10(2))
        assert numbers(e, e * np.longdouble(1.5), rtol=0.6, atol=0).mismatches == 0


def test_a_long_double_of_another_platform_is_equal_or_not() -> None:
    name = "float128"
    one, other = tensor(name), tensor(name, seed=1)
    assert compare_tensors("x", one, one).passed
    assert kinds(compare_tensors("x", one, other)) == ["tensor-mismatch"]


@pytest.mark.parametrize("wrong", [{"rtol": -1.0}, {"atol": nan}, {"rtol": inf}])
def test_a_tolerance_that_is_none_is_an_error(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="expected a finite number >= 0, found"):
        compare([1.0], [1.0], **wrong)


def test_tolerances_say_where_they_come_from() -> None:
    assert compare([1.0], [1.0]).tolerance.origin == "dtype"  # type: ignore[union-attr]
    assert compare([1.0], [1.0], rtol=0.1).tolerance.origin == "given"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        (np.array([2**53 + 1]), np.array([2.0**53])),
        (np.array([2**63 - 1]), np.array([2.0**63])),
        (np.array([2**63 - 1]), np.array([2**63], np.uint64)),
        (np.array([2**64 - 1], np.uint64), np.array([2.0**64 + 0j])),
    ],
)
@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="no float here holds 64-bit integers")
def test_large_integers_are_not_rounded_to_what_they_are_compared_with(expected: Any, actual: Any) -> None:
    for one, other in ((expected, actual), (actual, expected)):
        found = compare_tensors("x", tensor_of(one), tensor_of(other), rtol=0, atol=0, check_dtype=False)
        assert found.numbers is not None
        assert (found.passed, found.numbers.bit_equal, found.numbers.max_abs) == (False, 0, 1.0)


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        (np.array([1.33944135e154]), np.array([1.34078079e154])),
        (np.array([1.3407e154]), np.array([1.3407e154])),
        (np.full(200_000, 1e151), np.full(200_000, 1.0001e151)),
        (np.full(200_000, 1e151), np.full(200_000, 1e151)),
    ],
)
def test_squares_at_the_end_of_float64_do_not_overflow(expected: Any, actual: Any) -> None:
    found = compare_tensors("x", tensor_of(expected), tensor_of(actual), rtol=1e-7, atol=0).numbers
    assert found is not None
    assert found.cosine == pytest.approx(1)
    apart = float(np.abs(actual / expected - 1).max())
    assert found.sqnr_db == pytest.approx(-20 * np.log10(apart) if apart else np.inf)
