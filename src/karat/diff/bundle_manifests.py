"""What two manifests say beside their tensors: inputs, plain values, tolerances, environments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from karat.bundles.comparing import Measure, compare_flats
from karat.bundles.flat import Flat
from karat.bundles.manifest import Comparator, Environment, Manifest
from karat.compare.change import MetricChange
from karat.diff.bundle_rows import Entry, output_row
from karat.findings import Finding, Severity
from karat.tensors.tolerances import for_dtype

_SHOWN = 8


def manifest_findings(old: Manifest, new: Manifest, inputs_differ: bool) -> Iterator[Finding]:  # noqa: FBT001
    """Everything but tensors and programs."""
    if inputs_differ or old.inputs != new.inputs:
        yield Finding(
            kind="inputs-changed",
            severity=Severity.WARN,
            message="the two captures had different inputs, so a difference of their outputs says little",
        )
    yield from _tolerances(old, new)
    yield from _environments(old.environment, new.environment)


def plain_rows(old: Manifest, new: Manifest) -> Iterator[Entry]:
    """Expected values that are no tensors, and the nesting of all of them, where it is not the same."""
    if old.expected == new.expected:
        return
    before, after = (
        Flat(role="expected", structure=_without_tensors(side.expected), tensors={})
        for side in (old, new)
    )
    comparator = old.comparator
    measure = Measure(rtol=comparator.rtol, atol=comparator.atol, equal_nan=comparator.equal_nan)
    report = compare_flats(before, after, measure)
    told = tuple(f for f in report.findings if f.kind != "nothing-compared")
    none: MetricChange | None = None
    yield none, told
    for comparison in report.comparisons:
        if comparison.findings or comparison.numbers is not None:
            yield output_row(comparison, old.comparator)


_TENSOR = "a tensor"


def _without_tensors(node: Any) -> Any:
    """The structure with a word where a tensor is; tensors are compared by their bytes."""
    if isinstance(node, list):
        return [_without_tensors(item) for item in node]
    if not isinstance(node, dict):
        return node
    if len(node) == 1 and next(iter(node)) in {"tensor", "scalar"}:
        return _TENSOR
    return {key: _without_tensors(value) for key, value in node.items()}


def _tolerances(old: Manifest, new: Manifest) -> Iterator[Finding]:
    """A golden that allows more than it did is news, whatever its values do."""
    dtypes = sorted({t.dtype for t in new.tensors if t.role == "expected"}) or ["float32"]
    pairs = [(_allowed(old.comparator, d), _allowed(new.comparator, d)) for d in dtypes]
    before, after = next(((a, b) for a, b in pairs if a != b), pairs[0])
    if before == after:
        return
    text = f"rtol {before[0]:g}, atol {before[1]:g} → rtol {after[0]:g}, atol {after[1]:g}"
    nan = " and NaN equals NaN now" if after[2] > before[2] else ""
    if any(b > a for one, two in pairs for a, b in zip(one, two, strict=True)):
        message = f"the capture allows more than it did: {text}{nan}"
        yield Finding(kind="tolerance-widened", severity=Severity.WARN, message=message)
    else:
        message = f"the capture allows less than it did: {text}"
        yield Finding(kind="tolerance-tightened", severity=Severity.INFO, message=message)


def _allowed(comparator: Comparator, dtype: str) -> tuple[float, float, bool, bool]:
    """What passes: all four grow as more does."""
    own = for_dtype(dtype)
    return (
        own.rtol if comparator.rtol is None else comparator.rtol,
        own.atol if comparator.atol is None else comparator.atol,
        comparator.equal_nan,
        not comparator.check_dtype,
    )


def _environments(old: Environment, new: Environment) -> Iterator[Finding]:
    found = list(_differing(old, new))
    if found:
        more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        yield Finding(
            kind="environment-changed",
            severity=Severity.INFO,
            message=f"captured elsewhere: {'; '.join(found[:_SHOWN])}{more}",
        )


def _differing(old: Environment, new: Environment) -> Iterator[str]:
    for name in ("platform", "machine", "device", "image", "python"):
        before, after = getattr(old, name), getattr(new, name)
        if before != after:
            yield f"{name} {before or 'none'} → {after or 'none'}"
    for name in sorted(old.packages.keys() | new.packages.keys()):
        before, after = old.packages.get(name), new.packages.get(name)
        if before != after:
            yield f"{name} {before or 'none'} → {after or 'none'}"
