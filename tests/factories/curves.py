"""Small series for tests, written as people think of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from karat.compare.change import Change
from karat.compare.pairs import GoldenPair, compare
from karat.compare.rules import RuleBook
from karat.goldens.shapes import Golden, Metric, Reading, Series

NAN = float("nan")


def metric(
    values: Sequence[float] | Mapping[int, float], *, end: int | None = None, precision: int | None = None
) -> Metric:
    samples = dict(values) if isinstance(values, Mapping) else dict(enumerate(values, 1))
    steps = np.array(list(samples), dtype=np.int64)
    last = end if end is not None else (int(steps[-1]) if len(steps) else 0)
    return Metric(steps, np.array(list(samples.values()), dtype=float), 1, last, 1, precision)


def series(**metrics: Sequence[float] | Mapping[int, float]) -> Series:
    return Series({name.replace("_", " "): metric(values) for name, values in metrics.items()})


def change_of(old: Golden | None, new: Golden | None, rules: RuleBook | None = None) -> Change:
    return compare(
        GoldenPair(path="a.json", old=None if old is None else Reading(old), new=None if new is None else Reading(new)),
        rules,
    )


def kinds(change: Change) -> set[str]:
    return {finding.kind for finding in change.findings}
