"""Matches: the numbers that regular expressions find in the lines of a log.

A log may be of any size and hold any bytes; it is read line by line, lines are searched up to a bound, and an expression
that tries the same text over and over is called off.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO, Self

import msgspec

from karat.changes.sheets import Which
from karat.changes.signature_words import plain
from karat.findings import UsageError
from karat.goldens.series_block import text_number
from karat.runs.watch import PERIOD, StuckError, Watch

LONGEST = 8192
"""Characters of a line that are searched."""
_LITERAL = re.compile(r"[\w :;,<>=%#@!\"'/~&-]+")
_REPEATS = frozenset("*?{+")


class LogMetric(msgspec.Struct, frozen=True, kw_only=True):
    """A metric that is read off lines."""

    name: str
    expression: re.Pattern[str]
    literal: bytes
    """What must stand in a line that matches; empty if that cannot be said."""


def log_metric(text: str) -> LogMetric:
    """The metric of a regular expression; its name is that of its group, else what stands before it."""
    try:
        expression = re.compile(text)
    except re.error as error:
        raise UsageError(
            f"expected --metric to be a regular expression for logs, found {text!r}: {error}",
            next_command="karat changes --help",
        ) from error
    if not expression.groups:
        raise UsageError(
            f"expected --metric to have a group around the number, as 'MLUPS: ([0-9.]+)', found {text!r}",
            next_command="karat changes --help",
        )
    literal = literal_of(text)
    name = next(iter(expression.groupindex), "") or literal.strip(" :;,<>=#@!\"'/~&-") or text
    return LogMetric(name=name, expression=expression, literal=literal.encode())


def literal_of(text: str) -> str:
    """The plain letters at the beginning of an expression, which every match has; empty for those with choices."""
    match = _LITERAL.match(text)
    if match is None or "|" in text or "(?" in text.replace("(?P<", "").replace("(?:", ""):
        return ""
    found = match.group()
    return found[:-1] if text[match.end() : match.end() + 1] in _REPEATS else found


def is_expression(text: str) -> bool:
    """Whether a metric looks like an expression for logs, and not like the name of a column."""
    try:
        return re.compile(text).groups > 0
    except re.error:
        return False


class Matches:
    """Searches logs; keep it open over many of them."""

    def __init__(self, metrics: Sequence[LogMetric]) -> None:
        self.metrics = metrics
        self.odd: list[str] = []
        """Of the last log: texts that were matched and are no numbers."""
        self._watch = Watch()
        self._searches = 0

    def __enter__(self) -> Self:
        self._watch.__enter__()
        return self

    def __exit__(self, *about: object) -> None:
        self._watch.__exit__(None, None, None)

    def in_stream(self, stream: BinaryIO) -> dict[str, list[float]]:
        """Metric → every number, in order."""
        return self.in_lines(_lines(stream))

    def in_lines(self, lines: Iterable[bytes]) -> dict[str, list[float]]:
        """The same for lines that are at hand."""
        found: dict[str, list[float]] = {metric.name: [] for metric in self.metrics}
        self.odd = []
        for raw in lines:
            for metric in self.metrics:
                if metric.literal in raw:
                    value = self._search(metric, raw)
                    if value is not None:
                        found[metric.name].append(value)
        return found

    def after_last(self, tail: bytes) -> bytes:
        """What follows the last line of a tail that has a value."""
        lines = tail.splitlines(keepends=True)
        for at in range(len(lines) - 1, -1, -1):
            if any(
                m.literal in lines[at] and self._search(m, lines[at]) is not None
                for m in self.metrics
            ):
                return b"".join(lines[at + 1 :])
        return tail

    def _search(self, metric: LogMetric, raw: bytes) -> float | None:
        self._searches += 1
        self._watch.search = self._searches
        try:
            text = raw.decode("utf-8", "replace")[:LONGEST]
            match = metric.expression.search(text) or (
                metric.expression.search(plain(text)) if "\x1b" in text else None
            )
        except StuckError as error:
            raise UsageError(
                f"expected the expression {metric.expression.pattern!r} to be done with a line in {PERIOD:g} s of"
                " processor time, found that it is not: it tries the same text over and over, as (a+)+ and (.*)* do",
                next_command="karat changes --help",
            ) from error
        finally:
            self._watch.search = 0
        if match is None:
            return None
        said = match.group(next(iter(metric.expression.groupindex), 1)) or ""
        value = text_number(said.strip().rstrip(".,;").replace(",", ""))
        if value is None:
            self.odd.append(said[:40])
        return value


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    """Lines, cut to a bound; progress bars, which only return the carriage, count as lines."""
    while raw := stream.readline(4 * LONGEST):
        if len(raw) == 4 * LONGEST and not raw.endswith(b"\n"):
            while (rest := stream.readline(1 << 20)) and not rest.endswith(b"\n"):
                pass
        if b"\r" in raw:
            yield from raw.rstrip(b"\r\n").split(b"\r")
        else:
            yield raw


def choose(values: Sequence[float], which: Which) -> tuple[float, ...]:
    """The samples of a log that has several matches."""
    if not values or which == "all":
        return tuple(values)
    if which in {"first", "last"}:
        return (values[0 if which == "first" else -1],)
    ways = {"mean": statistics.fmean, "median": statistics.median, "min": min, "max": max}
    return (float(ways[which](values)),)  # type: ignore[operator]
