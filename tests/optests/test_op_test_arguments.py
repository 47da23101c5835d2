from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

from factories.op_test_runs import Right, ScaleOp, run_class
from karat.optests import op_test

# -- places, requests, precision -------------------------------------------------------------------


def test_a_place_that_is_not_there_is_skipped_with_the_reason() -> None:
    class Elsewhere(ScaleOp):
        def test_check_grad(self) -> None:
            self.check_grad_with_place("cuda:0", ["X"], "Out")

        def test_check_output(self) -> None:
            self.check_output_with_place("cuda:0")

    run = run_class(Elsewhere)
    assert len(run.skips) == 2
    assert all("nothing was compared: numpy has no cuda:0 here" in why for why in run.skips)
    assert run.evidence == set()


def test_other_modes_are_said_once_and_not_carried_out(caplog: pytest.LogCaptureFixture) -> None:
    class Asks(ScaleOp):
        def test_check_grad(self) -> None:
            self.check_grad(["X"], "Out", check_prim=True, check_cinn=False)

    op_test._warned.clear()
    with caplog.at_level(logging.WARNING, logger="karat.optests"):
        run_class(Asks)
        run_class(Asks)
    (said,) = [one.getMessage() for one in caplog.records if one.name == "karat.optests"]
    assert "Asks asks for check_prim: not carried out" in said


def test_the_static_graph_alone_is_skipped() -> None:
    class Static(ScaleOp):
        def test_check_grad(self) -> None:
            self.check_grad(["X"], "Out", check_dygraph=False)

    (why,) = run_class(Static).skips
    assert "check_dygraph=False asks for the static graph alone" in why


def test_an_unknown_argument_is_refused_with_a_suggestion() -> None:
    class Typo(ScaleOp):
        def test_check_grad(self) -> None:
            self.check_grad(["X"], "Out", propertys=[])

    (failure,) = run_class(Typo).failures
    assert "found 'propertys'; did you mean 'properties'?" in failure


def test_a_mode_of_a_later_paddle_is_no_error() -> None:
    class Later(ScaleOp):
        def test_check_grad(self) -> None:
            self.check_grad(["X"], "Out", check_next_ir=True)

    assert run_class(Later).evidence


def test_integers_have_no_gradient_to_check() -> None:
    class Whole(ScaleOp):
        def setUp(self) -> None:
            super().setUp()
            self.inputs = {name: one.astype("int64") for name, one in self.inputs.items()}

        def test_check_grad(self) -> None:
            self.check_grad(["X"], "Out")

    run = run_class(Whole)
    assert "X is int64, which has no gradient to check" in run.skips[0]
    assert run.no_grads == []


def test_nothing_in_it_is_nothing_compared() -> None:
    class Hollow(Right):
        def setUp(self) -> None:
            super().setUp()
            self.inputs = {name: one[:0] for name, one in self.inputs.items()}
            self.outputs = {"Out": self.outputs["Out"][:0]}

    run = run_class(Hollow)
    assert "there are no elements" in run.skips[0]
    assert run.evidence == set()


def test_what_cannot_be_told_is_skipped_not_passed() -> None:
    class Infinite(ScaleOp):
        def setUp(self) -> None:
            super().setUp()
            self.python_api = lambda x, y, factor: np.where(x == x.max(), np.inf, x) + 0 * y * factor

        def backward(self, inputs: Any, outputs: Any, cotangents: Any) -> Any:  # noqa: ARG002
            return cotangents[0] * (inputs[0] < inputs[0].max()), np.zeros_like(inputs[1])

        def test_check_grad(self) -> None:
            self.check_grad(["X", "Y"], "Out")

    run = run_class(Infinite)
    assert "no evidence" in run.skips[0]
    assert run.evidence == set()


def test_a_gradient_that_is_rightly_zero_is_no_skip() -> None:
    class Flat(ScaleOp):
        def setUp(self) -> None:
            super().setUp()
            self.python_api = lambda x, y, factor: np.sign(x) + 0 * y * factor

        def backward(self, inputs: Any, outputs: Any, cotangents: Any) -> Any:  # noqa: ARG002
            return np.zeros_like(inputs[0]), np.zeros_like(inputs[1])

        def test_check_grad(self) -> None:
            self.check_grad(["X", "Y"], "Out")

    run = run_class(Flat)
    assert not run.skips
    assert run.evidence


# -- the original's arguments ----------------------------------------------------------------------


def test_no_grad_set_is_honoured_and_declared() -> None:
    class Without(ScaleOp):
        def test_check_grad(self) -> None:
            self.check_grad(["X", "Y"], "Out", no_grad_set={"Y"})

    run = run_class(Without)
    assert run.evidence == {("X", "float64")}
    assert [one.no_grad for one in run.declared] == [(), ("Y",)]


def test_a_wider_tolerance_is_recorded() -> None:
    class Wide(ScaleOp):
        def test_check_grad(self) -> None:
            self.check_grad(["X"], "Out", max_relative_error=0.3)

    (event,) = run_class(Wide).checked
    assert {one.widened for one in event.report.comparisons if one.mode == "reverse"} == {0.3}


# -- what setUp must say ------------------------------------------------------------------------------


def test_a_test_without_a_function_says_what_to_write() -> None:
    class Without(Right):
        def setUp(self) -> None:
            super().setUp()
            del self.python_api

    assert all("expected self.python_api" in one for one in run_class(Without).failures)


def test_an_unknown_input_is_refused_with_a_suggestion() -> None:
    class Typo(ScaleOp):
        def test_check_grad(self) -> None:
            self.check_grad(["Xx"], "Out")

    assert "expected an input out of X, Y, found 'Xx'; did you mean 'X'?" in run_class(Typo).failures[0]


def test_an_unknown_output_is_refused() -> None:
    class Typo(ScaleOp):
        def test_check_grad(self) -> None:
            self.check_grad(["X"], "Output")

    assert "expected the output Output, found Out" in run_class(Typo).failures[0]


@pytest.mark.parametrize("names", [(), [1]])
def test_names_are_names(names: Any) -> None:
    class Odd(ScaleOp):
        def test_check_grad(self) -> None:
            self.check_grad(names, "Out")

    assert "expected names of inputs and outputs" in run_class(Odd).failures[0]
