"""Default tolerances, against torch's where it has them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from factories.bit_patterns import ODD_NAMES, torch_dtypes
from karat.tensors.bits import table_of
from karat.tensors.dtypes import TABLE, for_dtype, tolerance_for


def test_floats_of_16_bits_and_more_are_as_torch_has_them(torch: Any) -> None:
    from torch.testing._comparison import default_tolerances  # noqa: PLC0415

    known = [name for name in torch_dtypes(torch) if TABLE[name].layout and TABLE[name].width >= 16]
    assert "bfloat16" in known
    for name in known:
        found = for_dtype(name)
        assert (found.rtol, found.atol) == default_tolerances(getattr(torch, name)), name


@pytest.mark.parametrize("name", [
    "bool", "int4", "int64", "uint8", "bits8", "float8_e8m0fnu", *ODD_NAMES,
])  # fmt: skip
def test_what_is_exact(name: str) -> None:
    found = for_dtype(name)
    assert (found.rtol, found.atol, found.origin) == (0, 0, "dtype")


@pytest.mark.parametrize(
    "name", ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float6_e2m3fn", "float4_e2m1fn"]
)
def test_small_floats_may_be_a_step_apart_and_not_three(name: str) -> None:
    of, found = TABLE[name], for_dtype(name)
    values = [float(x) for x in table_of(name)[: 1 << (of.width - 1)]]
    finite = [x for x in values if x == x and x < float("inf")]  # noqa: PLR0124

    def allowed(expected: float, actual: float) -> bool:
        return abs(actual - expected) <= found.atol + found.rtol * abs(expected)

    assert all(allowed(x, y) and allowed(y, x) for x, y in pairwise(finite))
    assert not all(allowed(x, y) for x, y in zip(finite, finite[3:], strict=False))


def test_what_is_given_holds_and_the_rest_is_the_wider_default() -> None:
    found = tolerance_for("float32", "bfloat16", None, 0.5, equal_nan=True)
    assert (found.rtol, found.atol, found.equal_nan, found.origin) == (1.6e-2, 0.5, True, "given")
    assert tolerance_for("float32", "float32", 0, 0, equal_nan=False).rtol == 0


@pytest.mark.parametrize("given", [-1e-9, float("nan"), float("inf"), 10**400, "much"])
def test_what_is_no_tolerance_is_told_by_its_name(given: Any) -> None:
    for name, both in (("rtol", (given, None)), ("atol", (None, given))):
        with pytest.raises(ValueError, match=f"^{name}: expected a finite number >= 0, found "):
            tolerance_for("float32", "float32", *both, equal_nan=False)


@pytest.mark.parametrize("name", TABLE)
def test_every_dtype_has_a_default(name: str) -> None:
    assert for_dtype(name).rtol >= 0
