"""The 2×2 of a split: what old and new code came to in old and new packages, and what that says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from karat.changepoints.series import Outcome
from karat.hunts.journal.journal import Journal
from karat.hunts.model import CRASH, ChangeReport, Metric, SplitCell, SplitReport, StageReport
from karat.hunts.report.sentences import averages
from karat.hunts.search.observations import observed_in
from karat.hunts.settings import ENVIRONMENT
from karat.report.words import count

_SIDES = ("old", "new")


def split_of(journal: Journal, stage: StageReport, metrics: Sequence[Metric]) -> SplitReport:
    """From the first stage of a split."""
    ends = dict(zip(_SIDES, (one.point for one in stage.points), strict=True))
    codes = {side: {n: c for n, c in end.parts.items() if n != ENVIRONMENT} for side, end in ends.items()}
    cells = []
    for _, point in (pair for pair in journal.every_point() if pair[0] == stage.key):
        own = {name: commit for name, commit in point.parts.items() if name != ENVIRONMENT}
        code = next((side for side in _SIDES if codes[side] == own), "mixed")
        attempts = [row.attempt for row in journal.attempts(stage.key, point.id) if not row.attempt.shared_with]
        failed = [a for a in attempts if a.outcome is not Outcome.OK]
        cell = SplitCell(
            id=point.id,
            code=code,
            environment=point.parts[ENVIRONMENT],
            runs=len(attempts),
            failed=len(failed),
            values=observed_in(attempts).values,
            error=failed[-1].signature or failed[-1].note if failed else "",
        )
        cells.append(cell)
    found = {change.span.metric: _word(change) for change in stage.changes}
    otherwise = "neither" if stage.state == "done" else "unclear"
    return SplitReport(verdicts={m.name: found.get(m.name, otherwise) for m in metrics} | found, cells=tuple(cells))


def _word(change: ChangeReport) -> str:
    verdict = change.verdict
    if verdict.interaction:
        return "interaction"
    if len(verdict.parts) == 1:
        return "environment" if verdict.parts[0] == ENVIRONMENT else "code"
    return "both" if verdict.parts else "unclear"


_SAID = {
    "code": "the code: it changes with the new code alone, in old packages as well",
    "environment": "the environment: it changes with the new packages alone, with old code as well",
    "both": "both: new code and new packages have a share in it",
    "interaction": "an interaction: it takes new code in new packages; neither alone does it",
    "neither": "neither: old code in old packages and new code in new packages do not differ",
    "unclear": "unclear: the runs do not tell",
}


def split_table(split: SplitReport, units: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """A header, and a row for each code."""
    known = {(cell.code, cell.environment): cell for cell in split.cells}
    rows = [("", *(f"{side} environment" for side in _SIDES))]
    for code in _SIDES:
        cells = (known.get((code, environment)) for environment in _SIDES)
        rows.append(
            (f"{code} code", *("not run" if one is None or not one.runs else _cell(one, units) for one in cells))
        )
    return [(first, second, third) for first, second, third in rows]


def _cell(cell: SplitCell, units: Mapping[str, str]) -> str:
    values = averages({name: v for name, v in cell.values.items() if name != CRASH}, units)
    if cell.failed == cell.runs:
        values = f"fails: {cell.error}"
    elif cell.failed or not values:
        values = f"{values or 'works'}{f', fails {cell.failed} times' if cell.failed else ''}"
    return f"{values} ({count(cell.runs, 'run')})"


def split_sentences(split: SplitReport) -> Iterator[str]:
    """What it was, of each metric."""
    for metric, word in split.verdicts.items():
        yield f"{'' if len(split.verdicts) == 1 else f'{metric}: '}{_SAID[word]}"
