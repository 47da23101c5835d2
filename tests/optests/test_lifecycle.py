"""Op tests under `python -m unittest`: recorded where KARAT_EVIDENCE says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from factories.pytest_runs import Ran, Suite
from karat import skip_check_grad_ci
from karat.findings import UsageError
from karat.optests.lifecycle import skip_check_inplace_ci, skip_reasons
from karat.policy.evidence import merge


def test_a_class_speaks_for_itself_and_not_for_its_children() -> None:
    @skip_check_grad_ci(reason="gives indices")
    class Parent:
        pass

    class Child(Parent):
        pass

    assert skip_reasons.get(Parent) == "gives indices"
    assert skip_reasons.get(Child) is None


def test_nothing_is_written_into_the_class() -> None:
    class Plain:
        pass

    before = set(vars(Plain))
    skip_check_grad_ci("by position, too")(Plain)
    assert set(vars(Plain)) == before
    assert skip_reasons.get(Plain) == "by position, too"


@pytest.mark.parametrize("decorator", [skip_check_grad_ci, skip_check_inplace_ci])
@pytest.mark.parametrize("reason", [None, "", "   ", 3, True])
def test_a_reason_is_required(decorator: Any, reason: Any) -> None:
    with pytest.raises(UsageError, match="expected reason="):
        decorator(reason=reason)


def test_the_decorator_without_a_call_is_refused() -> None:
    class Plain:
        pass

    with pytest.raises(UsageError, match="expected reason="):
        skip_check_grad_ci(Plain)  # type: ignore[arg-type]


FILE = """
    import numpy as np
    import karat

    class Op(karat.OpTest):
        framework = "numpy"
        def setUp(self):
            x = np.random.random((3, 4))
            self.op_type, self.python_api = "square", np.square
            self.inputs, self.outputs = {"X": x}, {"Out": x * x}
        def backward(self, inputs, outputs, cotangents):
            return 2 * inputs[0] * cotangents[0]

    class TestRight(Op):
        def test_check_output(self): self.check_output()
        def test_check_grad(self): self.check_grad(["X"], "Out")

    class TestEmpty(TestRight):
        def test_check_grad(self): pass
"""


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    made = Suite(tmp_path / "suite")
    made.write("test_square.py", FILE)
    return made


def unittested(suite: Suite, *words: str, **variables: str) -> Ran:
    names = [f"test_square.{word}" for word in words] or ["test_square"]
    return suite.python("-m", "unittest", *names, **variables)


@pytest.mark.slow
def test_evidence_is_recorded_as_under_pytest(suite: Suite) -> None:
    unittested(suite, "TestRight", "TestEmpty.test_check_output", KARAT_EVIDENCE="unit")
    suite.run("-k", "TestRight", "--karat-evidence", "py")
    unit, py = (merge([suite.root / name]) for name in ("unit", "py"))
    assert not unit.findings
    name = "test_square.py::TestRight"
    for merged in (unit, py):
        known = merged.tests[name]
        assert known.is_whole
        assert {one.op for one in known.declared} == {"square"}
        assert any(e.counts and e.dtype == "float64" and e.input == "X" for e in known.evidence)
        assert sorted(one.outcome for one in known.outcomes) == ["passed", "passed"]
    assert not unit.tests["test_square.py::TestEmpty"].is_whole


@pytest.mark.slow
def test_a_process_that_a_test_starts_keeps_its_own_evidence(suite: Suite) -> None:
    """It has inherited pytest's variable, and may import pytest for a mark."""
    source = (suite.root / "test_square.py").read_text()
    suite.write("test_square.py", f"import pytest\n{source}")
    outer = {"PYTEST_CURRENT_TEST": "test_outer.py::TestRight::test_it (call)"}
    ran = unittested(suite, "TestRight", KARAT_EVIDENCE="unit", **outer)
    assert ran.code == 0, ran.out
    known = merge([suite.root / "unit"]).tests["test_square.py::TestRight"]
    assert any(e.counts for e in known.evidence)


FAILING = """
    import numpy as np
    import karat

    class TestWrong(karat.OpTest):
        framework = "numpy"
        def setUp(self):
            x = np.random.random((3, 4))
            self.op_type, self.python_api = "square", np.square
            self.inputs, self.outputs = {"X": x}, {"Out": x + x}
        def backward(self, inputs, outputs, cotangents):
            return 3 * inputs[0] * cotangents[0]
        def test_check_output(self):
            self.check_output()
        def test_check_grad(self):
            self.check_grad(["X"], "Out")

    def test_plain():
        x = np.ones(3)
        karat.gradcheck(np.square, (x,), backward=lambda i, o, c: 3 * i[0] * c[0]).require()
"""


@pytest.mark.slow
@pytest.mark.parametrize("runner", ["pytest", "unittest"])
def test_a_failure_shows_the_line_of_the_test_and_none_of_karats(suite: Suite, runner: str) -> None:
    suite.write("test_failing.py", FAILING)
    if runner == "pytest":
        ran = suite.run("test_failing.py")
        assert ran.count("failed") == 3
        assert "lambda i, o, c: 3 * i[0] * c[0]).require()" in ran.out
    else:
        ran = suite.python("-m", "unittest", "test_failing")
    assert 'self.check_grad(["X"], "Out")' in ran.out
    assert "self.check_output()" in ran.out
    assert "1.5 times the expected gradient" in ran.out
    for module in ("op_test.py", "report.py", "outputs.py", "gradient_checks.py"):
        assert module not in ran.out
