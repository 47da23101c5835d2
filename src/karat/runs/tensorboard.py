"""TensorBoard event files → curves by tag.

Read by hand, frames and messages both. The tensorboard package needs grpc, protobuf and werkzeug,
takes half a second to import and twenty times as long to read, and stops without a word at the first
record that is cut or corrupt; but a cut event file *is* the evidence of a crash, and this is where it
must be noticed.

An event is {wall_time = 1, step = 2, file_version = 3, summary = 5}, a summary a list of values
{tag = 1, simple_value = 2, tensor = 8, metadata = 9}. Old writers put a scalar in `simple_value`, new
ones in a tensor without dimensions. Images, histograms, texts and graphs are passed over.
"""

from __future__ import annotations

import math
import re
import struct
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

import msgspec
import numpy as np
from msgspec.structs import replace

from karat.findings import Finding, fail, info, warn
from karat.goldens.shapes import Metric, Steps, Values
from karat.goldens.text_file import LimitedFindings
from karat.report.words import count
from karat.runs.tfrecord import records

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_WIDTH = {FIXED64: 8, FIXED32: 4}

Field: TypeAlias = tuple[int, int, "int | bytes"]
"""Number, wire type, and the value: an int for a varint, bytes for all others."""


class MalformedError(ValueError):
    """Bytes that are no protobuf message."""


def fields(data: bytes) -> Iterator[Field]:
    """The fields in the order they stand."""
    at, size = 0, len(data)
    while at < size:
        key, at = varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == VARINT:
            value, at = varint(data, at)
            yield number, kind, value
            continue
        if kind == BYTES:
            length, at = varint(data, at)
        elif kind in _WIDTH:
            length = _WIDTH[kind]
        else:
            raise MalformedError(f"wire type {kind}")
        if at + length > size:
            raise MalformedError("a field longer than its message")
        yield number, kind, data[at : at + length]
        at += length


def varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at a place, and the place behind it."""
    value = shift = 0
    for behind in range(at, min(at + 10, len(data))):
        byte = data[behind]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, behind + 1
        shift += 7
    raise MalformedError("a number without an end")


def varints(data: bytes) -> Iterator[int]:
    """Numbers one behind the other, as a packed field has them."""
    at = 0
    while at < len(data):
        value, at = varint(data, at)
        yield value


def signed(value: int) -> int:
    """The 64-bit number with a sign that a varint stands for."""
    return value - (1 << 64) if value >> 63 else value


_HALF, _BFLOAT = 19, 14

# Kind of element → how it stands in `tensor_content`, the bytes of a numpy array.
# fmt: off
_CONTENT: Mapping[int, str] = {
    1: "<f", 2: "<d", 3: "<i", 4: "<B", 5: "<h", 6: "<b", 9: "<q", 10: "<?", 17: "<H", _HALF: "<e", 22: "<I",
    23: "<Q", _BFLOAT: "<H",
}
# Kind of element → the number of the field that lists its elements.
_LISTED: Mapping[int, int] = {
    1: 5, 2: 6, 3: 7, 4: 7, 5: 7, 6: 7, 9: 10, 10: 11, _BFLOAT: 13, 17: 7, _HALF: 13, 22: 16, 23: 17,
}
# fmt: on


def scalar(data: bytes) -> float | None:
    """The number of a tensor that has one element; None for any other."""
    kind, count, content = 0, 1, b""
    listed: dict[int, list[Field]] = {}
    for field in fields(data):
        number, wire, value = field
        if number == 1 and isinstance(value, int):
            kind = value
        elif number == 2 and isinstance(value, bytes):
            count = _elements(value)
        elif number == 4 and isinstance(value, bytes):
            content = value
        elif wire in {VARINT, FIXED32, FIXED64, BYTES}:
            listed.setdefault(number, []).append(field)
    if count != 1 or kind not in _CONTENT:
        return None
    if content:
        form = _CONTENT[kind]
        if struct.calcsize(form) != len(content):
            return None
        (element,) = struct.unpack(form, content)
        return _bfloat(element) if kind == _BFLOAT else float(element)
    found = [item for field in listed.get(_LISTED[kind], ()) for item in _numbers(kind, field)]
    return found[0] if len(found) == 1 else None


def _elements(shape: bytes) -> int:
    count = 1
    for number, _, value in fields(shape):
        if number == 2 and isinstance(value, bytes):
            sizes = [size for n, _, size in fields(value) if n == 1 and isinstance(size, int)]
            count *= signed(sizes[-1]) if sizes else 0
    return count


def _numbers(kind: int, field: Field) -> list[float]:
    """The elements of a field, packed or not."""
    _, wire, value = field
    if isinstance(value, int):
        return [_from_varint(kind)(value)]
    if kind in {1, 2}:
        form = _CONTENT[kind]
        width = struct.calcsize(form)
        # A single element may stand unpacked; then the field is exactly its bytes.
        whole = wire == BYTES or len(value) == width
        return [n for (n,) in struct.iter_unpack(form, value)] if whole and not len(value) % width else []
    return [_from_varint(kind)(item) for item in varints(value)] if wire == BYTES else []


def _from_varint(kind: int) -> Callable[[int], float]:
    if kind == _BFLOAT:
        return lambda value: _bfloat(value & 0xFFFF)
    if kind == _HALF:
        return lambda value: float(struct.unpack("<e", struct.pack("<H", value & 0xFFFF))[0])
    return float if kind in {22, 23} else lambda value: float(signed(value))


def _bfloat(bits: int) -> float:
    """A bfloat16 is the upper half of a float."""
    return float(struct.unpack("<f", struct.pack("<I", bits << 16))[0])


# Nine events in ten look like this; matching them is several times quicker than taking them apart.
_USUAL = re.compile(rb"\x09(.{8})(?:\x10([\x80-\xff]{0,9}[\x00-\x7f]))?\x2a(.)\x0a(.)\x0a(.)(.*)\x15(.{4})", re.DOTALL)
_DOUBLE = struct.Struct("<d")
_FLOAT = struct.Struct("<f")
_SCALARS = ("", "scalars")  # Plug-ins whose tensors of one element are scalars; others mean something else by them.


class Curve:
    """The samples of one tag, in the order they were written."""

    __slots__ = ("plugin", "steps", "values")

    def __init__(self) -> None:
        self.steps = array("q")
        self.values = array("d")
        self.plugin = ""


class Scalars:
    """Gathers the scalars of one file's events."""

    def __init__(self) -> None:
        self.curves: dict[bytes, Curve] = {}
        self.first = math.inf
        self.last = -math.inf  # Wall times of the earliest and the latest event.
        self.events = 0
        self.malformed: list[int] = []  # Numbers of the events that are none, counted from 1.

    def add(self, batch: list[bytes]) -> None:
        """Takes the events of a batch of records."""
        walls: list[bytes] = []
        known: dict[bytes | None, int] = {None: 0}
        usual = _USUAL.fullmatch
        for number, data in enumerate(batch, self.events + 1):
            match = usual(data)
            if match is None or not self._usual(match, walls, known):
                try:
                    self._event(data)
                except MalformedError:
                    self.malformed.append(number)
        self.events += len(batch)
        times = np.frombuffer(b"".join(walls), "<f8")
        times = times[np.isfinite(times)]
        if len(times):
            self._at(float(times.min()))
            self._at(float(times.max()))

    def _usual(self, match: re.Match[bytes], walls: list[bytes], known: dict[bytes | None, int]) -> bool:
        """Takes an event of the usual form; False if its lengths say that it is another."""
        wall, step, summary, value, length, tag, number = match.groups()
        size = len(tag)
        # One byte of length is enough for all three only if they agree with each other.
        if size > 100 or length[0] != size or value[0] != size + 7 or summary[0] != size + 9:
            return False
        walls.append(wall)
        at = known.get(step)
        if at is None:  # the tags of one step follow each other
            at = known[step] = signed(varint(step, 0)[0])
        self._take(tag, at, _FLOAT.unpack(number)[0])
        return True

    def _at(self, wall: float) -> None:
        self.first = min(self.first, wall)
        self.last = max(self.last, wall)

    def _take(self, tag: bytes, step: int, value: float) -> None:
        curve = self.curves.get(tag)
        if curve is None:
            curve = self.curves[tag] = Curve()
        curve.steps.append(step)
        curve.values.append(value)

    def _event(self, data: bytes) -> None:
        step = 0
        summaries: list[bytes] = []
        for number, kind, value in fields(data):
            if number == 1 and kind == FIXED64:
                self._at(_DOUBLE.unpack(value)[0])  # type: ignore[arg-type]  # bytes by its kind
            elif number == 2 and kind == VARINT:
                step = signed(value)  # type: ignore[arg-type]
            elif number == 5 and kind == BYTES:
                summaries.append(value)  # type: ignore[arg-type]
        for number, _, value in [field for summary in summaries for field in fields(summary)]:
            if number == 1 and isinstance(value, bytes):
                self._value(value, step)

    def _value(self, data: bytes, step: int) -> None:
        tag, found, tensor, plugin = b"", None, None, None
        for number, kind, value in fields(data):
            if number == 2 and kind == FIXED32:
                found = _FLOAT.unpack(value)[0]  # type: ignore[arg-type]
            elif not isinstance(value, bytes):
                continue
            elif number == 1:
                tag = value
            elif number == 8:
                tensor = value
            elif number == 9:
                plugin = _plugin(value)
        if plugin is not None:  # only the first event of a tag says it
            self.curves.setdefault(tag, Curve()).plugin = plugin
        curve = self.curves.get(tag)
        if found is None and tensor is not None and (curve is None or curve.plugin in _SCALARS):
            found = scalar(tensor)
        if found is not None:
            self._take(tag, step, found)


def _plugin(metadata: bytes) -> str:
    for number, kind, value in fields(metadata):
        if number == 1 and kind == BYTES:
            for inner, _, name in fields(value):  # type: ignore[arg-type]
                if inner == 1 and isinstance(name, bytes):
                    return name.decode("utf-8", "replace")
    return ""


class EventFile(msgspec.Struct, frozen=True, kw_only=True):
    """What one event file holds."""

    name: str
    first: float
    last: float  # Wall times of its earliest and latest event.
    curves: dict[str, tuple[Steps, Values]]  # Tag → steps and values, sorted by step; the last value of a step.
    again: int = 0  # Values that a later one of the same tag and step replaced.


def read_events(paths: Sequence[Path]) -> tuple[dict[str, Metric], tuple[Finding, ...]]:
    """The curves of one run, by tag, from all of its event files; an OSError is the caller's."""
    odd = LimitedFindings()
    files = [read_file(path, odd) for path in paths]
    files.sort(key=lambda file: (file.first, file.name))
    curves: dict[str, tuple[Steps, Values]] = {}
    replaced = sum(file.again for file in files)
    for file in files:
        for tag, (steps, values) in file.curves.items():
            before = curves.get(tag)
            if before is not None:
                kept = before[0] < steps[0]
                replaced += int(len(kept) - kept.sum())
                steps = np.concatenate([before[0][kept], steps])  # noqa: PLW2901
                values = np.concatenate([before[1][kept], values])  # noqa: PLW2901
            curves[tag] = steps, values
    if replaced:
        several = f" over {len(files)} event files" if len(files) > 1 else ""
        message = (
            f"{count(replaced, 'value')} of steps that were gone through again{several}, as after a restart,"
            " gave way to the later ones"
        )
        odd.add(info("superseded", message, numbers={"replaced": replaced}))
    for before_it, file in pairwise(files):
        # A restart begins when the run before it has ended; two writers at once are something else.
        shared = before_it.curves.keys() & file.curves.keys()
        if shared and file.first < before_it.last:
            tag = min(shared)
            message = (
                f'expected one writer at a time, found "{tag}" in {before_it.name} and {file.name},'
                " which overlap in time; the one that began later was read"
            )
            odd.add(warn("duplicate-key", message, metric=tag))
    return {tag: Metric(*curve) for tag, curve in curves.items()}, odd.findings()


def read_file(path: Path, odd: LimitedFindings) -> EventFile:
    """The scalars of one file; `odd` hears what is wrong with it."""
    found = Scalars()

    def note(finding: Finding) -> None:
        odd.add(replace(finding, path=str(path)))

    with path.open("rb") as stream:
        for batch in records(stream, note):
            found.add(batch)
    for number in found.malformed:
        message = f"expected an event in record {number:,}, found bytes that are no protobuf message"
        note(fail("unreadable", message, where=f"record {number}"))
    curves = {}
    again = 0
    for tag, curve in found.curves.items():
        if len(curve.steps):
            steps, values, doubled = _last_of_each(np.array(curve.steps, np.int64), np.array(curve.values, np.float64))
            curves[tag.decode("utf-8", "replace")] = steps, values
            again += doubled
    return EventFile(name=path.name, first=found.first, last=found.last, curves=curves, again=again)


def _last_of_each(steps: Steps, values: Values) -> tuple[Steps, Values, int]:
    """Sorted by step, with the last value of each; what a restart left behind it is gone.

    Steps that come out of order are only sorted. A step that comes again is a restart from there:
    later steps that stood before it are of the attempt that was given up, as in another file.
    """
    if bool((steps[1:] > steps[:-1]).all()):
        return steps, values, 0
    again = np.ones(len(steps), bool)
    again[np.unique(steps, return_index=True)[1]] = False
    largest = np.iinfo(np.int64).max
    restarts = np.append(np.where(again, steps, largest)[1:], largest)
    # Of all restarts behind a sample, the one that went back furthest.
    back = np.minimum.accumulate(restarts[::-1])[::-1]
    kept = (steps < back) | (back == largest)
    replaced = int(len(kept) - kept.sum())
    steps, values = steps[kept], values[kept]
    order = np.argsort(steps, kind="stable")
    return steps[order], values[order], replaced
