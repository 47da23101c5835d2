"""Every element is checked, a kink, or not judged; and the given point is answered."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import karat
from conftest import framework
from karat.gradients.report import GradComparison, GradVerdict


def _check(forward: Callable[[Any], Any], slope: Callable[[Any], Any], point: Any, **more: Any) -> karat.GradReport:
    given = np.asarray(point, np.float64)
    more = {"properties": (), **more}
    return karat.gradcheck(forward, (given,), backward=lambda i, _o, c: slope(i[0]) * c[0], **more)


def _elements(found: karat.GradReport) -> tuple[int, int, int]:
    (one,) = found.comparisons
    return one.checked, one.kinks, one.unjudged


def _root(x: Any) -> Any:
    return x * np.sqrt(np.abs(x))


def _slow(x: Any) -> Any:
    """Whose slope at 0 is reached so slowly that no step shows it."""
    return x * np.abs(x) ** 0.02


def test_every_element_is_counted() -> None:
    found = _check(np.abs, np.sign, [-1.5, 0.0, 2.0, 0.0, 3.0])
    assert found.verdict is GradVerdict.PASS
    assert _elements(found) == (3, 2, 0)
    found = _check(np.sin, np.cos, [1.0, 2.0, 3.0])
    assert _elements(found) == (3, 0, 0)
    assert "not judged" not in str(found)


@pytest.mark.parametrize("size", [4, 11, 40])
@pytest.mark.parametrize("name", ["abs", "relu"])
def test_a_kink_is_told_from_what_is_not_known_with_every_seed(name: str, size: int) -> None:
    function: Any = np.abs if name == "abs" else lambda x: np.maximum(x, 0.0)
    slope: Any = np.sign if name == "abs" else lambda x: 1.0 * (x > 0)
    for seed in range(10):
        point = np.where(np.arange(size) % 3 == 0, 0.0, np.random.default_rng(seed).standard_normal(size))
        zeros = int((point == 0).sum())
        found = _check(function, slope, point, seed=seed)
        assert (found.verdict, *_elements(found)) == (GradVerdict.PASS, size - zeros, zeros, 0)
        assert not _check(function, lambda x: slope(x) + 1.5 * (x == 0), point, seed=seed)


@pytest.mark.parametrize("point", [[0.0, 1.0, 2.0], [0.0, 0.0, 4.0, 9.0, *range(1, 20)]])
def test_forward_mode_at_the_edge_of_a_domain_is_not_wrong(point: list[float]) -> None:
    """torch: the tangent of √x at 0 along 0 is 0 · ∞."""
    torch = framework("torch")
    found = karat.gradcheck(torch.sqrt, (torch.tensor(point, dtype=torch.float64),), properties=())
    assert found.verdict is GradVerdict.PASS, found.reason
    assert {one.mode: one.unjudged > 0 for one in found.comparisons} == {"reverse": True, "forward": True}


def test_elements_that_are_not_judged_are_told() -> None:
    point = [1.0, 0.0, 2.0, 0.0, 3.0]
    found = _check(_slow, lambda x: 1.02 * np.abs(x) ** 0.02, point)
    assert found.verdict is GradVerdict.PASS
    assert _elements(found) == (3, 0, 2)
    assert "2 of 5 elements not judged" in found.reason
    assert "2 of 5 elements not judged" in str(found)
    (row,) = json.loads(found.to_json())["comparisons"]
    assert (row["checked"], row["kinks"], row["unjudged"]) == (3, 0, 2)


def test_what_cannot_be_moved_is_not_judged() -> None:
    found = _check(lambda x: np.where(np.isinf(x), 1.0, x * x), lambda x: 2 * x, [1.0, np.inf, 2.0], rtol=None)
    assert found.comparisons[0].unjudged == 1


@pytest.mark.parametrize("where", [4, 20])
def test_a_gradient_that_is_wrong_at_zeros_alone_fails_there(where: int) -> None:
    point = np.where(np.arange(20) < where, 0.0, np.random.default_rng(1).standard_normal(20))

    def slope(at_zero: float) -> Callable[[Any], Any]:
        return lambda x: np.where(x == 0, at_zero, 1.5 * np.sqrt(np.abs(x)))

    for seed in range(5):
        assert _check(_root, slope(0.0), point, seed=seed).verdict is GradVerdict.PASS
        assert _check(_root, slope(7.0), point, seed=seed).verdict is GradVerdict.FAIL


def test_a_point_that_is_not_judged_is_inconclusive_whatever_holds_nearby() -> None:
    found = _check(_slow, lambda x: np.where(x == 0, 7.0, 1.02 * np.abs(x) ** 0.02), np.zeros(6))
    assert found.verdict is GradVerdict.INCONCLUSIVE
    assert "nearby" in found.reason
    assert _elements(found) == (0, 0, 6)


def test_kinks_everywhere_are_an_answer_and_the_rest_is_seen_nearby() -> None:
    found = _check(np.abs, np.sign, np.zeros(6))
    assert found.verdict is GradVerdict.PASS
    assert _elements(found) == (0, 6, 0)
    assert _check(np.abs, lambda x: np.where(x == 0, 7.0, np.sign(x)), np.zeros(6)).verdict is GradVerdict.FAIL


@pytest.mark.parametrize("point", [[0.3, 1.6, -2.2], np.linspace(-3, 3, 20)], ids=["three", "twenty"])
def test_a_gradient_that_is_rightly_zero_everywhere_passes_with_a_note(point: Any) -> None:
    found = _check(np.floor, np.zeros_like, point)
    assert found.verdict is GradVerdict.PASS, str(found)
    assert found.require() is found
    assert any("flat" in note for note in found.notes)
    (one,) = found.comparisons
    assert one.counts
    assert one.smallest_error < 1e-6
    # The same check fails where the gradient is not zero.
    assert _check(np.floor, np.ones_like, point).verdict is GradVerdict.FAIL
    assert _check(np.floor, lambda x: np.full_like(x, 1e-5), point).verdict is GradVerdict.FAIL


def test_what_is_flat_is_flat_in_every_precision_and_order() -> None:
    torch = framework("torch")
    x = torch.linspace(-3, 3, 20)
    found = karat.gradcheck(torch.floor, (x,), order=2, dtypes=("float32", "bfloat16"))
    assert found.verdict is GradVerdict.PASS, str(found)
    # A gradient that is all rounding obeys every law: the norm of one element is 1.
    found = karat.gradcheck(lambda x: torch.nn.functional.normalize(x, dim=1), (x.view(20, 1),), order=2)
    assert found.verdict in {GradVerdict.PASS, GradVerdict.INACCURATE}, str(found)

    # Where one input does not matter, the others are judged all the same.
    ones = (torch.linspace(-3, 3, 20).view(20, 1), torch.ones(1), torch.full((1,), 2.0))
    found = karat.gradcheck(lambda x, w, b: torch.nn.functional.layer_norm(x, (1,), w, b), ones, order=2)
    assert found.verdict in {GradVerdict.PASS, GradVerdict.INACCURATE}, str(found)

    class Through(torch.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(_ctx: Any, x: Any) -> Any:
            return x.floor()

        @staticmethod
        def backward(_ctx: Any, v: Any) -> Any:
            return v if v.dtype is torch.bfloat16 else 0 * v

    found = karat.gradcheck(Through.apply, (x,), dtypes=("bfloat16",), modes=("reverse",))
    assert found.verdict is GradVerdict.FAIL


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_steps_that_cross_thousands_of_neighbours(seed: int) -> None:
    torch = framework("torch")
    x = torch.tensor(np.random.default_rng(seed).permutation(8000).astype(float))
    found = karat.gradcheck(lambda x: x.sort().values, (x,), seed=seed, properties=())
    assert found.verdict is GradVerdict.PASS, found.reason


def test_what_is_zero_at_the_point_alone_is_checked_nearby_too() -> None:
    assert _check(lambda x: x**2, lambda x: 2 * x, np.zeros(6)).verdict is GradVerdict.PASS
    assert _check(lambda x: x**2, lambda x: 3 * x, np.zeros(6)).verdict is GradVerdict.FAIL
    assert _check(lambda x: x**2, lambda x: 2 * x + (x == 0), np.zeros(6)).verdict is GradVerdict.FAIL


def test_nothing_is_checked_where_nothing_was_compared() -> None:
    def raises(_i: Any, _o: Any, _c: Any) -> Any:
        raise ValueError("no")

    found: tuple[GradComparison, ...] = karat.gradcheck(np.sin, (np.ones(3),), backward=raises).comparisons
    assert [(one.checked, one.unjudged) for one in found] == [(0, 3)]
