"""cuda_round_trip.py where there is a CUDA device; CI has none, so it is skipped by name there.

The CPU goes through the same checks in every run: a script that only ever ran on a GPU would rot.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf:UserWarning")


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("cuda_round_trip", Path(__file__).with_name("cuda_round_trip.py"))
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.fixture(params=["cpu", "cuda:0"])
def device(request: pytest.FixtureRequest, torch: Any) -> str:
    """The CPU, and a CUDA device where there is one; none can be had in CI, so KARAT_REQUIRE is not asked."""
    if request.param != "cpu" and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    return str(request.param)


@pytest.mark.slow
def test_every_dtype_comes_back_from_the_device(script: ModuleType, torch: Any, device: str) -> None:
    names = script.names(torch)
    assert len(names) > 30
    for name in names:
        script.check_round_trip(torch, name, device)


def test_what_lies_on_the_device_is_compared(script: ModuleType, torch: Any, device: str) -> None:
    script.check_comparing(torch, device)


def test_lazy_values_of_the_device_are_resolved(script: ModuleType, torch: Any, device: str) -> None:
    script.check_lazy(torch, device)


def test_jax_where_it_is(script: ModuleType, jax: Any) -> None:
    assert script.check_jax().startswith(f"jax {jax.__version__} on")
