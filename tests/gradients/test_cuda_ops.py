"""cuda_ops.py where there is a CUDA device; CI has none, so it is skipped by name there.

The CPU goes through the same checks in every run, less the Triton kernel: a script that only ever ran on a GPU would rot.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from conftest import framework


@pytest.fixture(scope="module")
def script() -> ModuleType:
    framework("torch")
    spec = importlib.util.spec_from_file_location("cuda_ops", Path(__file__).with_name("cuda_ops.py"))
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.fixture(params=["cpu", "cuda:0"])
def device(request: pytest.FixtureRequest) -> str:
    """The CPU, and a CUDA device where there is one; none can be had in CI, so KARAT_REQUIRE is not asked."""
    if request.param != "cpu" and not framework("torch").cuda.is_available():
        pytest.skip("needs a CUDA device")
    return str(request.param)


def judged(script: ModuleType, planted: Any) -> None:
    report = script.check(planted)
    assert str(report.verdict) == planted.verdict, script.told(planted, report)
    failed = [one for one in report.comparisons if str(one.verdict) == "FAIL"]
    assert bool(report.diagnoses) == bool(failed), script.told(planted, report)


def test_ops_of_torch(script: ModuleType, device: str) -> None:
    for planted in script.scatter_ops(framework("torch"), device):
        judged(script, planted)


def test_kernels_of_triton(script: ModuleType, device: str) -> None:
    if device == "cpu":
        pytest.skip("needs a CUDA device")
    for planted in script.triton_ops(framework("torch"), device):
        judged(script, planted)


@pytest.mark.slow
def test_ops_of_jax(script: ModuleType, device: str) -> None:
    framework("jax")
    jax = script.jax_with(device)
    if jax is None:
        pytest.skip("jax sees no such device")
    for planted in script.jax_ops(jax, device):
        judged(script, planted)
