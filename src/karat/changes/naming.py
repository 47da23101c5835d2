"""Naming: what a person would call what happened in a series.

In: a series, its steps and levels. Out: `Change`s in their order. Pure.

A dip left its level and came back: to within the noise of the two levels, or a tenth of its depth; and it is short: at
most a quarter of the series, or shorter than the levels on both sides of it. Every other step is a regression, an
improvement, or, where nobody said which is better, a shift. Neighbours that crashed or hung in the same way are one
crash range; those that are missing or broken are one gap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import hypot

from karat.changes.change import Change, ChangeKind, Level, Step
from karat.changes.series import Better, Observation, Outcome, Series

_DEPTH = 0.1
_SHORT = 0.25
_STEPS_OF_A_DIP = 4
_FAILED = (Outcome.CRASH, Outcome.HANG)
_UNKNOWN = (Outcome.BROKEN, Outcome.MISSING)


def name_changes(
    series: Series, steps: Sequence[Step], levels: Sequence[Level]
) -> tuple[Change, ...]:
    """Dips, regressions, improvements, shifts, crash ranges and gaps, by their first observation."""
    changes = [*_of_levels(series, steps, levels), *_crashes(series), *_gaps(series)]
    return tuple(sorted(changes, key=lambda change: (change.first, change.last)))


def _of_levels(series: Series, steps: Sequence[Step], levels: Sequence[Level]) -> Iterator[Change]:
    total = sum(level.count for level in levels)
    number = 0
    while number < len(steps):
        back = _back(steps, levels, number, total)
        if back is None:
            yield _moved(series, steps, number)
            number += 1
        else:
            yield _dip(series, steps, number, back)
            number = back + 1


def _back(steps: Sequence[Step], levels: Sequence[Level], number: int, total: int) -> int | None:
    """The step that comes back from where step `number` went."""
    home = levels[number]
    for last in range(number + 1, min(number + _STEPS_OF_A_DIP, len(steps))):
        away = levels[number + 1 : last + 1]
        count = sum(level.count for level in away)
        short = count <= _SHORT * total or count < min(home.count, levels[last + 1].count)
        same_side = len({level.value > home.value for level in away}) == 1
        if (
            short
            and same_side
            and _same(home, levels[last + 1], max(abs(x.value - home.value) for x in away))
        ):
            return last
    return None


def _same(home: Level, end: Level, depth: float) -> bool:
    noise = hypot(home.high - home.low, end.high - end.low) / 2
    # Never by noise alone: a return that makes up for less than half of the way is none.
    return abs(end.value - home.value) <= max(_DEPTH * depth, min(noise, depth / 2))


def _moved(series: Series, steps: Sequence[Step], number: int) -> Change:
    step = steps[number]
    kind = _kind(series.better, step.absolute)
    verb = "rose" if step.absolute > 0 else "fell"
    return Change(
        kind=kind,
        metric=series.metric,
        steps=(number,),
        first=step.first_bad,
        last=step.after.last,
        confidence=step.confidence,
        message=f"{series.metric} {verb} from {_number(step.before.value)} to {_number(step.after.value)}"
        f"{_percent(step)} {_between(series, step)}",
    )


def _kind(better: Better | None, absolute: float) -> ChangeKind:
    if better not in {"higher", "lower"}:
        return ChangeKind.SHIFT
    return (
        ChangeKind.IMPROVEMENT if (absolute > 0) == (better == "higher") else ChangeKind.REGRESSION
    )


def _dip(series: Series, steps: Sequence[Step], number: int, back: int) -> Change:
    there, last = steps[number], steps[back]
    first_label = series.observations[there.first_bad].label
    last_label = series.observations[last.last_good].label
    stretch = first_label if there.first_bad == last.last_good else f"{first_label} to {last_label}"
    return Change(
        kind=ChangeKind.DIP,
        metric=series.metric,
        steps=tuple(range(number, back + 1)),
        first=there.first_bad,
        last=last.last_good,
        confidence=min(step.confidence for step in steps[number : back + 1]),
        message=f"{series.metric} went from {_number(there.before.value)} to {_number(there.after.value)}"
        f"{_percent(there)} and came back to {_number(last.after.value)}: {stretch}",
    )


def _crashes(series: Series) -> Iterator[Change]:
    """Failures of one kind with nothing between them that ran: what could not be tried does not part them."""
    for run in _runs(series, _FAILED, bridge=_UNKNOWN):
        first, last = series.observations[run[0]], series.observations[run[-1]]
        verb = "hung" if first.outcome is Outcome.HANG else "crashed"
        yield Change(
            kind=ChangeKind.CRASH,
            metric=series.metric,
            first=run[0],
            last=run[-1],
            signature=first.signature,
            message=f"{_count(len(run), 'observation')} {verb}{_at(first, last)}"
            f"{f': {first.signature}' if first.signature else ''}",
        )


def _gaps(series: Series) -> Iterator[Change]:
    for run in _runs(series, _UNKNOWN, bridge=()):
        first, last = series.observations[run[0]], series.observations[run[-1]]
        what = "missing" if first.outcome is Outcome.MISSING else "could not be tried"
        verb = "" if what != "missing" else ("is " if len(run) == 1 else "are ")
        yield Change(
            kind=ChangeKind.GAP,
            metric=series.metric,
            first=run[0],
            last=run[-1],
            signature=first.signature,
            message=f"{_count(len(run), 'observation')} {verb}{what}{_at(first, last)}",
        )


def _runs(
    series: Series, wanted: Sequence[Outcome], bridge: Sequence[Outcome]
) -> Iterator[list[int]]:
    """Stretches of observations of the wanted outcomes with one outcome and signature."""
    run: list[int] = []
    for index, item in enumerate(series.observations):
        if item.outcome in wanted:
            head = series.observations[run[0]] if run else item
            if (head.outcome, head.signature) != (item.outcome, item.signature):
                yield run
                run = []
            run.append(index)
        elif run and item.outcome not in bridge:
            yield run
            run = []
    if run:
        yield run


def _between(series: Series, step: Step) -> str:
    good, bad = series.observations[step.last_good].label, series.observations[step.first_bad].label
    return f"between {good} and {bad}"


def _at(first: Observation, last: Observation) -> str:
    return f" at {first.label}" if first is last else f" from {first.label} to {last.label}"


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _percent(step: Step) -> str:
    return "" if step.relative is None else f" ({100 * step.relative:+.3g}%)".replace("-", "−")


def _number(value: float) -> str:
    return f"{value:.6g}"
