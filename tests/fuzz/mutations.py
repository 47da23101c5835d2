"""What a stranger may do to a file: seeded, quick, and never larger than a limit."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

LARGEST = 1 << 18
"""Bytes of an input; what only a larger one does is for tests of limits."""

_TOKEN = re.compile(rb"[A-Za-z_][A-Za-z0-9_.-]*|-?[0-9][0-9.eE+-]*|\"[^\"\n]{0,80}\"|[^\sA-Za-z0-9]")
_NUMBER = re.compile(rb"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
NUMBERS = (
    b"0", b"-0", b"-1", b"1e999", b"-1e999", b"1e-999", b"NaN", b"Infinity", b"nan", b"4294967296", b"2147483648",
    b"9223372036854775808", b"-9223372036854775809", b"18446744073709551616", b"1" * 400, b"1" * 5000, b"0x10", b"1_000",
    b"99999999999", b"253402300800", b"-62135596801", b"0.1e", b"1.7976931348623157e308", b"true", b'"1"', b"[]",
)  # fmt: skip
WORDS = (
    b"null", b"true", b"{}", b"[]", b'""', b"[[]]", b'{"":{}}', b"[" * 3000, b'{"a":' * 3000, b"(" * 300, b"\x00", b"\xff\xfe",
    b"\xef\xbb\xbf", b"\xed\xa0\x80", b'"\\ud800"', b"\\u0000", b"\r", b"\r\n", b"\n\n", b"\xe2\x80\xae", b"\x1b[31m", b"::error::x",
    b"../../etc/passwd", b".git/config", b"/dev/zero", b"$(id)", b"%s%n", b"<!--", b"<![CDATA[", b"&a;", b"<a>" * 500, b"*" * 60,
    b"(a+)+$", b"**/" * 30, b"a" * 300, b"a" * 70000, b"2026-13-45", b"0000-00-00", b"9999-12-31T23:59:60Z", b"10000-01-01", b"\t",
    b"'''", b'"""', b"#", b"=", b",", b";", b"[[a]]\n", b"[a.b]\n", b"lambda: " * 200, b"not " * 500, b"-" * 500, b"\xc2\x85", b"\xe2\x80\xa8",
)  # fmt: skip

Change = Callable[[bytearray, random.Random, Sequence[bytes]], None]


def mutated(seeds: Sequence[bytes], rng: random.Random) -> bytes:
    """A seed with a few changes; one in two hundred is a seed as it stands, one in as many is noise."""
    data = bytearray(rng.choice(seeds))
    kind = rng.random()
    if kind < 0.005:
        return bytes(data)
    if kind < 0.01:
        return rng.randbytes(rng.randrange(200))
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 5))):
        rng.choice(CHANGES)(data, rng, seeds)
        del data[LARGEST:]
    return bytes(data)


def _range(data: bytearray, rng: random.Random, most: int = 64) -> slice:
    start = rng.randrange(len(data) + 1)
    return slice(start, min(len(data), start + rng.randrange(1, most)))


def _flip(data: bytearray, rng: random.Random, _: Sequence[bytes]) -> None:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _byte(data: bytearray, rng: random.Random, _: Sequence[bytes]) -> None:
    if data:
        data[rng.randrange(len(data))] = rng.choice((0, 0x7F, 0x80, 0xFF, 0x22, 0x7B, 0x5B, rng.randrange(256)))


def _remove(data: bytearray, rng: random.Random, _: Sequence[bytes]) -> None:
    del data[_range(data, rng, rng.choice((3, 20, 500)))]


def _cut(data: bytearray, rng: random.Random, _: Sequence[bytes]) -> None:
    del data[rng.randrange(len(data) + 1) :]


def _insert(data: bytearray, rng: random.Random, _: Sequence[bytes]) -> None:
    at = rng.randrange(len(data) + 1)
    data[at:at] = rng.choice((rng.choice(WORDS), rng.choice(NUMBERS), rng.randbytes(rng.randrange(1, 9))))


def _repeat(data: bytearray, rng: random.Random, _: Sequence[bytes]) -> None:
    where = _range(data, rng, rng.choice((2, 10, 200)))
    part = bytes(data[where])
    data[where.stop : where.stop] = part * rng.choice((1, 2, 10, 300))


def _number(data: bytearray, rng: random.Random, _: Sequence[bytes]) -> None:
    _replace(_NUMBER, data, rng, rng.choice(NUMBERS))


def _token(data: bytearray, rng: random.Random, _: Sequence[bytes]) -> None:
    _replace(_TOKEN, data, rng, rng.choice((rng.choice(WORDS), rng.choice(NUMBERS))))


def _another(data: bytearray, rng: random.Random, _: Sequence[bytes]) -> None:
    found = _some(_TOKEN, data, rng)
    if found is not None:
        _replace(_TOKEN, data, rng, bytes(data[found[0] : found[1]]))


def _replace(pattern: re.Pattern[bytes], data: bytearray, rng: random.Random, new: bytes) -> None:
    found = _some(pattern, data, rng)
    if found is not None:
        data[found[0] : found[1]] = new


def _some(pattern: re.Pattern[bytes], data: bytearray, rng: random.Random) -> tuple[int, int] | None:
    """One of what a pattern finds, from a place at random on: looking through all of it is slow."""
    found = pattern.search(data, rng.randrange(len(data) + 1)) or pattern.search(data)
    return found.span() if found else None


def _lines(data: bytearray, rng: random.Random, _: Sequence[bytes]) -> None:
    lines = bytes(data).splitlines(keepends=True)
    if len(lines) > 1:
        i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
        how = rng.randrange(3)
        if how == 0:
            lines[i], lines[j] = lines[j], lines[i]
        elif how == 1:
            lines.insert(i, lines[j])
        else:
            del lines[i]
        data[:] = b"".join(lines)


def _splice(data: bytearray, rng: random.Random, seeds: Sequence[bytes]) -> None:
    other = rng.choice(seeds)
    data[rng.randrange(len(data) + 1) :] = other[rng.randrange(len(other) + 1) :]


CHANGES: tuple[Change, ...] = (
    _flip, _byte, _byte, _remove, _cut, _insert, _insert, _repeat, _number, _number, _token, _token, _another, _another,
    _lines, _splice,
)  # fmt: skip


def smaller(data: bytes, still: Callable[[bytes], bool]) -> bytes:
    """The same input with all taken away that is not needed; `still` says whether it does what it did."""
    step = max(1, len(data) // 2)
    while step:
        at = 0
        while at < len(data):
            shorter = data[:at] + data[at + step :]
            if still(shorter):
                data = shorter
            else:
                at += step
        step //= 2
    return data
