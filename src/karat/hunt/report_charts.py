"""Charts: a stage's series as inline SVG, with levels, changes, and points that have no value. Pure.

Colours are the page's CSS variables; text in it is escaped here.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence

from karat.changes.series import Outcome
from karat.hunt import report_sentences as say
from karat.hunt.report import ChangeReport, PointReport, StageReport

_WIDTH, _HEIGHT = 960, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 16, 14, 46
_LABELS = 6
_LARGEST = 1.7e308
_DOTS = 1500
"""Beyond so many points the dots shrink to a line's width."""


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
    """One metric of one stage."""
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
        yield (
            f'<rect class="band {_class(change.kind)}" x="{left}" y="{_TOP}" width="{max(2.0, right - left):.1f}"'
            f' height="{_HEIGHT - _TOP - _BOTTOM}"><title>{html.escape(_said(change))}</title></rect>'
        )


def _said(change: ChangeReport) -> str:
    return f"{change.kind}: {say.amount(change)}, {say.between(change)}"


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
            linked = one.outcome is not Outcome.MISSING
            yield (
                f'<a href="#{anchor(stage, index)}" aria-label="{said}">{mark}</a>'
                if linked
                else mark
            )


_MARKS = {Outcome.CRASH: "✗", Outcome.HANG: "∞", Outcome.BROKEN: "□", Outcome.MISSING: "·"}


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


def _class(kind: str) -> str:
    return kind if kind in {"regression", "improvement", "dip", "shift", "crash"} else "shift"
