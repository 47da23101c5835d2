"""Changes as Markdown, fit for an issue: what, since when, by how much; and what crashed."""

from __future__ import annotations

from collections.abc import Iterator

from karat.changes.change import ChangeKind, Step
from karat.changes.report import ChangesReport, Examined
from karat.changes.report_text import chance
from karat.report.markdown import code, prose, table

_SHOWN = 50


def render(report: ChangesReport) -> str:
    """The whole report."""
    parts = ["## Changes", ""]
    told = [entry for entry in report.entries if entry.analysis.changes]
    for entry in told[:_SHOWN]:
        parts += [*_series(entry), ""]
    if len(told) > _SHOWN:
        parts += [f"… and {len(told) - _SHOWN:,} more series with changes.", ""]
    if len(report.entries) > len(told):
        parts += [f"{len(report.entries) - len(told):,} series without a change.", ""]
    parts += [f"- {prose(note)}" for note in report.notes]
    return "\n".join(parts).rstrip() + "\n"


def _series(entry: Examined) -> Iterator[str]:
    series, analysis = entry.series, entry.analysis
    better = f", {series.better} is better" if series.better in {"higher", "lower"} else ""
    yield f"### {code(series.metric)}{better}"
    yield ""
    rows = []
    for change in [c for c in analysis.changes if c.kind is not ChangeKind.GAP][:_SHOWN]:
        first, last = (
            series.observations[change.first].label,
            series.observations[change.last].label,
        )
        steps = [analysis.steps[number] for number in change.steps]
        good = code(series.observations[steps[0].last_good].label) if steps else ""
        stretch = (
            code(first) if first == last or len(steps) == 1 else f"{code(first)} … {code(last)}"
        )
        said = change.signature or series.observations[change.first].outcome.value
        what = _size(steps) if steps else code(said)
        rows.append(
            (
                change.kind.value,
                what,
                good,
                stretch,
                chance(steps).removeprefix("p ").removeprefix("= ") if steps else "",
            )
        )
    if rows:
        yield table(("change", "size", "last good", "since", "p"), rows)
    gaps = [change for change in analysis.changes if change.kind is ChangeKind.GAP]
    if gaps:
        points = sum(change.last - change.first + 1 for change in gaps)
        yield ""
        yield f"{points:,} points are missing or could not be tried."


def _size(steps: list[Step]) -> str:
    levels = [steps[0].before.value, *(step.after.value for step in steps)]
    relative = steps[0].relative
    size = "" if relative is None else f"{100 * relative:+.2f}% "
    return size + "(" + " → ".join(f"{level:.6g}" for level in levels) + ")"
