"""Two operators in numpy with their op tests, file by file, for those who gate them."""

from __future__ import annotations

from collections.abc import Mapping

OPERATORS: Mapping[str, str] = {
    "ops.py": '''\
"""Operators in numpy, with backwards written by hand."""

import numpy as np

__all__ = ["scale", "softmax"]


def softmax(x):
    raised = np.exp(x - x.max(-1, keepdims=True))
    return raised / raised.sum(-1, keepdims=True)


def scale(x, factor):
    return x * factor


def softmax_backward(inputs, outputs, cotangents):
    (y,), (v,) = outputs, cotangents
    return y * (v - (y * v).sum(-1, keepdims=True))


def scale_backward(inputs, outputs, cotangents):
    (x, factor), (v,) = inputs, cotangents
    return v * factor, (v * x).sum(0)
''',
    "test_softmax.py": '''\
"""An op test: what comes out, and what the gradient is."""

import numpy as np
import ops

import karat


class TestSoftmax(karat.OpTest):
    def setUp(self):
        self.op_type = "softmax"
        self.python_api = ops.softmax
        self.backward = ops.softmax_backward
        x = np.array([[0.0, 1.0, 2.0], [3.0, -1.0, 0.5]])
        self.inputs = {"X": x}
        self.outputs = {"Out": np.exp(x) / np.exp(x).sum(-1)[:, None]}

    def test_check_output(self):
        self.check_output()

    def test_check_grad(self):
        self.check_grad(["X"], "Out")
''',
    "test_scale.py": '''\
"""The other op test."""

import numpy as np
import ops

import karat


class TestScale(karat.OpTest):
    def setUp(self):
        self.op_type = "scale"
        self.python_api = ops.scale
        self.backward = ops.scale_backward
        self.inputs = {"X": np.arange(6.0).reshape(2, 3), "Factor": np.array([0.5, 1.0, 2.0])}
        self.outputs = {"Out": np.array([[0.0, 1.0, 4.0], [1.5, 4.0, 10.0]])}

    def test_check_output(self):
        self.check_output()

    def test_check_grad(self):
        self.check_grad(["X", "Factor"], "Out")
''',
}
