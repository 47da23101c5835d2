"""Reports of `karat changes`: for people as a sparkline and a line per change, as JSON, and as Markdown for an issue."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from math import isinf
from statistics import fmean, median
from typing import Any

import msgspec
from msgspec import structs

from karat.changepoints.examine import ChangesReport, SeriesReport
from karat.changepoints.series import RAREST, Analysis, ChangeKind, Observation, Outcome, Series, SeriesChange, Step
from karat.report.json import encode, finding_json
from karat.report.markdown import code, prose, table
from karat.report.terminal import STYLES, Line, widths
from karat.report.words import count, elide, few

SCHEMA = "karat.changes/1"
STEP = "▲"
_HANG = 4
_DEEPEST = 16
_WORD = re.compile(r"\s*\S+|\s+")
_BLOCKS = "▁▂▃▄▅▆▇█"
_FAILED = {Outcome.CRASH: "×", Outcome.HANG: "×", Outcome.BROKEN: "?", Outcome.MISSING: "·"}
_PLAIN_WIDTH = 100
_SHOWN, _GAPS, _SECTIONS = 12, 6, 50
_LABEL, _NAME = 60, 100
_STYLES = {
    ChangeKind.REGRESSION: "bold red",
    ChangeKind.IMPROVEMENT: "green",
    ChangeKind.SHIFT: "yellow",
    ChangeKind.DIP: "yellow",
    ChangeKind.TREND: "yellow",
    ChangeKind.CRASH: "red",
}
_WORDS = {Outcome.CRASH: "crashed", Outcome.HANG: "hung", Outcome.BROKEN: "broken", Outcome.MISSING: "missing"}
_BETTER = {"higher": "higher is better", "lower": "lower is better", "equal": "should stay equal"}
_OWN = frozenset(
    {"crash-range", "dip", "gap", "level-improved", "level-regressed", "level-shifted", "noise-changed", "trend"}
)
"""Kinds of findings that are shown with their series already."""


def text_lines(report: ChangesReport, *, everything: bool = False, width: int | None = None) -> Iterator[Line]:
    """The report for people; with a width, lines are wrapped between words to fit it."""
    for line in _lines(report, width or _PLAIN_WIDTH, everything=everything):
        yield from wrapped(line, width)


def wrapped(line: Line, width: int | None) -> Iterator[Line]:
    """The line, wrapped; what follows hangs below the text after the line's first word."""
    if width is None or sum(len(text) for text, _ in line) <= width:
        yield line
        return
    first = line[0][0]
    hang = len(first) if first.endswith(" ") and len(first) <= _DEEPEST else _HANG
    room = width
    row: list[tuple[str, str]] = []
    for text, style in line:
        # A piece that fits on a line of its own is not torn.
        whole = len(text.strip()) <= width - hang
        for word in [text] if whole else _WORD.findall(text):
            if len(word.rstrip()) > room and row:
                yield tuple(row)
                row, room = [(" " * hang, "")], width - hang
                word = word.lstrip()  # noqa: PLW2901 - the break is its space
            row.append((word, style))
            room -= len(word)
    yield tuple(row)


def sparkline(series: Series, analysis: Analysis, width: int) -> tuple[str, str]:
    """The points as blocks, × for crashes and · for missing ones, and below them a mark where a level begins."""
    points = series.observations
    columns = min(max(width, 1), len(points))
    edges = [n * len(points) // columns for n in range(columns + 1)] if columns else [0]
    inliers = (p for n, p in enumerate(points) if n not in set(analysis.outliers))
    values = [fmean(point.values) for point in inliers if point.values] or [0.0]
    low, high = min(values), max(values)
    drawn = "".join(_column(points[a:b], low, high) for a, b in itertools.pairwise(edges))
    starts = [step.first_bad for step in analysis.steps]
    marks = "".join(STEP if any(a <= start < b for start in starts) else " " for a, b in itertools.pairwise(edges))
    return drawn, marks.rstrip()


def _column(points: Sequence[Observation], low: float, high: float) -> str:
    values = [fmean(point.values) for point in points if point.values]
    if not values:
        failed = {point.outcome for point in points}
        return next((sign for outcome, sign in _FAILED.items() if outcome in failed), "·")
    if high <= low:
        return _BLOCKS[3]
    # By quarters where the distance from lowest to highest overflows.
    part = 0.25 if isinf(high - low) else 1.0
    share = (median(values) * part - low * part) / (high * part - low * part)
    return _BLOCKS[min(max(int(share * len(_BLOCKS)), 0), len(_BLOCKS) - 1)]


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
    found = [finding for finding in report.findings if finding.kind not in _OWN]
    shown = found if everything else found[:_SHOWN]
    for finding in shown:
        place = f"{finding.path}: " if finding.path and finding.path not in finding.message else ""
        yield (
            (f"{finding.severity.value:<4} ", STYLES[finding.severity]),
            (f"{finding.kind}  ", "bold"),
            (f"{place}{finding.message}", ""),
        )
    if len(found) > len(shown):
        yield ((f"… and {len(found) - len(shown):,} more (--all lists them)", "dim"),)
    for note in report.notes:
        yield (("note: ", "dim"), (note, "dim"))
    yield ((_summary(report), "bold"),)


def _is_quiet(entry: SeriesReport) -> bool:
    if entry.newest is not None:
        return entry.newest.verdict == "same" and entry.series.observations[-1].outcome is Outcome.OK
    return not entry.analysis.notes and _has_no_change(entry)


def _has_no_change(entry: SeriesReport) -> bool:
    return all(change.kind is ChangeKind.GAP for change in entry.analysis.changes)


def _entry(entry: SeriesReport, width: int, *, everything: bool) -> Iterator[Line]:
    series, analysis, newest = entry.series, entry.analysis, entry.newest
    parts = [count(entry.outcomes[Outcome.OK], "value"), *_without_value(entry.outcomes)]
    if series.observations:
        parts.append(_stretch(series, 0, len(series.observations) - 1))
    if series.better:
        parts.append(_BETTER[series.better])
    name = f"{series.metric} [{series.unit}]" if series.unit else series.metric
    source = f"  {series.source}: " if series.source else "  "
    yield ((elide(name, _NAME), "bold"), (source, "dim"), (", ".join(parts), ""))
    drawn, marks = sparkline(series, analysis, width)
    yield ((f"  {drawn}", ""),)
    if marks:
        yield ((f"  {marks}", "dim"),)
    if newest is not None:
        style = {"change": "bold red", "unsure": "yellow"}.get(newest.verdict, "green")
        yield ((f"  {newest.verdict:<11} ", style), (newest.message, ""))
        return
    yield from _steps(entry, everything=everything)
    yield from _crashes_and_gaps(entry, everything=everything)
    noise = (f"  (noise: {analysis.noise})" if analysis.noise else "", "dim")
    for note in analysis.notes:
        yield (("  cannot be told: ", "yellow"), (note, ""))
    if not analysis.notes and _has_no_change(entry):
        yield (("  no change", "green"), noise)
    elif not analysis.notes and analysis.noise:
        yield (noise,)


def _steps(entry: SeriesReport, *, everything: bool) -> Iterator[Line]:
    rows: list[tuple[ChangeKind, tuple[str, ...]]] = []
    for change in entry.analysis.changes:
        if change.steps:
            steps = [entry.analysis.steps[number] for number in change.steps]
            levels = " → ".join(map(_number, (steps[0].before.value, *(step.after.value for step in steps))))
            place = _place(entry.series, change, steps[0])
            rows.append((change.kind, (_size(steps[0].absolute, steps[0].relative), levels, chance_text(steps), place)))
        elif change.before is not None and change.after is not None:
            sign = "±" if change.kind is ChangeKind.NOISE else ""
            levels = f"{sign}{_number(change.before)} → {sign}{_number(change.after)}"
            rise = change.after - change.before
            size = _size(rise, rise / abs(change.before) if change.before else None)
            rows.append(
                (
                    change.kind,
                    (size, levels, p_text(change.p_value or 1.0), _stretch(entry.series, change.first, change.last)),
                )
            )
    shown = rows if everything else rows[-_SHOWN:]
    if len(rows) > len(shown):
        yield ((f"  {len(rows) - len(shown):,} earlier changes (--all shows them)", "dim"),)
    columns = widths(cells for _, cells in shown)
    for kind, cells in shown:
        padded = [f"{cell:<{room}}  " for cell, room in zip(cells, columns, strict=True)]
        text, place = "".join(padded[:-1]), padded[-1].rstrip()
        yield ((f"  {kind.value:<11} ", _STYLES.get(kind, "")), (text, ""), (place, ""))


def _label(series: Series, at: int) -> str:
    return elide(series.observations[at].label, _LABEL)


def _stretch(series: Series, first: int, last: int) -> str:
    return " … ".join(_label(series, at) for at in dict.fromkeys((first, last)))


def _size(absolute: float, relative: float | None) -> str:
    if relative is None:
        return f"{absolute:+.3g}".replace("-", "−")
    if abs(relative) < 10:
        return f"{100 * relative:+.2f}%".replace("-", "−")
    return f"×{1 + relative:.3g}"


def _number(value: float) -> str:
    """Five digits, and no exponent where a person would write none."""
    text = f"{value:,.0f}" if 1e5 <= abs(value) < 1e12 else f"{value:.5g}"
    return text.replace("-", "−")


def _place(series: Series, change: SeriesChange, step: Step) -> str:
    # A step may have happened at any of the points without a value between its neighbours.
    between = series.observations[step.last_good + 1 : step.first_bad]
    hidden = ", ".join(_without_value(Counter(point.outcome for point in between)))
    if change.kind is ChangeKind.DIP:
        return _stretch(series, change.first, change.last) + (hidden and f" ({hidden} before)")
    good, bad = _label(series, step.last_good), _label(series, step.first_bad)
    place = f"last good {good}, first bad {bad}"
    if change.kind is not ChangeKind.REGRESSION:
        place = f"after {good}, at {bad}"
    if (step.earliest, step.latest) != (step.last_good, step.first_bad):
        place += f" (in {_stretch(series, step.earliest, step.latest)})"
    return place + (hidden and f" ({hidden} between)")


def _without_value(found: Counter[Outcome]) -> list[str]:
    return [f"{found[outcome]:,} {word}" for outcome, word in _WORDS.items() if found[outcome]]


def chance_text(steps: Sequence[Step]) -> str:
    return p_text(max(step.p_value for step in steps))


def p_text(p_value: float) -> str:
    """The p-value; below what the detector can vouch for, only a bound."""
    sign, shown = ("≤", RAREST) if p_value <= RAREST else ("=", p_value)
    return f"p {sign} {shown:.1g}".replace("e-0", "e-")


def _crashes_and_gaps(entry: SeriesReport, *, everything: bool) -> Iterator[Line]:
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
        yield ((f"  {kind:<11} ", _STYLES[ChangeKind.CRASH]), (f"{place}  {said}", ""), (log, "dim"))
    # All gaps in one line: a missing night deserves no more.
    gaps = [change for change in entry.analysis.changes if change.kind is ChangeKind.GAP]
    if gaps:
        texts = [_stretch(series, change.first, change.last) for change in gaps]
        points = count(sum(change.last - change.first + 1 for change in gaps), "point")
        text = few(texts, len(texts) if everything else _GAPS)
        yield (("  gap         ", "dim"), (f"{points}: {text}", "dim"))


def _summary(report: ChangesReport) -> str:
    if report.online:
        verdicts = Counter(entry.newest.verdict for entry in report.entries if entry.newest)
        words = {"change": "changed", "unsure": "unsure", "same": "the same"}
        parts = [f"{verdicts[v]:,} {word}" for v, word in words.items() if verdicts[v]]
        return f"newest points: {', '.join(parts)}"
    kinds = Counter(change.kind for entry in report.entries for change in entry.analysis.changes)
    parts = [count(kinds[kind], kind.value) for kind in ChangeKind if kinds[kind]]
    parts = [part.replace("crashs", "crashes") for part in parts]
    short = sum(bool(entry.analysis.notes) for entry in report.entries)
    if short:
        parts.append("too short to tell" if len(report.entries) == 1 else f"{short:,} too short to tell")
    return f"{len(report.entries):,} series: {', '.join(parts) or 'no change'}"


def to_json(report: ChangesReport) -> bytes:
    return encode(
        {
            "schema": SCHEMA,
            "exit_code": int(report.exit_code),
            "seconds": round(report.seconds, 3),
            "options": {
                "false_alarms": report.options.false_alarms,
                "smallest": report.options.smallest,
                "online": report.online,
                "fail_on": report.fail_on,
            },
            "series": [_series_json(entry) for entry in report.entries],
            "findings": [finding_json(finding) for finding in report.findings],
            "notes": report.notes,
        }
    )


def _series_json(entry: SeriesReport) -> dict[str, Any]:
    series, analysis, newest = entry.series, entry.analysis, entry.newest
    labels = [point.label for point in series.observations]

    def labelled(data: msgspec.Struct, *names: str) -> dict[str, Any]:
        """The fields of a struct, with labels instead of positions."""
        plain = structs.asdict(data)
        return {**plain, **{name: labels[plain[name]] for name in names}}

    def step_json(step: Step) -> dict[str, Any]:
        ends = labelled(step, "last_good", "first_bad", "earliest", "latest")
        return {**ends, "before": step.before.value, "after": step.after.value}

    return {
        "metric": series.metric,
        "source": series.source,
        "unit": series.unit,
        "better": series.better,
        "points": [
            {**structs.asdict(point), "when": point.when.isoformat() if point.when else None}
            for point in series.observations
        ],
        "steps": [step_json(step) for step in analysis.steps],
        "levels": [labelled(level, "first", "last") for level in analysis.levels],
        "changes": [
            {name: value for name, value in labelled(change, "first", "last").items() if name != "metric"}
            for change in analysis.changes
        ],
        "outliers": [labels[index] for index in analysis.outliers],
        "noise": analysis.noise,
        "notes": analysis.notes,
        "newest": newest and {**structs.asdict(newest), "step": newest.step and step_json(newest.step)},
    }


def to_markdown(report: ChangesReport) -> str:
    """The report for an issue: what, since when, by how much; and what crashed."""
    parts = ["## Changes", ""]
    changed = [entry for entry in report.entries if entry.analysis.changes]
    for entry in changed[:_SECTIONS]:
        parts += [*_section(entry), ""]
    if len(changed) > _SECTIONS:
        parts += [f"… and {len(changed) - _SECTIONS:,} more series with changes.", ""]
    if len(report.entries) > len(changed):
        parts += [f"{len(report.entries) - len(changed):,} series without a change.", ""]
    parts += [f"- {prose(note)}" for note in report.notes]
    return "\n".join(parts).rstrip() + "\n"


def _section(entry: SeriesReport) -> Iterator[str]:
    series, analysis = entry.series, entry.analysis
    better = f", {series.better} is better" if series.better in {"higher", "lower"} else ""
    yield f"### {code(series.metric)}{better}"
    yield ""
    rows = []
    for change in [c for c in analysis.changes if c.kind is not ChangeKind.GAP][:_SECTIONS]:
        first, last = (series.observations[at].label for at in (change.first, change.last))
        steps = [analysis.steps[number] for number in change.steps]
        since = code(first) if first == last or len(steps) == 1 else f"{code(first)} … {code(last)}"
        if change.before is not None:
            rows.append(
                (
                    change.kind.value,
                    f"{change.before:.6g} → {change.after:.6g}",
                    "",
                    f"{code(first)} … {code(last)}",
                    p_text(change.p_value or 1.0).removeprefix("p ").removeprefix("= "),
                )
            )
            continue
        if not steps:
            said = change.signature or series.observations[change.first].outcome.value
            rows.append((change.kind.value, code(said), "", since, ""))
            continue
        levels = [steps[0].before.value, *(step.after.value for step in steps)]
        relative = steps[0].relative
        size = "" if relative is None else f"{100 * relative:+.2f}% "
        size += "(" + " → ".join(f"{level:.6g}" for level in levels) + ")"
        good = code(series.observations[steps[0].last_good].label)
        p_value = chance_text(steps).removeprefix("p ").removeprefix("= ")
        rows.append((change.kind.value, size, good, since, p_value))
    if rows:
        yield table(("change", "size", "last good", "since", "p"), rows)
    gaps = [change for change in analysis.changes if change.kind is ChangeKind.GAP]
    if gaps:
        points = sum(change.last - change.first + 1 for change in gaps)
        yield ""
        yield f"{points:,} points are missing or could not be tried."
