"""The original's names, and what is behind them."""

from __future__ import annotations

import unittest

import numpy as np
import pytest

from conftest import framework
from karat.optests import original


def test_every_name_that_test_files_import_is_there() -> None:
    for name in original.__all__:
        assert getattr(original, name) is not None
    assert {
        "OpTest",
        "OpTestTool",
        "_set_use_system_allocator",
        "check_out_dtype",
        "convert_float_to_uint16",
        "convert_uint16_to_float",
        "get_device",
        "get_device_place",
        "get_devices",
        "get_places",
        "is_custom_device",
        "paddle_static_guard",
        "randomize_probability",
        "skip_check_grad_ci",
        "skip_check_inplace_ci",
    } <= set(original.__all__)


def test_places_that_there_are() -> None:
    paddle = framework("paddle")
    assert isinstance(original.get_places()[0], paddle.CPUPlace)
    assert original.get_devices()[0] == "cpu"
    assert original.get_device() == original.get_devices()[-1]
    assert isinstance(original.get_device_place(), original.get_device_class())
    if not original.is_custom_device() and not paddle.is_compiled_with_cuda():
        assert isinstance(original.get_device_place(), paddle.CPUPlace)


@pytest.mark.parametrize("dynamic", [True, False])
def test_the_static_guard_leaves_things_as_they_were(*, dynamic: bool) -> None:
    paddle = framework("paddle")
    if not dynamic:
        paddle.enable_static()
    try:
        with original.paddle_static_guard():
            assert not paddle.in_dynamic_mode()
        assert paddle.in_dynamic_mode() is dynamic
    finally:
        paddle.disable_static()


def test_probabilities_add_up() -> None:
    rows = original.randomize_probability(4, 7, "float64")
    assert rows.shape == (4, 7)
    assert np.allclose(rows.sum(axis=1), 1.0)
    assert (rows > 0).all()


def test_decorators_that_skip_say_why() -> None:
    @original.OpTestTool.skip_if(condition=True, reason="no such thing")
    class Skipped(unittest.TestCase):
        def test_it(self) -> None:
            raise AssertionError

    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(Skipped).run(result)
    assert [why for _, why in result.skipped] == ["no such thing"]


def test_the_originals_own_numeric_side_is_not_carried_out() -> None:
    with pytest.raises(unittest.SkipTest, match=r"call self\.check_grad instead"):
        original.get_numeric_gradient("place", delta=1)
    with pytest.raises(unittest.SkipTest, match="static graph"):
        original.check_out_dtype(max, [([2, 3],)], ["float32"])
