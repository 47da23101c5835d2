"""The programs of the sample, file by file. numpy is all they need, and unittest runs the tests.

A tiny backend suite, and a phone that computes in half precision: a defect that only a replay there finds. An operator
library of two, a backward that is wrong, and an op test that somebody forgot.
"""

from __future__ import annotations

from collections.abc import Mapping

BACKEND: Mapping[str, str] = {
    "suite.py": '''\
"""Tests of a backend: each compares with the reference, and what passes is captured."""

import numpy as np

import karat

for name, rows in {"static": 2, "dynamic": 5}.items():
    x = np.linspace(-1, 1, rows * 3, dtype=np.float32).reshape(rows, 3)
    karat.check_and_capture(
        f"test_affine[{name}]",
        actual=x + x + np.float32(0.1),  # what the backend gives
        expected=2 * x + np.float32(0.1),
        inputs=(x,),
        program=b"2.0 0.1",
        suite="models",
        flow="portable",
        directory="captures",
        strict=True,
    )
    print(f"test_affine[{name}] passed, and is captured")
''',
    "phone.py": '''\
"""Runs a program on another machine: one that computes in half precision."""

import numpy as np


def run(program, inputs):
    a, b = map(np.float16, program.read_text().split())
    (x,) = inputs
    return (a * x.astype(np.float16) + b).astype(np.float32)
''',
}

OPERATORS: Mapping[str, str] = {
    "ops.py": '''\
"""Operators in numpy, with backwards written by hand. karat.toml says that these are operators."""

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
    "wrong.py": '''\
"""A backward of softmax that forgets a term."""

import numpy as np
import ops

import karat
from karat.gradients.text import text


def backward(inputs, outputs, cotangents):
    (y,), (v,) = outputs, cotangents
    return y * v


x = np.linspace(-1, 1, 12).reshape(3, 4) ** 3
report = karat.gradcheck(ops.softmax, (x,), backward=backward)
print(text(report))
raise SystemExit(not report)
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
"""The op test that was forgotten."""

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
    "karat.toml": """\
[policy]
namespaces = ["ops"]
""",
}
