from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import karat
from karat.findings import UsageError
from karat.gradients.report import GradReport, GradVerdict

X = np.random.default_rng(1).standard_normal((4, 6))


def _single(x: Any) -> Any:
    return np.tanh(x.astype(np.float32)).astype(np.float64)


def _check(reference: Any, fn: Any = np.tanh, **more: Any) -> GradReport:
    def backward(i: Any, _o: Any, c: Any) -> Any:
        return (1 - np.tanh(i[0]) ** 2) * c[0]

    return karat.gradcheck(fn, (X,), backward=backward, reference=reference, properties=(), **more)


def test_a_reference_is_the_oracle_and_its_forward_is_compared() -> None:
    report = _check(lambda x: (np.exp(x) - np.exp(-x)) / (np.exp(x) + np.exp(-x)))
    assert report.verdict is GradVerdict.PASS, report.reason
    assert [one.oracle for one in report.comparisons] == ["reference"]
    law, slopes = report.properties
    assert (law.name, slopes.name) == ("reference-forward", "reference-slopes")
    assert law.measured is not None
    assert law.measured < 1e-12


def test_a_reference_of_another_function_fails() -> None:
    report = _check(lambda x: np.tanh(x) + 1e-3)
    assert report.verdict is GradVerdict.FAIL
    assert "reference" in report.reason


@pytest.mark.parametrize("bent_everywhere", [True, False], ids=["everywhere", "off the real line"])
def test_a_reference_that_is_bent_to_fit_a_wrong_backward_fails(bent_everywhere: bool) -> None:  # noqa: FBT001
    def bent(x: Any) -> Any:
        return np.tanh(X) + 3 * (x - X) if bent_everywhere or np.iscomplexobj(x) else np.tanh(x)

    report = karat.gradcheck(np.tanh, (X,), backward=lambda _i, _o, c: (3 * c[0],), reference=bent, properties=())
    assert report.verdict is GradVerdict.FAIL, str(report)


def test_a_reference_has_slopes_where_the_function_is_too_coarse() -> None:
    report = _check(np.tanh, fn=_single)
    (one,) = report.comparisons
    assert one.oracle == "reference"
    assert one.dtype == "float32"
    assert one.verdict is GradVerdict.PASS, one.reason


def test_a_wrong_gradient_fails_against_the_reference() -> None:
    report = karat.gradcheck(np.tanh, (X,), backward=lambda _i, _o, c: c[0], reference=np.tanh, properties=())
    assert report.verdict is GradVerdict.FAIL


def test_a_reference_of_another_shape_is_refused() -> None:
    with pytest.raises(UsageError, match="expected shape"):
        _check(lambda x: np.tanh(x)[0])


def test_a_reference_gets_what_is_no_tensor_too() -> None:
    report = karat.gradcheck(
        lambda x, index, power: x[index] ** power,
        (X.reshape(-1) + 5, np.array([3, 1, 1]), 3),
        backward=lambda i, _o, c: np.bincount([3, 1, 1], 3 * i[0][[3, 1, 1]] ** 2 * c[0], 24),
        reference=lambda x, index, power: np.stack([x[n] ** power for n in index]),
        properties=(),
    )
    assert report.verdict is GradVerdict.PASS, report.reason
