"""Points where sample inputs never go (exact zeros, ties, scales that differ), and right torch functions to check there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def points(seed: int) -> dict[str, np.ndarray]:
    """Twenty numbers of each kind."""
    rng = np.random.default_rng(seed)
    plain = rng.standard_normal(20)
    zeros = plain.copy()
    zeros[rng.permutation(20)[:6]] = 0.0
    return {
        "zeros": zeros,
        "ties": np.round(2 * plain) / 2,
        "mixed": plain * 10.0 ** rng.integers(-8, 9, 20),
        "all zero": np.zeros(20),
        "ones": np.ones(20),
    }


def functions() -> dict[str, Callable[[Any], Any]]:
    """By name; each takes a vector of twenty elements."""
    import torch
    from torch.nn import functional as F  # noqa: N812 - what everybody calls it

    return {
        "cube": lambda x: x**3,
        "fifth power": lambda x: x**5,
        "prod": lambda x: x.view(4, 5).prod(0),
        "cumprod": lambda x: x.cumprod(0)[:8],
        "matrix_power": lambda x: torch.linalg.matrix_power(x[:16].view(4, 4), 3),
        "tanhshrink": F.tanhshrink,
        "sin": torch.sin,
        "gelu": F.gelu,
        "softplus": F.softplus,
        "log_softmax": lambda x: F.log_softmax(x, 0),
        "layer_norm": lambda x: F.layer_norm(x, (20,)),
        "relu": F.relu,
        "max_pool1d": lambda x: F.max_pool1d(x.view(1, 1, -1), 3),
        "amax": lambda x: x.view(4, 5).amax(1),
        "sort": lambda x: x.sort().values,
        "cummax": lambda x: x.cummax(0).values,
        "median": lambda x: x.view(4, 5).median(1).values,
        "norm": lambda x: x.view(4, 5).norm(dim=1),
        "var": lambda x: x.view(4, 5).var(1),
        "matmul": lambda x: x.view(4, 5) @ x.view(5, 4),
        "clamp": lambda x: x.clamp(-1, 1),
        "cdist": lambda x: torch.cdist(x[:10].view(5, 2), x[10:].view(5, 2)),
        "asinh": torch.asinh,
        "hardswish": F.hardswish,
        "power 1.5": lambda x: x.abs() ** 1.5,
    }
