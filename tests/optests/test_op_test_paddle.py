"""OpTest on the real Paddle: the original's manner, in our own words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from conftest import framework
from factories.op_test_runs import run_class
from karat import OpTest
from karat.optests.subject import convert_float_to_uint16

paddle = framework("paddle")


@pytest.fixture(autouse=True, params=["dynamic", "static"])
def _mode(request: pytest.FixtureRequest) -> Iterator[None]:
    """Test files of the original switch to static graphs as they are imported; it must not matter."""
    if request.param == "static":
        paddle.enable_static()
    yield
    paddle.disable_static()


def reduced(x: Any, axis: Any = 0, keepdim: bool = False, reduce_all: bool = False) -> Any:  # noqa: FBT001, FBT002
    return paddle.mean(x, None if reduce_all else axis, keepdim)


class Checked(OpTest):
    __test__ = False  # run below, in both modes

    wrt: tuple[str, ...] = ("X",)
    out = "Out"

    def test_check_output(self) -> None:
        self.check_output(check_pir=True)

    def test_check_grad(self) -> None:
        self.check_grad(list(self.wrt), self.out, check_pir=True)


class Matmul(Checked):
    wrt = ("X", "Y")

    def setUp(self) -> None:
        self.op_type, self.python_api = "matmul_v2", paddle.matmul
        x, y = np.random.random((4, 6)), np.random.random((6, 5))  # noqa: NPY002
        self.inputs = {"X": x.T.copy(), "Y": y}
        self.attrs = {"trans_x": True, "trans_y": False}
        self.outputs = {"Out": x @ y}


class Softmax(Checked):
    def setUp(self) -> None:
        self.op_type, self.python_api = "softmax", paddle.nn.functional.softmax
        x = np.random.random((3, 5)).astype("float32")  # noqa: NPY002
        self.inputs, self.attrs = {"X": x}, {"axis": 1}
        self.outputs = {"Out": np.exp(x) / np.exp(x).sum(1, keepdims=True)}


class Mean(Checked):
    """The wrapper's names are its own: the op's order decides."""

    def setUp(self) -> None:
        self.op_type, self.python_api = "reduce_mean", reduced
        x = np.random.random((3, 4, 2))  # noqa: NPY002
        self.inputs, self.attrs = {"X": x}, {"dim": [1], "keep_dim": True, "reduce_all": False}
        self.outputs = {"Out": x.mean(1, keepdims=True)}


class Concat(Checked):
    wrt = ("a", "b")

    def setUp(self) -> None:
        self.op_type, self.python_api = "concat", paddle.concat
        a, b = np.random.random((2, 3)), np.random.random((2, 4))  # noqa: NPY002
        self.inputs = {"X": [("a", a), ("b", (b, [[2]]))]}
        self.outputs = {"Out": np.concatenate([a, b], axis=1)}
        self.attrs = {"axis": 1}


class ConcatByTensor(Concat):
    """An input stands for an attribute."""

    def setUp(self) -> None:
        super().setUp()
        self.inputs["AxisTensor"] = np.array([1], "int32")
        self.attrs = {}


class Unbind(Checked):
    """Several outputs, of which the gradient takes some."""

    out = "second"

    def setUp(self) -> None:
        self.op_type, self.python_api = "unbind", paddle.unbind
        x = np.random.random((2, 3))  # noqa: NPY002
        self.inputs, self.attrs = {"X": x}, {"axis": 0}
        self.outputs = {"Out": [("first", x[0]), ("second", x[1])]}


class Reshape(Checked):
    def setUp(self) -> None:
        self.op_type, self.python_api = "reshape2", paddle.reshape
        x = np.random.random((2, 6))  # noqa: NPY002
        self.inputs, self.attrs = {"X": x}, {"shape": [3, 4]}
        self.outputs = {"Out": x.reshape(3, 4), "XShape": np.zeros(1)}
        self.python_out_sig = ["Out"]


class FirstOfThree(Checked):
    """A `python_out_sig` with one name for a function that gives three: it is the first, as in the original."""

    out = "Y"

    def setUp(self) -> None:
        self.op_type, self.framework = "instance_norm", "paddle"
        self.python_api = lambda x: (3 * x, x.mean(), x.sum())
        x = np.random.random((2, 3))  # noqa: NPY002
        self.inputs, self.python_out_sig = {"X": x}, ["Y"]
        self.outputs = {"Y": 3 * x, "SavedMean": np.zeros(2), "SavedVariance": np.zeros(2)}


class Qr(Checked):
    """Paddle's kernel ends the process where one of its outputs has no cotangent."""

    outs = ("Q", "R")

    def setUp(self) -> None:
        self.op_type, self.python_api = "qr", paddle.linalg.qr
        x = np.random.random((4, 3))  # noqa: NPY002
        self.inputs, self.attrs = {"X": x}, {"mode": "reduced"}
        self.outputs = dict(zip(self.outs, np.linalg.qr(x), strict=True))

    def test_check_grad(self) -> None:
        self.check_grad(["X"], list(self.outs))


class CrossEntropy2(Checked):
    """No `python_api`: Paddle has no function for the op, and runs it by its name."""

    out = "Y"

    def setUp(self) -> None:
        self.op_type = "cross_entropy2"
        x, label = np.random.random((5, 4)) + 1, np.array([[0], [3], [2], [2], [1]])  # noqa: NPY002
        self.inputs, self.attrs = {"X": x, "Label": label}, {"ignore_index": 2}
        match = np.where(label == 2, 0.0, np.take_along_axis(x, label, 1))
        self.outputs = {
            "Y": np.where(label == 2, 0.0, -np.log(np.where(label == 2, 1.0, match))),
            "MatchX": match,
            "XShape": np.zeros_like(x),
        }

    def test_check_output(self) -> None:
        self.check_output(no_check_set=["XShape"])

    def test_check_grad(self) -> None:
        self.check_grad(["X"], "Y", no_grad_set=["XShape", "MatchX", "Label"])


class Embedding(Checked):
    """Its gradient names the rows it is for; one of them is used twice."""

    wrt = ("W",)

    def setUp(self) -> None:
        assert self.dtype is None, "as in the original, where a test may ask before it says"
        self.op_type = "lookup_table_v2"
        self.python_api = lambda ids, w, sparse=False: paddle.nn.functional.embedding(ids, w, sparse=sparse)
        ids, w = np.array([1, 3, 1]), np.random.random((5, 2))  # noqa: NPY002
        self.inputs, self.attrs = {"Ids": ids, "W": w}, {"is_sparse": True}
        self.outputs, self.framework = {"Out": w[ids]}, "paddle"


class Stacked(Checked):
    """bfloat16, written as uint16."""

    wrt = ("a", "b")
    out = "Y"

    def setUp(self) -> None:
        self.op_type, self.python_api = "stack", paddle.stack
        a, b = (convert_float_to_uint16(np.random.random((2, 3))) for _ in "ab")  # noqa: NPY002
        self.inputs, self.attrs = {"X": [("a", a), ("b", b)]}, {"axis": 0}
        self.outputs = {"Y": np.stack([a, b])}


PASSING = [Matmul, Softmax, Mean, Concat, ConcatByTensor, Unbind, Reshape, Stacked]
PASSING += [FirstOfThree, Qr, CrossEntropy2, Embedding]  # each of them failed once, or ended the process


@pytest.mark.parametrize("cls", PASSING)
def test_ops_of_paddle(cls: type[Checked]) -> None:
    run = run_class(cls)
    assert run.result.wasSuccessful(), run.failures
    assert run.skips == []
    assert {name for name, dtype in run.evidence if dtype == "float64"} == set(cls.wrt)


def test_gradients_of_rows_are_asked_for_by_tests_alone() -> None:
    """Some of Paddle's kernels end the process there, and a class that wants no gradient must not be ended."""

    class Forward(Embedding):
        def test_check_grad(self) -> None:
            self.skipTest("forward only")

    run = run_class(Forward)
    assert run.no_grads == []


def test_the_precision_of_the_test_has_evidence_too() -> None:
    assert {dtype for _, dtype in run_class(Softmax).evidence} == {"float64", "float32"}
    assert {dtype for _, dtype in run_class(Stacked).evidence} == {"float64", "bfloat16"}


def test_a_precision_without_a_kernel_is_skipped_and_double_checked() -> None:
    class Half(Softmax):
        def setUp(self) -> None:
            super().setUp()
            self.inputs["X"] = self.inputs["X"].astype("float16")

    run = run_class(Half)
    if not run.skips:  # a Paddle that has it
        pytest.skip("this Paddle computes softmax in float16 on the CPU")
    assert len(run.skips) == 2
    assert all("paddle computes no float16 of it on cpu" in why for why in run.skips)
    assert run.evidence == {("X", "float64")}


def test_the_authors_half_precision_gradients_are_not_those_of_the_double_run() -> None:
    class Half(Softmax):
        def setUp(self) -> None:
            super().setUp()
            self.inputs["X"] = self.inputs["X"].astype("float16")

        def test_check_grad(self) -> None:
            v = np.arange(15.0).reshape(3, 5).astype("float16")
            y = self.outputs["Out"].astype("float16")
            grad = y * (v - (v * y).sum(1, keepdims=True))
            self.check_grad(["X"], "Out", user_defined_grads=[grad], user_defined_grad_outputs=[v])

    run = run_class(Half)
    assert run.failures == []
    assert ("X", "float64") in run.evidence


@pytest.mark.parametrize("exact", [True, False])
def test_an_op_on_integers_may_be_expected_in_the_fractions_that_numpy_makes_of_them(*, exact: bool) -> None:
    class Pow(OpTest):
        def setUp(self) -> None:
            self.op_type, self.python_api = "pow", paddle.pow
            self.inputs, self.attrs = {"X": np.array([1, 3, 6])}, {"factor": 2.0}
            self.outputs = {"Out": np.power([1, 3, 6], 2.0) + (0 if exact else 0.25)}

        def test_check_output(self) -> None:
            self.check_output()

    assert run_class(Pow).result.wasSuccessful() is exact


def test_a_gradient_that_is_zero_in_the_mean_is_checked_all_the_same() -> None:
    """The softmax's mean has no gradient, so zeros passed the original's check."""

    class Zeroed(Softmax):
        def setUp(self) -> None:
            super().setUp()
            self.python_api = lambda x, axis: paddle.nn.functional.softmax(x.detach(), axis) + 0 * x

    (failure,) = run_class(Zeroed).failures
    assert "FAIL  softmax" in failure


class Cross(Checked):
    """Paddle's kernel ends the process if it is asked for one of the gradients alone; the original never asks so."""

    def setUp(self) -> None:
        self.op_type, self.python_api = "cross", paddle.cross
        x, y = np.random.random((4, 3)), np.random.random((4, 3))  # noqa: NPY002
        self.inputs, self.attrs = {"X": x, "Y": y}, {"dim": 1}
        self.outputs = {"Out": np.cross(x, y)}


class LayerNorm(Checked):
    """Paddle's gradient of x is wrong if that of the weight is not asked for at the same time."""

    def setUp(self) -> None:
        self.op_type, self.framework = "layer_norm", "paddle"
        self.python_api = lambda x, w, b: paddle.nn.functional.layer_norm(x, [6], w, b)
        x, w, b = np.random.random((3, 6)), np.random.random(6), np.random.random(6)  # noqa: NPY002
        self.inputs = {"X": x, "Scale": w, "Bias": b}
        scaled = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
        self.outputs = {"Y": scaled * w + b}
        self.python_out_sig = ["Y"]

    out = "Y"


@pytest.mark.parametrize("cls", [Cross, LayerNorm])
def test_one_gradient_is_compared_and_all_are_computed_as_in_the_original(cls: type[Checked]) -> None:
    run = run_class(cls)
    assert run.result.wasSuccessful(), run.failures
    assert run.evidence == {("X", "float64")}
    assert "subset" not in {one.name for one in run.checked[0].report.properties}


@pytest.mark.slow
def test_a_wrong_gradient_is_seen_beside_others_that_are_not_compared() -> None:
    class Wrong(Cross):
        def setUp(self) -> None:
            super().setUp()
            self.python_api = lambda x, y, axis: paddle.cross(x, y, axis) + x.detach() - x

    (failure,) = run_class(Wrong).failures
    assert "not as expected" not in failure
    assert "FAIL  cross" in failure
