"""Backwards over numpy that break one law each, and no other; with twins that break none."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

_dice = random.Random(7)
_kept: list[Any] = []


def twice(x: Any) -> Any:
    return 2 * x


def twice_backward(_i: Any, _o: Any, c: Any) -> Any:
    return 2 * c[0]


def squared(x: Any) -> Any:
    return x * x


def squared_backward(i: Any, _o: Any, c: Any) -> Any:
    return 2 * i[0] * c[0]


def _uneven(x: Any) -> Any:
    return 2 * x + 1e-3 * _dice.random()


def _writes_to_input(x: Any) -> Any:
    made = 2 * x
    x += 1
    return made


def _keeps(x: Any) -> Any:
    _kept[:] = [x.copy()]
    return x * x


def _trembling(_i: Any, _o: Any, c: Any) -> Any:
    return 2 * c[0] * (1 + 1e-12 * _dice.random())


def _writes_to_cotangent(_i: Any, _o: Any, c: Any) -> Any:
    made = 2 * c[0]
    if c[0].flags.writeable:
        c[0][0] += 1
    return made


def _nan_at_zero(_i: Any, _o: Any, c: Any) -> Any:
    largest = np.abs(c[0]).max()
    return c[0] / largest * 2 * largest


def _dense(array: Any) -> Any:
    """As a kernel does that takes the address and forgets the strides."""
    if 0 in array.strides:
        return array
    plain = np.empty_like(array, order="C")
    return np.lib.stride_tricks.as_strided(array, array.shape, plain.strides)


def _divides_expanded(_i: Any, _o: Any, c: Any) -> Any:
    return 2 * c[0] / (c[0].size if 0 in c[0].strides else 1)


def _modulus_backward(i: Any, _o: Any, c: Any) -> Any:
    with np.errstate(invalid="ignore"):
        return c[0] * i[0] / np.sqrt(i[0] * i[0])


Case = tuple[Callable[..., Any], Any, Callable[..., Any], Any, tuple[Any, ...]]


def cases() -> dict[str, Case]:
    """Law → the function and backward that break it, their twins, and inputs."""
    x = np.random.default_rng(3).standard_normal((4, 3))
    holed = x.copy()
    holed[1, 1] = 0
    right = (twice, twice_backward, (x,))
    return {
        "gradient-form": (twice, lambda _i, _o, c: np.asarray(2 * c[0], np.longdouble), *right),
        "finite": (np.abs, _modulus_backward, np.abs, lambda i, _o, c: c[0] * np.sign(i[0]), (holed,)),
        "deterministic-forward": (_uneven, twice_backward, *right),
        "deterministic-backward": (twice, _trembling, *right),
        "inputs-unmodified": (_writes_to_input, twice_backward, *right),
        "cotangents-unmodified": (twice, _writes_to_cotangent, *right),
        "zero-cotangent": (twice, _nan_at_zero, *right),
        "linearity": (twice, lambda _i, _o, c: 2 * np.clip(c[0], -1, 1), *right),
        "non-contiguous-cotangent": (twice, lambda _i, _o, c: 2 * _dense(c[0]), *right),
        "expanded-cotangent": (twice, _divides_expanded, *right),
        "non-contiguous": (squared, lambda i, _o, c: 2 * _dense(i[0]) * c[0], squared, squared_backward, (x,)),
        "interleaving": (_keeps, lambda _i, _o, c: 2 * _kept[0] * c[0], squared, squared_backward, (x,)),
    }
