"""A suite of op tests, each of which slips through the original's gate, and a few that are as they should be."""

from __future__ import annotations

from pathlib import Path

from factories.pytest_runs import Suite

NUMPY = '''
import unittest

import numpy as np

import karat


def tanh(x):
    return np.tanh(x)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def zeros(inputs, outputs, cotangents):
    return tuple(np.zeros_like(x) for x in inputs)


def right(inputs, outputs, cotangents):
    return (cotangents[0] * (1 - np.tanh(inputs[0]) ** 2),)


class TestParent(karat.OpTest):
    """As it should be."""

    framework = "numpy"
    backward = staticmethod(right)

    def setUp(self):
        self.op_type, self.python_api = "tanh", tanh
        x = np.random.rand(3, 4)
        self.inputs, self.outputs = {"X": x}, {"Out": np.tanh(x)}

    def test_check_output(self):
        self.check_output()

    def test_check_grad(self):
        self.check_grad(["X"], "Out")


class TestChildOfAPassingParent(TestParent):
    def test_check_grad(self):
        pass


class TestEmptyBody(karat.OpTest):
    framework = "numpy"
    backward = staticmethod(zeros)
    setUp = TestParent.setUp

    def test_check_grad(self):
        ...


class TestExemptByAttribute(TestEmptyBody):
    no_need_check_grad = False


class TestFlagsSetByHand(TestEmptyBody):
    exist_check_grad = True
    exist_fp64_check_grad = True

    def setUp(self):
        super().setUp()
        type(self).exist_check_grad = True
        self.__class__.no_need_check_grad = True


class TestNoDevice(TestParent):
    """The flag would be set before comparing; without the device nothing is compared."""

    def test_check_grad(self):
        self.check_grad_with_place("cuda:0", ["X"], "Out")


class TestFailsBeforeComparing(TestParent):
    """The check is called, and ends before it compares anything; the test looks away."""

    def test_check_grad(self):
        try:
            self.check_grad(["NoSuchInput"], "Out")
        except Exception:
            pass


class TestLooksAway(TestParent):
    """The check fails; the test does not."""

    backward = staticmethod(zeros)

    def test_check_grad(self):
        try:
            self.check_grad(["X"], "Out")
        except AssertionError:
            pass


class TestOwnGradients(TestParent):
    """user_defined_grads are what the wrong backward gives anyway."""

    backward = staticmethod(zeros)

    def test_check_grad(self):
        own = zeros((self.inputs["X"],), None, None)
        try:
            self.check_grad(["X"], "Out", user_defined_grads=own)
        except AssertionError:
            pass


class TestMeanLossBlindness(TestParent):
    """With a constant cotangent the gradient of softmax is zero, and so zeros are right."""

    backward = staticmethod(zeros)

    def setUp(self):
        self.op_type, self.python_api = "softmax", softmax
        x = np.random.rand(3, 4)
        self.inputs, self.outputs = {"X": x}, {"Out": softmax(x)}


class TestSecondInput(karat.OpTest):
    """Only one of two inputs is checked."""

    framework = "numpy"

    @staticmethod
    def backward(inputs, outputs, cotangents):
        return cotangents[0] * inputs[1], cotangents[0] * inputs[0]

    def setUp(self):
        self.op_type, self.python_api = "multiply", lambda x, y: x * y
        x, y = np.random.rand(3), np.random.rand(3)
        self.inputs, self.outputs = {"X": x, "Y": y}, {"Out": x * y}

    def test_check_grad(self):
        self.check_grad(["X"], "Out")


class TestSetAside(TestSecondInput):
    """The other input is set aside without a word."""

    def test_check_grad(self):
        self.check_grad(["X", "Y"], "Out", no_grad_set={"Y"})


@karat.skip_check_grad_ci(reason="the op is too slow")
class TestSkips(TestEmptyBody):
    pass


class TestChildOfASkip(TestSkips):
    """What its parent skips is the parent's."""


@unittest.skip("not today")
class TestSkippedWhole(TestParent):
    pass


class TestIntegers(TestEmptyBody):
    """Needs nothing: integers have no gradient."""

    def setUp(self):
        self.op_type, self.python_api = "invert", np.invert
        self.inputs, self.outputs = {"X": np.arange(3)}, {"Out": ~np.arange(3)}


class TestPlain(unittest.TestCase):
    """A plain test, which is left alone."""

    def test_check_grad(self):
        self.assertTrue(True)
'''


def leaky_suite(root: Path) -> Suite:
    """The suite, written down."""
    suite = Suite(root)
    suite.write("test_leaks.py", NUMPY)
    return suite


TORCH = '''
import numpy as np
import torch

import karat


class ZeroBackward(torch.autograd.Function):
    """A softmax whose gradient is zero, which a constant cotangent cannot tell from the right one."""

    @staticmethod
    def forward(ctx, x):
        return torch.softmax(x, -1)

    @staticmethod
    def backward(ctx, cotangent):
        return torch.zeros_like(cotangent)


class Base(karat.OpTest):
    framework = "torch"
    op, api = "tanh", staticmethod(torch.tanh)

    def setUp(self):
        x = np.random.randn(3, 4)
        self.op_type, self.python_api, self.inputs = self.op, self.api, {"X": x}
        self.outputs = {"Out": self.api(torch.tensor(x)).numpy()}


class TestBlind(Base):
    op, api = "softmax", staticmethod(lambda x: ZeroBackward.apply(x))

    def test_check_grad(self):
        try:
            self.check_grad(["X"], "Out")
        except AssertionError:
            pass


class TestWidened(Base):
    def test_check_grad(self):
        self.check_grad(["X"], "Out", max_relative_error=0.05)


class TestArgmax(Base):
    """Has no gradient, as its exemption says."""

    op, api = "argmax", staticmethod(lambda x: torch.argmax(x, -1))

    def test_check_output(self):
        self.check_output()


class TestSine(Base):
    """Has one, whatever its exemption says."""

    op, api = "sin", staticmethod(torch.sin)

    def test_check_output(self):
        self.check_output()


@karat.skip_check_grad_ci(reason="its backward is being rewritten")
class TestSkips(Base):
    op, api = "cos", staticmethod(torch.cos)

    def test_check_output(self):
        self.check_output()


class TestCosine(Base):
    op, api = "cos", staticmethod(torch.cos)

    def test_check_grad(self):
        self.check_grad(["X"], "Out")
'''
EXEMPTIONS = """
[[exemption]]
op = "argmax"
kind = "no-grad-op"
reason = "gives indices, which do not move with the input"
owner = "@alice"

[[exemption]]
op = "sin"
kind = "no-grad-op"
reason = "somebody thought that it had none"
owner = "@alice"

[[exemption]]
op = "cos"
scope = "TestSkips"
kind = "special"
reason = "its backward is being rewritten, see the link"
owner = "@alice"
issue = "https://example.org/issues/7"
expires = 2027-01-31

[[exemption]]
op = "cos"
scope = "TestCosine"
kind = "special"
reason = "it was not to be checked once upon a time"
owner = "@alice"
issue = "https://example.org/issues/8"
expires = 2027-01-31
"""


def torch_suite(root: Path) -> Suite:
    """Op tests of torch with exemptions, true and untrue."""
    suite = Suite(root)
    suite.write("test_torch.py", TORCH)
    suite.write("exemptions.toml", EXEMPTIONS)
    return suite
