"""Event files as TensorBoard has them, made of its own messages and checksums."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event  # type: ignore[import-untyped]
from tensorboard.compat.proto.summary_pb2 import Summary  # type: ignore[import-untyped]
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c  # type: ignore[import-untyped]


def framed(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked_crc32c(length)) + data + struct.pack("<I", masked_crc32c(data))


def scalar_event(tag: str, step: int, value: float, wall: float = 1000.0) -> bytes:
    summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
    return bytes(Event(wall_time=wall, step=step, summary=summary).SerializeToString())


def event_file(path: Path, events: Iterable[bytes]) -> Path:
    opening = Event(wall_time=1.0, file_version="brain.Event:2").SerializeToString()
    path.write_bytes(b"".join(map(framed, [opening, *events])))
    return path


def run_folder(path: Path, curves: Mapping[str, Mapping[int, float]], wall: float = 1000.0) -> Path:
    """A folder with one event file of these curves."""
    path.mkdir(parents=True)
    events = [
        scalar_event(tag, step, value, wall + step) for tag, values in curves.items() for step, value in values.items()
    ]
    event_file(path / f"events.out.tfevents.{int(wall)}.host", events)
    return path
