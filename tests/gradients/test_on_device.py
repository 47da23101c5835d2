"""Large tensors where they lie: numpy's functions give what they give for numpy's arrays, and a check the same verdict."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import karat
from conftest import framework
from factories.wrong_backwards.pair import MODULES, framework_of, pairs_of
from karat.gradients.draws import random_weights
from karat.gradients.report import GradReport
from karat.tensors import device_array
from karat.tensors.device_array import LARGE, DeviceArray, drawn, random_signs

torch: Any = framework("torch")
NUMBERS = np.array([0.5, -3.0, np.inf, 0.0, np.nan, 7.25, -0.0, 1e-310])

EXPRESSIONS: dict[str, Callable[[Any], Any]] = {
    "arithmetic": lambda a: (2.0 * a - 1) / 3 + a * a - np.array([1.0] * 8),
    "an array before it": lambda a: np.arange(8.0) * a,
    "comparisons": lambda a: (a < 1) & ~(a == 0) | np.isnan(a),
    "bools in arithmetic": lambda a: (a > 0) * 2.5,
    "a division of integers": lambda a: a.view(np.int64) / 3,
    "bits": lambda a: (a.view(np.int64) & 0x7FF0000000000000).view(np.float64),
    "where": lambda a: np.where(np.isfinite(a), a, np.inf),
    "where of numbers alone": lambda a: np.where(a > 0, 1.0, 1e-300),
    "bounds": lambda a: np.maximum(np.minimum(a, 4.0), np.abs(a)) + np.maximum(1.0, a),
    "clip": lambda a: np.clip(a, -1.0, 1.0),
    "mantissas": lambda a: np.frexp(a[a > 0.1])[0],
    "exponents": lambda a: np.ldexp(1.0, np.frexp(a[:2])[1] - 1),
    "rounding": np.rint,
    "a choice": lambda a: a[a > 0],
    "places": lambda a: a[[0, 3, 5]],
    "one place": lambda a: float(a[5]),
    "a stride": lambda a: a[1::3],
    "an axis": lambda a: np.swapaxes(a.reshape(2, 4), 0, 1),
    "the largest": lambda a: np.max(np.abs(a), initial=0.0, where=np.isfinite(a)),
    "none larger": lambda a: np.max(a[:2], initial=9.0),
    "sum": lambda a: np.sum(np.isfinite(a)),
    "mean of bools": lambda a: np.mean(a > 0),
    "all, any": lambda a: (bool(np.all(a > 0)), bool((a == 0).any())),
    "counted": np.count_nonzero,
    "where it is largest": lambda a: np.argmax(np.where(np.isfinite(a), a, 0.0)),
    "zeros": lambda a: np.zeros_like(a, np.bool_),
    "ones": np.ones_like,
    "stacked": lambda a: np.stack([a, np.ones(8), 2 * a])[1:] / np.array([[2.0], [4.0]]),
    "joined": lambda a: np.concatenate([a, np.ones(3), a]),
    "equal": lambda a: (np.array_equal(a, a), np.array_equal(a, a.copy(), equal_nan=True), np.array_equal(a, a[:3])),
    "a dot product": lambda a: np.dot(a[:2], a[:2]),
    "what torch has no word for": np.spacing,
    "complex parts": lambda a: ((a + 1j * np.ones(8)).imag, np.conj(a[:2] * 1j), np.iscomplexobj(a * 1j)),
    "pairs": lambda a: a.view(np.complex128).view(np.float64),
    "in place": lambda a: _written(a.copy()),
}


def _written(a: Any) -> Any:
    a[a > 1] = 0.0
    a[[0, 1]] = [4.0, 5.0]
    np.maximum(a, 1.0, out=a)
    return a


@pytest.fixture(autouse=True)
def everything_stays(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.setattr(device_array, "stays", lambda tensor: tensor.dim() and tensor.numel() > 1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_numpys_functions_give_what_they_give_for_arrays(name: str) -> None:
    large = DeviceArray(torch.from_numpy(NUMBERS.copy()))
    with np.errstate(all="ignore"):
        expected = EXPRESSIONS[name](NUMBERS)
        found = EXPRESSIONS[name](large)
    for one, two in zip(*((side if isinstance(side, tuple) else (side,)) for side in (found, expected)), strict=True):
        assert np.asarray(one).dtype == np.asarray(two).dtype
        np.testing.assert_array_equal(np.asarray(one), np.asarray(two))


def test_draws_are_the_same_on_every_device() -> None:
    there = DeviceArray(torch.zeros(LARGE))
    for draw in (random_weights, random_signs):
        here, beside = (draw(LARGE, np.random.default_rng(7), like) for like in (None, there))
        assert isinstance(beside, type(there))
        np.testing.assert_array_equal(here, np.asarray(beside))
        assert abs(float(np.mean(np.sign(here)))) < 0.02
        assert 0.5 <= np.abs(here).min() <= np.abs(here).max() <= 1


def _off_by_one_per_cent(x: Any, place: int) -> Any:
    class Wrong(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            found = g * ctx.saved_tensors[0].cos()
            found[place] *= 1.01
            return found

    return Wrong.apply(x)


def test_few_draws_are_kept_and_no_one_can_write_to_them() -> None:
    like = np.zeros(5)
    first, again = (drawn(random_weights, (7, 1), [like, like]) for _ in range(2))
    assert first[0] is again[0]
    assert not np.array_equal(first[0], first[1])
    assert np.array_equal(first[0], random_weights(5, np.random.default_rng((7, 1))))
    with pytest.raises(ValueError, match="read-only"):
        first[0][0] = 1.0


@pytest.mark.slow
def test_one_wrong_element_of_very_many_is_found_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_array, "stays", lambda _tensor: False)
    x = torch.randn(2**17 + 5, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    x[::1001] = 0.0
    right = karat.gradcheck(lambda x: x.abs() * x.sin(), (x,), op="sin", seed=1, level="quick")
    wrong = karat.gradcheck(lambda x: _off_by_one_per_cent(x, 1234), (x,), op="sin", seed=1, level="quick")
    assert (str(right.verdict), str(wrong.verdict)) == ("PASS", "FAIL")
    assert "1234" in str(wrong)


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of what came down to the host."""
    sizes: list[int] = []
    fetch = DeviceArray.__array__

    def counted(self: DeviceArray, dtype: Any = None, copy: Any = None) -> Any:
        sizes.append(self.size)
        return fetch(self, dtype, copy)

    monkeypatch.setattr(DeviceArray, "__array__", counted)
    monkeypatch.setattr(device_array, "stays", lambda tensor: tensor.numel() >= LARGE)
    return sizes


def test_of_a_large_tensor_only_samples_come_to_the_host(fetched: list[int]) -> None:
    x = torch.randn(LARGE + 5, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    report = karat.gradcheck(torch.sin, (x,), op="sin", seed=1)
    assert str(report.verdict) == "PASS"
    assert fetched
    assert max(fetched) < LARGE


def test_one_wrong_element_of_very_many_is_found_where_they_lie(fetched: list[int]) -> None:
    x = torch.randn(LARGE + 5, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    report = karat.gradcheck(lambda x: _off_by_one_per_cent(x, 1234), (x,), op="sin", seed=1)
    assert str(report.verdict) == "FAIL"
    assert "1234" in str(report)
    assert fetched


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "complex128"])
@pytest.mark.slow
def test_a_check_says_the_same(monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    x = torch.randn(300, dtype=getattr(torch, dtype), generator=torch.Generator().manual_seed(3))

    def check(fn: Callable[..., Any]) -> GradReport:
        return karat.gradcheck(fn, (x,), op="it", seed=1)

    functions: list[Callable[..., Any]] = [lambda x: (x * x).sum(), lambda x: x.view(20, 15) @ x.view(15, 20)]
    there = [check(fn) for fn in functions]
    monkeypatch.setattr(device_array, "stays", lambda _tensor: False)
    here = [check(fn) for fn in functions]
    assert [(str(one.verdict), one.forwards) for one in there] == [(str(one.verdict), one.forwards) for one in here]


@pytest.mark.slow
@pytest.mark.parametrize("module", [name for name in MODULES if framework_of(name) == "torch"])
def test_the_library_of_wrong_backwards_is_judged_as_rightly(module: str) -> None:
    judging = importlib.import_module("factories.wrong_backwards.judging")
    results = judging.judge_all(pairs_of(module), (1,))
    assert judging.misjudged(results) == []
    assert judging.inconclusive(results) == []
