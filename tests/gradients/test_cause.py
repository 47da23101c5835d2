"""Diagnoses of wrong backwards written here: the element, both values there, and a hint that was tried."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from conftest import framework
from factories.diagnosed import Array, Backward, at, diagnosed, differences, failed
from karat.gradients.adapters.framework_problem import open_problem
from karat.gradients.diagnosis import NONE, ZERO, diagnose
from karat.gradients.low_precision import compare_low
from karat.gradients.report import GradVerdict


def spoilt(how: Callable[..., Any]) -> Backward:
    """The gradient of sin, spoilt."""

    def backward(inputs: Any, outputs: Any, cotangents: Any) -> Any:
        right = cotangents[0] * np.cos(inputs[0])
        return (how(right, inputs[0], outputs[0], cotangents[0]),)

    return backward


PATTERNS: dict[str, tuple[Callable[..., Any], str]] = {
    "twice": (lambda g, *_: 2 * g, "twice the expected gradient"),
    "half": (lambda g, *_: g / 2, "half the expected gradient"),
    "sign": (lambda g, *_: -g, "the sign is flipped"),
    "zero": (lambda g, *_: 0 * g, ZERO),
    "none": (lambda *_: None, NONE),
    "1.01": (lambda g, *_: 1.01 * g, "1.01 times the expected gradient"),
    "mean": (lambda g, *_: g / g.size, "1/{size} of the expected gradient; {size} is the length"),
    "sum": (lambda g, *_: g * g.size, "{size} times the expected gradient; {size} is the length"),
    "rolled": (lambda g, *_: np.roll(g, 1), "off by one along axis 0: one too far"),
    "rolled back": (lambda g, *_: np.roll(g, -1), "off by one along axis 0: one too early"),
    "one element": (lambda g, *_: g + at(3, g.size), "this element alone is wrong"),
    "last element": (lambda g, *_: g * ~at(g.size - 1, g.size), "this element alone is wrong"),
    "NaN": (lambda g, *_: np.where(at(3, g.size), np.nan, g), "NaN at 1 element"),
}


@pytest.mark.parametrize("size", [6, 300])
@pytest.mark.parametrize("name", PATTERNS)
def test_a_pattern_is_recognised_wherever_it_is_planted(name: str, size: int) -> None:
    how, hint = PATTERNS[name]
    for seed in range(3):
        x = np.random.default_rng(seed + 10).standard_normal(size)
        found = diagnosed(np.sin, (x,), spoilt(how), seed)
        assert found.hint.startswith(hint.format(size=size)), found.hint
        assert found.replay == "pytest here"
        assert found.coordinate is not None
        assert found.forwards <= 512


@pytest.mark.parametrize("size", [5, 24, 25, 4096])
def test_expected_and_found_are_those_of_the_element(size: int) -> None:
    x = np.random.default_rng(1).standard_normal(size)
    place = size - 2
    found = diagnosed(np.sin, (x,), spoilt(lambda g, *_: g + at(place, size)))
    assert found.coordinate == (place,)
    assert isinstance(found.expected, float)
    assert isinstance(found.found, float)
    assert found.found - found.expected == pytest.approx(1, abs=1e-9)
    assert abs(found.expected) <= 1
    assert found.forwards <= 6 * (np.log2(size) + 8)


@settings(max_examples=25)
@given(st.integers(0, 2**32), st.floats(-3, 3).filter(lambda c: abs(c - 1) > 1e-3))
def test_a_factor_is_named_only_if_it_is_the_factor(seed: int, factor: float) -> None:
    x = np.random.default_rng(seed).standard_normal(40)
    found = diagnosed(np.sin, (x,), spoilt(lambda g, *_: factor * g), seed)
    if factor == 0:
        assert found.hint == ZERO
    elif "times the expected gradient" in found.hint and ";" not in found.hint:
        assert float(found.hint.split()[0]) == pytest.approx(factor, rel=1e-4)


def test_an_error_without_a_pattern_gets_no_hint() -> None:
    x = np.random.default_rng(1).standard_normal((7, 9))
    noise = np.random.default_rng(2).uniform(0.5, 2, x.shape)
    found = diagnosed(np.sin, (x,), spoilt(lambda g, *_: g * noise))
    assert found.hint == ""
    assert found.coordinate is not None
    assert found.found != found.expected


def test_one_of_two_wrong_elements_is_named() -> None:
    x = np.random.default_rng(1).standard_normal(300)
    x[17], x[201] = -0.5, 0.5
    found = diagnosed(np.sin, (x,), spoilt(lambda g, *_: g + at(17, 300) - at(201, 300)))
    assert found.coordinate in {(17,), (201,)}
    assert "alone" not in found.hint


@pytest.mark.parametrize("size", [4, 20])
def test_a_wrong_transpose_is_recognised(size: int) -> None:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((size, size)), rng.standard_normal((size, size))

    def backward(inputs: Any, _outputs: Any, cotangents: Any) -> Any:
        (a, b), (v,) = inputs, cotangents
        return (v @ b.T).T, a.T @ v

    hint = diagnosed(np.matmul, (x, w), backward).hint
    assert hint == "transposed: axes 0 and 1 are exchanged"


def test_a_transpose_forced_into_the_shape_is_recognised() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((5, 8)), rng.standard_normal((8, 6))

    def backward(inputs: Any, _outputs: Any, cotangents: Any) -> Any:
        (a, b), (v,) = inputs, cotangents
        return (v @ b.T).T.reshape(a.shape), a.T @ v

    assert "the shape was forced" in diagnosed(np.matmul, (x, w), backward).hint


def test_a_missing_sum_over_a_broadcast_axis_is_recognised() -> None:
    rng = np.random.default_rng(0)
    bias, x = rng.standard_normal((1, 6)), rng.standard_normal((9, 6))

    def forward(bias: Array, x: Array) -> Array:
        return bias * np.sin(x)

    def taking(part: Callable[[Array], Array]) -> Backward:
        return lambda i, _o, c: (part(c[0] * np.sin(i[1])), c[0] * i[0] * np.cos(i[1]))

    first = diagnosed(forward, (bias, x), taking(lambda g: g[:1])).hint
    assert first == ("only the first slice of the cotangent along axis 0 is used; the sum over that axis is missing")
    mean = diagnosed(forward, (bias, x), taking(lambda g: g.mean(0, keepdims=True))).hint
    assert mean.startswith("1/9 of the expected gradient; 9 is the length of axis 0 of out, over")


def layer_norm(x: Array) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    return np.asarray(centred / np.sqrt(np.square(centred).mean(-1, keepdims=True) + 1e-5))


def layer_norm_backward(*, mean: bool, projection: bool) -> Backward:
    def backward(inputs: Any, outputs: Any, cotangents: Any) -> Any:
        (x,), (y,), (v,) = inputs, outputs, cotangents
        scale = 1 / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
        terms = v - mean * v.mean(-1, keepdims=True)
        return (scale * (terms - projection * y * (v * y).mean(-1, keepdims=True)),)

    return backward


@pytest.mark.parametrize("rows", [2, 30])
def test_a_missing_mean_term_is_recognised(rows: int) -> None:
    x = np.random.default_rng(0).standard_normal((rows, 12))
    mean = diagnosed(layer_norm, (x,), layer_norm_backward(mean=False, projection=True)).hint
    assert mean.startswith("the deviation is the same all along axis 1")
    term = diagnosed(layer_norm, (x,), layer_norm_backward(mean=True, projection=False)).hint
    assert term.startswith("the deviation is proportional to the output along axis 1")


def test_of_a_complex_element_both_parts_are_told() -> None:
    rng = np.random.default_rng(0)
    z = rng.standard_normal((4, 5)) + 1j * rng.standard_normal((4, 5))
    found = diagnosed(lambda z: z * z, (z,), lambda i, _o, c: (c[0] * 2 * i[0],))
    assert isinstance(found.expected, complex)
    assert isinstance(found.found, complex)
    assert len(found.coordinate or ()) == 2


def test_an_error_below_what_the_oracle_knows_gets_no_hint() -> None:
    x = np.random.default_rng(1).standard_normal(40)
    found = diagnosed(np.sin, (x,), spoilt(lambda g, *_: (1 + 1e-14) * g))
    assert found.hint == ""


def test_one_wrong_element_of_many_costs_tens_of_probes() -> None:
    size = 100_000
    x = np.random.default_rng(1).standard_normal(size)
    found = diagnosed(np.sin, (x,), spoilt(lambda g, *_: g * ~at(77_777, size)))
    assert found.coordinate == (77_777,)
    assert found.found == 0
    assert found.hint == "this element alone is wrong"
    assert found.forwards <= 160


def test_in_low_precision_the_double_run_is_what_is_expected() -> None:
    torch = framework("torch")

    class Sine(torch.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return torch.sin(x)

        @staticmethod
        def backward(ctx: Any, v: Any) -> Any:
            right = v * torch.cos(ctx.saved_tensors[0])
            return right * 2 if v.dtype == torch.bfloat16 else right

    x = torch.tensor(np.random.default_rng(0).standard_normal((6, 7)))
    problem = open_problem(Sine.apply, (x,), names=["x"])
    cotangent = np.random.default_rng(1).choice([-1.0, 1.0], (6, 7))
    rng = np.random.default_rng(2)
    (low,) = compare_low(problem, "bfloat16", rng=rng, cotangents=[cotangent])
    assert low.verdict is GradVerdict.FAIL
    found = diagnose(problem, low, cotangent=cotangent, gradient=None, oracle=lambda _u: (np.nan, np.nan), rng=rng)
    assert found.hint == "only in bfloat16, float64 is right: twice the expected gradient"
    assert isinstance(found.expected, float)
    assert found.found == pytest.approx(2 * found.expected, rel=0.02)


@pytest.mark.parametrize("size", [6, 60])
def test_a_wrong_forward_mode_is_told_from_a_wrong_backward(size: int) -> None:
    torch = framework("torch")

    class Sine(torch.autograd.Function):  # type: ignore[misc, name-defined]
        generate_vmap_rule = True

        @staticmethod
        def forward(x: Any) -> Any:
            return torch.sin(x)

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            del output
            ctx.save_for_backward(*inputs)
            ctx.save_for_forward(*inputs)

        @staticmethod
        def backward(ctx: Any, v: Any) -> Any:
            return v * torch.cos(ctx.saved_tensors[0])

        @staticmethod
        def jvp(ctx: Any, u: Any) -> Any:
            wrong = u * torch.cos(ctx.saved_tensors[0])
            return torch.cat([2 * wrong[:1], wrong[1:]])

    x = torch.tensor(np.random.default_rng(0).standard_normal(size))
    problem = open_problem(Sine.apply, (x,), names=["x"])
    cotangent = np.random.default_rng(1).choice([-1.0, 1.0], size)
    found = diagnose(
        problem,
        failed(problem, mode="forward"),
        cotangent=cotangent,
        gradient=problem.vjp(problem.point, [cotangent])[0],
        oracle=differences(problem, 0, cotangent),
        rng=np.random.default_rng(2),
    )
    assert found.hint.startswith("forward mode (jvp) is wrong")
    assert found.coordinate == (0,)
    assert isinstance(found.expected, float)
    assert found.found == pytest.approx(2 * found.expected)


@pytest.mark.parametrize("shape", [(30,), (6, 50)])
def test_the_same_deviation_everywhere_is_a_constant(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).normal(size=shape)
    found = diagnosed(np.sin, (x,), lambda i, _o, c: np.cos(i[0]) * c[0] + 0.25)
    assert found.hint.startswith("the deviation is the same everywhere")
