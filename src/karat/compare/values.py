"""Numbers that are no curve: cells of a column, leaves of a document, values beside curves.

In: named samples, each with the place of every number. Out: one row and its findings per sample.
This is the one way from such numbers to a verdict, so that a NaN, a zero or a lost value means the
same wherever it stands.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from karat.compare.change import MetricChange, Verdict
from karat.compare.judge import Judgement, drift_finding, judge, metric_change
from karat.compare.numbers import Numbers, score
from karat.compare.rules import RuleBook
from karat.findings import Finding, Severity
from karat.goldens.shapes import Metric


class Sample(msgspec.Struct):
    """Pairs of numbers that belong together, and where each pair stands."""

    name: str
    old: list[float] = msgspec.field(default_factory=list)
    new: list[float] = msgspec.field(default_factory=list)
    where: list[str] = msgspec.field(default_factory=list)

    def add(self, old: float, new: float, where: str) -> None:
        """Take one more pair."""
        self.old.append(old)
        self.new.append(new)
        self.where.append(where)


def judge_values(
    samples: Sequence[Sample], rules: RuleBook, path: str
) -> list[tuple[MetricChange, list[Finding]]]:
    """The row and findings of every sample, in order."""
    chosen = [rules.rule_for(sample.name, path).for_single_values() for sample in samples]
    curves = [_curves(sample) for sample in samples]
    scored = score([(*pair, rule) for pair, rule in zip(curves, chosen, strict=True)])
    judged = []
    for sample, (old, new), rule, n in zip(samples, curves, chosen, scored, strict=True):
        judgement = judge(n, rule)
        shown = judgement
        if n.nan_gained:
            shown = Judgement(
                Verdict.INCOMPLETE, f"{n.nan_gained} number(s) are not finite any more"
            )
        row = metric_change(sample.name, n, rule, shown)
        row = msgspec.structs.replace(
            row,
            max_step=_place(sample, n.max_step),
            first_diff_step=_place(sample, n.first_diff_step),
            old=old,
            new=new,
        )
        found = list(_missing(sample, n))
        drift = drift_finding(row, judgement)
        judged.append((row, [*found, drift] if drift else found))
    return judged


def _curves(sample: Sample) -> tuple[Metric, Metric]:
    index = np.arange(len(sample.old), dtype=np.int64)
    return Metric(index, np.array(sample.old, float)), Metric(index, np.array(sample.new, float))


def _place(sample: Sample, index: int | None) -> str | None:
    return None if index is None else sample.where[index]


def _missing(sample: Sample, n: Numbers) -> Iterator[Finding]:
    name = sample.name
    if n.nan_gained and n.first_nan_step is not None:
        at = sample.where[n.first_nan_step]
        more = f" and {n.nan_gained - 1} more" if n.nan_gained > 1 else ""
        message = f"{name}: {n.nan_gained} number(s) are not finite any more: {at}{more}"
        yield Finding(
            kind="new-nan", severity=Severity.FAIL, metric=name, where=at, message=message
        )
    if n.nan_lost:
        message = f"{name}: {n.nan_lost} number(s) are finite that were not"
        yield Finding(kind="gained-steps", severity=Severity.INFO, metric=name, message=message)
    if not n.n_steps and not n.zeros:
        message = f"{name}: no number is finite on both sides, so nothing was compared"
        yield Finding(kind="no-usable-steps", severity=Severity.WARN, metric=name, message=message)
