"""Verdicts: one word for all comparisons and laws, and one sentence."""

from __future__ import annotations

from collections.abc import Sequence

from karat.gradients.report import Comparison, GradVerdict, Property


def verdict_of(
    comparisons: Sequence[Comparison], properties: Sequence[Property]
) -> tuple[GradVerdict, str]:
    """FAIL if anything failed; PASS only if every comparison is evidence, weak ones aside."""
    failed = next((one for one in comparisons if one.verdict is GradVerdict.FAIL), None)
    if failed is not None:
        return GradVerdict.FAIL, f"{place(failed)}: {failed.reason}"
    broken = next((one for one in properties if one.verdict is GradVerdict.FAIL), None)
    if broken is not None:
        return GradVerdict.FAIL, f"{broken.name}: {broken.detail}"
    strong = [one for one in comparisons if one.strength == "strong"]
    if not strong:
        return GradVerdict.INCONCLUSIVE, "nothing was compared"
    doubtful = next((one for one in strong if not one.counts), None)
    if doubtful is not None:
        return GradVerdict.INCONCLUSIVE, f"{place(doubtful)}: {doubtful.reason}"
    return GradVerdict.PASS, _passed(strong)


def _passed(strong: Sequence[Comparison]) -> str:
    sees = max(one.smallest_error for one in strong)
    count = f"{len(strong)} comparisons hold" if len(strong) > 1 else "the comparison holds"
    return (
        f"{count}; an error of one element by {sees:.1g} of the typical size would have been seen"
    )


def place(one: Comparison) -> str:
    """Which gradient a comparison is about."""
    order = "" if one.order == 1 else ", second order"
    mode = "" if one.mode == "reverse" else ", forward mode"
    return f"{one.output} by {one.input} in {one.dtype}{order}{mode}"
