"""A point for problems, and values that are the same to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np

X, Y = np.array([0.3, -1.2, 2.0]), np.array([1.5, 0.25, -0.75])


def same(found: Any, expected: Any) -> None:
    np.testing.assert_array_equal(found, expected)
