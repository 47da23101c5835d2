"""Verdicts: one word for all comparisons and properties, and one sentence."""

from __future__ import annotations

from collections.abc import Sequence

from karat.gradients.report import Comparison, GradVerdict, Property


def verdict_of(
    comparisons: Sequence[Comparison], properties: Sequence[Property]
) -> tuple[GradVerdict, str]:
    """FAIL if anything failed; PASS only if every comparison is evidence."""
    for one in comparisons:
        if one.verdict is GradVerdict.FAIL:
            return GradVerdict.FAIL, f"{_place(one)}: {one.reason}"
    for law in properties:
        if law.verdict is GradVerdict.FAIL:
            return GradVerdict.FAIL, f"{law.name}: {law.detail}"
    if not comparisons:
        return GradVerdict.INCONCLUSIVE, "nothing was compared"
    for one in comparisons:
        if not one.counts:
            return GradVerdict.INCONCLUSIVE, f"{_place(one)}: {one.reason}"
    return GradVerdict.PASS, f"{len(comparisons)} comparisons, each of which could have failed"


def _place(one: Comparison) -> str:
    return f"gradient of {one.output} by {one.input}, {one.dtype}"
