"""Noise: series without a step, of the kinds that measurements have."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from karat.changepoints.series import Observation, Series

Floats = npt.NDArray[np.float64]

KINDS = ("gauss", "t3", "lognormal", "autocorrelated", "outliers", "bimodal", "sticky modes")


def noise(kind: str, n: int, generator: np.random.Generator) -> Floats:
    """A flat series of one kind."""
    plain = generator.standard_normal(n)
    if kind == "t3":
        plain = generator.standard_t(3, n)
    elif kind == "lognormal":
        plain = np.exp(plain)
    elif kind == "autocorrelated":
        for number in range(1, n):
            plain[number] += 0.5 * plain[number - 1]
    elif kind == "outliers":
        plain += 10 * (generator.random(n) < 0.03) * generator.choice([-1, 1], n)
    elif kind == "bimodal":
        plain += 5 * (generator.random(n) < 0.5)
    elif kind == "sticky modes":
        plain += 5 * (np.cumsum(generator.random(n) < 0.25) % 2)
    return plain


def series_of(values: npt.ArrayLike, **more: object) -> Series:
    """A series of plain values, labelled by their number."""
    observations = tuple(
        Observation(label=str(number), values=(float(value),)) for number, value in enumerate(np.asarray(values))
    )
    return Series(metric="speed", observations=observations, **more)  # type: ignore[arg-type]
