"""The 2×2 of a split: what old and new code came to in old and new packages, and what that says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from karat.changepoints.series import Outcome
from karat.hunts.journal.journal import Journal
from karat.hunts.model import CRASH, Metric, Point, SplitCell, SplitReport, StageReport, Verdict
from karat.hunts.report.sentences import averages
from karat.hunts.search.observations import observed_in
from karat.hunts.settings import ENVIRONMENT
from karat.report.words import count

_SIDES = ("old", "new")


def split_of(journal: Journal, stage: StageReport, metrics: Sequence[Metric]) -> SplitReport:
    """From the first stage of a split."""
    codes = [_code(one.point) for one in stage.points]
    cells = []
    for point in (point for key, point in journal.every_point() if key == stage.key):
        attempts = [row.attempt for row in journal.attempts(stage.key, point.id)]
        failed = [attempt for attempt in attempts if attempt.outcome is not Outcome.OK]
        cell = SplitCell(
            id=point.id,
            code=_SIDES[codes.index(_code(point))] if _code(point) in codes else "mixed",
            environment=point.parts[ENVIRONMENT],
            runs=len(attempts),
            failed=len(failed),
            values=observed_in(attempts).values,
            error=f"{failed[-1].outcome}: {failed[-1].signature or failed[-1].note}" if failed else "",
        )
        cells.append(cell)
    found = {change.span.metric: _word(change.verdict) for change in stage.changes}
    compared = stage.state == "done" and all(one.values for one in stage.points)
    verdicts = dict.fromkeys((metric.name for metric in metrics), "neither" if compared else "unclear")
    return SplitReport(verdicts={**verdicts, **found}, cells=tuple(cells))


def _code(point: Point) -> dict[str, str]:
    return {name: commit for name, commit in point.parts.items() if name != ENVIRONMENT}


def _word(verdict: Verdict) -> str:
    if verdict.interaction or len(verdict.parts) != 1:
        return "interaction" if verdict.interaction else "both" if verdict.parts else "unclear"
    return "environment" if verdict.parts[0] == ENVIRONMENT else "code"


_SAID = {
    "code": "the code: it changes with the new code alone, in old packages as well",
    "environment": "the environment: it changes with the new packages alone, with old code as well",
    "both": "both: new code and new packages have a share in it",
    "interaction": "an interaction: it takes new code in new packages; neither alone does it",
    "neither": "neither: old code in old packages and new code in new packages do not differ",
    "unclear": "unclear: the runs do not tell",
}


def split_table(split: SplitReport, units: Mapping[str, str]) -> list[list[str]]:
    """A header, and a row for each code."""
    known = {(cell.code, cell.environment): _cell(cell, units) for cell in split.cells if cell.runs}
    rows = [[f"{code} code", *(known.get((code, side), "not run") for side in _SIDES)] for code in _SIDES]
    return [["", *(f"{side} environment" for side in _SIDES)], *rows]


def _cell(cell: SplitCell, units: Mapping[str, str]) -> str:
    values = averages({name: v for name, v in cell.values.items() if name != CRASH}, units) or "works"
    some = f", fails {cell.failed} times" if cell.failed else ""
    return f"{cell.error if cell.failed == cell.runs else f'{values}{some}'} ({count(cell.runs, 'run')})"


def split_sentences(split: SplitReport) -> Iterator[str]:
    """What it was, of each metric."""
    for metric, word in split.verdicts.items():
        yield f"{'' if len(split.verdicts) == 1 else f'{metric}: '}{_SAID[word]}"
