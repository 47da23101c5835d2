from __future__ import annotations

from typing import Any

import numpy as np

from karat.gradients.adapters.framework_problem import open_problem
from karat.optests.checks import gradients_of

X = np.array([0.5, -1.0, 2.0])


def asked(function: Any, backward: Any = None) -> Any:
    return gradients_of(
        lambda: open_problem(function, (X,), names=["x"], wrt=["x"], backward=backward, framework="numpy"), ["x"]
    )


def test_what_gives_whole_numbers_has_no_gradient_whoever_writes_one() -> None:
    assert asked(np.argmax) == {"x": ("zero", "nothing that comes out is a float")}


def test_a_numpy_function_that_gives_floats_cannot_be_asked_without_a_backward() -> None:
    assert asked(np.sin) == {}


def test_a_backward_is_asked_at_a_cotangent_that_is_not_constant() -> None:
    def centred(x: Any) -> Any:
        return x - x.mean()

    def backward(_inputs: Any, _outputs: Any, cotangents: Any) -> Any:
        return cotangents[0] - cotangents[0].mean()

    assert asked(centred, backward) == {"x": ("gradient", "it is not zero")}
    assert asked(np.sign, lambda i, _o, _c: np.zeros_like(i[0]))["x"][0] == "zero"
