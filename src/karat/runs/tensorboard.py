"""TensorBoard event files → curves by tag.

Read by hand, frames and messages both. The tensorboard package needs grpc, protobuf and werkzeug,
takes half a second to import and twenty times as long to read, and stops without a word at the first
record that is cut or corrupt; but a cut event file *is* the evidence of a crash, and this is where it
must be noticed.

An event file is one of TFRecord frames, each with its length and two checksums:

    length (8 bytes) · masked CRC32C of it (4) · data · masked CRC32C of the data (4)

It is read in blocks, so that its size does not matter. A file that ends inside a record, a length that is not what
its writer wrote, and data with a wrong checksum are each reported, with the offset.

An event is {wall_time = 1, step = 2, file_version = 3, summary = 5}, a summary a list of values
{tag = 1, simple_value = 2, tensor = 8, metadata = 9}. Old writers put a scalar in `simple_value`, new
ones in a tensor without dimensions. Images, histograms, texts and graphs are passed over.
"""

from __future__ import annotations

import math
import struct
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias

import numpy as np
from msgspec.structs import replace

from karat.findings import Finding, fail, info, warn
from karat.goldens.shapes import Metric, Steps, Values
from karat.goldens.text_file import LimitedFindings
from karat.report.words import count

if TYPE_CHECKING:
    from numpy.typing import NDArray

    U32: TypeAlias = NDArray[np.uint32]
else:
    U32 = np.ndarray

_POLYNOMIAL = 0x82F63B78
_ONES = 0xFFFFFFFF
_MASK_DELTA = 0xA282EAD8
_LONG = 1 << 12  # Bytes; longer pieces are few, and summed one by one.


@cache
def _byte_table() -> U32:
    table, one = np.arange(256, dtype=np.uint32), np.uint32(1)
    for _ in range(8):
        table = (table >> one) ^ (table & one) * np.uint32(_POLYNOMIAL)
    return table


def crc32c(buffer: bytes, starts: Steps, lengths: Steps) -> U32:
    """The CRC32C of each piece of the buffer.

    A loop over bytes would take minutes; this one is over their distance from the end, for all pieces at once.
    """
    data, table = np.frombuffer(buffer, np.uint8), _byte_table()
    order = np.argsort(-lengths)
    sizes, ends = lengths[order], (starts + lengths)[order]
    sums = np.full(len(starts), _ONES, np.uint32)
    long = int(np.count_nonzero(sizes > _LONG))
    plain = table.tolist() if long else []
    for number in range(long):
        total = _ONES
        for byte in buffer[ends[number] - sizes[number] : ends[number]]:
            total = (total >> 8) ^ plain[(total ^ byte) & 0xFF]
        sums[number] = total
    for distance in range(int(sizes[long]) if long < len(sizes) else 0, 0, -1):
        reached = int(np.searchsorted(-sizes, -distance, side="right"))
        held = sums[long:reached]
        sums[long:reached] = (held >> 8) ^ table[(held ^ data[ends[long:reached] - distance]) & 0xFF]
    found = np.empty_like(sums)
    found[order] = sums ^ np.uint32(_ONES)
    return found


def masked(sums: U32) -> U32:
    """The sums as TFRecord files store them: rotated, and moved by a constant."""
    rotated = (sums >> np.uint32(15)) | (sums << np.uint32(17))
    return rotated + np.uint32(_MASK_DELTA)


_HEADER = 12
_FRAME = 16
_READ_AT_ONCE = 1 << 24
_LENGTH = struct.Struct("<Q")


def looks_like_records(head: bytes) -> bool:
    """Whether bytes begin with a record: eight of length that match the four of their checksum."""
    # No record has a terabyte, and the text that most files begin with would be a larger number still.
    return len(head) >= _HEADER and not any(head[5:8]) and _good_length(head, 0)


def _good_length(buffer: bytes, at: int) -> bool:
    found = masked(crc32c(buffer, np.array([at]), np.array([8])))
    return int(found[0]) == int.from_bytes(buffer[at + 8 : at + _HEADER], "little")


def records(stream: BinaryIO, note: Callable[[Finding], None]) -> Iterator[list[bytes]]:
    """The data of whole and sound records, in batches; `note` hears of all others."""
    base, buffer = 0, b""
    while True:
        more = stream.read(_READ_AT_ONCE)
        buffer += more
        # Where the data of each whole frame starts, how long it is, and where the rest begins.
        starts: list[int] = []
        lengths: list[int] = []
        behind = 0
        while behind + _FRAME <= len(buffer):
            (length,) = _LENGTH.unpack_from(buffer, behind)
            if behind + _FRAME + length > len(buffer):
                break
            starts.append(behind + _HEADER)
            lengths.append(length)
            behind += _FRAME + length
        batch, stopped = _sound(buffer, base, np.array(starts, np.int64), np.array(lengths, np.int64), note)
        yield batch
        if stopped:
            return
        rest = buffer[behind:]
        if len(rest) >= _HEADER and not _good_length(rest, 0):
            note(_bad_length(base + behind))
            return
        base, buffer = base + behind, rest
        if not more:
            if buffer:
                wanted = _FRAME + _LENGTH.unpack_from(buffer)[0] if len(buffer) >= _HEADER else _FRAME
                said = (
                    f"expected a record of at least {wanted:,} bytes at byte {base:,}, found {len(buffer):,}:"
                    " the file ends inside a record, so its writer died or is still writing"
                )
                numbers = {"offset": base, "expected": wanted, "found": len(buffer)}
                note(warn("truncated", said, where=f"byte {base}", numbers=numbers))
            return


def _sound(
    buffer: bytes, base: int, starts: Steps, lengths: Steps, note: Callable[[Finding], None]
) -> tuple[list[bytes], bool]:
    """The records whose checksums hold, and whether framing was lost, so that none may follow."""
    if not len(starts):
        return [], False
    headers = starts - _HEADER
    framed = _stored(buffer, headers + 8) == masked(crc32c(buffer, headers, np.full(len(starts), 8)))
    lost = not framed.all()
    if lost:
        # Behind a wrong length there is no telling where the next record begins.
        first = int(np.argmin(framed))
        starts, lengths = starts[:first], lengths[:first]
    good = _stored(buffer, starts + lengths) == masked(crc32c(buffer, starts, lengths))
    for at in np.flatnonzero(~good).tolist():
        offset, length = base + int(starts[at]), int(lengths[at])
        said = f"expected a record of {length:,} bytes at byte {offset:,}, found bytes that do not match their checksum"
        numbers = {"offset": offset, "length": length}
        note(fail("unreadable", f"{said}; it was left out", where=f"byte {offset}", numbers=numbers))
    if lost:
        note(_bad_length(base + int(headers[first])))
    pairs = zip(starts[good].tolist(), (starts + lengths)[good].tolist(), strict=True)
    return [buffer[start:end] for start, end in pairs], lost


def _stored(buffer: bytes, places: Steps) -> U32:
    """The checksums that stand at the places."""
    stored: U32 = np.frombuffer(buffer, np.uint8)[places[:, None] + np.arange(4)].view("<u4").ravel()
    return stored


def _bad_length(offset: int) -> Finding:
    said = (
        f"expected the length of a record at byte {offset:,}, found one that does not match its"
        " checksum; nothing behind it can be read"
    )
    return fail("unreadable", said, where=f"byte {offset}", numbers={"offset": offset})


VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_WIDTH = {FIXED64: 8, FIXED32: 4}

Message: TypeAlias = dict[tuple[int, int], list[Any]]
"""Number of a field and its wire type → what stands there: an int for a varint, bytes for all others."""


class MalformedError(ValueError):
    """Bytes that are no protobuf message."""


def message(data: bytes) -> Message:
    found: Message = {}
    at, size = 0, len(data)
    while at < size:
        key, at = varint(data, at)
        kind = key & 7
        if kind == VARINT:
            value, at = varint(data, at)
            found.setdefault((key >> 3, kind), []).append(value)
            continue
        if kind == BYTES:
            length, at = varint(data, at)
        elif kind in _WIDTH:
            length = _WIDTH[kind]
        else:
            raise MalformedError(f"wire type {kind}")
        if at + length > size:
            raise MalformedError("a field longer than its message")
        found.setdefault((key >> 3, kind), []).append(data[at : at + length])
        at += length
    return found


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


def signed(value: int) -> int:
    """The 64-bit number with a sign that a varint stands for."""
    return value - (1 << 64) if value >> 63 else value


_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")
_FORMS = {1: _FLOAT, 2: _DOUBLE}
_SCALARS = ("", "scalars")  # Plug-ins whose tensors of one element are scalars; others mean something else by them.


def scalar(data: bytes) -> float | None:
    """The number of a tensor that has one element, a float or double, as writers of scalars make them; None for any other."""
    tensor = message(data)
    form = _FORMS.get(tensor.get((1, VARINT), [0])[-1])
    count = 1
    for dimension in message(tensor.get((2, BYTES), [b""])[-1]).get((2, BYTES), ()):
        count *= signed(message(dimension).get((1, VARINT), [0])[-1])
    # The bytes of an array, a list of floats or of doubles.
    held = (raw for (number, kind), raws in tensor.items() if number in {4, 5, 6} and kind != VARINT for raw in raws)
    content = b"".join(held)
    return float(form.unpack(content)[0]) if form and count == 1 and len(content) == form.size else None


class Scalars:
    """Gathers the scalars of one file's events."""

    def __init__(self, name: str) -> None:
        self.name = name
        # The steps and values of each tag, in the order they were written.
        self.curves: dict[bytes, tuple[array[int], array[float]]] = defaultdict(lambda: (array("q"), array("d")))
        self.plugins: dict[bytes, str] = {}
        self.first = math.inf
        self.last = -math.inf  # Wall times of the earliest and the latest event.
        self.events = 0
        self.malformed: list[int] = []  # Numbers of the events that are none, counted from 1.

    def add(self, batch: list[bytes]) -> None:
        """Takes the events of a batch of records."""
        for data in batch:
            self.events += 1
            try:
                self._event(message(data))
            except MalformedError:
                self.malformed.append(self.events)

    def _event(self, event: Message) -> None:
        for raw in event.get((1, FIXED64), ()):
            (wall,) = _DOUBLE.unpack(raw)
            if math.isfinite(wall):
                self.first, self.last = min(self.first, wall), max(self.last, wall)
        step = signed(event.get((2, VARINT), [0])[-1])
        for summary in event.get((5, BYTES), ()):
            for value in message(summary).get((1, BYTES), ()):
                self._value(message(value), step)

    def _value(self, value: Message, step: int) -> None:
        tag = value.get((1, BYTES), [b""])[-1]
        for metadata in value.get((9, BYTES), ()):  # only the first event of a tag says it
            data = (message(inner).get((1, BYTES), []) for inner in message(metadata).get((1, BYTES), ()))
            self.plugins[tag] = _text(next(chain.from_iterable(data), b""))
        plain, tensors = value.get((2, FIXED32)), value.get((8, BYTES))
        found = None
        if plain:
            found = _FLOAT.unpack(plain[-1])[0]
        elif tensors and self.plugins.get(tag, "") in _SCALARS:
            found = scalar(tensors[-1])
        if found is not None:
            steps, values = self.curves[tag]
            steps.append(step)
            values.append(found)


def _text(tag: bytes) -> str:
    return tag.decode("utf-8", "replace")


def read_events(paths: Sequence[Path]) -> tuple[dict[str, Metric], tuple[Finding, ...]]:
    """The curves of one run, by tag, from all of its event files; an OSError is the caller's."""
    odd = LimitedFindings()
    files = [read_file(path, odd) for path in paths]
    files.sort(key=lambda file: (file.first, file.name))
    curves: dict[str, tuple[Steps, Values]] = {}
    replaced = 0
    for file in files:
        for name, (at, held) in file.curves.items():
            tag = _text(name)
            steps, values, again = _last_of_each(np.array(at, np.int64), np.array(held, np.float64))
            replaced += again
            before = curves.get(tag)
            if before is not None:
                kept = before[0] < steps[0]
                replaced += int(len(kept) - kept.sum())
                steps = np.concatenate([before[0][kept], steps])
                values = np.concatenate([before[1][kept], values])
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
            tag = min(map(_text, shared))
            message = (
                f'expected one writer at a time, found "{tag}" in {before_it.name} and {file.name},'
                " which overlap in time; the one that began later was read"
            )
            odd.add(warn("duplicate-key", message, metric=tag))
    return {tag: Metric(*curve) for tag, curve in curves.items()}, odd.findings()


def read_file(path: Path, odd: LimitedFindings) -> Scalars:
    """The scalars of one file; `odd` hears what is wrong with it."""
    found = Scalars(path.name)

    def note(finding: Finding) -> None:
        odd.add(replace(finding, path=str(path)))

    with path.open("rb") as stream:
        for batch in records(stream, note):
            found.add(batch)
    for number in found.malformed:
        message = f"expected an event in record {number:,}, found bytes that are no protobuf message"
        note(fail("unreadable", message, where=f"record {number}"))
    return found


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
