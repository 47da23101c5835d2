"""What Paddle's test files import from `op_test`, under the same names.

    from op_test import OpTest, convert_float_to_uint16      # before
    from karat.optests.original import OpTest, convert_float_to_uint16

This is for files that exist; in new ones, `karat.OpTest` and numpy's own types say it better.
"""

from __future__ import annotations

import unittest
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from karat.optests.lifecycle import skip_check_grad_ci, skip_check_inplace_ci
from karat.optests.op_test import OpTest
from karat.optests.subject import (
    Array,
    convert_float_to_uint16,
    convert_uint16_to_float,
    copy_bits_from_float_to_uint16,
)

__all__ = [
    "OpTest",
    "OpTestTool",
    "_set_use_system_allocator",
    "check_out_dtype",
    "convert_float_to_uint16",
    "convert_uint16_to_float",
    "copy_bits_from_float_to_uint16",
    "get_device",
    "get_device_class",
    "get_device_place",
    "get_devices",
    "get_numeric_gradient",
    "get_places",
    "is_custom_device",
    "paddle_static_guard",
    "randomize_probability",
    "skip_check_grad_ci",
    "skip_check_inplace_ci",
]

Decorator = Callable[[Any], Any]
_STATIC = "this runs a static graph, which karat does not"


def _paddle() -> Any:
    import paddle

    return paddle


def is_custom_device() -> bool:
    """Whether a device is registered that is neither a CPU nor one of Paddle's own."""
    return bool(_paddle().device.get_all_custom_device_type())


def get_device_place() -> Any:
    """The place of the accelerator that there is, else the CPU."""
    paddle = _paddle()
    if paddle.is_compiled_with_cuda() and paddle.device.cuda.device_count():
        return paddle.CUDAPlace(0)
    if is_custom_device():
        return paddle.CustomPlace(paddle.device.get_all_custom_device_type()[0], 0)
    return paddle.CPUPlace()


def get_places(string_format: bool = False) -> list[Any]:  # noqa: FBT001, FBT002 - Paddle's signature
    """Every place that there is: the CPU, then the accelerator."""
    paddle = _paddle()
    places = [paddle.CPUPlace()]
    best = get_device_place()
    if not isinstance(best, paddle.CPUPlace):
        places.append(best)
    return [str(one)[len("Place(") : -1] for one in places] if string_format else places


def get_devices() -> list[Any]:
    return get_places(string_format=True)


def get_device(is_gpu: bool = False) -> str:  # noqa: FBT001, FBT002, ARG001 - Paddle's signature
    """The accelerator that there is as a word, else `cpu`."""
    return str(get_devices()[-1])


def get_device_class() -> Any:
    return type(get_device_place())


@contextmanager
def paddle_static_guard() -> Iterator[None]:
    """Within it Paddle builds static graphs; afterwards it is as it was."""
    paddle = _paddle()
    was_dynamic = paddle.in_dynamic_mode()
    paddle.enable_static()
    try:
        yield
    finally:
        if was_dynamic:
            paddle.disable_static()


def randomize_probability(batch_size: int, class_num: int, dtype: str = "float32") -> Array:
    """Rows of positive numbers that add up to one."""
    rows = np.random.uniform(0.1, 1.0, size=(batch_size, class_num)).astype(dtype)  # noqa: NPY002 - seeded by OpTest
    return np.asarray(rows / rows.sum(axis=1, keepdims=True), dtype=dtype)


def _set_use_system_allocator(value: object = None) -> object:
    """Nothing to set: how Paddle finds memory is no business of a gradient."""
    return value


def get_numeric_gradient(*_args: Any, **_kwargs: Any) -> Any:
    """Not here: Paddle's runs a static graph, one element at a time."""
    raise unittest.SkipTest(f"{_STATIC}; call self.check_grad instead")


def check_out_dtype(*_args: Any, **_kwargs: Any) -> Any:
    """Not here: Paddle's asks a static graph which dtype it would give."""
    raise unittest.SkipTest(_STATIC)


class OpTestTool:
    """Decorators that skip tests for want of hardware."""

    @classmethod
    def skip_if(cls, condition: object, reason: str) -> Decorator:
        return unittest.skipIf(bool(condition), reason)

    @classmethod
    def skip_if_not_cpu(cls) -> Decorator:
        return cls.skip_if(_paddle().is_compiled_with_cuda(), "Paddle computes on a GPU here")

    @classmethod
    def skip_if_not_cpu_bf16(cls) -> Decorator:
        paddle = _paddle()
        able = not paddle.is_compiled_with_cuda() and paddle.base.core.supports_bfloat16()
        return cls.skip_if(not able, "the CPU has no bfloat16 here")
