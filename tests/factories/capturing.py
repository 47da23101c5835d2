"""A suite that passes."""

from __future__ import annotations

PASSING = """
    import numpy as np

    def test_scale(golden):
        x = np.arange(6, dtype=np.float32).reshape(2, 3)
        golden.check(2 * x, x + x, inputs=(x,), program=b"program", rtol=1e-3, note="by hand")
"""
