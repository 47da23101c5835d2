"""A review in a terminal: one key, one decision; each on a screen with curves, numbers, history and origins.

The terminal is restored whatever happens. Everything decided is in git at once, so that leaving is never a loss.
"""

from __future__ import annotations

import codecs
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.text import Text

from karat.compare.change import Verdict
from karat.diffs.origins import place
from karat.diffs.report.data import ROW_TITLES, gravity, row_cells
from karat.diffs.report.text import style_of
from karat.diffs.result import labels
from karat.findings import Finding, KaratError, Severity
from karat.goldens.provenance import LockEntry
from karat.goldens.shapes import Reading, Series, Table
from karat.report.plot import distance, overlay
from karat.report.terminal import COMMAND, STYLES, Line, aligned, print_lines, widths, wrapped
from karat.report.words import count, elide, few, number, printable
from karat.reviews.causes import Cause, Item, State, metrics_of
from karat.reviews.details import cells
from karat.reviews.report import OPEN, cause_lines, kept_lines, progress_words
from karat.reviews.review import Decision, NeedsReason, Review, Stale

if TYPE_CHECKING:
    from karat.reviews.server import ReviewServer

KEYS = (
    ("a", "accept"), ("r", "reject"), ("s", "skip"), ("g", "accept group"), ("R", "reject group"), ("S", "skip group"),
    ("m", "metric"), ("n/b", "next/back"), ("u", "undo"), ("o", "browser"), ("?", "keys"), ("q", "quit"),
)  # fmt: skip
HELP = (
    "a  accept: stage this golden, its lock line and its samples",
    "r  reject: restore HEAD's values; git keeps what was there",
    "s  skip: leave it for later",
    "g  accept the whole group that is left: one cause, one decision (also A)",
    "R  reject, and S  skip, the whole group that is left",
    "m  decide one metric alone: press again for the next, and for the whole golden",
    "n  b  next and previous golden, decided or not (also arrow keys); N  B  next and previous group",
    "u  undo the last decision, and the one before",
    "o  open curves and numbers in the browser",
    "q  quit: everything decided is in git's index and in the working tree",
)
_STATE_STYLE: Mapping[State, str] = {"accepted": "bold green", "rejected": "bold red", "partly": "yellow"}
_WIDEST, _TALLEST, _SHORTEST = 100, 12, 8
_FINDINGS, _ROWS, _CELLS = 3, 4, 8
_ARROWS = {"\x1b[C": "n", "\x1b[B": "n", "\x1b[D": "b", "\x1b[A": "b"}


@contextmanager
def _keys() -> Iterator[Callable[[], str]]:
    """Gives keys one by one, also those typed ahead; an arrow is one key."""
    try:
        import termios
        import tty
    except ImportError:  # Windows
        import click

        yield click.getchar
        return
    handle = sys.stdin.fileno()
    before = termios.tcgetattr(handle)
    decode, typed = codecs.getincrementaldecoder("utf-8")("replace").decode, ""

    def key() -> str:
        nonlocal typed
        while not typed:
            data = os.read(handle, 1024)
            if not data:
                return "q"  # the terminal is gone
            typed = decode(data)
        size = 3 if typed[:2] == "\x1b[" else 1
        one, typed = typed[:size], typed[size:]
        return one

    tty.setcbreak(handle)
    try:
        yield key
    finally:
        termios.tcsetattr(handle, termios.TCSADRAIN, before)


def decide(review: Review, stream: IO[str]) -> None:
    """Show one decision after the other until there is none, or the person leaves."""
    console = Console(file=stream, highlight=False)
    session = _Session(review, console)
    with suppress(KeyboardInterrupt), _keys() as key, Live(console=console, screen=True, auto_refresh=False) as live:
        session.run(live, key)
    print_lines(session.closing(), stream)


class _Session:
    """Where a person is in a review."""

    def __init__(self, review: Review, console: Console) -> None:
        self._review = review
        self._console = console
        self._made: list[Decision] = []
        self._metric: str | None = None
        self._said: Sequence[Line] = ()
        self._reason = ""
        self._path = ""
        self._server: ReviewServer | None = None
        self._move(undecided=True)

    def run(self, live: Live, key: Callable[[], str]) -> None:
        while self._path:
            self._draw(live)
            pressed = key()
            pressed = _ARROWS.get(pressed, pressed)
            self._said = ()
            if pressed in {"q", "\x03", "\x04"}:
                return
            try:
                self._press(pressed, lambda ask: self._ask(ask, live, key))
            except Stale as stale:
                self._say(f"{stale}: looking again …")
                self._draw(live)
                self._review.refresh()
                self._stay()
                self._say(f"{stale}: looked again, decide on what is there now")
            except KaratError as error:
                self._say(f"{error}   next: {error.next_command}")

    def _press(self, key: str, ask: Callable[[Sequence[Finding]], str | None]) -> None:
        known = self._review.states()
        group = [path for path in self._cause().paths if known[path] in OPEN]
        if key == "a":
            self._accept([self._path], ask)
        elif key in {"g", "A"}:
            self._accept(group, ask)
        elif key in {"r", "R"}:
            chosen = group if key == "R" else [self._path]
            self._done(self._review.reject(chosen, metric=None if key == "R" else self._metric))
        elif key in {"s", "S"}:
            self._review.skip(group if key == "S" else [self._path])
            self._move(undecided=True)
        elif key == "u":
            undone = self._review.undo()
            self._say("there is nothing to undo: what was decided before stands in git")
            if undone is not None:
                self._made.remove(undone)
                self._path = undone.paths[0]
                self._stay()
                self._say(f"undone: {count(len(undone.paths), 'golden')} that had been {undone.verb}")
        elif key == "m":
            choices = [None, *metrics_of(self._review.item(self._path).change)]
            self._metric = choices[(choices.index(self._metric) + 1) % len(choices)]
            only = f"{self._metric} alone: a and r decide it and nothing else" if self._metric else "the whole golden"
            self._say(only if len(choices) > 1 else "this golden is decided whole: nothing in it can be decided alone")
        elif key in {"n", "b", "N", "B"}:
            self._move(+1 if key in "nN" else -1, group=key in "NB")
        elif key == "o":
            from karat.reviews.server import in_background, shown

            self._server = self._server or in_background(self._review.again())
            address = self._server.address(self._path)
            told = "it is in the browser: what is decided there stands here"
            self._say(told if shown(address) else f"open {address}")  # where there is none, its address
        else:
            self._said = [((text, ""),) for text in HELP]

    def _accept(self, paths: Sequence[str], ask: Callable[[Sequence[Finding]], str | None]) -> None:
        metric = self._metric if list(paths) == [self._path] else None
        try:
            self._done(self._review.accept(paths, metric=metric))
        except NeedsReason as needed:
            reason = ask(needed.failing)
            if reason is None:
                self._say("not accepted")
            else:
                self._reason = reason
                self._done(self._review.accept(paths, metric=metric, reason=reason))

    def _done(self, made: Decision) -> None:
        self._made += [made] if made.paths else []
        what = f"{made.metric} of " if made.metric else ""
        if made.metric is None:
            self._move(undecided=True)
        else:
            self._stay()
        self._say(f"{made.verb} {what}{count(len(made.paths), 'golden')}; u undoes it")

    def _say(self, text: str) -> None:
        self._said = [((text, "bold"),)]

    def _order(self) -> list[str]:
        return [path for cause in self._review.causes() for path in cause.paths]

    def _cause(self) -> Cause:
        return next(cause for cause in self._review.causes() if self._path in cause.paths)

    def _stay(self) -> None:
        """At the same golden, or at the next that is left, where it differs no more."""
        self._metric = None
        if self._path not in self._order():
            self._path = ""
            self._move(undecided=True)

    def _move(self, step: int = 1, *, undecided: bool = False, group: bool = False) -> None:
        """To the next golden: any, the first of another group, or one that is not decided."""
        self._metric = None
        order, causes = self._order(), self._review.causes()
        at = order.index(self._path) if self._path in order else -1
        if group:
            here = next((n for n, cause in enumerate(causes) if self._path in cause.paths), 0)
            self._path = causes[(here + step) % len(causes)].paths[0]
        elif undecided:
            known = self._review.states()
            later = (path for path in order[at + 1 :] + order[: at + 1] if known[path] in {"pending", "partly"})
            self._path = next(later, self._path or next(iter(order), ""))
        elif order:
            self._path = order[(at + step) % len(order)]

    def _draw(self, live: Live, prompt: Line = ()) -> None:
        width, height = self._console.size
        cause, item = self._cause(), self._review.item(self._path)
        top = list(_head(self._review, cause, item, width))
        said = [part for line in self._said for part in wrapped(line, width)]
        if not said and not OPEN.intersection(self._review.states().values()):
            said = [(("all decided: q leaves, and what was accepted is staged", "bold green"),)]
        below = [*said, *([prompt] if prompt else []), *_foot(width)]
        room = max(height - len(top) - len(below), 0)
        middle = list(_body(self._review, cause, item, self._metric, width=width, height=room))
        middle += [()] * (room - len(middle))
        lines = [Text.assemble(*((printable(text), style) for text, style in line)) for line in (*top, *middle, *below)]
        live.update(Text("\n", no_wrap=True, overflow="ellipsis").join(lines), refresh=True)

    def _ask(self, failing: Sequence[Finding], live: Live, key: Callable[[], str]) -> str | None:
        """Why it is taken all the same; None if that was left."""
        typed = ""
        goldens = count(len({finding.path for finding in failing}), "golden")
        kinds = few(sorted({finding.kind for finding in failing}), 3)
        before = f"Enter: {self._reason}; " if self._reason else ""
        self._say(f"{goldens} with a fail finding ({kinds}). Why accept? ({before}Esc: do not)")
        while True:
            end = typed[-max(self._console.width - 12, 1) :]  # what does not fit on the line is behind
            self._draw(live, (("reason: ", "bold yellow"), (f"{'…' if end != typed else ''}{end}▏", "")))
            pressed = key()
            if pressed in {"\r", "\n"}:
                return typed.strip() or self._reason or None
            if pressed in {"\x1b", "\x03", "\x04"}:
                return None
            if pressed in {"\x7f", "\x08"}:
                typed = typed[:-1]
            elif pressed == "\x15":
                typed = ""
            elif pressed.isprintable():
                typed += pressed

    def closing(self) -> Iterator[Line]:
        """What was decided, once the screen is gone."""
        known = self._review.states()
        yield ((progress_words(known), "bold"),)
        yield from kept_lines([finding for made in self._made for finding in made.findings])
        if "accepted" in known.values():
            yield ("the accepted goldens are staged; the text for a pull request: ", ""), ("karat summary", COMMAND)
        if any(state in OPEN for state in known.values()):
            left = "the others are" if {"accepted", "rejected"}.intersection(known.values()) else "all are"
            yield (f"{left} as they were: ", ""), ("karat review", COMMAND), (" goes on there", "")


def _head(review: Review, cause: Cause, item: Item, width: int) -> Iterator[Line]:
    """Where one is: how much is decided, the cause, the golden and what became of it."""
    known = review.states()
    group = f"  group {cause.number} of {len(review.causes())}"
    yield ("karat review  ", "bold"), (progress_words(known), ""), (group, "dim")
    yield ((("─" * width), "dim"),)
    left = sum(known[path] in OPEN for path in cause.paths)
    for line in cause_lines(cause):
        yield from wrapped(line, width)
    name = printable(labels(review.diff.changes, review.diff.root).get(item.path, item.path))
    at = f"     {cause.paths.index(item.path) + 1:,} of {len(cause.paths):,}" if len(cause.paths) > 1 else "    "
    room = width - len(at) - len(item.state) - 3
    others = f"  ({left:,} to decide)" if len(cause.paths) > 1 else ""
    others = others if len(name) + len(others) <= room else ""
    state = f"  {item.state}", _STATE_STYLE.get(item.state, "dim")
    yield (f"{at} ", "dim"), (elide(name, room), "bold cyan"), (others, "dim"), state


def _foot(width: int) -> Iterator[Line]:
    line: list[tuple[str, str]] = []
    room = width
    for key, word in KEYS:
        if len(f"   {key} {word}") > room:
            yield tuple(line)
            line, room = [], width
        line += [(f"{'   ' if line else ''}{key} ", "bold"), (word, "dim")]
        room = width - sum(len(text) for text, _ in line)
    yield tuple(line)


def _body(review: Review, cause: Cause, item: Item, metric: str | None, *, width: int, height: int) -> Iterator[Line]:
    """What there is to know of a golden, in as many lines as there are; the curves take what the rest leaves."""
    for most in (_ROWS, 1, 0):  # where it came from tells more than its fourth metric
        told = [*_findings(item, metric, width), *_rows(item, metric, width, most), *_past(item, metric, width)]
        told += [*_origins(review, item), *_also(review, cause, item)]
        if len(told) + _SHORTEST <= height:
            break
    drawn = list(_drawn(review.pair(item.path), _shown_metric(cause, item, metric), width, height - len(told)))
    yield from (drawn + told)[:height]


def _shown_metric(cause: Cause, item: Item, metric: str | None) -> str | None:
    """The metric to draw: the one to decide alone, the group's, or the gravest, of these the loss."""
    grouped = next((name for path, name in cause.group.members if path == item.path), None) if cause.group else None
    moved = metrics_of(item.change)
    grave = [row.metric for row in item.change.metrics if row.verdict is item.verdict and row.metric in moved]
    return metric or grouped or next((name for name in grave if name.endswith("loss")), next(iter(moved), None))


def _drawn(pair: tuple[Reading | None, Reading | None], metric: str | None, width: int, room: int) -> Iterator[Line]:
    old, new = (reading.golden if reading else None for reading in pair)
    if isinstance(old, Table) and isinstance(new, Table):
        yield from _cells(old, new, metric, width)
        return
    curves = [golden.metrics if isinstance(golden, Series) else {} for golden in (old, new)]
    name = metric or next(iter(curves[1] or curves[0]), None)
    if name is None:
        return
    before, after = (side.get(name) for side in curves)
    tall, wide = max(min(room - 5, _TALLEST), 3), min(width - 16, _WIDEST)
    drawn, note = overlay(before, after, width=wide, height=tall)
    if drawn:
        sides = "o HEAD, x now, * both" if before and after else "o HEAD" if before else "x now"
        yield (f"  {printable(name)}", "bold"), (f"  {sides}{note}", "dim")
        yield from (((f"  {line}", "blue" if "x" not in line else ""),) for line in drawn)
        if before is not None and after is not None and (far := distance(before, after, width=wide - 26)):
            yield (f"{'apart ':>{drawn[0].index('|') + 3}}", "dim"), (far, "yellow")
        yield ()


def _cells(old: Table, new: Table, metric: str | None, width: int) -> Iterator[Line]:
    """The cells that differ, row by row; those of one column, if it is to be decided alone."""
    told = cells(old, new)
    shown = [(at, column) for at, column in enumerate(told["columns"]) if metric in {None, column}]
    changed: list[tuple[str, str]] = []
    for key, was, now in told["rows"]:
        name = " / ".join(key)
        if was is None or now is None:
            changed.append((name, "gone" if now is None else "new"))
        else:
            moved = ((column, was[at] or "(empty)", now[at] or "(empty)") for at, column in shown if was[at] != now[at])
            changed += [(name, f"{column}: {before} → {after}") for column, before, after in moved]
    for name, said in changed[:_CELLS]:
        yield (f"  {elide(printable(name), width // 2)}  ", "cyan"), (printable(said), "")
    if len(changed) > _CELLS:
        yield ((f"  … and {count(len(changed) - _CELLS, 'cell')} more", "dim"),)
    yield ()


def _findings(item: Item, metric: str | None, width: int) -> Iterator[Line]:
    found = [f for f in item.change.findings if metric is None or f.metric in {None, metric}]
    found.sort(key=lambda f: f.severity.rank)
    worth = [f for f in found if f.severity is not Severity.INFO] or found
    for finding in worth[:_FINDINGS]:
        line = (f"{finding.severity.value:<4} ", STYLES[finding.severity]), (finding.message, "")
        yield from wrapped(line, width)
    if len(found) > len(worth[:_FINDINGS]):
        yield ((f"     … and {count(len(found) - len(worth[:_FINDINGS]), 'finding')} more", "dim"),)


def _rows(item: Item, metric: str | None, width: int, most: int) -> Iterator[Line]:
    moved = sorted((row for row in item.change.metrics if row.verdict is not Verdict.SAME), key=gravity)
    shown = [row for row in moved if metric in {None, row.metric}][:most]
    if not shown:
        return
    cut = [(row, elide(printable(row.metric), 20)) for row in shown]
    table = [ROW_TITLES, *((row.verdict.value, name, *row_cells(row, row.metric)) for row, name in cut)]
    lines = [aligned(row, widths(table)) for row in table]
    yield ((lines[0][:width], "dim"),)
    for row, line in zip(shown, lines[1:], strict=True):
        yield ((line[:width], style_of(row.verdict)),)
    if not metric and len(moved) > len(shown):
        yield ((f"… and {count(len(moved) - len(shown), 'metric')} more", "dim"),)


def _past(item: Item, metric: str | None, width: int) -> Iterator[Line]:
    told = "".join(finding.message for finding in item.change.findings)
    rows = sorted((row for row in item.change.metrics if metric in {None, row.metric}), key=gravity)
    for row, past in [(row, row.history) for row in rows if row.history][:1]:
        if past.sentence not in told:
            said = f"{row.metric} moved {number(past.size)}, {past.sentence}"
            yield from wrapped((("history  ", "dim"), (said, "bold yellow" if past.unusual else "")), width)


def _origins(review: Review, item: Item) -> Iterator[Line]:
    old, new = review.diff.provenance.get(item.path, (None, None))
    if item.change.has_baseline and (old or new):
        yield ("HEAD     ", "dim"), (printable(_origin(old)), "")
    if item.verdict is not Verdict.REMOVED and (old or new):
        yield ("now      ", "dim"), (printable(_origin(new)), "")


def _origin(line: LockEntry | None) -> str:
    if line is None:
        return "unknown, or edited since"
    commit = f"commit {line.commit[:12]}" if line.commit else ""
    accepted = f"taken because: {line.accepted}" if line.accepted else ""
    parts = (place(line.source, line.run), line.date and line.date[:10], commit, line.image, accepted)
    return ", ".join(filter(None, parts))


def _also(review: Review, cause: Cause, item: Item) -> Iterator[Line]:
    """The other groups that a golden is in, which are decided with this one."""
    others = [review.diff.groups[at].title for at in item.groups if review.diff.groups[at] != cause.group]
    if others:
        yield ("also     ", "dim"), (few(others, 2, "; "), "")
