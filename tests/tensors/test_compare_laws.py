"""Laws of comparing, on generated tensors."""

from __future__ import annotations

from fractions import Fraction
from math import inf, isfinite, isnan, log10, sqrt
from typing import Any

import ml_dtypes
import msgspec
import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

from karat.tensors import compare
from karat.tensors.arrays import tensor_of
from karat.tensors.bits import distances
from karat.tensors.compare import compare_tensors
from karat.tensors.comparison import TensorNumbers
from karat.tensors.dtypes import dtype_named, tolerance_for

FLOATS = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
WHOLE = ("int64", "uint64", "int32", "uint8", "int4")
tolerances = st.sampled_from([0.0, 1e-300, 1e-30, 1e-6, 1e-3, 0.5, 2.0, 1e9])


def dtype_of(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name, name))


@st.composite
def pairs(draw: st.DrawFn, names: tuple[str, ...] = (*FLOATS, *WHOLE), finite: bool = False) -> Any:  # noqa: FBT001, FBT002
    """Two arrays of one dtype that agree in many places and nearly agree in others."""
    name = draw(st.sampled_from(names))
    size = draw(st.integers(1, 40))
    if name in WHOLE:
        limits = (-8, 7) if name == "int4" else (np.iinfo(name).min, np.iinfo(name).max)
        numbers: Any = st.one_of(st.integers(*map(int, limits)), st.integers(0, 3))
        plain = "int8" if name == "int4" else name
    else:
        odd = [] if finite else [inf, -inf, float("nan")]
        numbers = st.one_of(
            st.floats(allow_nan=not finite, allow_infinity=not finite, width=64),
            st.sampled_from([0.0, -0.0, 1.0, 1.0000001, -1.5, 1e-310, 1e308, -1e308, 1e-45, *odd]),
        )
        plain = "float64"
    expected = draw(hnp.arrays(plain, size, elements=numbers))
    actual = draw(hnp.arrays(plain, size, elements=numbers))
    kept = draw(hnp.arrays(bool, size))
    near = draw(hnp.arrays(bool, size))
    with np.errstate(all="ignore"):
        expected, actual = expected.astype(dtype_of(name)), actual.astype(dtype_of(name))
        if name in FLOATS:
            moved = (expected.astype("f8") * (1 + 1e-3)).astype(dtype_of(name))
            actual = np.where(near, moved, actual)
        actual = np.where(kept, expected, actual).astype(dtype_of(name))
        if finite:
            fine = np.isfinite(expected.astype("f8")) & np.isfinite(actual.astype("f8"))
            zero = np.zeros((), dtype_of(name))
            expected, actual = np.where(fine, expected, zero), np.where(fine, actual, zero)
    return expected.astype(dtype_of(name)), actual.astype(dtype_of(name))


def compared(
    e: Any, a: Any, rtol: float = 1e-3, atol: float = 1e-6, *, equal_nan: bool = False, integers: bool = False
) -> TensorNumbers:
    sides = tensor_of(e), tensor_of(a)
    found = compare_tensors("x", *sides, rtol=rtol, atol=atol, equal_nan=equal_nan, integers=integers)
    assert found.numbers is not None
    assert found.passed == (found.numbers.mismatches == 0)
    return found.numbers


def in_chunks(e: Any, a: Any, chunk: int, read: int, threads: int) -> TensorNumbers:
    """The same comparison, cut up in another way."""
    tolerance = tolerance_for(tensor_of(e).dtype, tensor_of(a).dtype, 1e-3, 1e-6, equal_nan=False)
    plan = compare.Plan(
        expected=tensor_of(e),
        actual=tensor_of(a),
        dtype=dtype_named(tensor_of(e).dtype),
        other=dtype_named(tensor_of(a).dtype),
        tolerance=tolerance,
        elements=e.size,
        chunk=chunk,
        read=chunk * read,
    )
    return compare._tally("x", plan, threads, None).numbers(e.shape, with_ulps=plan.dtype.layout is not None)


def outside(e: float, a: float, rtol: float, atol: float, *, equal_nan: bool) -> bool:
    """The definition, in so many words."""
    if isnan(e) or isnan(a):
        return not (equal_nan and isnan(e) and isnan(a))
    if not (isfinite(e) and isfinite(a)):
        return e != a
    apart = abs(a - e)
    if apart == inf:  # larger than any float
        return bool(abs(Fraction(a) - Fraction(e)) > Fraction(atol) + Fraction(rtol) * abs(Fraction(e)))
    return apart > atol + rtol * abs(e)


@pytest.mark.slow
@given(pairs(FLOATS), tolerances, tolerances, st.booleans())
def test_the_verdict_on_floats_is_the_definition(
    pair: Any,
    rtol: float,
    atol: float,
    equal_nan: bool,  # noqa: FBT001
) -> None:
    e, a = pair
    n = compared(e, a, rtol, atol, equal_nan=equal_nan)
    with np.errstate(all="ignore"):
        sides = zip(e.astype("f8").tolist(), a.astype("f8").tolist(), strict=True)
    wrong = [at for at, (x, y) in enumerate(sides) if outside(x, y, rtol, atol, equal_nan=equal_nan)]
    assert n.mismatches == len(wrong)
    assert n.first_mismatch == ((wrong[0],) if wrong else None)


@pytest.mark.slow
@given(pairs(WHOLE), st.integers(0, 2**64))
def test_the_verdict_on_integers_is_exact(pair: Any, atol: int) -> None:
    e, a = pair
    atol = int(float(atol))
    n = compared(e, a, 0, atol, integers=True)
    apart = [abs(int(y) - int(x)) for x, y in zip(e, a, strict=True)]
    assert n.mismatches == sum(each > atol for each in apart)
    assert compared(e, a, 0, atol).mismatches == sum(each > 0 for each in apart)  # unless asked, exact
    assert n.max_abs == float(max(apart))
    assert n.max_abs_at == (apart.index(max(apart)),)


def reference(e: Any, a: Any) -> dict[str, Any]:
    """Everything else, in fractions."""
    with np.errstate(all="ignore"):
        wide = [(x, y) if e.dtype.kind in "iu" else (float(x), float(y)) for x, y in zip(e, a, strict=True)]
    fine = [at for at, (x, y) in enumerate(wide) if isfinite(x) and isfinite(y)]
    x = [Fraction(int(wide[at][0]) if e.dtype.kind in "iu" else wide[at][0]) for at in fine]
    y = [Fraction(int(wide[at][1]) if e.dtype.kind in "iu" else wide[at][1]) for at in fine]
    d = [two - one for one, two in zip(x, y, strict=True)]
    return {
        "fine": fine,
        "max_abs": max(map(abs, d), default=None),
        "mean_abs": sum(map(abs, d)) / len(d) if d else None,
        "max_rel": max((abs(z / w) for z, w in zip(d, x, strict=True) if w), default=None),
        "ee": sum(z * z for z in x),
        "aa": sum(z * z for z in y),
        "ea": sum((one * two for one, two in zip(x, y, strict=True)), Fraction(0)),
        "dd": sum(z * z for z in d),
    }


def close(found: float | None, true: Fraction | None, rel: float = 2e-6) -> bool:
    if found is None or true is None:
        return found is None and true is None
    if found == inf:
        return true > Fraction(1.79e308)
    return bool(abs(Fraction(found) - true) <= Fraction(rel) * abs(true) + Fraction(5e-324))


@pytest.mark.slow
@given(pairs())
def test_the_numbers_are_those_of_exact_arithmetic(pair: Any) -> None:
    e, a = pair
    n, true = compared(e, a), reference(e, a)
    assert close(n.max_abs, true["max_abs"], 1e-15)
    assert close(n.max_rel, true["max_rel"], 1e-15)
    assert close(n.mean_abs, true["mean_abs"])
    if not true["fine"]:
        assert (n.sqnr_db, n.cosine) == (None, None)
        return
    ee, aa, ea, dd = (true[key] for key in ("ee", "aa", "ea", "dd"))
    if not dd:
        assert n.sqnr_db == inf
    elif ee:
        ratio = Fraction(ee) / dd
        assert n.sqnr_db == pytest.approx(10 * (log10(ratio.numerator) - log10(ratio.denominator)), abs=1e-4)
    else:
        assert n.sqnr_db == -inf
    if ee and aa:
        size = sqrt(ea * ea / (Fraction(ee) * aa))
        assert n.cosine == pytest.approx(size if ea >= 0 else -size, abs=2e-6)
    else:
        assert n.cosine is None


@pytest.mark.slow
@given(pairs())
def test_extremes_are_where_they_are_said_to_be(pair: Any) -> None:
    e, a = pair
    n = compared(e, a)
    if n.max_abs_at is not None and n.max_abs is not None and n.max_abs < 2**53:
        at = n.max_abs_at
        with np.errstate(all="ignore"):
            assert (n.max_expected, n.max_actual) == (float(e[at]), float(a[at]))
            assert abs(float(a[at]) - float(e[at])) == n.max_abs
    if n.max_rel_at is not None and e.dtype.name != "int4":
        assert float(e[n.max_rel_at]) != 0


@pytest.mark.slow
@given(pairs())
def test_what_json_cannot_hold_is_told_by_what_it_can(pair: Any) -> None:
    """docs/bundles.md says how to tell an infinite number, which is null there, from one that was not measured."""
    found = compared(*pair)
    said = msgspec.json.decode(msgspec.json.encode(found))
    if found.sqnr_db is not None and not isfinite(found.sqnr_db):
        assert said["sqnr_db"] is None
        assert (found.sqnr_db > 0) == (said["max_abs"] == 0)
    elif said["max_abs_at"] is not None:
        assert said["max_abs"] != 0
    for name, where in (("max_abs", "max_abs_at"), ("mean_abs", "max_abs_at"), ("max_rel", "max_rel_at")):
        value = getattr(found, name)
        assert (said[where] is None) == (value is None)
        assert (said[name] is None) == (value is None or value == inf)


@pytest.mark.slow
@given(pairs())
def test_swapping_sides_keeps_what_is_symmetric(pair: Any) -> None:
    e, a = pair
    one, other = compared(e, a), compared(a, e)
    for name in ("elements", "bit_equal", "max_abs", "max_abs_at", "max_ulp", "mean_abs"):
        assert getattr(one, name) == getattr(other, name), name
    assert (one.nan_expected, one.inf_expected) == (other.nan_actual, other.inf_actual)
    if one.cosine is not None and other.cosine is not None:
        assert one.cosine == pytest.approx(other.cosine, abs=1e-6)


@pytest.mark.slow
@given(pairs())
def test_a_tensor_is_itself(pair: Any) -> None:
    e, _ = pair
    n = compared(e, e.copy(), 0, 0)
    assert n.bit_equal == n.elements == e.size
    assert n.mismatches == n.nan_expected == n.nan_actual
    assert compared(e, e.copy(), 0, 0, equal_nan=True).mismatches == 0
    assert n.max_abs in {0, None}
    assert n.max_ulp in {0, None}
    assert n.cosine in {1, None}


@pytest.mark.slow
@given(pairs(), st.integers(1, 9), st.integers(1, 4), st.integers(1, 5))
def test_how_it_is_read_and_by_how_many_changes_nothing(pair: Any, chunk: int, read: int, threads: int) -> None:
    e, a = pair
    assert in_chunks(e, a, chunk, read, threads) == in_chunks(e, a, chunk, 1, 1)


@pytest.mark.slow
@given(pairs(), st.integers(1, 9))
def test_chunks_of_any_size_give_the_same(pair: Any, chunk: int) -> None:
    e, a = pair
    one, other = in_chunks(e, a, chunk, 1, 1), compared(e, a)
    sums = ("mean_abs", "sqnr_db", "cosine")
    for name in TensorNumbers.__struct_fields__:
        found, true = getattr(one, name), getattr(other, name)
        if name in sums and found is not None and true is not None:
            assert found == true or found == pytest.approx(true, rel=1e-5, abs=1e-300), name
        else:
            assert found == true, name


@pytest.mark.slow
@given(pairs(), st.randoms(use_true_random=False))
def test_the_order_of_elements_matters_only_to_where(pair: Any, random: Any) -> None:
    e, a = pair
    order = list(range(e.size))
    random.shuffle(order)
    one, other = compared(e, a), compared(e[order], a[order])
    for name in ("bit_equal", "mismatches", "max_abs", "max_rel", "max_ulp", "nan_actual", "inf_expected"):
        assert getattr(one, name) == getattr(other, name), name


@pytest.mark.slow
@given(pairs(("float64",)), tolerances, tolerances, st.booleans())
def test_numpy_agrees_on_float64(pair: Any, rtol: float, atol: float, equal_nan: bool) -> None:  # noqa: FBT001
    e, a = pair
    with np.errstate(all="ignore"):
        apart, allowed = np.abs(a - e), atol + rtol * np.abs(e)
        theirs = np.isclose(a, e, rtol=rtol, atol=atol, equal_nan=equal_nan)
    finite = np.isfinite(e)
    if np.isinf(apart[finite & np.isfinite(a)]).any() or np.isinf(allowed[finite]).any():
        return  # numpy lets inf <= inf pass
    assert compared(e, a, rtol, atol, equal_nan=equal_nan).mismatches == np.count_nonzero(~theirs)


@pytest.mark.slow
@given(st.data())
def test_torch_agrees_on_float64(torch: Any, data: st.DataObject) -> None:
    e, a = data.draw(pairs(("float64",), finite=True))
    rtol, atol = data.draw(tolerances), data.draw(tolerances)
    with np.errstate(over="ignore"):
        if np.isinf(a - e).any():
            return
    theirs = torch.isclose(torch.from_numpy(a), torch.from_numpy(e), rtol=rtol, atol=atol)
    assert compared(e, a, rtol, atol).mismatches == int((~theirs).sum())


@pytest.mark.slow
@given(pairs(("float32", "float16", "float64"), finite=True))
def test_ulps_are_numpys_steps(pair: Any) -> None:
    """Walking so many steps with nextafter arrives, where the way is short."""
    e, a = pair
    n = compared(e, a)
    assert n.max_ulp is not None
    steps = [compared(e[at : at + 1], a[at : at + 1]).max_ulp for at in range(e.size)]
    assert n.max_ulp == max(step for step in steps if step is not None)
    for x, y, count in zip(e, a, steps, strict=True):
        if count is not None and count < 50:
            for _ in range(count):
                x = np.nextafter(x, y)  # noqa: PLW2901
            assert x == y


def test_large_tensors_in_every_way() -> None:
    """Real chunks, real threads: one long tensor, NaN in a few places, against numpy in float64."""
    rng = np.random.default_rng(0)
    e = rng.standard_normal(1_300_001, np.float32)
    a = (e * (1 + 1e-3 * rng.standard_normal(e.size))).astype(np.float32)
    a[rng.integers(0, e.size, 5)] = np.nan
    e[::3] = 0
    found = [compare_tensors("x", tensor_of(e), tensor_of(a), rtol=1e-3, threads=n) for n in (1, 2, 5)]
    assert found[0] == found[1] == found[2]
    n = found[0].numbers
    assert n is not None
    wide_e, wide_a = e.astype("f8"), a.astype("f8")
    with np.errstate(all="ignore"):
        apart = np.abs(wide_a - wide_e)
        wrong = ~(apart <= 1e-5 + 1e-3 * np.abs(wide_e))
        assert n.mismatches == wrong.sum()
        assert n.first_mismatch == (int(wrong.argmax()),)
        assert n.max_abs == np.nanmax(apart)
        assert n.max_rel == np.nanmax((apart / np.abs(wide_e))[e != 0])
        assert n.mean_abs == pytest.approx(np.nanmean(apart), rel=1e-6)
        assert n.nan_actual == np.isnan(a).sum()


@pytest.mark.slow
@given(
    st.sampled_from(["complex64", "complex128", "int64", "uint64"]),
    st.lists(st.sampled_from([0, 1, 3, 2**40, 2**62]), min_size=1, max_size=30),
)
def test_what_is_the_same_is_counted_as_what_nearly_is(name: str, values: list[int]) -> None:
    """Chunks that are the same on both sides have a way of their own; one odd element at the end takes the other."""
    same = np.array(values, name)
    quick = compared(same, same)
    odd = np.append(same, np.array(1, name))
    slow = compared(odd, np.append(same, np.array(2, name)), rtol=0, atol=0)
    assert quick.bit_equal == quick.elements == slow.bit_equal == slow.elements - 1 == same.size
    assert (quick.mismatches, slow.first_mismatch) == (0, (same.size,))
    assert (quick.max_abs, quick.mean_abs, quick.sqnr_db) == (0, 0, inf)
    assert quick.max_expected == quick.max_actual == float(values[0])
    nonzero = next((index for index, value in enumerate(values) if value), None)
    assert quick.max_rel_at == (None if nonzero is None else (nonzero,))
    assert quick.cosine == (None if nonzero is None else 1.0)


@pytest.mark.parametrize("value", [complex("nan"), complex(1, float("nan")), complex(inf, 1), 1e300j])
def test_the_same_complex_numbers_that_need_care_get_it(value: complex) -> None:
    array = np.array([1, value, 2j])
    found = compared(array, array)
    assert found.bit_equal == 3
    assert found.nan_expected == isnan(abs(value)) == found.mismatches
    assert found.inf_expected == (abs(value) == inf)
    assert found.sqnr_db == inf


@pytest.mark.parametrize("name", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("seed", range(4))
def test_no_step_is_missed_however_far_apart_the_numbers_before_were(name: str, seed: int) -> None:
    """Chunks whose pairs are farther and farther apart: by a factor, by a sign, and from nothing at all."""
    rng, dtype = np.random.default_rng(seed), dtype_of(name)
    e = rng.standard_normal(6400)
    rows = e.reshape(100, 64)
    a = e * (1 + rng.standard_normal(e.size) * 1e-3)
    for at in range(0, 100, 3):
        row, number = a.reshape(100, 64)[at], rng.integers(64)
        row[number] *= 2.0 ** (rng.integers(-1, 2) * at / 8)
        if at % 4 == 1:
            row[number] *= -1
        if at % 5 == 2:
            rows[at, number] = 0
    e, a = e.astype(dtype), a.astype(dtype)
    found = in_chunks(e, a, 64, 2, 1)
    apart = distances(dtype_named(name), e.view(np.uint8), a.view(np.uint8))
    assert (found.max_ulp, found.bit_equal) == (int(apart.max()), int(np.count_nonzero(apart == 0)))
