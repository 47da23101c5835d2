"""Formats: how goldens stand on disk, picked by content and never by file name.

The built-in formats register as entry points of the group `karat.formats`, exactly as a third
party's would. Third parties are asked after the built-in formats, but before the catch-all.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from functools import cache
from typing import Protocol, runtime_checkable

from msgspec.structs import replace

from karat.findings import Finding, UsageError, fail, warn
from karat.goldens.series_fast import read_fast
from karat.goldens.shapes import Golden, Reading, Shape
from karat.system.foreign import limits

GROUP = "karat.formats"
BUILT_IN = (
    ("series-json", "karat.goldens.series_json:FORMAT"),
    ("series-lines", "karat.goldens.series_lines:FORMAT"),
    ("series-text", "karat.goldens.series_text:FORMAT"),
    ("table-csv", "karat.goldens.table_csv:FORMAT"),
    ("document-json", "karat.goldens.document_json:FORMAT"),
)
_DEFAULTS = {"series": "series-json", "table": "table-csv", "document": "document-json"}


@runtime_checkable
class Format(Protocol):
    """One way to keep a golden in a file."""

    name: str
    shape: Shape

    def claims(self, data: bytes) -> bool:
        """True if the content looks like this format's."""

    def read(self, data: bytes) -> Reading:
        """The golden in the bytes and what there is to say about it; never raises."""

    def write(self, golden: Golden, like: bytes | None = None) -> bytes:
        """The bytes of a golden, in the style of the file as it stands.

        What the format cannot hold is refused with a UsageError, never dropped.
        """


def read(data: bytes, path: str = "") -> Reading:
    """The golden in the bytes, whatever its format; never raises on any bytes."""
    if (refused := refusal(data, path)) is not None:
        return Reading(None, (refused,))
    series = read_fast(data)
    if series is not None:
        return Reading(series, (), "series-json")
    reading = _read(data)
    if not path or not reading.findings:
        return reading
    return replace(reading, findings=tuple(replace(finding, path=path) for finding in reading.findings))


def refusal(data: bytes, path: str = "") -> Finding | None:
    """Why bytes are more than a golden may have, if they are."""
    if len(data) > limits.GOLDEN.value():
        return too_long(len(data), path)
    most = limits.VALUES
    # No file has more lines than bytes, and counting them takes as long as a tenth of a reading.
    if len(data) <= most.value() or (found := max(data.count(b"\n"), data.count(b","))) <= most.value():
        return None
    said = f"expected a golden of at most {most.value():,} lines and values, found {found:,}; {most.setting}"
    return fail("unreadable", said, path=path)


def too_long(size: int, path: str = "") -> Finding:
    """What is said of a golden of so many bytes, read or not."""
    most = limits.GOLDEN
    said = f"expected a golden of at most {most.value():,} bytes, found {size:,}; {most.setting}"
    return fail("unreadable", said, path=path)


def write(golden: Golden, *, like: bytes | None = None, format: str | None = None) -> bytes:  # noqa: A002 - the word users know
    """The bytes of a golden; `like` is the file as it stands, whose style is kept.

    A golden that the format cannot hold is a UsageError.
    """
    if format is not None:
        return named(format).write(golden, like)
    if like is not None:
        reading = read(like)
        if reading.golden is not None and reading.format and reading.golden.shape == golden.shape:
            return named(reading.format).write(golden, like)
    return named(_DEFAULTS[golden.shape]).write(golden)


def formats() -> tuple[Format, ...]:
    """Every format, in the order in which they are asked; the catch-all comes last."""
    *first, last = _built_in()
    return (*first, *_third_party()[0], last)


def named(name: str) -> Format:
    found = next((known for known in _built_in() if known.name == name), None)
    if found is None:  # other packages' formats are slow to find
        found = next((known for known in _third_party()[0] if known.name == name), None)
    if found is None:
        names = ", ".join(known.name for known in formats())
        raise UsageError(f'expected one of the formats {names}, found "{name}"')
    return found


@cache
def _built_in() -> tuple[Format, ...]:
    return tuple(pkgutil.resolve_name(target) for _, target in BUILT_IN)


@cache
def _third_party() -> tuple[tuple[Format, ...], tuple[Finding, ...]]:
    """Other packages' formats in the order of their names, and a warning for each broken one."""
    from importlib.metadata import entry_points

    found: list[Format] = []
    broken: list[Finding] = []
    ours = {target for _, target in BUILT_IN}
    names = {name for name, _ in BUILT_IN}
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        if point.value in ours:
            continue
        problem = None
        try:
            loaded = point.load()
            if not isinstance(loaded, Format):
                problem = f"{point.value} lacks a part of karat.goldens.formats.Format"
            elif loaded.name in names:
                problem = f"the name {loaded.name} is taken"
        except Exception as error:  # noqa: BLE001 - a plug-in may fail in any way, and must not stop a report
            problem = f"loading it raised {type(error).__name__}: {error}"
        if problem:
            broken.append(_broken(point.name, problem))
        else:
            found.append(loaded)
            names.add(loaded.name)
    return tuple(found), tuple(broken)


def _read(data: bytes) -> Reading:
    from karat.goldens import text_file

    hazard = text_file.check(data)
    if hazard is not None and hazard.kind != "unreadable":
        return Reading(None, (hazard,))
    notes: list[Finding] = []
    for candidate in _candidates(text=hazard is None, notes=notes):
        try:
            if candidate.claims(data):
                reading = candidate.read(data)
                return Reading(reading.golden, (*notes, *reading.findings), reading.format or candidate.name)
        except Exception as error:  # noqa: BLE001 - one odd file must not lose the whole report
            notes.append(_broken(candidate.name, f"reading raised {type(error).__name__}: {error}"))
    message = "expected JSON, JSON Lines, lines of step and value, or CSV, found none of them"
    return Reading(None, (*notes, hazard or fail("unreadable", message, where="line 1")))


def _candidates(*, text: bool, notes: list[Finding]) -> Iterator[Format]:
    """The formats to ask; only a third party's can know bytes that are not text."""
    *first, last = _built_in()
    if text:
        yield from first
    known, broken = _third_party()
    notes.extend(broken)
    yield from known
    if text:
        yield last


def _broken(name: str, reason: str) -> Finding:
    return warn("unreadable", f'expected the format "{name}" to work, found that {reason}; it was passed over')
