"""A hunt's report in a terminal: the answers first, then each stage, then what was not seen.

In: a `HuntReport`. Out: lines of (text, style) pieces, as `report.terminal` prints them.
"""

from __future__ import annotations

from collections.abc import Iterator

from karat.hunt import report_sentences as say
from karat.hunt.report import ChangeReport, Culprit, HuntReport, StageReport
from karat.report.terminal import Line

_STYLES = {
    "regression": "bold red",
    "crash": "bold red",
    "improvement": "green",
    "dip": "yellow",
    "shift": "yellow",
}
_SUSPECTS = 8
_POINTS = 6
_WIDE = 100


def lines(report: HuntReport, *, width: int | None = None) -> Iterator[Line]:
    """The whole report."""
    yield ((say.conclusion(report), "bold"),)
    for culprit in report.culprits:
        yield ()
        yield from _culprit(culprit, report)
    for stage in report.stages:
        yield ()
        yield from _stage(stage, width or _WIDE)
    for note in report.notes:
        yield ()
        yield ((note, "yellow"),)
    yield ()
    yield (
        (
            f"{say.measured(report)}; journal {report.journal}",
            "dim",
        ),
    )


def _culprit(culprit: Culprit, report: HuntReport) -> Iterator[Line]:
    change = culprit.change
    unit = report.units.get(culprit.metric, "")
    yield (
        (say.heading(culprit, report), _STYLES.get(change.kind, "")),
        (f"  {culprit.metric}  {say.amount(change, unit)}", ""),
    )
    yield _fact("when", say.between(change))
    if say.blame(change):
        yield _fact("where", say.blame(change))
    for one in culprit.suspects[:_SUSPECTS]:
        label = "culprit" if say.named(culprit) else "suspect"
        yield _fact(label, say.suspect(one))
        if one.link:
            yield _fact("", one.link)
    if len(culprit.suspects) > _SUSPECTS:
        yield _fact("", f"… and {len(culprit.suspects) - _SUSPECTS:,} more")
    yield _fact("sure", say.confirmed(change))
    if change.reproduce:
        # Further lines of a quoted word are not set in: the blanks would be part of it.
        first, *further = change.reproduce.split("\n")
        yield _fact("try", first)
        yield from (((line, ""),) for line in further)


def _fact(label: str, text: str) -> Line:
    return ((f"  {label:<8}", "dim"), (text, ""))


def _stage(stage: StageReport, width: int) -> Iterator[Line]:
    state = "" if stage.state == "done" else f" ({stage.state})"
    yield ((f"{stage.title}{state}", "bold"), (f"  {say.tried(stage)}", "dim"))
    yield ((f"  {say.strip(stage.points, stage.changes, width - 2)}", ""),)
    for change in stage.changes:
        yield _change(change)
    for (outcome, signature), points in say.failures(stage).items():
        yield (
            (f"  {outcome:<12}", "red" if outcome != "broken" else "dim"),
            (f"{say.listed(points, _POINTS)}: {signature}", ""),
        )
    for reason, points in say.lacking(stage).items():
        yield (("  missing     ", "dim"), (f"{say.listed(points, _POINTS)}: {reason}", ""))
    for one in stage.points:
        for flag in one.flags:
            yield ((f"  {one.point.label}: {flag}", "yellow"),)
    if flaky := say.flaky(stage):
        yield ((f"  {flaky}", "yellow"),)
    for note in stage.notes:
        yield ((f"  {note}", "yellow"),)
    if stage.missed is not None:
        yield ((f"  {say.missed(stage.missed)}", "dim"),)


def _change(change: ChangeReport) -> Line:
    return (
        (f"  {change.kind:<12}", _STYLES.get(change.kind, "")),
        (
            f"{change.span.metric}  {say.amount(change)}  {say.between(change)}  {say.sure(change.span.confidence)}",
            "",
        ),
    )
