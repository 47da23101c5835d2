"""ExecuTorch's own backend test suite: what its harness compared becomes a case, and no test file is touched.

    pytest -p karat.integrations.executorch --karat-capture=captures --pyargs executorch.backends.test.suite.operators
    karat replay packed/golden_artifacts_….zip --run karat.integrations.executorch:run

The flow is the one that the fixture `test_runner` has, and several networks of one test are its subtests.
"""

from __future__ import annotations

from functools import wraps
from pathlib import Path
from typing import Any

import pytest

from karat.captures.functions import capture

_running: dict[str, Any] = {}


def pytest_collection() -> None:
    """Capture what the harness compares; once, before the suite is imported."""
    from executorch.backends.test.harness.stages import StageType
    from executorch.backends.test.harness.tester import Tester
    from torch.utils._pytree import tree_leaves

    compare = Tester.run_method_and_compare_outputs
    if hasattr(compare, "__wrapped__"):
        return

    @wraps(compare)
    def compare_and_capture(self: Any, stage: Any = None, inputs: Any = None, **how: Any) -> Any:
        given = inputs or next(self.generate_random_inputs())
        done = compare(self, stage, given, **how)
        program = self.stages.get(StageType.SERIALIZE)
        expected, _ = self._calculate_reference_output(self.stages[StageType.EXPORT].artifact, given)
        number = _running["count"] = _running.get("count", 0) + 1
        capture(
            inputs=tuple(given),
            expected=tuple(tree_leaves(expected)),
            program=None if program is None else bytes(program.artifact),
            program_name="program.pte",
            flow=_running.get("flow"),
            subtest=str(number - 1) if number > 1 else None,
            rtol=how.get("rtol", 1e-3),
            atol=how.get("atol", 1e-3),
        )
        return done

    Tester.run_method_and_compare_outputs = compare_and_capture


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: Any) -> None:
    """Remember the flow of the test that begins."""
    flow = getattr(item, "callspec", None) and item.callspec.params.get("test_runner")
    _running.clear()
    _running["flow"] = getattr(flow, "name", None)


def run(program: Path, inputs: Any) -> tuple[Any, ...]:
    """What the program's `forward` gives for recorded inputs: the runtime and torch's tensors, none of the suite."""
    from executorch.runtime import Runtime
    from torch.utils._pytree import tree_leaves

    method = Runtime.get().load_program(program).load_method("forward")
    # The runtime's tensors lie in memory of the method, which is gone when this function is.
    return tuple(output.clone() for output in method.execute(tree_leaves(inputs)))
