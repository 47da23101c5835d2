"""The words of a mismatch: what differs, by how much, and where; per tensor, worst things first."""

from __future__ import annotations

from collections.abc import Iterator

from karat.findings import Severity
from karat.tensors.outcome import Comparison, Numbers, Report, within

_SHOWN = 20


def describe(report: Report, title: str) -> str:
    """The whole report as text for a failed assertion."""
    failed = [c for c in report.comparisons if not c.passed]
    lines = [_headline(report, failed, title)]
    lines += [f"  {f.kind}: {f.message}" for f in report.findings]
    for comparison in failed[:_SHOWN]:
        lines += _tensor(comparison)
    if len(failed) > _SHOWN:
        lines.append(f"  … and {len(failed) - _SHOWN} more")
    return "\n".join(lines)


def _headline(report: Report, failed: list[Comparison], title: str) -> str:
    total = len(report.comparisons)
    if not total:
        return f"{title}: nothing was compared, so nothing was verified"
    if failed:
        return f"{title}: {len(failed)} of {total} compared values differ from what was expected"
    return f"{title}: actual is not built like what was expected"


def _tensor(comparison: Comparison) -> Iterator[str]:
    shape = "×".join(map(str, comparison.shape)) or "0-d"
    yield f"  {comparison.name}: {comparison.dtype} {shape}"
    for finding in comparison.findings:
        # What a mismatch says in one sentence stands below, line by line.
        said = finding.kind == "tensor-mismatch" and comparison.numbers is not None
        if finding.severity != Severity.INFO and not said:
            yield f"    {finding.kind}: {finding.message.removeprefix(within(comparison.name))}"
    if comparison.numbers is not None:
        yield from (f"    {line}" for line in _numbers(comparison.numbers))
    if comparison.tolerance is not None:
        t = comparison.tolerance
        yield f"    tolerance: rtol {t.rtol:g}, atol {t.atol:g} ({_ORIGINS[t.origin]})"


_ORIGINS = {"given": "as given", "dtype": "of the dtype", "recorded": "as recorded"}


def _numbers(n: Numbers) -> Iterator[str]:
    share = n.mismatches / n.elements if n.elements else 0.0
    first = f", the first at {_index(n.first_mismatch)}" if n.first_mismatch is not None else ""
    yield f"mismatches: {n.mismatches:,} of {n.elements:,} ({share:.2%}){first}"
    if n.max_abs:
        yield f"worst: {_worst(n)}"
    yield from _measures(n)
    if n.nan_expected or n.nan_actual or n.inf_expected or n.inf_actual:
        yield (
            f"not finite: expected {n.nan_expected:,} NaN and {n.inf_expected:,} inf, "
            f"actual {n.nan_actual:,} NaN and {n.inf_actual:,} inf"
        )


def _worst(n: Numbers) -> str:
    text = f"|actual − expected| = {n.max_abs:g}"
    if n.max_abs_at is not None:
        text += f" at {_index(n.max_abs_at)}"
    if n.max_expected is not None and n.max_actual is not None:
        text += f" (expected {n.max_expected:.9g}, actual {n.max_actual:.9g})"
    return text


def _measures(n: Numbers) -> Iterator[str]:
    found = {
        "mean abs": n.mean_abs,
        "max rel": n.max_rel,
        "SQNR dB": n.sqnr_db,
        "cosine": n.cosine,
    }
    words = [f"{name} {value:.6g}" for name, value in found.items() if value is not None]
    if n.max_ulp is not None:
        words.insert(2, f"max ULP {n.max_ulp:,}")
    if words:
        yield ", ".join(words)


def _index(at: tuple[int, ...] | None) -> str:
    return f"[{', '.join(map(str, at or ()))}]"
