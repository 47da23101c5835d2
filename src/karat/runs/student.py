"""Student's t: how far beyond the mean of a few samples a next one lies."""

from __future__ import annotations

import math


def upper_tail(t: float, freedom: int) -> float:
    """P(T > t) for whole degrees of freedom: the finite sums of the textbooks."""
    if t < 0:
        return 1.0 - upper_tail(-t, freedom)
    theta = math.atan2(t, math.sqrt(freedom))
    sine, cosine = math.sin(theta), math.cos(theta)
    if freedom % 2:
        term, total = cosine, 0.0
        for k in range(1, freedom - 1, 2):
            total += term
            term *= (k + 1) / (k + 2) * cosine * cosine
        inside = 2 / math.pi * (theta + sine * total)
    else:
        term, total = 1.0, 0.0
        for k in range(0, freedom - 1, 2):
            total += term
            term *= (k + 1) / (k + 2) * cosine * cosine
        inside = sine * total
    return max(0.0, 0.5 * (1.0 - inside))


def quantile(tail: float, freedom: int) -> float:
    """The t with P(T > t) = tail, for a tail of at most one half."""
    low, high = 0.0, 1.0
    while upper_tail(high, freedom) > tail and high < 1e12:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        if upper_tail(middle, freedom) > tail:
            low = middle
        else:
            high = middle
    return high
