"""Scalars: what TensorBoard events say of numbers, by tag.

An event is {wall_time = 1, step = 2, file_version = 3, summary = 5}, a summary a list of values
{tag = 1, simple_value = 2, tensor = 8, metadata = 9}. Old writers put a scalar in `simple_value`, new
ones in a tensor without dimensions. Images, histograms, texts and graphs are passed over.
"""

from __future__ import annotations

import math
import re
import struct
from array import array

import numpy as np

from karat.runs.tensor import scalar
from karat.runs.wire import BYTES, FIXED32, FIXED64, VARINT, MalformedError, fields, signed, varint

# Nine events in ten look like this; matching them is several times quicker than taking them apart.
_USUAL = re.compile(
    rb"\x09(.{8})(?:\x10([\x80-\xff]{0,9}[\x00-\x7f]))?\x2a(.)\x0a(.)\x0a(.)(.*)\x15(.{4})",
    re.DOTALL,
)
_DOUBLE = struct.Struct("<d")
_FLOAT = struct.Struct("<f")
_SCALARS = ("", "scalars")
"""Plug-ins whose tensors of one element are scalars; others mean something else by them."""


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
        self.last = -math.inf
        """Wall times of the earliest and the latest event."""
        self.events = 0
        self.malformed: list[int] = []
        """Numbers of the events that are none, counted from 1."""

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

    def _usual(
        self, match: re.Match[bytes], walls: list[bytes], known: dict[bytes | None, int]
    ) -> bool:
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
        values = [
            value
            for summary in summaries
            for number, kind, value in fields(summary)
            if number == 1 and isinstance(value, bytes)
        ]
        for item in values:
            self._value(item, step)

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
        if found is None and tensor is not None and self._is_scalar(tag):
            found = scalar(tensor)
        if found is not None:
            self._take(tag, step, found)

    def _is_scalar(self, tag: bytes) -> bool:
        curve = self.curves.get(tag)
        return curve is None or curve.plugin in _SCALARS


def _plugin(metadata: bytes) -> str:
    for number, kind, value in fields(metadata):
        if number == 1 and kind == BYTES:
            for inner, _, name in fields(value):  # type: ignore[arg-type]
                if inner == 1 and isinstance(name, bytes):
                    return name.decode("utf-8", "replace")
    return ""
