"""Folding: lines that are longer than a terminal is wide, broken between words. Pure."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from math import isinf
from statistics import fmean, median
from typing import Any

import msgspec

from karat.changepoints.examine import ChangesReport, SeriesReport
from karat.changepoints.series import (
    RAREST,
    Analysis,
    Change,
    ChangeKind,
    Observation,
    Outcome,
    Series,
    Step,
)
from karat.findings import Finding, Severity
from karat.report.json import encode, finding_json
from karat.report.markdown import code, prose, table
from karat.report.terminal import Line
from karat.report.words import count, elide

_HANG = 4
_DEEPEST = 16
_WORD = re.compile(r"\s*\S+|\s+")


def wrapped(line: Line, width: int | None) -> Iterator[Line]:
    """The line, and what does not fit below it; hanging under what follows the word that the line begins with."""
    if width is None or sum(len(text) for text, _ in line) <= width:
        yield line
        return
    hang = _hang(line)
    room = width
    row: list[tuple[str, str]] = []
    for text, style in line:
        # A piece that fits a line of its own is not torn.
        whole = len(text.strip()) <= width - hang
        for word in [text] if whole else _WORD.findall(text):
            if len(word.rstrip()) > room and row:
                yield tuple(row)
                row, room = [(" " * hang, "")], width - hang
                word = word.lstrip()  # noqa: PLW2901 - the break is its space
            row.append((word, style))
            room -= len(word)
    yield tuple(row)


def _hang(line: Line) -> int:
    first = line[0][0]
    return len(first) if first.endswith(" ") and len(first) <= _DEEPEST else _HANG


# DOC-HERE report_strip: Strips: a series as one line of a terminal: a block per point, × for crashes, · for what is not there. Pure.

_BLOCKS = "▁▂▃▄▅▆▇█"
_FAILED = {Outcome.CRASH: "×", Outcome.HANG: "×", Outcome.BROKEN: "?", Outcome.MISSING: "·"}
STEP = "▲"


def sparkline(series: Series, analysis: Analysis, width: int) -> tuple[str, str]:
    """The points, and below them a mark where a level begins; as many points to a column as must be."""
    points = series.observations
    columns = min(max(width, 1), len(points))
    edges = [n * len(points) // columns for n in range(columns + 1)] if columns else [0]
    low, high = _range(series, analysis)
    drawn = "".join(_column(points[a:b], low, high) for a, b in itertools.pairwise(edges))
    starts = [step.first_bad for step in analysis.steps]
    marks = "".join(
        STEP if any(a <= start < b for start in starts) else " "
        for a, b in itertools.pairwise(edges)
    )
    return drawn, marks.rstrip()


def _range(series: Series, analysis: Analysis) -> tuple[float, float]:
    """From the lowest to the highest value, single outliers apart."""
    wild = set(analysis.outliers)
    values = [
        fmean(point.values)
        for n, point in enumerate(series.observations)
        if point.values and n not in wild
    ]
    return (min(values), max(values)) if values else (0.0, 0.0)


def _column(points: Sequence[Observation], low: float, high: float) -> str:
    values = [fmean(point.values) for point in points if point.values]
    if not values:
        failed = {point.outcome for point in points}
        return next((sign for outcome, sign in _FAILED.items() if outcome in failed), "·")
    if high <= low:
        return _BLOCKS[3]
    # By quarters where the way from lowest to highest is longer than any number.
    part = 0.25 if isinf(high - low) else 1.0
    share = (median(values) * part - low * part) / (high * part - low * part)
    return _BLOCKS[min(max(int(share * len(_BLOCKS)), 0), len(_BLOCKS) - 1)]


# DOC-HERE report_text: Changes for people: each series as a strip, one line per change, then what is broken, missing or to be known.

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


def text_lines(
    report: ChangesReport, *, everything: bool = False, width: int | None = None
) -> Iterator[Line]:
    """The whole report; with a width, lines are broken between words to fit it."""
    for line in _lines(report, width or _PLAIN_WIDTH, everything=everything):
        yield from wrapped(line, width)


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


def _is_quiet(entry: SeriesReport) -> bool:
    if entry.newest is not None:
        return (
            entry.newest.verdict == "same" and entry.series.observations[-1].outcome is Outcome.OK
        )
    quiet = all(change.kind is ChangeKind.GAP for change in entry.analysis.changes)
    return quiet and not entry.analysis.notes


def _entry(entry: SeriesReport, width: int, *, everything: bool) -> Iterator[Line]:
    yield from _head(entry)
    drawn, marks = sparkline(entry.series, entry.analysis, width)
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


def _conclusion(entry: SeriesReport) -> Iterator[Line]:
    if entry.analysis.notes:
        for note in entry.analysis.notes:
            yield (("  cannot be told: ", "yellow"), (note, ""))
    elif all(change.kind is ChangeKind.GAP for change in entry.analysis.changes):
        yield (("  no change", "green"), _noise(entry))
    elif entry.analysis.noise:
        yield (_noise(entry),)


def _head(entry: SeriesReport) -> Iterator[Line]:
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
        chance_text(steps),
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


def chance_text(steps: Sequence[Step]) -> str:
    """The p-value; below what the detector vouches for it is only said to be below."""
    p_value = max(step.p_value for step in steps)
    sign, shown = ("≤", RAREST) if p_value <= RAREST else ("=", p_value)
    return f"p {sign} {shown:.1g}".replace("e-0", "e-")


def _crashes(entry: SeriesReport, *, everything: bool) -> Iterator[Line]:
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


def _gaps(entry: SeriesReport, *, everything: bool) -> Iterator[Line]:
    """All gaps in one line: that a night is missing is worth a word, and no more."""
    gaps = [change for change in entry.analysis.changes if change.kind is ChangeKind.GAP]
    if not gaps:
        return
    points = sum(change.last - change.first + 1 for change in gaps)
    shown = gaps if everything else gaps[:_GAPS]
    texts = ", ".join(_stretch(entry.series, change.first, change.last) for change in shown)
    more = f" and {len(gaps) - len(shown):,} more" if len(gaps) > len(shown) else ""
    yield (("  gap         ", "dim"), (f"{count(points, 'point')}: {texts}{more}", "dim"))


def _noise(entry: SeriesReport) -> tuple[str, str]:
    return (f"  (noise: {entry.analysis.noise})" if entry.analysis.noise else "", "dim")


def _newest(entry: SeriesReport) -> Iterator[Line]:
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


# DOC-HERE report_json: Changes as JSON: schema karat.changes/1.

SCHEMA = "karat.changes/1"


def to_json(report: ChangesReport) -> bytes:
    """The report as schema karat.changes/1."""
    return encode(
        {
            "schema": SCHEMA,
            "exit_code": int(report.exit_code),
            "seconds": round(report.seconds, 3),
            "options": {
                "false_alarms": report.options.false_alarms,
                "smallest": report.options.smallest,
                "online": report.online,
                "fail_on": list(report.fail_on),
            },
            "series": [_series(entry) for entry in report.entries],
            "findings": [finding_json(finding) for finding in report.findings],
            "notes": list(report.notes),
        }
    )


def _series(entry: SeriesReport) -> dict[str, Any]:
    series, analysis = entry.series, entry.analysis
    return {
        "metric": series.metric,
        "source": series.source,
        "unit": series.unit,
        "better": series.better,
        "points": [_point(point) for point in series.observations],
        "steps": [_step(series, step) for step in analysis.steps],
        "levels": [_level(series, level) for level in analysis.levels],
        "changes": [_change(series, change) for change in analysis.changes],
        "outliers": [series.observations[index].label for index in analysis.outliers],
        "noise": analysis.noise,
        "notes": list(analysis.notes),
        "newest": _newest_report_json(entry),
    }


def _point(point: Observation) -> dict[str, Any]:
    return {
        "label": point.label,
        "outcome": point.outcome.value,
        "values": list(point.values),
        "signature": point.signature,
        "when": point.when.isoformat() if point.when else None,
        "log": point.log,
    }


def _step(series: Series, step: Step) -> dict[str, Any]:
    label = series.observations
    return {
        "last_good": label[step.last_good].label,
        "first_bad": label[step.first_bad].label,
        "earliest": label[step.earliest].label,
        "latest": label[step.latest].label,
        "before": step.before.value,
        "after": step.after.value,
        "absolute": step.absolute,
        "relative": step.relative,
        "p_value": step.p_value,
        "confidence": step.confidence,
    }


def _level(series: Series, level: Any) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(level)
    ends = {end: series.observations[plain[end]].label for end in ("first", "last")}
    return {**plain, **ends}


def _change(series: Series, change: Change) -> dict[str, Any]:
    return {
        "kind": change.kind.value,
        "first": series.observations[change.first].label,
        "last": series.observations[change.last].label,
        "steps": list(change.steps),
        "signature": change.signature,
        "confidence": change.confidence,
        "message": change.message,
    }


def _newest_report_json(entry: SeriesReport) -> dict[str, Any] | None:
    newest = entry.newest
    if newest is None:
        return None
    return {
        "verdict": newest.verdict,
        "p_value": newest.p_value,
        "step": _step(entry.series, newest.step) if newest.step else None,
        "message": newest.message,
        "points_needed": newest.points_needed,
    }


# DOC-HERE report_markdown: Changes as Markdown, fit for an issue: what, since when, by how much; and what crashed.

_SHOWN_REPORT_MARKDOWN = 50


def to_markdown(report: ChangesReport) -> str:
    """The whole report."""
    parts = ["## Changes", ""]
    told = [entry for entry in report.entries if entry.analysis.changes]
    for entry in told[:_SHOWN_REPORT_MARKDOWN]:
        parts += [*_series_report_markdown(entry), ""]
    if len(told) > _SHOWN_REPORT_MARKDOWN:
        parts += [f"… and {len(told) - _SHOWN_REPORT_MARKDOWN:,} more series with changes.", ""]
    if len(report.entries) > len(told):
        parts += [f"{len(report.entries) - len(told):,} series without a change.", ""]
    parts += [f"- {prose(note)}" for note in report.notes]
    return "\n".join(parts).rstrip() + "\n"


def _series_report_markdown(entry: SeriesReport) -> Iterator[str]:
    series, analysis = entry.series, entry.analysis
    better = f", {series.better} is better" if series.better in {"higher", "lower"} else ""
    yield f"### {code(series.metric)}{better}"
    yield ""
    rows = []
    for change in [c for c in analysis.changes if c.kind is not ChangeKind.GAP][
        :_SHOWN_REPORT_MARKDOWN
    ]:
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
        what = _size_report_markdown(steps) if steps else code(said)
        rows.append(
            (
                change.kind.value,
                what,
                good,
                stretch,
                chance_text(steps).removeprefix("p ").removeprefix("= ") if steps else "",
            )
        )
    if rows:
        yield table(("change", "size", "last good", "since", "p"), rows)
    gaps = [change for change in analysis.changes if change.kind is ChangeKind.GAP]
    if gaps:
        points = sum(change.last - change.first + 1 for change in gaps)
        yield ""
        yield f"{points:,} points are missing or could not be tried."


def _size_report_markdown(steps: list[Step]) -> str:
    levels = [steps[0].before.value, *(step.after.value for step in steps)]
    relative = steps[0].relative
    size = "" if relative is None else f"{100 * relative:+.2f}% "
    return size + "(" + " → ".join(f"{level:.6g}" for level in levels) + ")"
