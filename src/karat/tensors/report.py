"""Rows of tensors: what every report says about two tensors, in one order and one set of words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf
from typing import Any

import msgspec

from karat.report.words import number
from karat.tensors.comparison import Comparison, TensorNumbers

TITLES = ("outside", "max abs", "max rel", "ULP", "SQNR dB")  # of `cells`


def shape_text(shape: Sequence[int]) -> str:
    """`2x3`, `5`, and `scalar` for a tensor without dimensions."""
    return "x".join(map(str, shape)) if shape else "scalar"


def type_text(comparison: Comparison) -> str:
    return f"{comparison.dtype} {shape_text(comparison.shape)}"


def cells(numbers: TensorNumbers | None) -> tuple[str, ...]:
    """The numbers a table has room for; empty where nothing was measured."""
    if numbers is None:
        return ("",) * len(TITLES)
    return (
        f"{numbers.mismatches:,} of {numbers.elements:,}" if numbers.mismatches else "0",
        number(numbers.max_abs),
        number(numbers.max_rel),
        "" if numbers.max_ulp is None else f"{numbers.max_ulp:,}",
        decibel(numbers.sqnr_db),
    )


def decibel(value: float | None) -> str:
    """A ratio in decibels; `exact` where there is no noise at all."""
    return "" if value is None else "exact" if value == inf else f"{value:.1f}"


def place(index: Sequence[int] | None) -> str | None:
    """An index as people write it: `[3, 14]`."""
    return None if index is None else f"[{', '.join(map(str, index))}]"


def worst(comparisons: Sequence[Comparison]) -> Comparison | None:
    """The comparison to show where there is room for one: a failed one, then the largest difference."""

    def gravity(comparison: Comparison) -> tuple[bool, float, float]:
        numbers = comparison.numbers
        if numbers is None:
            return not comparison.passed, 0.0, 0.0
        return not comparison.passed, numbers.mismatches / max(numbers.elements, 1), numbers.max_abs or 0.0

    measured = [c for c in comparisons if c.numbers is not None]
    return max(measured or comparisons, key=gravity, default=None)


def facts(comparison: Comparison) -> Iterator[tuple[str, str]]:
    """Everything there is to say about two tensors, as names and words."""
    yield "tensor", type_text(comparison)
    if comparison.tolerance is not None:
        t = comparison.tolerance
        nan = ", NaN equals NaN" if t.equal_nan else ""
        origin = "integers are exact unless integers=True" if t.origin == "integers" else t.origin
        yield "tolerance", f"rtol {t.rtol:g}, atol {t.atol:g} ({origin}){nan}"
    n = comparison.numbers
    if n is None:
        return
    yield "bit-equal", f"{n.bit_equal:,} of {n.elements:,}"
    yield "outside", f"{n.mismatches:,}{_at(n.first_mismatch, 'first at')}"
    yield "max abs", number(n.max_abs) + _at(n.max_abs_at)
    yield "mean abs", number(n.mean_abs)
    yield "max rel", number(n.max_rel) + _at(n.max_rel_at)
    yield "ULP", "" if n.max_ulp is None else f"{n.max_ulp:,}"
    yield "SQNR dB", decibel(n.sqnr_db)
    yield "cosine", "" if n.cosine is None else f"{n.cosine:.9g}"
    if n.nan_expected or n.nan_actual:
        yield "NaN", f"{n.nan_expected:,} → {n.nan_actual:,}"
    if n.inf_expected or n.inf_actual:
        yield "infinite", f"{n.inf_expected:,} → {n.inf_actual:,}"


def _at(index: Sequence[int] | None, word: str = "at") -> str:
    return "" if not index else f" {word} {place(index)}"


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """A comparison as every schema of karat has it; what JSON has no number for is null."""
    numbers: dict[str, Any] | None = None
    if comparison.numbers is not None:
        plain = msgspec.structs.asdict(comparison.numbers) | {"sqnr_exact": comparison.numbers.sqnr_db == inf}
        numbers = {key: list(v) if isinstance(v, tuple) else v for key, v in plain.items()}
    return {
        "dtype": comparison.dtype,
        "shape": list(comparison.shape),
        "passed": comparison.passed,
        "tolerance": msgspec.to_builtins(comparison.tolerance),
        "numbers": numbers,
    }
