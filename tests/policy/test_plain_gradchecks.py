"""Tests of users that only call `karat.gradcheck`: what pytest shows of one that fails, and what the gate says."""

from __future__ import annotations

from pathlib import Path

import pytest

from factories.pytest_runs import Suite

TESTS = """
    import numpy as np
    import karat

    X = np.linspace(0.1, 1.0, 5)

    def right(inputs, outputs, grads):
        return (np.cos(inputs[0]) * grads[0],)

    def twice(inputs, outputs, grads):
        return (2 * np.cos(inputs[0]) * grads[0],)

    def test_right():
        assert karat.gradcheck(np.sin, (X,), backward=right, op="sine")

    def test_wrong():
        assert karat.gradcheck(np.sin, (X,), backward=twice, op="bad sine")
"""


@pytest.mark.slow
def test_a_failed_assertion_keeps_hint_and_replay_and_the_gate_takes_plain_tests(tmp_path: Path) -> None:
    suite = Suite(tmp_path / "project")
    suite.write("test_ops.py", TESTS)
    done = suite.run("-q", "--karat-evidence=evidence")
    assert (done.count("failed"), done.count("passed")) == (1, 1), done.out
    assert "hint      twice the expected gradient" in done.out
    assert "replay    pytest test_ops.py::test_wrong --karat-grad-seed" in done.out
    gate = suite.python("-m", "karat", "policy", "gate", "evidence")
    assert gate.code == 1
    assert "grad-failed: test_ops.py::test_wrong (op bad sine)" in gate.out
    assert "nothing-compared" not in gate.out
    assert "1 with evidence" in gate.out
    suite.write("test_ops.py", TESTS.partition("    def test_wrong")[0])
    assert suite.run("-q", "--karat-evidence=good").code == 0
    good = suite.python("-m", "karat", "policy", "gate", "good", "--complete")
    assert (good.code, "gate passed" in good.out) == (0, True), good.out
