"""Logs of a run: metrics that named regular expressions find in the lines of a text.

The step is the one on the same line, else the last one seen. A log may be of any size, and is read
line by line; a line is searched up to a bound, because an expression's time may grow with the
square of its length, and a search that does not end all the same is called off.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from karat.findings import Severity, fail, info, warn
from karat.goldens.series_json import text_number
from karat.goldens.shapes import Metric, Reading, Series
from karat.goldens.text_file import LONGEST_LINE, LimitedFindings, log_lines
from karat.runs.curves import ends_behind
from karat.runs.settings import STEP
from karat.system.time_limit import PERIOD, SearchTimer, StuckError

FORMAT = "log"
_INT64 = 2**63


def read_log(path: Path, patterns: Mapping[str, str]) -> tuple[Reading, bool]:
    """What the patterns find, no golden if nothing; and whether one had to be called off, so that nobody knows.

    An OSError is the caller's.
    """
    with path.open("rb") as stream, SearchTimer() as watch:
        found = _LogReader(patterns, watch)
        try:
            for line, raw, cut in log_lines(stream):
                text = raw.decode("utf-8", "replace").rstrip("\r\n")
                if cut or len(text) > LONGEST_LINE:
                    found.too_long.add(line)
                found.search(text[:LONGEST_LINE], line)
        except StuckError:
            name, line = found.pattern, found.line
            stuck = fail(
                "unreadable",
                f'expected the pattern of "{name}" to be done with line {line} in {PERIOD:g} s of processor time,'
                " found that it is not: it tries the same text over and over, as (a+)+ and (.*)* do",
                metric=name,
                where=f"line {line}",
                numbers={"line": line},
                next=f"edit karat.toml  # the pattern of {name} in [record] log",
            )
            return Reading(None, (stuck,), FORMAT), True
    return found.reading(), False


class _LogReader:
    """Gathers what the patterns find."""

    def __init__(self, patterns: Mapping[str, str], watch: SearchTimer) -> None:
        self.step_pattern = re.compile(patterns[STEP])
        self.patterns = [(name, re.compile(p)) for name, p in patterns.items() if name != STEP]
        self.values: dict[str, dict[int, float]] = {name: {} for name, _ in self.patterns}
        self.odd = LimitedFindings()
        self.step: int | None = None
        self.furthest: int | None = None
        self.too_long: set[int] = set()
        self.again = 0
        self.watch = watch
        self.searches = 0
        self.line = 0
        self.pattern = STEP
        """Where it is, for the one who has to say which pattern was called off."""

    def search(self, text: str, line: int) -> None:
        self.searches += 1
        self.line, self.pattern, self.watch.search = line, STEP, self.searches
        match = self.step_pattern.search(text)
        if match:
            self.step = self.step_of(match.group(1) or "", line)
        for name, pattern in self.patterns:
            self.pattern = name
            match = pattern.search(text)
            if match:
                self.take(name, match.group(1) or "", line)
        self.watch.search = 0

    def step_of(self, text: str, line: int) -> int | None:
        try:
            step = int(text.replace(",", ""))
        except ValueError:
            step = _INT64
        if -_INT64 <= step < _INT64:
            return step
        self.unusable("a step", text, STEP, line)
        return None

    def unusable(self, expected: str, text: str, name: str, line: int) -> None:
        message = f'expected {expected} where the pattern of "{name}" matches on line {line}, found "{text[:40]}"'
        self.odd.on_line("unreadable", line, message, metric=name)

    def take(self, name: str, text: str, line: int) -> None:
        if self.step is None:
            message = f'expected a step on line {line} or before it, found "{name}" without one; it was left out'
            self.odd.on_line("unreadable", line, message, metric=name, severity=Severity.WARN)
            return
        value = text_number(text.strip())
        if value is None:
            self.unusable("a number", text, name, line)
            value = float("nan")
        self.again += self.step in self.values[name]
        self.values[name][self.step] = value
        if self.furthest is None or self.step > self.furthest:
            self.furthest = self.step

    def reading(self) -> Reading:
        metrics = {name: Metric.of(held) for name, held in self.values.items() if held}
        for name in self.values if metrics else ():
            if name not in metrics:
                message = (
                    f'expected the pattern of "{name}" to match somewhere in the log, found no line that it matches'
                )
                self.odd.add(warn("lost-metric", message, metric=name, next="karat config --show-origin"))
        if self.too_long:
            long = len(self.too_long)
            are = "1 line is" if long == 1 else f"{long} lines are"
            message = f"{are} longer than {LONGEST_LINE:,} characters; only the beginning was searched"
            self.odd.add(info("unreadable", message, numbers={"lines": long}))
        if self.again:
            are = "1 value is" if self.again == 1 else f"{self.again} values are"
            message = f"{are} of steps that the log had before, as after a restart; the later ones were read"
            again = info("superseded", message, numbers={"replaced": self.again})
            self.odd.add(ends_behind(self.step, self.furthest) or again)
        return Reading(Series(metrics) if metrics else None, self.odd.findings(), FORMAT)
