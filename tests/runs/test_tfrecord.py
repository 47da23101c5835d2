from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import crc32c as theirs, masked_crc32c  # type: ignore[import-untyped]

from karat.runs.tensorboard import crc32c, masked


def ours(data: bytes, start: int = 0, length: int | None = None) -> int:
    size = len(data) - start if length is None else length
    return int(crc32c(data, np.array([start]), np.array([size]))[0])


@pytest.mark.parametrize(
    ("data", "expected"), [(b"", 0), (b"123456789", 0xE3069283), (bytes(32), 0x8A9136AA), (b"\xff" * 32, 0x62A8AB43)]
)
def test_the_published_vectors(data: bytes, expected: int) -> None:
    assert ours(data) == expected


@pytest.mark.parametrize("length", [1, 3, 255, 256, 257, 511, 512, 513, 5000, 70_001])
def test_any_length_as_tensorboards_own(length: int) -> None:
    data = np.random.default_rng(length).bytes(length)
    assert ours(data) == theirs(data)


@given(st.lists(st.binary(max_size=600), min_size=1, max_size=20))
def test_many_pieces_at_once_as_one_by_one(pieces: list[bytes]) -> None:
    lengths = np.array([len(piece) for piece in pieces])
    found = crc32c(b"".join(pieces), np.cumsum(lengths) - lengths, lengths)
    assert found.tolist() == [theirs(piece) for piece in pieces]
    assert masked(found).tolist() == [masked_crc32c(piece) for piece in pieces]


@given(st.binary(min_size=1, max_size=700), st.data())
def test_a_flipped_bit_changes_the_sum(data: bytes, draw: st.DataObject) -> None:
    bit = draw.draw(st.integers(0, 8 * len(data) - 1))
    flipped = bytearray(data)
    flipped[bit // 8] ^= 1 << bit % 8
    assert ours(bytes(flipped)) != ours(data)


def test_more_bytes_than_a_block_holds() -> None:
    count = 9000
    data = np.random.default_rng(1).bytes(200 * count)
    found = crc32c(data, np.arange(count) * 200, np.full(count, 200))
    assert all(int(found[i]) == theirs(data[200 * i : 200 * i + 200]) for i in (0, 5241, 5242, 5243, 8999))
