"""The backwards, in karat's form for numpy: inputs, outputs and cotangents in, a gradient per input out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tinyops.ops import Array

Arrays = Sequence[Array]


def softmax(_inputs: Arrays, outputs: Arrays, cotangents: Arrays) -> Array:
    """Of the last axis."""
    (y,), (v,) = outputs, cotangents
    return y * (v - (y * v).sum(-1, keepdims=True))


def swish(inputs: Arrays, outputs: Arrays, cotangents: Arrays) -> tuple[Array, Array]:
    """Beta was broadcast over the rows, so its gradient is a sum over them."""
    (x, beta), (y,), (v,) = inputs, outputs, cotangents
    share = 1 / (1 + np.exp(-beta * x))
    return v * (share + beta * y * (1 - share)), (v * x * y * (1 - share)).sum(0)


def layer_norm(inputs: Arrays, outputs: Arrays, cotangents: Arrays) -> Array:
    """Two terms of a mean; either is easily forgotten."""
    (x,), (y,), (v,) = inputs, outputs, cotangents
    spread = np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    return (v - v.mean(-1, keepdims=True) - y * (v * y).mean(-1, keepdims=True)) / spread
