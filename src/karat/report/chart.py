"""A chart as inline SVG: points with their values, levels, bands where something changed, marks where there is no value.

Drawn twice, for a desk and for a phone; the page's style shows one. No script, and text of strangers is escaped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from karat.report.html import text
from karat.report.words import cut

_LARGEST = 1.7e308
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 16, 14, 46
_SIZES = (("broad", 960, 300, 6, 18), ("narrow", 380, 240, 2, 14))  # width, height, labels below, letters of each


class Band(msgspec.Struct, frozen=True):
    """Where a change lies: between two points."""

    first: int
    last: int
    tone: str  # grave, warn or good
    hint: str


class Mark(msgspec.Struct, frozen=True):
    """A point without a value, and why."""

    at: int
    sign: str
    tone: str
    hint: str
    href: str = ""


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is drawn of one metric."""

    name: str
    labels: Sequence[str]
    titles: Sequence[str]  # what a point is called where there is room
    values: Sequence[Sequence[float]]
    bands: Sequence[Band] = ()
    levels: Sequence[tuple[int, int, float]] = ()  # from where to where, and how high
    marks: Sequence[Mark] = ()

    def draw(self, say: Callable[[float], str]) -> str:
        """Both drawings; `say` writes a value."""
        return "\n".join(line for size in _SIZES for line in self._lines(say, *size))

    def _lines(
        self, say: Callable[[float], str], kind: str, width: int, height: int, named: int, room: int
    ) -> Iterator[str]:
        last = len(self.labels) - 1
        values = [value for point in self.values for value in point]
        low, high = (min(values), max(values)) if values else (0.0, 1.0)
        # Halves, so that values near the largest double do not overflow.
        margin = (high / 2 - low / 2) * 0.16 or abs(high) * 0.01 or 1.0
        low, high = max(low - margin, -_LARGEST), min(high + margin, _LARGEST)

        def x(index: float) -> float:
            return round(_LEFT + (width - _LEFT - _RIGHT) * (index + 0.5) / max(1, last + 1), 1)

        def y(value: float) -> float:
            share = (value / 2 - low / 2) / ((high / 2 - low / 2) or 1.0)
            return round(height - _BOTTOM - (height - _TOP - _BOTTOM) * share, 1)

        yield f'<svg class="{kind}" viewBox="0 0 {width} {height}" role="img" aria-label="{text(self.name)}">'
        for step in range(5):
            value = low * (1 - step / 4) + high * (step / 4)
            yield f'<line class="grid" x1="{_LEFT}" x2="{width - _RIGHT}" y1="{y(value)}" y2="{y(value)}"/>'
            yield f'<text class="axis" x="{_LEFT - 6}" y="{y(value) + 4}" text-anchor="end">{text(say(value))}</text>'
        for band in self.bands:
            left, right = x(band.first), x(band.last)
            yield (
                f'<rect class="band {band.tone}" x="{left}" y="{_TOP}" width="{max(2.0, right - left):.1f}"'
                f' height="{height - _TOP - _BOTTOM}"><title>{text(band.hint)}</title></rect>'
            )
        for first, final, level in self.levels:
            at = y(min(max(level, low), high))
            yield f'<line class="level" x1="{x(first - 0.5)}" x2="{x(final + 0.5)}" y1="{at}" y2="{at}"/>'
        for mark in self.marks:
            said = text(mark.hint)
            sign = (
                f'<text class="mark {mark.tone}" x="{x(mark.at)}" y="{height - _BOTTOM + 14}" text-anchor="middle">'
                f"{mark.sign}<title>{said}</title></text>"
            )
            yield f'<a href="#{mark.href}" aria-label="{said}">{sign}</a>' if mark.href else sign
        # With many points the dots shrink to a line's width.
        radius = 3.2 if last < 200 else 1.6 if last < 1500 else 1.0
        for index, point in enumerate(self.values):
            for value in point:
                hint = f"<title>{text(f'{self.titles[index]}: {say(value)}')}</title>"
                yield f'<circle class="dot" cx="{x(index)}" cy="{y(value)}" r="{radius}">{hint}</circle>'
        # A few labels under the axis: first, last and some between.
        for index in sorted({round(last * i / (named - 1)) for i in range(named)} if self.labels else ()):
            # At the edges there is room on one side only.
            side, at = (
                ("start", _LEFT)
                if 0 == index < last
                else ("end", width - 1)
                if 0 < index == last
                else ("middle", x(index))
            )
            yield f'<text class="axis" x="{at}" y="{height - 12}" text-anchor="{side}">{text(cut(self.labels[index], room))}</text>'
        yield "</svg>"
