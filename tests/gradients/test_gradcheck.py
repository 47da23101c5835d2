from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import karat
from karat.findings import UsageError
from karat.gradients import session
from karat.gradients.comparison import ZERO
from karat.gradients.laws import LAWS
from karat.gradients.report import GradReport, GradVerdict

RNG = np.random.default_rng(8)
X = RNG.standard_normal(40)


def _sin(i: Any, _o: Any, c: Any) -> Any:
    return np.cos(i[0]) * c[0]


def _check(fn: Any, inputs: Any, backward: Any, **more: Any) -> GradReport:
    return karat.gradcheck(fn, inputs, backward=backward, **{"properties": (), **more})


def test_a_report_says_what_was_done() -> None:
    report = _check(np.sin, (X,), _sin, identity="tests/x.py::test", op="sin")
    (one,) = report.comparisons
    assert report.verdict is GradVerdict.PASS
    assert (report.op, report.framework, report.device) == ("sin", "numpy", "cpu")
    assert (one.oracle, one.strength, one.mode, one.order) == ("complex-step", "strong", "reverse", 1)
    assert one.dtype == "float64"
    assert one.error <= one.tolerance < 1e-10
    assert 0 < one.smallest_error < 1e-8
    assert set(one.controls) >= {"zero", "x1.01", "sign", "one element", "worst element"}
    assert report.forwards > 0
    assert "tests/x.py::test" in report.identity


def test_the_same_test_draws_the_same_probes() -> None:
    one, two = (_check(np.sin, (X,), _sin, identity="a") for _ in range(2))
    other = _check(np.sin, (X,), _sin, identity="b")
    assert (one.seed, one.comparisons) == (two.seed, two.comparisons)
    assert one.seed != other.seed


def test_a_seed_from_the_environment_replays(monkeypatch: pytest.MonkeyPatch) -> None:
    given = _check(np.sin, (X,), _sin, seed=12345)
    monkeypatch.setenv("KARAT_GRAD_SEED", "12345")
    replayed = _check(np.sin, (X,), _sin)
    assert replayed.seed == 12345
    assert replayed.comparisons == given.comparisons


def test_it_is_told_after_comparing() -> None:
    heard: list[session.Event] = []
    stop = session.listen(heard.append)
    try:
        report = _check(np.sin, (X,), _sin, identity="t")
        with pytest.raises(ZeroDivisionError):
            _check(lambda _x: 1 / 0, (X,), _sin)
    finally:
        stop()
    (told,) = heard
    assert isinstance(told, session.GradChecked)
    assert (told.report, told.test, told.functions[0]) == (report, "t", np.sin)
    assert (told.elements, told.untried, told.unasked) == ({"x": X.size}, tuple(LAWS), ())


@pytest.mark.parametrize(
    "wrong",
    [
        lambda i, _o, c: 2 * np.cos(i[0]) * c[0],
        lambda i, _o, c: -np.cos(i[0]) * c[0],
        lambda i, _o, c: 0 * i[0] * c[0],
        lambda i, _o, _c: np.cos(i[0]),
        lambda i, _o, c: np.cos(i[0]) * c[0].mean(),
        lambda i, _o, c: (np.cos(i[0]) * c[0])[::-1],
        lambda i, _o, c: np.cos(i[0]) * c[0] * (1 + 1e-7 * (np.arange(40) == 39)),
        lambda i, _o, c: np.where(np.arange(40) == 7, np.nan, np.cos(i[0]) * c[0]),
        lambda i, _o, c: np.where(np.arange(40) == 7, np.inf, np.cos(i[0]) * c[0]),
        lambda _i, _o, _c: None,
        lambda i, _o, c: (np.cos(i[0]) * c[0])[:5],
        lambda _i, _o, _c: 1 / 0,
    ],
)
def test_wrong_gradients_fail(wrong: Any) -> None:
    report = _check(np.sin, (X,), wrong)
    assert report.verdict is GradVerdict.FAIL
    assert not report
    assert report.diagnoses[0].replay
    with pytest.raises(AssertionError):
        report.require()


def test_no_gradient_says_what_an_exemption_would_be() -> None:
    for nothing in (lambda _i, _o, _c: (None,), lambda _i, _o, _c: 1 / 0):
        assert "no-grad-op" in _check(np.sin, (X,), nothing).reason


def test_no_gradient_where_there_is_none_is_fine() -> None:
    report = _check(lambda a, b: a + np.floor(b), (X, X), lambda _i, _o, c: (c[0], None))
    assert report.verdict is GradVerdict.PASS
    assert "None" in report.comparisons[1].reason


@pytest.mark.parametrize("fn", [np.floor, np.sign, lambda x: 0 * x + 5, lambda _x: np.ones(3)])
def test_a_gradient_that_is_zero_everywhere_passes_where_the_function_is_flat(fn: Any) -> None:
    report = _check(fn, (X,), lambda i, _o, _c: 0 * i[0])
    assert report.verdict is GradVerdict.PASS
    assert report.comparisons[0].reason == ZERO
    assert report.notes[0].startswith("flat: ")


def test_a_gradient_where_there_should_be_none_fails() -> None:
    assert _check(np.floor, (X,), lambda _i, _o, c: c[0]).verdict is GradVerdict.FAIL


def test_a_gradient_that_happens_to_be_zero_is_looked_at_nearby() -> None:
    report = _check(lambda x: x * x * x, (np.zeros(20),), lambda i, _o, c: 3 * i[0] ** 2 * c[0])
    assert report.verdict is GradVerdict.PASS, report.reason


def test_inputs_that_only_some_outputs_depend_on_are_fine() -> None:
    def backward(i: Any, _o: Any, c: Any) -> Any:
        first, second = (0.0 if one is None else one for one in c)
        return np.cos(i[0]) * first, np.full_like(i[1], 2.0) * second

    report = _check(lambda a, b: {"s": np.sin(a), "d": 2 * b}, (X, X), backward)
    assert report.verdict is GradVerdict.PASS, report.reason
    assert [(one.input, one.output) for one in report.comparisons] == [("a", "s"), ("b", "d")]


def test_outputs_right_alone_and_wrong_together_fail() -> None:
    def backward(i: Any, _o: Any, c: Any) -> Any:
        together = all(one is not None and np.any(one) for one in c)
        first, second = (0.0 if one is None else one for one in c)
        return np.cos(i[0]) * first + (0 if together else 2 * second)

    report = _check(lambda x: (np.sin(x), 2 * x), (X,), backward)
    assert report.verdict is GradVerdict.FAIL
    assert "together" in report.reason


@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (3, 1, 2), (2, 3, 4, 5)])
def test_any_shape_will_do(shape: tuple[int, ...]) -> None:
    x = 1 + np.random.default_rng(0).random(shape)
    assert _check(lambda x: x**3, (x,), lambda i, _o, c: 3 * i[0] ** 2 * c[0])


def test_nothing_to_compare_is_inconclusive() -> None:
    report = _check(lambda x: 2 * x, (np.zeros((0, 3)),), lambda _i, _o, c: 2 * c[0])
    assert report.verdict is GradVerdict.INCONCLUSIVE
    assert "no elements" in report.reason
    integers = _check(lambda x: 2 * x, (np.arange(3),), lambda _i, _o, c: 2 * c[0])
    assert integers.verdict is GradVerdict.INCONCLUSIVE
    assert [one.name for one in integers.excluded][:1] == ["x"]


def test_mixed_scales_in_one_tensor_are_all_seen() -> None:
    x = np.concatenate([X * 1e-12, X, X * 1e12])
    for place in (3, 50, 110):
        off = np.ones(120)
        off[place] += 1e-6
        for factor, verdict in ((1, GradVerdict.PASS), (off, GradVerdict.FAIL)):
            report = _check(lambda x: x * x, (x,), lambda i, _o, c, f=factor: f * 2 * i[0] * c[0])
            assert report.verdict is verdict, place


def test_a_domain_with_edges() -> None:
    edge = np.array([0.0, 1.0, 2.0, 5.0])
    found = _check(np.sqrt, (edge,), lambda i, _o, c: c[0] / (2 * np.sqrt(i[0])))
    assert found, found.reason
    assert found.comparisons[0].unjudged == 1
    near = np.array([1 - 1e-12, -1 + 1e-9, 0.3])
    assert _check(np.arcsin, (near,), lambda i, _o, c: c[0] / np.sqrt(1 - i[0] ** 2))
    tiny = np.array([1e-300, 1e-12, 3.0])
    assert _check(np.log, (tiny,), lambda i, _o, c: c[0] / i[0])


def test_what_is_left_out_is_said_and_looked_at_nearby() -> None:
    def jumpy(x: Any) -> Any:
        return np.where(np.arange(40) == 5, np.sqrt(np.abs(x)), np.sin(x))

    def backward(factor: float) -> Any:
        def made(i: Any, _o: Any, c: Any) -> Any:
            steep = factor * np.sign(i[0]) / (2 * np.sqrt(np.maximum(np.abs(i[0]), 1e-30)))
            return np.where(np.arange(40) == 5, steep, np.cos(i[0])) * c[0]

        return made

    x = np.where(np.arange(40) == 5, 0.0, X)
    right = _check(jumpy, (x,), backward(1.0))
    assert right.verdict is GradVerdict.PASS, right.reason
    assert "1 of 40 elements not judged" in right.reason
    assert _check(jumpy, (x,), backward(2.0)).verdict is GradVerdict.FAIL


def test_a_forward_that_is_not_finite_never_passes() -> None:
    report = _check(lambda x: np.where(np.arange(40) == 3, np.inf, x), (X,), lambda _i, _o, c: c[0])
    assert report.verdict is GradVerdict.INCONCLUSIVE
    assert "in 1 place" in report.reason


def test_a_noisy_forward_is_inconclusive() -> None:
    rng = np.random.default_rng()
    report = _check(lambda x: np.sin(x) * (1 + 1e-3 * rng.standard_normal(x.shape)), (X,), _sin)
    assert report.verdict is GradVerdict.INCONCLUSIVE


def test_a_tolerance_that_is_not_needed_is_recorded_and_does_not_blunt() -> None:
    (one,) = _check(np.sin, (X,), _sin, rtol=0.3).comparisons
    assert one.widened == 0.3
    assert one.counts
    assert one.tolerance < 1e-9


def test_a_tolerance_that_is_needed_is_used_and_recorded() -> None:
    def rough(i: Any, _o: Any, c: Any) -> Any:
        return np.cos(i[0]) * c[0] * (1 + 1e-5)

    assert _check(np.sin, (X,), rough).verdict is GradVerdict.FAIL
    (one,) = _check(np.sin, (X,), rough, rtol=1e-3).comparisons
    assert one.verdict is GradVerdict.PASS
    assert one.widened == 1e-3
    blunt = _check(np.sin, (X,), rough, rtol=0.5)
    assert blunt.verdict is GradVerdict.INCONCLUSIVE
    assert blunt.vacuous


def test_what_is_out_of_a_wide_tolerance_is_wrong_as_it_would_be_without() -> None:
    def half(i: Any, _o: Any, c: Any) -> Any:
        return np.cos(i[0]) * c[0] / 2

    report = _check(np.sin, (X,), half, rtol=0.01)
    assert report.verdict is GradVerdict.FAIL
    assert report.comparisons[0].smallest_error < 1e-9


def test_a_cotangent_that_sees_little_promises_nothing() -> None:
    plain = _check(np.sin, (X,), _sin).comparisons[0].smallest_error
    for cotangent in (np.zeros(40), np.full(40, 1e-30)):
        (one,) = _check(np.sin, (X,), _sin, cotangents=[cotangent]).comparisons
        assert plain / 4 < one.smallest_error <= plain


def test_an_absolute_tolerance_excuses_and_never_certifies() -> None:
    def rough(i: Any, _o: Any, c: Any) -> Any:
        return np.cos(i[0]) * c[0] * (1 + 1e-5)

    report = _check(np.sin, (X,), rough, atol=1.0)
    assert report.verdict is GradVerdict.INCONCLUSIVE
    assert "absolute" in report.reason
    assert _check(np.sin, (X,), _sin, atol=1.0).verdict is GradVerdict.PASS


@pytest.mark.slow
def test_cost_does_not_grow_with_the_input() -> None:
    counts = []
    for size in (100, 10_000, 300_000):
        x = np.random.default_rng(0).standard_normal(size)
        counts.append(_check(np.tanh, (x,), lambda _i, o, c: (1 - o[0] ** 2) * c[0]).forwards)
    assert len(set(counts)) == 1
    assert counts[0] < 40


def test_one_wrong_element_of_many_is_found() -> None:
    x = np.random.default_rng(0).standard_normal(100_000)
    off = np.ones(x.size)
    off[77_777] = 1.01
    report = _check(lambda x: np.maximum(x, 0) + x, (x,), lambda i, _o, c: off * ((i[0] > 0) + 1) * c[0])
    assert report.verdict is GradVerdict.FAIL
    assert report.diagnoses[0].coordinate == (77_777,)


def test_cotangents_of_ones_own_are_looked_at_besides() -> None:
    special = np.zeros(40)
    special[5] = 1.0

    def wrong(i: Any, _o: Any, c: Any) -> Any:
        return np.cos(i[0]) * c[0] * (2 if np.count_nonzero(c[0]) == 1 else 1)

    assert _check(np.sin, (X,), wrong).verdict is GradVerdict.PASS
    assert _check(np.sin, (X,), wrong, cotangents=[special]).verdict is GradVerdict.FAIL


def test_outputs_can_be_chosen() -> None:
    report = _check(
        lambda x: {"good": np.sin(x), "bad": np.sin(x)},
        (X,),
        lambda i, _o, c: 0 * X if c[0] is None else np.cos(i[0]) * c[0],
        outputs="good",
    )
    assert report.verdict is GradVerdict.PASS
    assert ("bad", "not asked for") in [(one.name, one.why) for one in report.excluded]


def test_a_number_is_an_output_too() -> None:
    def mean(x: Any) -> Any:
        return {"mean": float(np.mean(x**2)), "all": [x, 3]}

    def backward(i: Any, _o: Any, c: Any) -> Any:
        return 2 * i[0] * c[0] / i[0].size + c[1]

    report = _check(mean, (X,), backward)
    assert report.verdict is GradVerdict.PASS, report.reason
    assert [one.output for one in report.comparisons] == ["mean", "all.0"]
    half = _check(lambda x: float(np.sum(x**2)), (X,), lambda i, _o, c: i[0] * c[0])
    assert half.verdict is GradVerdict.FAIL


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"order": 5}, "expected 1 to 4"),
        ({"modes": ("revers",)}, "did you mean 'reverse'"),
        ({"rtol": -1.0}, "rtol"),
        ({"atol": float("nan")}, "atol"),
        ({"outputs": "oot"}, "did you mean 'out'"),
        ({"cotangents": [1, 2]}, "expected one for each of 1 outputs"),
        ({"cotangents": [np.ones(3)]}, "expected shape"),
        ({"grads": [1.0, 2.0]}, "expected a gradient for each of 1 inputs"),
        ({"rtol": "wide"}, "rtol: expected a non-negative number"),
        ({"rtol": float("inf")}, "rtol: expected a non-negative number"),
        ({"nondeterminism_bound": float("nan")}, "nondeterminism_bound: expected a non-negative number"),
        ({"in_place": 3}, "in_place: expected a function, found int"),
        ({"seed": -1}, "seed: expected a non-negative integer"),
        ({"seed": 1.5}, "seed: expected a non-negative integer"),
        ({"outputs": (0,)}, "outputs: expected one of out, found 0"),
        ({"cotangents": [np.full(40, np.nan)]}, "expected finite numbers for out"),
    ],
)
def test_wrong_usage_says_what_was_expected(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        _check(np.sin, (X,), _sin, **wrong)


def test_numpy_without_a_backward_is_refused_with_the_way_out() -> None:
    with pytest.raises(UsageError, match="backward: expected the gradient of a numpy") as caught:
        karat.gradcheck(np.sin, (np.ones(3),))
    assert "f(inputs, outputs, cotangents)" in str(caught.value.next_command)


def test_a_gradient_of_another_shape_is_no_reason_for_an_exemption() -> None:
    report = _check(np.sin, (X[:1],), lambda i, _o, c: (np.cos(i[0]) * c[0])[None])
    assert report.verdict is GradVerdict.FAIL
    assert "expected shape (1,), found (1, 1)" in report.reason
    assert "no-grad-op" not in str(report)
    assert "the sum" not in str(report)


def test_a_backward_that_raises_may_be_of_an_op_without_gradient() -> None:
    def refuse(_i: Any, _o: Any, _c: Any) -> Any:
        raise NotImplementedError

    assert "kind no-grad-op" in str(_check(np.sin, (X,), refuse))


@pytest.mark.parametrize("made", [lambda g: -g, lambda g: g.T.copy(), lambda g: g / 1.01])
def test_the_corruption_that_a_gradient_has_is_not_told_as_unnoticed(made: Any) -> None:
    x = X[:36].reshape(6, 6)
    report = _check(np.sin, (x,), lambda i, _o, c: made(np.cos(i[0]) * c[0]))
    assert report.verdict is GradVerdict.FAIL
    assert not all(report.comparisons[0].controls.values())
    assert "unnoticed for" not in str(report)
    noticed = sum(report.comparisons[0].controls.values())
    assert f"{noticed} of {noticed} corrupted gradients were noticed" in str(report)
