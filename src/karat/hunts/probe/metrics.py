"""Metrics: checked before a hunt, and read off each run.

In: a `RunOutput` (what one measured command left). Out: a finite number, or `NoValue`. A number that is not finite is never
one. Patterns of hunt.toml are put to lines that are bounded and have no colours; a search that does not come to an end, as
`(a+)+b` would not, is called off. JUnit reports come from what is under test: entities and document types, which can blow up
a parser, are refused.
"""

from __future__ import annotations

import fnmatch
import json
import re
import signal
import statistics
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from math import inf, isfinite
from typing import Any, Literal
from xml.etree import ElementTree as ET

import msgspec

from karat.changepoints.signatures import without_ansi
from karat.engines.job import Ran
from karat.findings import UsageError
from karat.hunts.model import CRASH
from karat.hunts.settings import SOURCES, TIME_UNITS, MetricSettings, ProbeSettings, mistake
from karat.system.time_limit import SearchTimer, StuckError

_RESERVED = (CRASH, "outcome", "signature")
_STEP = re.compile(r"""\.?([^.\[\]"']+)|\[\s*(?:(-?\d+)|"((?:[^"\\]|\\.)*)"|'([^']*)')\s*\]""")
_NUMBER = re.compile(r"([+-]?)(?:(\d{1,3}(?:,\d{3})+|\d+(?:_\d+)*)(\.\d*)?|(\.\d+))([eE][+-]?\d+)?\s*(\S{0,20})")
_WORD = re.compile(r"([+-]?)(nan|inf|infinity)", re.IGNORECASE)
COUNTS = "karat-instructions"  # Files with counts of instructions begin so; of several processes there are several.
# As `perf stat -x ,` and cachegrind write it.
_COUNT = re.compile(rb"^(\d+),[^,]*,instructions|I +refs: +([\d,]+)", re.MULTILINE)
# Every number is one with a fraction here; whole ones of thousands of digits would be refused otherwise.
_DECODER = json.JSONDecoder(parse_int=float)
_BEGINS = re.compile(r"^[ \t]*\{(?=\s*[\"}])", re.MULTILINE)

JsonPath = tuple[str | int, ...]


class RunOutput(msgspec.Struct, frozen=True, kw_only=True):
    """What one measured command left."""

    ran: Ran
    files: Mapping[str, bytes]  # By their names in the run's own folder, or in the command's.


class NoValue(Exception):  # noqa: N818 - a state of knowledge
    """There is no value; the text is the signature: `no value for MLUPS`, `MLUPS is nan`."""


class Unverified(Exception):  # noqa: N818 - a state of knowledge
    """A golden or a result cannot be used, or a search was called off; the text says why."""


def check_metrics(probe: ProbeSettings) -> None:
    if not probe.metrics and probe.crash is None:
        raise mistake("probe: expected [[probe.metrics]] or [probe.crash] to say what to measure, found neither")
    seen: set[str] = set()
    for number, metric in enumerate(probe.metrics, 1):
        name, where = metric.name, f"probe.metrics number {number}"
        if not name.strip() or not name.isprintable():
            raise mistake(f"{where}: expected a name, found {name!r}")
        if name in _RESERVED:
            raise mistake(f"{where}: expected a name of its own, found {name!r}, which karat uses itself")
        if name in seen:
            raise mistake(f"{where}: expected each name once, found {name!r} twice")
        seen.add(name)
        _check_metric(metric, f"{where} ({name})")
    crash = probe.crash
    if crash is None:
        return
    if crash.pattern:
        _check_pattern(crash.pattern, "probe.crash.pattern", group=False)
    if crash.kind == "exception" and not crash.pattern:
        raise mistake('probe.crash: expected pattern beside kind = "exception", found none')
    if crash.signal and crash.kind != "signal":
        raise mistake(f'probe.crash: expected kind = "signal" beside signal, found kind = "{crash.kind}"')
    if crash.signal and crash.signal not in signal.Signals.__members__:
        raise mistake(f"probe.crash.signal: expected a signal such as 'SIGSEGV', found {crash.signal!r}")


def _check_metric(metric: MetricSettings, where: str) -> None:
    sources = metric.sources
    if len(sources) != 1:
        found = " and ".join(sources) or "none of them"
        raise mistake(f"{where}: expected exactly one of {', '.join(SOURCES)}, found {found}")
    if metric.regex is not None:
        _check_pattern(metric.regex, f"{where}: regex", group=True)
    if metric.json is not None:
        try:
            parse_json_path(metric.json)
        except UsageError as error:
            raise mistake(f"{where}: json: {error}") from error
    if sources[0] in {"golden", "junit"} and not metric.file:
        raise mistake(f"{where}: expected file (what the run leaves) beside {sources[0]}, found none")
    if metric.threshold is None:
        return
    if metric.better == "equal":
        raise mistake(f'{where}: expected no threshold beside better = "equal", which has no worse side')
    if metric.direction is None:
        raise mistake(f'{where}: expected better = "higher" or "lower" beside threshold, found nothing')
    if not isfinite(metric.threshold):
        raise mistake(f"{where}: threshold must be a finite number, found {metric.threshold}")


def _check_pattern(pattern: str, where: str, *, group: bool) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what may come to mean something else
            compiled = re.compile(pattern)
    except re.error as error:
        raise mistake(f"{where}: expected a regular expression, found {pattern!r}: {error}") from error
    if group and not compiled.groups:
        raise mistake(f"{where}: expected a group (…) around the number, found none in {pattern!r}")


def value_of(metric: MetricSettings, run: RunOutput) -> float:
    """The metric's value of one run, for every source but a golden."""
    kind = metric.sources[0]
    if kind == "exit_code":
        return 0.0 if run.ran.exit_code == 0 else 1.0
    readers = {"regex": _by_regex, "json": _by_json, "junit": _by_junit}
    data = file_of(metric, run) if metric.file else run.ran.output
    if kind == "seconds":
        found: float | None = run.ran.seconds
    elif kind == "instructions":
        numbers = [a or b for text in counts(run) for a, b in _COUNT.findall(text)]
        if not numbers:
            said = b"".join(counts(run)).decode(errors="replace").split("\n")[-2:]
            raise Unverified(f"{metric.instructions} counted no instructions on this machine: {' '.join(said).strip()}")
        found = sum(float(number.replace(b",", b"")) for number in numbers)
    else:
        found = None if data is None else readers[kind](metric, data)
    if found is None:
        raise NoValue(f"no value for {metric.name}")
    if not isfinite(found):
        raise NoValue(f"{metric.name} is {found:g}")
    return found


def counts(run: RunOutput) -> list[bytes]:
    """What the tool that counts instructions wrote, a file per process."""
    return [data for name, data in run.files.items() if name.startswith(COUNTS)]


def file_of(metric: MetricSettings, run: RunOutput) -> bytes | None:
    """The file that a metric is read from; of several that a glob matches, the last by name."""
    matching = sorted(name for name in run.files if fnmatch.fnmatchcase(name, metric.file))
    return run.files[matching[-1]] if matching else None


def _by_regex(metric: MetricSettings, data: bytes) -> float | None:
    texts = [found[1] for found in matches(metric.regex or "", output_lines(data)) if found[1]]
    if metric.which in {"first", "last"}:
        texts = texts[:1] if metric.which == "first" else texts[-1:]
    values = [_number(text, metric) for text in texts]
    # statistics.median sorts, and NaN has no place in an order.
    odd = next((value for value in values if not isfinite(value)), None)
    if odd is not None or len(values) < 2:
        return odd if odd is not None else next(iter(values), None)
    combine: Mapping[str, Callable[[Sequence[float]], float]]
    combine = {"mean": statistics.fmean, "median": statistics.median, "min": min, "max": max}
    try:
        return combine[metric.which](values)
    except OverflowError:
        return inf


def _by_json(metric: MetricSettings, data: bytes) -> float:
    text = data.decode("utf-8-sig", errors="replace")
    document: Any = None
    if metric.file:
        with suppress(ValueError, RecursionError):
            document = _DECODER.decode(text)
    # The last object that begins at the start of a line, as of JSON Lines.
    place = 0 if document is None else len(text)
    while (begin := _BEGINS.search(text, place)) is not None:
        whole, place = _object_at(text, begin.end() - 1)
        document = document if whole is None else whole
    if document is None:
        raise NoValue(f"no value for {metric.name}: no JSON object in {metric.file or 'the output'}")
    try:
        found = find_json(document, parse_json_path(metric.json or ""))
    except LookupError as error:
        raise NoValue(f"no value for {metric.name}: {error}") from error
    if isinstance(found, int | float):
        return float(found)
    if isinstance(found, str):
        return _number(found, metric)
    raise NoValue(f"{metric.name} is not a number: {describe_json(found)}")


def _by_junit(metric: MetricSettings, data: bytes) -> float | None:
    """The number asked for, of the test cases that match; None where none was run, or none has a time."""
    try:
        cases = [*junit_cases(data)]
    except ValueError as error:
        raise NoValue(f"no value for {metric.name}: {error}") from error
    run = [case for case in cases if case.result != "skipped" and case.matches(metric.junit or "")]
    if metric.value == "seconds":
        times = [case.seconds for case in run if case.seconds is not None]
        return sum(times) if times else None
    return float(sum(case.result == metric.value for case in run)) if run else None


def _number(text: str, metric: MetricSettings) -> float:
    found = parse_number(text, metric.unit)
    if found is None:
        raise NoValue(f"{metric.name} is not a number: {text.strip()[:60]!r}")
    return found


def parse_number(text: str, unit: str = "") -> float | None:
    """The number in `587.92`, `1,234.5`, `1e5` or `12 ms`, in `unit`.

    None if it is none, or is in another unit that cannot be converted.
    """
    # Typesetters' minus is a minus.
    stripped = text.strip().replace("\N{MINUS SIGN}", "-")
    if _WORD.fullmatch(stripped):
        return float(stripped)
    match = _NUMBER.fullmatch(stripped)
    if match is None:
        return None
    sign, whole, rest, fraction, power, found = (part or "" for part in match.groups())
    if not found or found == unit:
        scale = 1.0
    elif found in TIME_UNITS and unit in TIME_UNITS:
        scale = TIME_UNITS[found] / TIME_UNITS[unit]
    else:
        return None
    digits = whole.replace(",", "").replace("_", "")
    return scale * float(f"{sign}{digits}{rest}{fraction}{power}")


def output_lines(output: bytes) -> Iterator[str]:
    """The lines of an output without colours, also those that a progress bar overwrote."""
    for line in output.decode("utf-8", errors="replace").replace("\r", "\n").split("\n"):
        yield without_ansi(line)


def matches(pattern: str, texts: Iterable[str]) -> Generator[re.Match[str], None, None]:
    """Every match in every text, in order. Exhaust or close it: while it is open, searches are watched."""
    wanted = re.compile(pattern)
    with SearchTimer() as watch:
        try:
            for number, text in enumerate(texts, 1):
                watch.search = number
                yield from wanted.finditer(text)
        except StuckError as error:
            said = f"the pattern {pattern!r} does not finish on a line of {len(text)} characters"
            raise Unverified(f"{said}: it tries the same text over and over, as (a+)+ and (.*)* do") from error


def parse_json_path(text: str) -> JsonPath:
    """The steps of `results[0].loss`, `["lm loss"].last` or `runs[-1]["x y"]`; there are no wildcards."""
    steps: list[str | int] = []
    place = 0
    text = text.removeprefix("$")
    while step := _STEP.match(text, place):
        name, index, double, single = step.groups()
        if name is not None and steps and text[place] != ".":
            break
        if name is not None:
            steps.append(name.strip())
        elif index is not None:
            steps.append(int(index))
        else:
            steps.append(single if double is None else re.sub(r"\\(.)", r"\1", double))
        place = step.end()
    if not steps or place < len(text):
        raise mistake(f"expected a path such as 'results[0].loss' or '[\"lm loss\"].last', found {text!r}")
    return tuple(steps)


def find_json(document: Any, path: JsonPath) -> Any:
    """What is there; LookupError with the step that leads nowhere."""
    here = document
    for step in path:
        if isinstance(step, str):
            leads = isinstance(here, dict) and step in here
        else:
            leads = isinstance(here, list) and -len(here) <= step < len(here)
        if not leads:
            raise LookupError(f"no {step!r} in {describe_json(here)}")
        here = here[step]
    return here


def describe_json(value: Any) -> str:
    if isinstance(value, dict):
        return "an object with " + (", ".join(map(repr, list(value)[:5])) or "no keys")
    if isinstance(value, list):
        return f"a list of {len(value)}"
    return "null" if value is None else "a text" if isinstance(value, str) else "a number"


def _object_at(text: str, start: int) -> tuple[Any, int]:
    """The object that begins there, or None, and where to look on.

    An error of the decoder counts every line before it, so it is given no more than it needs.
    """
    room = 1 << 12
    while True:
        piece = text[start : start + room]
        try:
            found, end = _DECODER.raw_decode(piece)
        except json.JSONDecodeError as error:
            # The last characters of a piece may be half a word: `-Infini`.
            cut = error.pos + 16 > len(piece) or error.msg.startswith("Unterminated")
            if not cut or len(piece) < room:
                return None, start + 1
            room *= 4
        except RecursionError:
            return None, start + room
        else:
            return found, start + end


class JunitCase(msgspec.Struct, frozen=True, kw_only=True):
    """One test case of a report."""

    name: str
    classname: str
    seconds: float | None  # None where the report does not say.
    result: Literal["passed", "failed", "skipped"]

    def matches(self, glob: str) -> bool:
        """Whether its name is meant: alone, or behind its class as pytest or JUnit writes it."""
        names = (self.name, f"{self.classname}::{self.name}", f"{self.classname}.{self.name}")
        # Parameters stand in brackets, which a glob takes for something else: `test_a[1-2]`.
        return any(name == glob or fnmatch.fnmatchcase(name, glob) for name in names)


class _Plain(ET.TreeBuilder):
    """Elements of a document without a type, which no JUnit report needs: with one it may define what blows up a parser."""

    def doctype(self, *_: object) -> None:
        raise ValueError("the report has a document type, which no JUnit report needs")


def junit_cases(data: bytes) -> Iterator[JunitCase]:
    """Every test case of a report; ValueError where it is none. Tags may have the prefix of a namespace."""
    try:
        root = ET.fromstring(data, ET.XMLParser(target=_Plain()))  # noqa: S314 - see _Plain
    except (ET.ParseError, LookupError) as error:  # an encoding that nobody knows
        raise ValueError(f"the report is not XML: {error}") from error
    for case in root.iter():
        if case.tag.rpartition("}")[2] == "testcase":
            said = {each.tag.rpartition("}")[2] for each in case.iter()}
            seconds = parse_number(case.get("time", ""))
            yield JunitCase(
                name=case.get("name", ""),
                classname=case.get("classname", ""),
                seconds=seconds if seconds is not None and isfinite(seconds) and seconds >= 0 else None,
                result="failed" if said & {"failure", "error"} else "skipped" if "skipped" in said else "passed",
            )
