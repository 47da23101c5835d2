from __future__ import annotations

import pytest

from conftest import framework
from karat.optests import frameworks


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
    ("name", "device"),
    [("paddle", "nothing:0"), ("torch", "nothing"), ("jax", "nothing"), ("numpy", "cuda:0")],
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
