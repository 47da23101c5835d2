"""Very many outputs as sums at level quick: what they certify is right, and everything else is left to the elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import karat
from karat.gradients import examine
from karat.gradients.adapters.framework_problem import open_problem
from karat.gradients.draws import CheckPlan
from karat.gradients.sums import sums_of
from karat.tensors.device_array import BLOCK

torch: Any = pytest.importorskip("torch", exc_type=ImportError)
COUNT = 2**19 + 17


def values(*, seed: int = 1) -> Any:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(COUNT))


def plan_of(problem: Any, *, sums: bool = True, seed: int = 7) -> CheckPlan:
    every = frozenset(range(len(problem.outputs)))
    inputs = frozenset(range(len(problem.inputs)))
    return CheckPlan(seed=seed, inputs=inputs, outputs=every, forward=False, probes=1, sums=sums)


def by_sums(fn: Callable[..., Any], *args: Any) -> Any:
    """What the sums say, or None where they leave it to the elements."""
    problem = open_problem(fn, args)
    with np.errstate(all="ignore"):
        return examine.by_sums(problem, plan_of(problem))


class Backward(torch.autograd.Function):  # type: ignore[misc]
    """A function with a gradient that is made wrong."""

    @staticmethod
    def forward(ctx: Any, x: Any, of: Any, change: Any) -> Any:
        ctx.save_for_backward(x)
        ctx.of, ctx.change = of, change
        return of(x)

    @staticmethod
    def backward(ctx: Any, cotangent: Any) -> Any:
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            leaf = x.detach().requires_grad_()
            (found,) = torch.autograd.grad(ctx.of(leaf), leaf, cotangent)
        return ctx.change(x, found, cotangent), None, None


def with_gradient(of: Any, change: Any) -> Any:
    return lambda x: Backward.apply(x, of, change)


def off_at(place: int, share: float) -> Any:
    """One element off by so much of the typical one."""

    def change(_x: Any, found: Any, _cotangent: Any) -> Any:
        found = found.clone()
        found[place] += share * found.square().mean().sqrt()
        return found

    return change


SMOOTH = {
    "sine": torch.sin,
    "softmax": lambda x: torch.softmax(x[: 2**19].view(-1, 16), -1),
    "sizes that differ": lambda x: torch.exp(8 * x),
    "product": lambda x: x[: 2**19].view(-1, 16) @ torch.ones(16, 16, dtype=x.dtype).tril(),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SMOOTH)
def test_a_smooth_function_is_certified_and_every_element_counted(name: str) -> None:
    found = by_sums(SMOOTH[name], values())
    assert found is not None
    (one,) = (pair.comparison for pair in found.pairs)
    outputs = SMOOTH[name](values()).numel()
    assert (one.verdict, one.counts, one.checked, one.kinks, one.unjudged) == ("PASS", True, outputs, 0, 0)
    # Hardly coarser than what the elements say, which may know slopes by complex steps.
    problem = open_problem(SMOOTH[name], (values(),))
    slow = examine.examine(problem, plan_of(problem, sums=False), None).pairs[0].comparison
    assert one.smallest_error <= max(4 * slow.smallest_error, 1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("name", SMOOTH)
def test_the_smallest_error_that_is_stated_is_seen_in_any_element(name: str) -> None:
    of, x = SMOOTH[name], values()
    right = by_sums(of, x)
    share = right.pairs[0].comparison.smallest_error
    assert share < 1e-5
    weights = right.here.flat.scales[0]
    for place in (0, 1_234, BLOCK - 1, BLOCK, 300_000, 2**19 - 1):
        # `sees` is by the typical element times its scale.
        gradient = right.pairs[0].gradient
        typical = float(np.sqrt(np.mean(np.square(gradient * weights)))) / weights[place]
        size = float(np.sqrt(np.mean(np.square(gradient))))
        wrong = with_gradient(of, off_at(place, 1.01 * share * typical / size))
        assert by_sums(wrong, x) is None, place


@pytest.mark.slow
def test_one_wrong_element_of_half_a_million_is_found() -> None:
    report = karat.gradcheck(with_gradient(torch.sin, off_at(300_000, 1e-3)), (values(),), op="sine", level="quick")
    assert report.verdict == "FAIL"
    assert report.diagnoses[0].coordinate == (300_000,)


def test_a_small_gradient_beside_large_ones_is_seen_to_be_wrong() -> None:
    x = values()
    place = int(x.argmin())

    def change(_x: Any, found: Any, _cotangent: Any) -> Any:
        found = found.clone()
        found[place] *= 1.01
        return found

    assert by_sums(with_gradient(SMOOTH["sizes that differ"], change), x) is None


def test_a_slope_that_converges_slowly_is_left_to_the_elements() -> None:
    x = values()
    x[[5, 70_000, 200_000, 400_000]] = 0.0
    rooted: Any = lambda x: x * torch.sqrt(torch.abs(x))  # noqa: E731
    slope: Any = lambda of_zero: lambda x, _found, v: v * torch.where(x == 0, of_zero, 1.5 * x.abs().sqrt())  # noqa: E731
    assert by_sums(with_gradient(rooted, slope(0.0)), x) is None
    assert by_sums(with_gradient(rooted, slope(7.0)), x) is None


@pytest.mark.parametrize(
    ("of", "at"),
    [
        (torch.relu, None),  # steps cross the kinks of some
        (torch.abs, 0.0),  # one element is a kink
        (lambda x: torch.where(x == 0, torch.abs(x), x), 0.0),
        (lambda x: torch.sin(x.float()).double(), None),
        (lambda x: (x + 1e8) - 1e8, None),
        (lambda x: torch.where(torch.arange(COUNT) == 9, torch.floor(x * 1e8) / 1e8, x), None),
        (lambda x: torch.where(torch.arange(COUNT) == 9, x.float().double() ** 2, x**2), None),
        (torch.sqrt, 0.0),
        (torch.log, None),
        (torch.floor, None),
        (lambda x: torch.complex(x, x), None),
        (lambda x: (x.sin(), x.cos()), None),
        (lambda x: x.sin().sum(), None),
    ],
)
def test_what_is_not_smooth_or_not_one_real_output_is_left_to_the_elements(of: Any, at: float | None) -> None:
    x = values()
    if at is not None:
        x = torch.where(x.abs() < 0.5, 0.75, x)
        x[9] = at
    assert by_sums(of, x) is None


@pytest.mark.slow
def test_the_answer_of_the_elements_is_what_it_was_without_sums() -> None:
    x = values()
    said = []
    for sums in (True, False):
        problem = open_problem(torch.relu, (x,))
        with np.errstate(all="ignore"):
            said.append(examine.examine(problem, plan_of(problem, sums=sums), None).pairs[0].comparison)
    assert said[0] == said[1]


def test_a_gradient_for_sums_is_that_of_the_elements() -> None:
    x = values()
    problem = open_problem(torch.sin, (x,))
    sums = sums_of(problem, plan_of(problem))
    assert sums is not None
    blocks = sums.outputs[0].shape[0]
    assert blocks == -(-COUNT // BLOCK)
    w = np.arange(1.0, blocks + 1)
    (found,) = sums.vjp([w])
    assert found is not None
    expected = torch.cos(x).numpy() * sums.weights * np.repeat(w, BLOCK)[:COUNT]
    np.testing.assert_allclose(found, expected, rtol=1e-13)
    whole = torch.sin(x).numpy() * sums.weights
    np.testing.assert_allclose(sums.base()[0], np.add.reduceat(whole, range(0, COUNT, BLOCK)), rtol=1e-9)


def test_several_inputs_are_each_certified() -> None:
    x, scale = values(), torch.linspace(0.5, 2.0, 16, dtype=torch.float64)
    product = lambda x, s: x[: 2**19].view(-1, 16) * s  # noqa: E731
    found = by_sums(product, x, scale)
    assert found is not None
    assert [one.comparison.input for one in found.pairs] == ["x", "s"]


def test_the_input_itself_is_never_written_to() -> None:
    x = values()
    before = x.clone()

    def writes(x: Any) -> Any:
        if not x.requires_grad:
            x.mul_(2.0)
            return x
        return 2.0 * x

    karat.gradcheck(writes, (x,), op="writes", level="quick")
    assert torch.equal(x, before)
