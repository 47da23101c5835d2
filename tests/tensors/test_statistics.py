"""Statistics of one tensor, against numpy."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

from factories.bit_patterns import NUMERIC, Bytes, extent_of, tensor
from karat.tensors.arrays import tensor_of
from karat.tensors.comparison import Statistics
from karat.tensors.statistics import statistics
from karat.tensors.tensor import Damaged, TensorExtent


@pytest.mark.slow
@given(
    hnp.arrays(st.sampled_from(["f4", "f8", "i4", "u1", "i8"]), hnp.array_shapes(min_dims=0, max_dims=3, min_side=0))
)
def test_finite_elements_have_numpys_numbers(array: Any) -> None:
    found = statistics(tensor_of(array))
    wide = array.astype("f8").ravel()
    fine = wide[np.isfinite(wide)]
    assert (found.nan, found.inf) == (np.isnan(wide).sum(), np.isinf(wide).sum())
    if not fine.size:
        assert (found.min, found.max, found.mean, found.l2) == (None,) * 4
        return
    assert (found.min, found.max) == (fine.min(), fine.max())
    scale = max(1e-300, float(np.abs(fine).max()))
    assert found.mean == pytest.approx(float(np.mean(fine / scale)) * scale, abs=1e-12 * scale)
    length = float(np.linalg.norm(fine / scale))
    assert found.l2 is not None
    assert found.l2 / scale == pytest.approx(length, rel=1e-12) or found.l2 == inf


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([3.0, -4.0], Statistics(min=-4, max=3, mean=-0.5, l2=5)),
        ([nan, inf, -inf, 2.0], Statistics(min=2, max=2, mean=2, l2=2, nan=1, inf=2)),
        ([nan], Statistics(nan=1)),
        ([], Statistics()),
        ([3 + 4j, complex(nan, 1)], Statistics(l2=5, nan=1)),
        ([True, False], Statistics(min=0, max=1, mean=0.5, l2=1)),
        (["text"], Statistics()),
        ([1e308, 1e308], Statistics(min=1e308, max=1e308, mean=1e308, l2=2**0.5 * 1e308)),
        ([5e-324], Statistics(min=5e-324, max=5e-324, mean=5e-324, l2=5e-324)),
    ],
)
def test_examples(values: list[Any], expected: Statistics) -> None:
    assert statistics(tensor_of(np.array(values))) == expected


@pytest.mark.parametrize("name", NUMERIC)
def test_every_dtype_has_them_and_the_same_wherever_it_lies(name: str) -> None:
    made = tensor(name, (7, 9))
    found = statistics(made)
    assert statistics(extent_of(made)) == found
    if name not in {"float128", "complex256"}:
        assert found.l2 is not None


def test_long_tensors_in_blocks_with_nan_in_one() -> None:
    array = np.random.default_rng(0).standard_normal(500_001, np.float32)
    array[300_000] = np.nan
    found = statistics(extent_of(tensor_of(array), seekable=False))
    assert found.nan == 1
    assert found.mean == pytest.approx(float(np.nanmean(array, dtype="f8")), rel=1e-9)
    assert (found.min, found.max) == (float(np.nanmin(array)), float(np.nanmax(array)))


def test_missing_bytes_are_damage() -> None:
    with pytest.raises(Damaged, match="found 15"):
        statistics(TensorExtent(dtype="float32", shape=(4,), extent=Bytes(bytes(15))))
