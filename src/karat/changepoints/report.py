"""Reports of `karat changes`: for people as a sparkline and a line per change, as JSON, and as a page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import isinf
from statistics import fmean, median
from typing import Any

import msgspec
from msgspec import structs

from karat.changepoints.examine import KINDS, ChangesReport, SeriesReport
from karat.changepoints.series import RAREST, Analysis, ChangeKind, Observation, Outcome, Series, SeriesChange, Step
from karat.report import html
from karat.report.chart import Band, Chart, Mark
from karat.report.json import encode, finding_json
from karat.report.terminal import STYLES, Line, aligned, widths
from karat.report.words import BLOCKS, count, elide, few

SCHEMA = "karat.changes/1"
_FAILED = {Outcome.CRASH: "×", Outcome.HANG: "×", Outcome.BROKEN: "?", Outcome.MISSING: "·"}
_SHOWN, _GAPS, _SECTIONS = 12, 6, 50
_LABEL, _NAME, _PLAIN_WIDTH = 60, 100, 100
_STYLES = {
    ChangeKind.REGRESSION: "bold red",
    ChangeKind.IMPROVEMENT: "green",
    **dict.fromkeys((ChangeKind.SHIFT, ChangeKind.DIP, ChangeKind.TREND), "yellow"),
}
_TONES = {
    **dict.fromkeys(ChangeKind, "warn"),
    **dict.fromkeys((ChangeKind.REGRESSION, ChangeKind.CRASH), "grave"),
    **dict.fromkeys((ChangeKind.NOISE, ChangeKind.GAP), "info"),
    ChangeKind.IMPROVEMENT: "good",
}
_WORDS = {Outcome.CRASH: "crashed", Outcome.HANG: "hung", Outcome.BROKEN: "broken", Outcome.MISSING: "missing"}
_BETTER = {"higher": "higher is better", "lower": "lower is better", "equal": "should stay equal"}
_OWN = {kind for kind, _ in KINDS.values()}
"""Kinds of findings that are shown with their series already."""


def text_lines(report: ChangesReport, *, everything: bool = False, width: int | None = None) -> Iterator[Line]:
    quiet = 0
    for entry in report.entries:
        if _is_quiet(entry) and not everything and len(report.entries) > 1:
            quiet += 1
            continue
        yield from _entry(entry, (width or _PLAIN_WIDTH) - 2, everything=everything)
        yield ()
    if quiet:
        yield ((f"{quiet:,} more series without a change (--all shows them)", "dim"),)
    found = [one for one in report.findings if one.kind not in _OWN or not one.metric]
    shown = found if everything else found[:_SHOWN]
    for finding in shown:
        place = f"{finding.path}: " if finding.path and finding.path not in finding.message else ""
        severity = (f"{finding.severity.value:<4} ", STYLES[finding.severity])
        yield severity, (f"{finding.kind}  ", "bold"), (f"{place}{finding.message}", "")
    if len(found) > len(shown):
        yield ((f"… and {len(found) - len(shown):,} more (--all lists them)", "dim"),)
    for note in report.notes:
        yield ("note: ", "dim"), (note, "dim")
    yield ((_summary(report), "bold"),)


def sparkline(series: Series, analysis: Analysis, width: int) -> tuple[str, str]:
    """The points as blocks, × for crashes and · for missing ones, and below them a mark where a level begins."""
    points = series.observations
    columns = min(max(width, 1), len(points))
    edges = [n * len(points) // columns for n in range(columns + 1)] if columns else [0]
    outliers = set(analysis.outliers)
    inliers = (p for n, p in enumerate(points) if n not in outliers)
    values = [fmean(point.values) for point in inliers if point.values] or [0.0]
    low, high = min(values), max(values)
    drawn = "".join(_column(points[a:b], low, high) for a, b in pairwise(edges))
    starts = [step.first_bad for step in analysis.steps]
    return drawn, "".join(" ▲"[any(a <= start < b for start in starts)] for a, b in pairwise(edges)).rstrip()


def _column(points: Sequence[Observation], low: float, high: float) -> str:
    values = [fmean(point.values) for point in points if point.values]
    if not values:
        failed = {point.outcome for point in points}
        return next((sign for outcome, sign in _FAILED.items() if outcome in failed), "·")
    if high <= low:
        return BLOCKS[3]
    # By quarters where the distance from lowest to highest overflows.
    part = 0.25 if isinf(high - low) else 1.0
    share = (median(values) * part - low * part) / (high * part - low * part)
    return BLOCKS[min(max(int(share * len(BLOCKS)), 0), len(BLOCKS) - 1)]


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
    yield (elide(name, _NAME), "bold"), (source, "dim"), (", ".join(parts), "")
    drawn, marks = sparkline(series, analysis, width)
    yield ((f"  {drawn}", ""),)
    if marks:
        yield ((f"  {marks}", "dim"),)
    if newest is not None:
        style = {"change": "bold red", "unsure": "yellow"}.get(newest.verdict, "green")
        yield (f"  {newest.verdict:<11} ", style), (newest.message, "")
        return
    rows = list(_moves(entry))
    yield from _earlier(len(rows), "changes", everything=everything)
    shown = rows if everything else rows[-_SHOWN:]
    columns = widths(cells[:3] for _, cells in shown)
    for kind, cells in shown:
        said = f"{aligned(cells[:3], columns, left=3)}  "
        yield (f"  {kind.value:<11} ", _STYLES.get(kind, "")), (said, ""), (cells[3], "")
    of = {kind: [c for c in analysis.changes if c.kind is kind] for kind in (ChangeKind.CRASH, ChangeKind.GAP)}
    crashes, gaps = of[ChangeKind.CRASH], of[ChangeKind.GAP]
    yield from _earlier(len(crashes), "crashes", everything=everything)
    for change in crashes if everything else crashes[-_SHOWN:]:
        first, place = series.observations[change.first], _stretch(series, change.first, change.last)
        log = f"  ({first.log})" if first.log and first.log != place else ""
        word = "hang" if first.outcome is Outcome.HANG else "crash"
        yield (f"  {word:<11} ", "red"), (f"{place}  {change.signature or first.outcome.value}", ""), (log, "dim")
    # All gaps in one line: a missing night deserves no more.
    if gaps:
        texts = [_stretch(series, change.first, change.last) for change in gaps]
        points = count(sum(change.last - change.first + 1 for change in gaps), "point")
        yield ("  gap         ", "dim"), (f"{points}: {few(texts, len(texts) if everything else _GAPS)}", "dim")
    noise = (f"  (noise: {analysis.noise})" if analysis.noise else "", "dim")
    for note in analysis.notes:
        yield ("  cannot be told: ", "yellow"), (note, "")
    if not analysis.notes and _has_no_change(entry):
        yield ("  no change", "green"), noise
    elif not analysis.notes and analysis.noise:
        yield (noise,)


def _earlier(number: int, what: str, *, everything: bool) -> Iterator[Line]:
    if number > _SHOWN and not everything:
        yield ((f"  {number - _SHOWN:,} earlier {what} (--all shows them)", "dim"),)


def _moves(entry: SeriesReport) -> Iterator[tuple[ChangeKind, tuple[str, str, str, str]]]:
    """Of each change but crashes and gaps: its size, its levels, the chance of it, and where it is."""
    for change in entry.analysis.changes:
        if change.steps:
            steps = [entry.analysis.steps[number] for number in change.steps]
            levels = " → ".join(map(_number, (steps[0].before.value, *(step.after.value for step in steps))))
            size, chance = _size(steps[0].absolute, steps[0].relative), chance_text(steps)
            yield change.kind, (size, levels, chance, _place(entry.series, change, steps[0]))
        elif change.before is not None and change.after is not None:
            sign = "±" if change.kind is ChangeKind.NOISE else ""
            levels = f"{sign}{_number(change.before)} → {sign}{_number(change.after)}"
            rise = change.after - change.before
            size = _size(rise, rise / abs(change.before) if change.before else None)
            place = _stretch(entry.series, change.first, change.last)
            yield change.kind, (size, levels, p_text(change.p_value or 1.0), place)


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
    place = f"last good {good}, first bad {bad}" if change.kind is ChangeKind.REGRESSION else f"after {good}, at {bad}"
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


def _summary(report: ChangesReport) -> str:
    if report.online:
        verdicts = Counter(entry.newest.verdict for entry in report.entries if entry.newest)
        words = {"change": "changed", "unsure": "unsure", "same": "the same"}
        parts = [f"{verdicts[v]:,} {word}" for v, word in words.items() if verdicts[v]]
        return f"newest points: {', '.join(parts)}"
    kinds = Counter(change.kind for entry in report.entries for change in entry.analysis.changes)
    parts = [count(kinds[kind], kind.value) for kind in ChangeKind if kinds[kind]]
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


def to_html(report: ChangesReport, command: str) -> str:
    """The page: a chart for each series that changed, the findings, and every change."""
    changed = [entry for entry in report.entries if not _is_quiet(entry)]
    charts = "".join(
        f"<figure><figcaption><b>{html.text(entry.series.metric)}</b> {html.text(entry.series.source)}</figcaption>"
        f"{_chart(entry).draw(_number)}</figure>"
        for entry in changed[:_SECTIONS]
    )
    left = f", {len(changed):,} with one, of which {_SECTIONS} are drawn" if len(changed) > _SECTIONS else ""
    still = len(report.entries) - len(changed)
    quiet = f" <small>{still:,} without a change{left}</small>" if still or left else ""
    above = f"<section><h2>Series{quiet}</h2>{charts}</section>"
    # What is shown with its series already is not said again.
    tones = {kind.value: _TONES[kind] for kind in ChangeKind}
    told = [one for one in report.findings if one.kind not in _OWN or not one.metric]
    return html.result_page(
        report,
        told,
        about=report.headline(),
        noun="changes",
        state="kind",
        tones=tones,
        command=command,
        answer=_summary(report),
        above=above,
    )


def _chart(entry: SeriesReport) -> Chart:
    points, analysis = entry.series.observations, entry.analysis
    labels = [point.label for point in points]
    moved = [(change, analysis.steps[number]) for change in analysis.changes for number in change.steps]
    bands = [Band(step.last_good, step.first_bad, _TONES[change.kind], change.message) for change, step in moved]
    marks = []
    for at, point in enumerate(points):
        if sign := _FAILED.get(point.outcome):
            tone = "missing" if point.outcome is Outcome.MISSING else "grave"
            marks.append(Mark(at, sign, tone, f"{point.label}: {point.signature or point.outcome}"))
    return Chart(
        name=f"{entry.series.metric} {entry.series.unit}".strip(),
        labels=labels,
        titles=labels,
        values=[point.values for point in points],
        bands=bands,
        levels=[(level.first, level.last, level.value) for level in analysis.levels] if analysis.steps else (),
        marks=marks,
    )
