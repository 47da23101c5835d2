"""Digests: the same however the elements come, and another if anything is another."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256

import numpy as np
import pytest
from blake3 import blake3
from hypothesis import given, strategies as st

from factories.bit_patterns import extent_of
from karat.tensors.arrays import tensor_of
from karat.tensors.compare import compare_tensors
from karat.tensors.digests import PIECE, FileDigest, Hash, TensorDigest, digest_of, is_digest
from karat.tensors.tensor import Damaged, Tensor

LARGE = np.arange((2 * PIECE + (1 << 20)) // 4, dtype=np.float32)
"""Two whole pieces and a part of one."""


def by_definition(tensor: Tensor, kind: Hash) -> str:
    sizes = "x".join(map(str, tensor.shape))
    if kind == "sha256":
        return "sha256:" + sha256(f"karat.tensor/1\0{tensor.dtype}\0{sizes}\0".encode() + tensor.data).hexdigest()
    head, data = f"karat.tensor/2\0{tensor.dtype}\0{sizes}\0".encode(), bytes(tensor.data)
    pieces = [blake3(data[at : at + PIECE]).digest() for at in range(0, len(data) or 1, PIECE)]
    return "blake3:" + blake3(head + b"".join(pieces)).hexdigest()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["blake3", "sha256"])
@pytest.mark.parametrize("elements", [0, 1, PIECE // 4, PIECE // 4 + 1, LARGE.size])
def test_the_digest_is_the_same_however_the_elements_come(kind: Hash, elements: int) -> None:
    tensor = tensor_of(LARGE[:elements])
    right = by_definition(tensor, kind)
    assert is_digest(right)
    with ThreadPoolExecutor(2) as pool:
        for run in (map, pool.map):
            assert digest_of(tensor, kind, run=run) == right
            assert digest_of(extent_of(tensor), kind, run=run) == right
    seen: list[int] = []
    assert digest_of(extent_of(tensor, seekable=False), kind, watch=seen.append) == right
    assert sum(seen) == len(tensor.data)
    running = TensorDigest(tensor.dtype, tensor.shape, kind)
    for at in range(0, len(tensor.data), 3_000_001):
        running.update(tensor.data[at : at + 3_000_001])
    assert running.text() == right
    assert TensorDigest(tensor.dtype, tensor.shape, kind).text(running.pieces()) == right


@pytest.mark.slow
@pytest.mark.parametrize("kinds", [("blake3", "blake3"), ("sha256", "blake3"), ("sha256", "sha256")])
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_one_bit_anywhere_is_found_while_comparing(kinds: tuple[Hash, Hash], threads: int) -> None:
    other = LARGE + np.float32(1)
    sides = tensor_of(LARGE), tensor_of(other)
    said = digest_of(sides[0], kinds[0]), digest_of(sides[1], kinds[1])
    plain = compare_tensors("x", *sides)
    assert compare_tensors("x", *map(extent_of, sides), digests=said, threads=threads) == plain
    for at in (0, PIECE // 4, LARGE.size - 1):
        other.view(np.uint32)[at] ^= 1
        with pytest.raises(Damaged, match="on the actual side"):
            compare_tensors("x", extent_of(sides[0]), extent_of(tensor_of(other)), digests=said, threads=threads)
        other.view(np.uint32)[at] ^= 1
    with pytest.raises(Damaged, match=r"expected side.*actual side"):  # both are damaged alike
        compare_tensors("x", sides[1], sides[1], digests=(said[0], said[0]), threads=threads)


@given(st.lists(st.binary(max_size=70), max_size=5))
def test_a_program_has_the_plain_hash_of_its_bytes(blocks: list[bytes]) -> None:
    new, old = FileDigest(), FileDigest("sha256")
    for block in blocks:
        new.update(block)
        old.update(block)
    assert new.text() == f"blake3:{blake3(b''.join(blocks)).hexdigest()}"
    assert old.text() == f"sha256:{sha256(b''.join(blocks)).hexdigest()}"


@pytest.mark.parametrize("text", ["", "0" * 64, "blake3:" + "0" * 63, "md5:" + "0" * 64, "BLAKE3:" + "0" * 64])
def test_what_is_no_digest(text: str) -> None:
    assert not is_digest(text)
