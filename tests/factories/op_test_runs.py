"""Op test classes run by unittest in this process, with every event they tell."""

from __future__ import annotations

import unittest
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from karat import OpTest
from karat.gradients import session
from karat.gradients.session import Declared, Event, GradChecked as Checked, NoGrad


@dataclass
class ClassRun:
    """What became of a class."""

    result: unittest.TestResult
    heard: list[Event] = field(default_factory=list)

    @property
    def declared(self) -> list[Declared]:
        return [one for one in self.heard if isinstance(one, Declared)]

    @property
    def checked(self) -> list[Checked]:
        return [one for one in self.heard if isinstance(one, Checked)]

    @property
    def no_grads(self) -> list[NoGrad]:
        return [one for one in self.heard if isinstance(one, NoGrad)]

    @property
    def evidence(self) -> set[tuple[str, str]]:
        """Input and dtype of every comparison that counts."""
        every = [one for event in self.checked for one in event.report.comparisons]
        return {(one.input, one.dtype) for one in every if one.counts}

    @property
    def skips(self) -> list[str]:
        return [why for _, why in self.result.skipped]

    @property
    def failures(self) -> list[str]:
        return [why for _, why in (*self.result.failures, *self.result.errors)]


def run_class(cls: type[unittest.TestCase]) -> ClassRun:
    run = ClassRun(unittest.TestResult())
    stop = session.listen(run.heard.append)
    try:
        unittest.defaultTestLoader.loadTestsFromTestCase(cls).run(run.result)
    finally:
        stop()
    return run


def scale(x: Any, y: Any, factor: float = 1.0) -> Any:
    """An op of numpy: factor · x · y."""
    return factor * np.multiply(x, y)


class ScaleOp(OpTest):
    """A right op test over numpy, to inherit from; it has no tests of its own."""

    framework = "numpy"
    dtype = "float64"

    def setUp(self) -> None:
        x = np.random.random((5, 4)).astype(self.dtype)  # noqa: NPY002 - OpTest seeds the global generator
        y = 0.5 + np.random.random((5, 4)).astype(self.dtype)  # noqa: NPY002
        self.op_type = "scale"
        self.python_api = scale
        self.inputs = {"X": x, "Y": y}
        self.attrs = {"factor": 3.0}
        self.outputs = {"Out": 3.0 * x * y}

    def backward(self, inputs: Any, _outputs: Any, cotangents: Any) -> Any:
        x, y = inputs
        return 3.0 * y * cotangents[0], 3.0 * x * cotangents[0]


class Right(ScaleOp):
    """An op test that is right."""

    def test_check_output(self) -> None:
        self.check_output()

    def test_check_grad(self) -> None:
        self.check_grad(["X", "Y"], "Out")
