"""The fast way to read series-json: regular files, which nearly all are, by a decoder that knows the form.

Whatever it refuses, it refuses whole: `series_json` then reads the file the slow way, which reads
more and says precisely what is odd.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Literal

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType

from karat.goldens.shapes import Metric, Series, Steps, Values


class _RegularBlock(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A regular block; anything irregular in it is the slow way's business."""

    values: dict[int, float | Literal["nan"]]
    start_step: int | UnsetType = UNSET
    end_step: int | UnsetType = UNSET
    step_interval: int | UnsetType = UNSET
    value_precision: int | UnsetType = UNSET


_DECODER = msgspec.json.Decoder(dict[str, _RegularBlock | float])
_NO_EXTRA: Mapping[str, Any] = {}
_latest: tuple[list[int], Steps] = ([], np.array([], np.int64))


def read_fast(data: bytes) -> Series | None:
    """The series of a regular file, or None where anything at all is odd."""
    global _latest  # noqa: PLW0603 - one pair, replaced whole, so threads may share it
    try:
        decoded = _DECODER.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    # The decoder keeps the last of two equal keys in silence, so the colons are counted: each
    # belongs to a key that was kept, or the file goes the slow way. Escapes could hide a colon.
    colons = int(np.count_nonzero(np.frombuffer(data, np.uint8) == ord(":")))
    metrics: dict[str, Metric] = {}
    scalars: dict[str, float] = {}
    # Neighbouring files of a suite have the same steps; sharing the array makes comparing them free.
    known, steps = _latest
    for name, block in decoded.items():
        colons -= 1 + name.count(":")
        if isinstance(block, float):
            scalars[name] = block
            continue
        keys = list(block.values)
        if keys != known:
            if keys != sorted(keys) or (keys and not -(2**63) <= keys[0] <= keys[-1] < 2**63):
                return None
            known, steps = keys, np.array(keys, np.int64)
            steps.flags.writeable = False
            _latest = known, steps
        colons -= len(keys) + 1
        declared = (block.start_step, block.end_step, block.step_interval, block.value_precision)
        colons -= 4 - declared.count(UNSET)
        start, end, interval, precision = [None if item is UNSET else item for item in declared]
        metrics[name] = Metric(steps, _array(block.values), start, end, interval, precision, _NO_EXTRA)
    if colons or not metrics or b"\\" in data:
        return None
    return Series(metrics, scalars)


def _array(samples: Mapping[int, float | str]) -> Values:
    """The samples as a read-only array; packing is quicker than numpy's way through iterators."""
    try:
        return np.frombuffer(struct.pack(f"{len(samples)}d", *samples.values()), np.float64)
    except struct.error:  # a "nan" among them, the only text that the decoder lets through
        values = np.fromiter(samples.values(), np.float64, len(samples))
        values.flags.writeable = False
        return values
