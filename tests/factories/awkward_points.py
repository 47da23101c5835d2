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


FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "cube": lambda _, x: x**3,
    "fifth power": lambda _, x: x**5,
    "prod": lambda _, x: x.view(4, 5).prod(0),
    "cumprod": lambda _, x: x.cumprod(0)[:8],
    "matrix_power": lambda torch, x: torch.linalg.matrix_power(x[:16].view(4, 4), 3),
    "tanhshrink": lambda torch, x: torch.nn.functional.tanhshrink(x),
    "sin": lambda torch, x: torch.sin(x),
    "gelu": lambda torch, x: torch.nn.functional.gelu(x),
    "softplus": lambda torch, x: torch.nn.functional.softplus(x),
    "log_softmax": lambda torch, x: torch.nn.functional.log_softmax(x, 0),
    "layer_norm": lambda torch, x: torch.nn.functional.layer_norm(x, (20,)),
    "relu": lambda torch, x: torch.nn.functional.relu(x),
    "max_pool1d": lambda torch, x: torch.nn.functional.max_pool1d(x.view(1, 1, -1), 3),
    "amax": lambda _, x: x.view(4, 5).amax(1),
    "sort": lambda _, x: x.sort().values,
    "cummax": lambda _, x: x.cummax(0).values,
    "median": lambda _, x: x.view(4, 5).median(1).values,
    "norm": lambda _, x: x.view(4, 5).norm(dim=1),
    "var": lambda _, x: x.view(4, 5).var(1),
    "matmul": lambda _, x: x.view(4, 5) @ x.view(5, 4),
    "clamp": lambda _, x: x.clamp(-1, 1),
    "cdist": lambda torch, x: torch.cdist(x[:10].view(5, 2), x[10:].view(5, 2)),
    "asinh": lambda torch, x: torch.asinh(x),
    "hardswish": lambda torch, x: torch.nn.functional.hardswish(x),
    "power 1.5": lambda _, x: x.abs() ** 1.5,
    "softmax": lambda torch, x: torch.softmax(x, 0),
    "digamma": lambda torch, x: torch.digamma(x.abs() + 0.5),
    "lgamma": lambda torch, x: torch.lgamma(x.abs() + 0.5),
    "ndtr": lambda torch, x: torch.special.ndtr(4 * x),
    "sinc": lambda torch, x: torch.sinc(x),
    "floor": lambda torch, x: torch.floor(x),
    "sign": lambda torch, x: torch.sign(x + 0.25),
    "inverse": lambda torch, x: torch.linalg.inv(x[:16].view(4, 4) + 5 * torch.eye(4, dtype=x.dtype)),
}
"""By name; each takes torch and a vector of twenty elements."""
