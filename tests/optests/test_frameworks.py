from __future__ import annotations

import importlib.util
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import framework
from karat.optests import frameworks


def doubled(x: Any) -> Any:
    return np.add(x, x)


def nothing(x: Any) -> Any:
    return x


def test_where_a_function_is_defined() -> None:
    paddle, torch, jax = framework("paddle"), framework("torch"), framework("jax")
    assert frameworks.framework_of(paddle.matmul) == "paddle"
    assert frameworks.framework_of(torch.nn.functional.relu) == "torch"
    assert frameworks.framework_of(jax.nn.softmax) == "jax"


def test_what_a_function_calls() -> None:
    torch = framework("torch")

    def inner(x: Any) -> Any:
        return torch.relu(x)

    assert frameworks.framework_of(doubled) == "numpy"
    assert frameworks.framework_of(partial(doubled, 1)) == "numpy"
    assert frameworks.framework_of(inner) == "torch"


def test_a_backward_of_ones_own_is_numpys() -> None:
    assert frameworks.framework_of(nothing, backward=doubled) == "numpy"


def test_what_a_function_is_made_by() -> None:
    torch: Any = framework("torch")
    jax = framework("jax")

    class Same(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x

    assert frameworks.framework_of(jax.jit(nothing)) == "jax"
    assert frameworks.framework_of(Same()) == "torch"
    assert frameworks.framework_of(torch.relu) == "torch"
    assert frameworks.framework_of(np.sin) == "numpy"


def _in_a_file(folder: Path, imports: str) -> Any:
    path = folder / "api.py"
    path.write_text(f"{imports}\ndef api(x):\n    return x * x\n")
    loaded = importlib.util.spec_from_file_location("api", path)
    assert loaded is not None
    assert loaded.loader is not None
    module = importlib.util.module_from_spec(loaded)
    loaded.loader.exec_module(module)
    return module.api


def test_what_hints_at_nothing_is_numpys_whatever_others_import(tmp_path: Path) -> None:
    for name in ("torch", "jax", "paddle"):
        framework(name)
    api = _in_a_file(tmp_path, "import numpy as np")
    assert frameworks.framework_of(api) == "numpy"
    assert frameworks.framework_of(api, paddle_style=True) == "paddle"


def test_without_paddle_the_originals_manner_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "paddle", raising=False)
    assert frameworks.framework_of(nothing, paddle_style=True) == "numpy"


@pytest.mark.parametrize(
    ("place", "name", "expected"),
    [
        (None, "torch", "cpu"),
        ("cpu", "paddle", "cpu"),
        ("gpu:0", "torch", "cuda:0"),
        ("cuda:1", "paddle", "gpu:1"),
        ("Place(gpu:0)", "paddle", "gpu:0"),
        ("cuda", "jax", "gpu"),
        ("mps", "torch", "mps"),
    ],
)
def test_places_in_the_words_of_the_framework(place: str | None, name: str, expected: str) -> None:
    assert frameworks.device_name(place, name) == expected


def test_places_of_paddle() -> None:
    paddle = framework("paddle")
    assert frameworks.device_name(paddle.CPUPlace(), "paddle") == "cpu"


def test_devices_of_torch_and_jax() -> None:
    assert frameworks.device_name(framework("torch").device("cuda:1"), "torch") == "cuda:1"
    assert frameworks.device_name(framework("jax").devices("cpu")[0], "jax") == "cpu:0"


@pytest.mark.parametrize("name", ["paddle", "torch", "jax", "numpy"])
def test_the_cpu_is_always_there(name: str) -> None:
    framework(name)
    assert frameworks.absence_reason("cpu", name) is None


@pytest.mark.parametrize(
    ("name", "device"), [("paddle", "nothing:0"), ("torch", "nothing"), ("jax", "nothing"), ("numpy", "cuda:0")]
)
def test_a_device_that_is_not_there_has_a_reason(name: str, device: str) -> None:
    framework(name)
    reason = frameworks.absence_reason(device, name)
    assert reason is not None
    assert reason.startswith(f"{name} has no {device} here: ")
    assert "\n" not in reason


def test_within_a_place_paddle_is_dynamic_and_afterwards_as_before() -> None:
    paddle = framework("paddle")
    paddle.enable_static()
    try:
        with frameworks.device_scope("cpu", "paddle") as like:
            assert paddle.in_dynamic_mode()
            assert like.numpy().tolist() == [0.0]
        assert not paddle.in_dynamic_mode()
    finally:
        paddle.disable_static()
