"""The live view of a hunt as text: a strip of the timeline, values so far, what runs and what comes next. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

from rich.text import Text

from karat.hunts.report.live import LEVEL_OF, RUNNING, UNKNOWN, HuntProgress
from karat.hunts.report.sentences import duration, ends, levels, sure
from karat.report.words import count, elide, printable

_BARS = "▁▂▃▄▅▆▇█"
# State → its mark (none: a bar as high as its value), its style, its name. Of several points in one cell, the first of these
# that is among them is shown.
_STATES = {
    RUNNING: ("◌", "bold cyan", "runs now"),
    "crash": ("✗", "bold red", "crash"),
    "hang": ("∞", "bold magenta", "hang"),
    "worse": ("", "red", "worse"),
    "dip": ("", "yellow", "dip"),
    "moved": ("", "magenta", "moved"),
    "better": ("", "blue", "better"),
    "good": ("", "green", "as at first"),
    "broken": ("▒", "yellow", "could not be tried"),
    UNKNOWN: ("·", "dim", "not tried"),
    "missing": (" ", "dim", ""),
}


def render(progress: HuntProgress, width: int, height: int, now: float) -> Text:
    """The whole view, no wider than the terminal, and no higher."""
    lines = list(_lines(progress, width, now, roomy=height >= 20))
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return Text("\n").join(lines[: max(3, height - 1)])


def _lines(progress: HuntProgress, width: int, now: float, *, roomy: bool) -> Iterator[Text]:
    left, seconds = progress.left, progress.seconds_left
    words = [f"{progress.tried:,} of {len(progress.points):,} points tried", count(progress.runs, "run")]
    if left is not None:
        words.append(f"≈{left:,} to go")
    if seconds is not None and left:
        words.append(f"about {duration(seconds)} left")
    where = progress.title if progress.stage in {"", "0"} else f"{progress.title} (stage {progress.stage})"
    text = Text().append(elide(printable(where), max(10, width // 2)), style="bold")
    yield text.append(f"  {' · '.join(words)}", style="dim")
    yield from _strip(progress, width)
    for span in progress.spans[-(4 if roomy else 2) :]:
        old, new = (printable(progress.points[i].label) for i in (span.good, span.bad))
        moved = ""
        if span.before is not None and span.after is not None:
            unit = progress.units.get(span.metric, "")
            moved = f"{levels(span.before, span.after, '' if unit == span.metric else unit)}, "
        text = Text().append(f"{span.kind:<12}", style=_STATES[LEVEL_OF.get(span.kind, "moved")][1])
        yield text.append(f"{printable(span.metric)} {moved}{ends(span.kind, old, new)}, {sure(span.confidence)}")
    for point, why, since in list(progress.running.values())[:8]:
        line = Text().append(f"now   {printable(point.label)}", style="cyan")
        yield line.append(f"  {duration(now - since)}  {printable(why)}", style="dim")
    if progress.decision is not None and progress.decision.likely_next:
        labels = [printable(progress.points[i].label) for i in progress.decision.likely_next[:4]]
        yield Text().append(f"next  {', '.join(labels)}", style="dim")
    # The newest first: where there is little room, the oldest are left out.
    for attempt in reversed(progress.done[-(8 if roomy else 4) :]):
        line = Text(f"      {progress.label(attempt.point)}  {progress.result(attempt)}")
        yield line.append(f"  {progress.took(attempt)}  {printable(attempt.why)}", style="dim")


def _strip(progress: HuntProgress, width: int) -> Iterator[Text]:
    states, heights = progress.states(), progress.heights()
    if not states:
        return
    strip = Text(no_wrap=True)
    for start, end in cells(len(states), max(1, min(width, 400))):
        state = next(word for word in _STATES if word in states[start:end])
        mark, style, _ = _STATES[state]
        if mark:
            strip.append(mark, style)
            continue
        known = [h for h, s in zip(heights[start:end], states[start:end], strict=True) if h is not None and s == state]
        height = fmean(known) if known else 0.5
        strip.append(_BARS[min(len(_BARS) - 1, int(height * len(_BARS)))], style)
    yield strip
    first, last = printable(progress.points[0].label), printable(progress.points[-1].label)
    gap = strip.cell_len - len(first) - len(last)
    yield Text(f"{first}{' ' * gap}{last}" if gap > 0 else f"{first} … {last}", style="dim")
    legend = Text()
    for state, (mark, style, name) in _STATES.items():
        if state in states and name:
            legend.append(mark or _BARS[5], style=style).append(f" {name}   ", style="dim")
    yield legend


def cells(points: int, room: int) -> Iterator[tuple[int, int]]:
    """Stretches of points, one per cell: one point each where there is room, else shared evenly."""
    shown = min(points, room)
    for cell in range(shown):
        yield cell * points // shown, (cell + 1) * points // shown
