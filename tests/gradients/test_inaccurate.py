"""Right to nine digits and not to thirteen: a verdict of its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import karat
from conftest import framework
from karat.gradients.report import GradVerdict

HELD = {GradVerdict.PASS, GradVerdict.INACCURATE}


def _cube(off: float, **more: Any) -> karat.GradReport:
    point = np.random.default_rng(1).standard_normal(20)
    return karat.gradcheck(
        lambda x: x**3, (point,), backward=lambda i, _o, c: 3 * i[0] ** 2 * c[0] * (1 + off), properties=(), **more
    )


def test_a_gradient_right_to_nine_digits_is_inaccurate_and_does_not_fail() -> None:
    found = _cube(5e-10)
    assert found.verdict is GradVerdict.INACCURATE
    assert "e-10 of its size" in found.reason
    assert found.require() is found
    (one,) = found.comparisons
    assert one.verdict is GradVerdict.INACCURATE
    assert one.counts
    assert one.error <= one.tolerance < 1e-8
    # What it sees is what it saw: less than that would have been called inaccurate, too.
    assert one.smallest_error > one.tolerance
    assert "INACCURATE" in str(found)
    assert json.loads(found.to_json())["verdict"] == "INACCURATE"


@pytest.mark.parametrize(("off", "verdict"), [(1e-14, GradVerdict.PASS), (1e-7, GradVerdict.FAIL)])
def test_less_is_round_off_and_more_is_wrong(off: float, verdict: GradVerdict) -> None:
    assert _cube(off).verdict is verdict


def test_strict_fails_on_it() -> None:
    found = _cube(5e-10, strict=True)
    assert found.verdict is GradVerdict.FAIL
    assert _cube(1e-14, strict=True).verdict is GradVerdict.PASS


def test_a_tolerance_that_was_asked_for_comes_first() -> None:
    found = _cube(5e-10, rtol=1e-6)
    assert found.verdict is GradVerdict.PASS
    assert found.comparisons[0].widened == 1e-6


def test_a_law_that_holds_to_nine_digits_is_not_broken() -> None:
    torch = framework("torch")

    class Twice(torch.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(x: Any) -> Any:
            return 2 * x

        @staticmethod
        def setup_context(*_: Any) -> None:
            pass

        @staticmethod
        def backward(_ctx: Any, v: Any) -> Any:
            return 2 * v

        @staticmethod
        def jvp(_ctx: Any, u: Any) -> Any:
            return (2 + 1e-9) * u

    laws = ("forward-reverse",)
    found = karat.gradcheck(Twice.apply, (torch.linspace(1, 2, 9).double(),), properties=laws)
    assert found.verdict is GradVerdict.INACCURATE
    assert [one.verdict for one in found.properties] == [GradVerdict.INACCURATE]
    found = karat.gradcheck(Twice.apply, (torch.linspace(1, 2, 9).double(),), properties=laws, strict=True)
    assert [one.verdict for one in found.properties] == [GradVerdict.FAIL]


def _tail(torch: Any) -> Any:
    return -torch.linspace(5, 37, 20, dtype=torch.float64)


SLIGHTLY_OFF: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any], Any]]] = {
    "digamma": (lambda torch, x: torch.digamma(x), lambda torch: torch.linspace(0.5, 9, 20, dtype=torch.float64)),
    "logcumsumexp": (lambda torch, x: torch.logcumsumexp(x, 0), lambda torch: torch.linspace(-2, 2, 20).double()),
    "sinc": (lambda torch, x: torch.sinc(x), lambda torch: torch.logspace(-8, 1, 20, dtype=torch.float64)),
    "ndtr": (lambda torch, x: torch.special.ndtr(x), _tail),
    "log_ndtr": (lambda torch, x: torch.special.log_ndtr(x), _tail),
}


@pytest.mark.parametrize("name", SLIGHTLY_OFF)
@pytest.mark.parametrize("seed", range(3))
def test_what_a_functions_own_conditioning_explains_is_no_failure(name: str, seed: int) -> None:
    torch = framework("torch")
    fn, point = SLIGHTLY_OFF[name]
    found = karat.gradcheck(partial(fn, torch), (point(torch),), seed=seed)
    assert found.verdict in HELD, str(found)


@pytest.mark.parametrize("seed", range(3))
def test_softmax_backward_as_a_function_of_its_own(seed: int) -> None:
    torch = framework("torch")
    rng = np.random.default_rng(seed)
    given, x = (torch.tensor(rng.standard_normal((5, 5))) for _ in range(2))

    def fn(given: Any, x: Any) -> Any:
        return torch._softmax_backward_data(given, torch.softmax(x, 1), 1, torch.float64)

    found = karat.gradcheck(fn, (given, x), seed=seed)
    assert found.verdict in HELD, str(found)
