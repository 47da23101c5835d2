"""What a worker and its master say to one another: msgpack, each message after its length."""

from __future__ import annotations

import struct
from typing import IO, TypeVar

import msgspec

from karat.replay.options import Function, Judging

_LENGTH = struct.Struct("<I")
_LONGEST = 1 << 28
T = TypeVar("T")


class Garbled(Exception):  # noqa: N818 - a state of the pipe
    """What came is no message."""


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker must know before its first case."""

    bundle: str
    store: str | None
    function: Function
    judging: Judging


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """The worker has the function, or cannot have it."""

    problem: str | None = None


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One case to replay, and the folder to do it in."""

    path: str
    work: str
    keep: bool = False


def send(stream: IO[bytes], message: msgspec.Struct) -> None:
    """Write one message, whole, now."""
    data = msgspec.msgpack.encode(message)
    stream.write(_LENGTH.pack(len(data)) + data)
    stream.flush()


def receive(stream: IO[bytes], kind: type[T]) -> T | None:
    """The next message; None once the other side is gone, also if it went in the middle of one.

    `Garbled` for what is no message: somebody else has written into the pipe.
    """
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    if length > _LONGEST:
        raise Garbled
    data = stream.read(length)
    try:
        return msgspec.msgpack.decode(data, type=kind) if len(data) == length else None
    except msgspec.MsgspecError:
        raise Garbled from None
