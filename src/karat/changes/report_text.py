"""Changes for people: each series as a strip, one line per change, then what is broken, missing or to be known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from karat.changes.change import Analysis, Change, ChangeKind, Step
from karat.changes.options import RAREST
from karat.changes.report import ChangesReport, Examined
from karat.changes.report_fold import folded
from karat.changes.report_strip import strip
from karat.changes.series import Outcome, Series
from karat.findings import Finding, Severity
from karat.report.terminal import Line
from karat.report.words import count, elide

_PLAIN_WIDTH = 100
_SHOWN = 12
_GAPS = 6
_LABEL, _NAME = 60, 100
_STYLES = {
    ChangeKind.REGRESSION: "bold red",
    ChangeKind.IMPROVEMENT: "green",
    ChangeKind.SHIFT: "yellow",
    ChangeKind.DIP: "yellow",
    ChangeKind.CRASH: "red",
}
_WORDS = {
    Outcome.CRASH: "crashed",
    Outcome.HANG: "hung",
    Outcome.BROKEN: "broken",
    Outcome.MISSING: "missing",
}
_BETTER = {"higher": "higher is better", "lower": "lower is better", "equal": "should stay equal"}
_OWN = frozenset(
    {"crash-range", "dip", "gap", "level-improved", "level-regressed", "level-shifted"}
)
"""Kinds of findings that stand as a line of their series already."""
_SEVERITY = {Severity.FAIL: "bold red", Severity.WARN: "yellow", Severity.INFO: "dim"}


def lines(
    report: ChangesReport, *, everything: bool = False, width: int | None = None
) -> Iterator[Line]:
    """The whole report; with a width, lines are broken between words to fit it."""
    for line in _lines(report, width or _PLAIN_WIDTH, everything=everything):
        yield from folded(line, width)


def _lines(report: ChangesReport, width: int, *, everything: bool) -> Iterator[Line]:
    quiet = 0
    for entry in report.entries:
        if _is_quiet(entry) and not everything and len(report.entries) > 1:
            quiet += 1
            continue
        yield from _entry(entry, width - 2, everything=everything)
        yield ()
    if quiet:
        yield ((f"{quiet:,} more series without a change (--all shows them)", "dim"),)
    yield from _odd(report.findings, everything=everything)
    for note in report.notes:
        yield (("note: ", "dim"), (note, "dim"))
    yield ((_summary(report), "bold"),)


def _is_quiet(entry: Examined) -> bool:
    if entry.newest is not None:
        return (
            entry.newest.verdict == "same" and entry.series.observations[-1].outcome is Outcome.OK
        )
    quiet = all(change.kind is ChangeKind.GAP for change in entry.analysis.changes)
    return quiet and not entry.analysis.notes


def _entry(entry: Examined, width: int, *, everything: bool) -> Iterator[Line]:
    yield from _head(entry)
    drawn, marks = strip(entry.series, entry.analysis, width)
    yield ((f"  {drawn}", ""),)
    if marks:
        yield ((f"  {marks}", "dim"),)
    if entry.newest is not None:
        yield from _newest(entry)
        return
    rows = [_row(entry.series, entry.analysis, c) for c in entry.analysis.changes if c.steps]
    shown = rows if everything else rows[-_SHOWN:]
    if len(rows) > len(shown):
        yield ((f"  {len(rows) - len(shown):,} earlier changes (--all shows them)", "dim"),)
    widths = [max(map(len, column)) for column in zip(*(row[1] for row in shown), strict=True)]
    for kind, cells in shown:
        padded = [f"{cell:<{room}}  " for cell, room in zip(cells, widths, strict=True)]
        text, place = "".join(padded[:-1]), padded[-1].rstrip()
        yield ((f"  {kind.value:<11} ", _STYLES.get(kind, "")), (text, ""), (place, ""))
    yield from _crashes(entry, everything=everything)
    yield from _gaps(entry, everything=everything)
    yield from _conclusion(entry)


def _conclusion(entry: Examined) -> Iterator[Line]:
    if entry.analysis.notes:
        for note in entry.analysis.notes:
            yield (("  cannot be told: ", "yellow"), (note, ""))
    elif all(change.kind is ChangeKind.GAP for change in entry.analysis.changes):
        yield (("  no change", "green"), _noise(entry))
    elif entry.analysis.noise:
        yield (_noise(entry),)


def _head(entry: Examined) -> Iterator[Line]:
    series, outcomes = entry.series, entry.outcomes
    parts = [count(outcomes[Outcome.OK], "value")]
    parts += _without_value(outcomes)
    if series.observations:
        parts.append(_stretch(series, 0, len(series.observations) - 1))
    if series.better:
        parts.append(_BETTER[series.better])
    name = f"{series.metric} [{series.unit}]" if series.unit else series.metric
    yield (
        (elide(name, _NAME), "bold"),
        (f"  {series.source}: " if series.source else "  ", "dim"),
        (", ".join(parts), ""),
    )


def _row(series: Series, analysis: Analysis, change: Change) -> tuple[ChangeKind, tuple[str, ...]]:
    steps = [analysis.steps[number] for number in change.steps]
    return change.kind, (
        _size(steps[0]),
        _levels(steps),
        chance(steps),
        _place(series, change, steps),
    )


def _label(series: Series, at: int) -> str:
    """A label of a length that leaves room for what is said of it."""
    return elide(series.observations[at].label, _LABEL)


def _stretch(series: Series, first: int, last: int) -> str:
    return " … ".join(_label(series, at) for at in dict.fromkeys((first, last)))


def _size(step: Step) -> str:
    if step.relative is None:
        return f"{step.absolute:+.3g}".replace("-", "−")
    return (
        f"{100 * step.relative:+.2f}%".replace("-", "−")
        if abs(step.relative) < 10
        else f"×{1 + step.relative:.3g}"
    )


def _levels(steps: Sequence[Step]) -> str:
    levels = [steps[0].before, *(step.after for step in steps)]
    return " → ".join(_number(level.value) for level in levels)


def _number(value: float) -> str:
    """Five digits, and no exponent where a person would write none."""
    text = f"{value:,.0f}" if 1e5 <= abs(value) < 1e12 else f"{value:.5g}"
    return text.replace("-", "−")


def _place(series: Series, change: Change, steps: Sequence[Step]) -> str:
    step = steps[0]
    if change.kind is ChangeKind.DIP:
        return _stretch(series, change.first, change.last) + _hidden(series, step, "before")
    good, bad = _label(series, step.last_good), _label(series, step.first_bad)
    place = f"last good {good}, first bad {bad}"
    if change.kind is not ChangeKind.REGRESSION:
        place = f"after {good}, at {bad}"
    if (step.earliest, step.latest) != (step.last_good, step.first_bad):
        place += f" (in {_stretch(series, step.earliest, step.latest)})"
    return place + _hidden(series, step)


def _without_value(found: Counter[Outcome]) -> list[str]:
    return [f"{found[outcome]:,} {word}" for outcome, word in _WORDS.items() if found[outcome]]


def _hidden(series: Series, step: Step, where: str = "between") -> str:
    """What lies between the neighbours of a step: it may have happened at any of them."""
    between = series.observations[step.last_good + 1 : step.first_bad]
    told = ", ".join(_without_value(Counter(point.outcome for point in between)))
    return f" ({told} {where})" if told else ""


def chance(steps: Sequence[Step]) -> str:
    """The p-value; below what the detector vouches for it is only said to be below."""
    p_value = max(step.p_value for step in steps)
    sign, shown = ("≤", RAREST) if p_value <= RAREST else ("=", p_value)
    return f"p {sign} {shown:.1g}".replace("e-0", "e-")


def _crashes(entry: Examined, *, everything: bool) -> Iterator[Line]:
    series = entry.series
    found = [change for change in entry.analysis.changes if change.kind is ChangeKind.CRASH]
    shown = found if everything else found[-_SHOWN:]
    if len(found) > len(shown):
        yield ((f"  {len(found) - len(shown):,} earlier crashes (--all shows them)", "dim"),)
    for change in shown:
        first = series.observations[change.first]
        place = _stretch(series, change.first, change.last)
        said = change.signature or first.outcome.value
        log = f"  ({first.log})" if first.log and first.log != place else ""
        kind = "hang" if first.outcome is Outcome.HANG else "crash"
        yield (
            (f"  {kind:<11} ", _STYLES[ChangeKind.CRASH]),
            (f"{place}  {said}", ""),
            (log, "dim"),
        )


def _gaps(entry: Examined, *, everything: bool) -> Iterator[Line]:
    """All gaps in one line: that a night is missing is worth a word, and no more."""
    gaps = [change for change in entry.analysis.changes if change.kind is ChangeKind.GAP]
    if not gaps:
        return
    points = sum(change.last - change.first + 1 for change in gaps)
    shown = gaps if everything else gaps[:_GAPS]
    texts = ", ".join(_stretch(entry.series, change.first, change.last) for change in shown)
    more = f" and {len(gaps) - len(shown):,} more" if len(gaps) > len(shown) else ""
    yield (("  gap         ", "dim"), (f"{count(points, 'point')}: {texts}{more}", "dim"))


def _noise(entry: Examined) -> tuple[str, str]:
    return (f"  (noise: {entry.analysis.noise})" if entry.analysis.noise else "", "dim")


def _newest(entry: Examined) -> Iterator[Line]:
    newest = entry.newest
    if newest is not None:
        style = {"change": "bold red", "unsure": "yellow"}.get(newest.verdict, "green")
        yield ((f"  {newest.verdict:<11} ", style), (newest.message, ""))


def _odd(findings: Sequence[Finding], *, everything: bool) -> Iterator[Line]:
    """What is odd about the sources; changes stand above."""
    found = [finding for finding in findings if finding.kind not in _OWN]
    shown = found if everything else found[:_SHOWN]
    for finding in shown:
        place = f"{finding.path}: " if finding.path and finding.path not in finding.message else ""
        yield (
            (f"{finding.severity.value:<4} ", _SEVERITY[finding.severity]),
            (f"{finding.kind}  ", "bold"),
            (f"{place}{finding.message}", ""),
        )
    if len(found) > len(shown):
        yield ((f"… and {len(found) - len(shown):,} more (--all lists them)", "dim"),)


def _summary(report: ChangesReport) -> str:
    if report.online:
        verdicts = [entry.newest.verdict for entry in report.entries if entry.newest]
        told = {"change": "changed", "unsure": "unsure", "same": "the same"}
        parts = [
            f"{verdicts.count(verdict):,} {word}"
            for verdict, word in told.items()
            if verdict in verdicts
        ]
        return f"newest points: {', '.join(parts)}"
    kinds = [change.kind for entry in report.entries for change in entry.analysis.changes]
    words = {ChangeKind.CRASH: ("crash", "crashes")}
    parts = [
        f"{n:,} {words.get(kind, (kind.value, f'{kind.value}s'))[n > 1]}"
        for kind in ChangeKind
        if (n := kinds.count(kind))
    ]
    short = sum(bool(entry.analysis.notes) for entry in report.entries)
    if short:
        parts.append(
            "too short to tell" if len(report.entries) == 1 else f"{short:,} too short to tell"
        )
    return f"{len(report.entries):,} series: {', '.join(parts) or 'no change'}"
