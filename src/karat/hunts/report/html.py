"""A hunt's report as one self-contained page: no script, no network, nothing to load.

Names, titles and logs are hostile input: all text is escaped, links only where they are plain https. Charts are inline SVG in
the colours of the page's CSS variables.
"""

from __future__ import annotations

import html
import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath

from karat.changepoints.series import Outcome
from karat.hunts.model import ChangeReport, HuntReport, PointReport, StageReport, Suspect
from karat.hunts.report import sentences as say
from karat.report import html as page
from karat.report.html import text
from karat.report.words import count, printable

_WIDTH, _HEIGHT = 960, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 16, 14, 46
_LABELS = 6
_LARGEST = 1.7e308
_LOG_LINES = 400
_NAMED = 6
_KINDS = ("regression", "improvement", "dip", "shift", "crash")
_MARKS = {Outcome.CRASH: "✗", Outcome.HANG: "∞", Outcome.BROKEN: "□", Outcome.MISSING: "·"}
_DOTS = 1500
"""Beyond so many points the dots shrink to a line's width."""


def render(report: HuntReport) -> str:
    body = "\n".join(["<main>", *_body(report), "</main>"])
    return page.page(title=say.conclusion(report), body=body, style=page.asset("karat.hunts.report", "page.css"))


def _body(report: HuntReport) -> Iterator[str]:
    yield f"<h1>{text(say.conclusion(report))}</h1>"
    probe = f"; probe <code>{text(shlex.join(report.command))}</code>" if report.command else ""
    yield f'<p class="quiet">{say.measured(report)}{probe}; {text(PurePath(report.file).name)}</p>'
    for note in report.notes:
        yield f'<p class="note">{text(note)}</p>'
    for culprit in report.culprits:
        change = culprit.change
        shown = "dip" if change.dip is not None else change.kind
        yield f'<section class="culprit {text(shown)}">'
        amount = say.amount(change, report.units.get(culprit.metric, ""))
        heading = say.heading(culprit, report)
        yield f"<h2><b>{text(heading)}</b> {text(culprit.metric)} {text(amount)}</h2>"
        yield "<dl>"
        yield _fact("since", text(say.between(change)))
        if say.blame(change):
            yield _fact("where", text(say.blame(change)))
        if culprit.suspects:
            title = "culprit" if say.named(culprit) else count(len(culprit.suspects), "suspect")
            yield _fact(title, _list(map(_suspect, culprit.suspects)))
        yield _fact("sure", text(say.confirmed(change)))
        if change.verdict.tried:
            yield _fact("tried", _list(map(text, change.verdict.tried)))
        if change.reproduce:
            lines = "\n".join(map(text, change.reproduce.split("\n")))
            yield _fact("try", f"<pre>{lines}</pre>")
        yield "</dl></section>"
    for stage in report.stages:
        yield from _stage(stage, report)


def _fact(label: str, markup: str) -> str:
    return f"<dt>{text(label)}</dt><dd>{markup}</dd>"


def _list(items: Iterable[str]) -> str:
    return "<ul>" + "".join(f"<li>{item}</li>" for item in items) + "</ul>"


def _suspect(one: Suspect) -> str:
    shown = f"<code>{text(say.short(one))}</code>"
    if say.link(one):
        shown = f'<a href="{html.escape(say.link(one))}" rel="noreferrer noopener">{shown}</a>'
    author = f' <span class="quiet">{text(one.author)}</span>' if one.author else ""
    return f"{text(one.part)} {shown} {text(one.title)}{author}"


def _stage(stage: StageReport, report: HuntReport) -> Iterator[str]:
    yield f'<section class="stage"><h2>{text(stage.title)}</h2>'
    state = "" if stage.state == "done" else f"; {stage.state}"
    yield f'<p class="quiet">{text(say.tried(stage))}{text(state)}</p>'
    for metric in _metrics(stage):
        unit = report.units.get(metric, "")
        named = f"{metric} ({unit})" if unit and unit != metric else metric
        yield f"<figure>{chart(stage, metric, unit)}<figcaption>{text(named)}</figcaption></figure>"
    for note in (say.flaky(stage), *stage.notes, stage.missed.message if stage.missed else ""):
        if note:
            yield f'<p class="note">{text(note)}</p>'
    for reason, points in say.lacking(stage).items():
        yield f'<p class="quiet">{count(len(points), "point")} not available ({text(say.listed(points, _NAMED))}): {text(reason)}</p>'
    yield from _table(stage)
    for index, one in enumerate(stage.points):
        if one.outcome not in (Outcome.CRASH, Outcome.HANG, Outcome.BROKEN):
            continue
        last = one.attempts[-1] if one.attempts else None
        said = (last.signature or last.note) if last else ""
        tail = "\n".join(printable(line) for line in one.log.splitlines()[-_LOG_LINES:])
        yield (
            f'<article class="log" id="{anchor(stage, index)}" tabindex="-1"><h3>{text(one.point.label)}: '
            f"{text(one.outcome)} <small>{text(said)}</small></h3><pre>{html.escape(tail)}</pre></article>"
        )
    yield "</section>"


def _metrics(stage: StageReport) -> list[str]:
    """Every metric that has a value, or a change, in order of appearance."""
    found = [metric for one in stage.points for metric in one.values]
    return list(dict.fromkeys([*found, *(change.span.metric for change in stage.changes)]))


def _table(stage: StageReport) -> Iterator[str]:
    tried = [(i, one) for i, one in enumerate(stage.points) if one.outcome is not None]
    if not tried:
        return
    metrics = _metrics(stage)
    yield f"<details><summary>{count(len(tried), 'point')} and their attempts</summary><div class='wide'><table>"
    heads = ["point", "outcome", *metrics, "attempts", "time", "what was under test"]
    yield ("<thead><tr>" + "".join(f"<th>{text(head)}</th>" for head in heads) + "</tr></thead><tbody>")
    for index, one in tried:
        outcome = text(f"{one.outcome}{f': {one.point.missing}' if one.point.missing else ''}")
        if one.log:
            outcome = f'<a href="#{anchor(stage, index)}">{outcome}</a>'
        seconds = sum(attempt.seconds for attempt in one.attempts)
        identity = one.attempts[-1].identity if one.attempts else {}
        under = "; ".join(f"{key}={value}" for key, value in identity.items())
        cells = [
            text(one.point.label) + "".join(f"<br><em>{text(flag)}</em>" for flag in one.flags),
            outcome,
            *(text(", ".join(map(say.value, one.values.get(metric, ())))) for metric in metrics),
            str(len(one.attempts) or ""),
            say.duration(seconds) if one.attempts else "",
            f"<small>{text(under)}</small>",
        ]
        yield f'<tr class="{one.outcome}">' + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"
    yield "</tbody></table></div></details>"


class _Frame:
    """From a point's index and a value to the drawing's coordinates."""

    def __init__(self, points: Sequence[PointReport], metric: str) -> None:
        values = [v for point in points for v in point.values.get(metric, ())]
        low, high = (min(values), max(values)) if values else (0.0, 1.0)
        # Halves, so that values near the largest double do not overflow.
        room = (high / 2 - low / 2) * 0.16 or abs(high) * 0.01 or 1.0
        self.low, self.high = max(low - room, -_LARGEST), min(high + room, _LARGEST)
        self.count = len(points)

    def x(self, index: float) -> float:
        room = _WIDTH - _LEFT - _RIGHT
        return round(_LEFT + room * (index + 0.5) / max(1, self.count), 1)

    def y(self, value: float) -> float:
        share = (value / 2 - self.low / 2) / ((self.high / 2 - self.low / 2) or 1.0)
        return round(_HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * share, 1)


def chart(stage: StageReport, metric: str, unit: str = "") -> str:
    frame = _Frame(stage.points, metric)
    changes = [change for change in stage.changes if change.span.metric == metric]
    name = f"{metric}{f' ({unit})' if unit else ''} over {stage.title}"
    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{html.escape(name)}">',
        *_grid(frame),
        *_bands(frame, changes),
        *_levels(frame, changes),
        *_failed(frame, stage),
        *_dots(frame, stage, metric),
        *_names(frame, stage.points),
        "</svg>",
    ]
    return "\n".join(parts)


def _grid(frame: _Frame) -> Iterator[str]:
    for step in range(5):
        value = frame.low * (1 - step / 4) + frame.high * (step / 4)
        y = frame.y(value)
        yield f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>'
        yield f'<text class="axis" x="{_LEFT - 6}" y="{y + 4}" text-anchor="end">{html.escape(say.value(value))}</text>'


def _bands(frame: _Frame, changes: Sequence[ChangeReport]) -> Iterator[str]:
    """Where each change may lie: after its last good point, up to its first bad one."""
    for change in changes:
        left, right = frame.x(change.span.good), frame.x(change.span.bad)
        kind = change.kind if change.kind in _KINDS else "shift"
        said = html.escape(f"{change.kind}: {say.amount(change)}, {say.between(change)}")
        yield (
            f'<rect class="band {kind}" x="{left}" y="{_TOP}" width="{max(2.0, right - left):.1f}"'
            f' height="{_HEIGHT - _TOP - _BOTTOM}"><title>{said}</title></rect>'
        )


def _levels(frame: _Frame, changes: Sequence[ChangeReport]) -> Iterator[str]:
    """The level before each change of level and the one after the last; where failures begin or end, none changes."""
    start, after = 0, None
    for span in sorted((change.span for change in changes), key=lambda span: span.good):
        if span.before is not None and span.after is not None:
            yield _level(frame, start, span.good, span.before)
            start, after = span.bad, span.after
    if after is not None:
        yield _level(frame, start, frame.count - 1, after)


def _level(frame: _Frame, first: int, last: int, value: float) -> str:
    y = frame.y(min(max(value, frame.low), frame.high))
    return f'<line class="level" x1="{frame.x(first - 0.5)}" x2="{frame.x(last + 0.5)}" y1="{y}" y2="{y}"/>'


def _failed(frame: _Frame, stage: StageReport) -> Iterator[str]:
    y = _HEIGHT - _BOTTOM + 14
    for index, one in enumerate(stage.points):
        if one.outcome in (Outcome.CRASH, Outcome.HANG, Outcome.BROKEN, Outcome.MISSING):
            said = html.escape(f"{one.point.label}: {one.outcome} {one.point.missing}".strip())
            mark = (
                f'<text class="mark {one.outcome}" x="{frame.x(index)}" y="{y}" text-anchor="middle">'
                f"{_MARKS[one.outcome]}<title>{said}</title></text>"
            )
            if one.outcome is not Outcome.MISSING:
                mark = f'<a href="#{anchor(stage, index)}" aria-label="{said}">{mark}</a>'
            yield mark


def _dots(frame: _Frame, stage: StageReport, metric: str) -> Iterator[str]:
    radius = 3.2 if len(stage.points) <= 200 else 1.6 if len(stage.points) <= _DOTS else 1.0
    for index, one in enumerate(stage.points):
        for value in one.values.get(metric, ()):
            said = html.escape(f"{one.point.label}: {say.value(value)}")
            yield f'<circle class="dot" cx="{frame.x(index)}" cy="{frame.y(value)}" r="{radius}"><title>{said}</title></circle>'


def _names(frame: _Frame, points: Sequence[PointReport]) -> Iterator[str]:
    """A few labels under the axis: first, last and some between."""
    if not points:
        return
    last = len(points) - 1
    chosen = sorted({round(last * i / (_LABELS - 1)) for i in range(_LABELS)})
    for index in chosen:
        label = points[index].point.label
        short = label if len(label) <= 18 else f"{label[:17]}…"
        # At the right edge there is room on one side only.
        side, x = ("end", _WIDTH - 1) if 0 < index == last else ("middle", frame.x(index))
        yield f'<text class="axis" x="{x}" y="{_HEIGHT - 12}" text-anchor="{side}">{html.escape(short)}</text>'


def anchor(stage: StageReport, index: int) -> str:
    """The id of a point's log on the page: nothing of its name, which is not to be trusted."""
    return f"log-{stage.key.replace('/', '-').replace('.', '-')}-{index}"
