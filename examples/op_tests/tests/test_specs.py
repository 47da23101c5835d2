"""Operators declared once: forward, gradient and low-precision tests are made from each line."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from tinyops import backwards, ops

import karat


def rows(dtype: str, device: str, rng: np.random.Generator) -> Iterator[karat.OpSample]:
    del dtype, device  # karat casts, and there is nothing but the CPU
    yield karat.OpSample(inputs={"x": rng.standard_normal((4, 6))})
    yield karat.OpSample(inputs={"x": 30 * rng.standard_normal((2, 3))}, name="far_apart")


def softmax_reference(x: ops.Array) -> ops.Array:
    return np.exp(x) / np.exp(x).sum(-1)[:, None]


TestOps = karat.op_tests(
    [
        karat.OpSpec(
            op="softmax",
            fn=ops.softmax,
            backward=backwards.softmax,
            samples=rows,
            reference=softmax_reference,
            dtypes=("float64", "float32"),
        ),
        karat.OpSpec(op="layer_norm", fn=ops.layer_norm, backward=backwards.layer_norm, samples=rows),
    ]
)
