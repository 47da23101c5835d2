"""bfloat16 as the original's tests write it: uint16 arrays that hold the upper half of a float32.

Cutting off the lower half is what test files expect of these functions: their expected values were made by them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


def copy_bits_from_float_to_uint16(f: float) -> int:
    """The upper 16 bits of a float32."""
    return int(convert_float_to_uint16(np.float32(f)))


def convert_float_to_uint16(float_list: Any, data_format: str = "NCHW") -> Array:  # noqa: ARG001 - the original's signature; where an element lies does not change it
    """Floats as bfloat16 bits, cut off rather than rounded."""
    narrow = np.asarray(float_list, dtype=np.float32)
    bits = np.ascontiguousarray(narrow).view(np.uint32) >> np.uint32(16)
    return bits.astype(np.uint16).reshape(narrow.shape)


def convert_uint16_to_float(in_list: Any) -> Array:
    """bfloat16 bits as float32, exactly."""
    bits = np.asarray(in_list, dtype=np.uint16)
    wide = np.ascontiguousarray(bits).astype(np.uint32) << np.uint32(16)
    return wide.view(np.float32).reshape(bits.shape)
