from __future__ import annotations

import numpy as np
import pytest

from factories.bit_patterns import Bytes, extent_of
from karat.tensors.arrays import tensor_of
from karat.tensors.compare import compare_tensors
from karat.tensors.comparison import Comparison
from karat.tensors.digests import digest_of
from karat.tensors.tensor import Damaged, TensorExtent


def kinds(result: Comparison) -> list[str]:
    return [finding.kind for finding in result.findings]


class TestExtents:
    """Bytes that lie elsewhere."""

    @pytest.mark.slow
    def test_one_reader_that_only_goes_forward_is_enough(self) -> None:
        rng = np.random.default_rng(0)
        e = tensor_of(rng.standard_normal(2_000_000, np.float32))
        a = tensor_of(rng.standard_normal(2_000_000, np.float32))
        there = [extent_of(side, seekable=False) for side in (e, a)]
        assert compare_tensors("x", *there, threads=4) == compare_tensors("x", e, a, threads=4)
        for side in there:
            assert isinstance(side.extent, Bytes)
            assert (side.extent.open_readers, side.extent.opened) == (0, 1)

    def test_threads_have_readers_of_their_own_and_close_them(self) -> None:
        e = extent_of(tensor_of(np.zeros(3_000_000, np.float32)))
        result = compare_tensors("x", e, e, threads=3)
        assert result.passed
        assert isinstance(e.extent, Bytes)
        assert (e.extent.open_readers, e.extent.opened) == (0, 6)

    @pytest.mark.parametrize("size", [0, 15, 17])
    def test_another_number_of_bytes_is_damage(self, size: int) -> None:
        whole = tensor_of(np.zeros(4, np.float32))
        cut = TensorExtent(dtype="float32", shape=(4,), extent=Bytes(bytes(size)))
        with pytest.raises(Damaged, match=f"expected 16 bytes of float32 .* found {size}"):
            compare_tensors("x", whole, cut)
        with pytest.raises(Damaged, match="expected side"):
            compare_tensors("x", cut, whole)


class TestDigests:
    """Digests that are checked while comparing."""

    e = tensor_of(np.arange(1_700_000, dtype=np.float32))
    a = tensor_of(np.arange(1_700_000, dtype=np.float32) + 1)

    def test_right_digests_change_nothing(self) -> None:
        for a in (self.e, self.a):
            said = digest_of(self.e), digest_of(a)
            plain = compare_tensors("x", self.e, a)
            assert compare_tensors("x", self.e, a, digests=said) == plain
            there = extent_of(self.e, seekable=False), extent_of(a, seekable=False)
            assert compare_tensors("x", *there, digests=said) == plain

    @pytest.mark.parametrize("side", [0, 1])
    def test_a_wrong_digest_is_damage_of_that_side(self, side: int) -> None:
        said = [digest_of(self.e), digest_of(self.a)]
        said[side] = "blake3:" + "0" * 64
        words = ("expected", "actual")
        with pytest.raises(Damaged, match=f"expected the digest blake3:0+ on the {words[side]} side") as caught:
            compare_tensors("x", extent_of(self.e), extent_of(self.a), digests=(said[0], said[1]))
        assert f"the {words[1 - side]} side" not in str(caught.value)

    def test_sides_that_are_said_to_be_equal_and_are_not(self) -> None:
        said = digest_of(self.e)
        with pytest.raises(Damaged, match="the actual side"):
            compare_tensors("x", self.e, self.a, digests=(said, said))
        with pytest.raises(Damaged, match="the expected side"):
            compare_tensors("x", self.a, self.e, digests=(said, said))

    def test_sides_that_are_said_to_differ_and_do_not(self) -> None:
        with pytest.raises(Damaged, match="the actual side"):
            compare_tensors("x", self.e, self.e, digests=(digest_of(self.e), digest_of(self.a)))

    def test_digests_are_checked_where_shapes_differ(self) -> None:
        other = tensor_of(np.zeros(3, np.float32))
        said = digest_of(self.e), digest_of(other)
        assert kinds(compare_tensors("x", self.e, other, digests=said)) == ["shape-changed"]
        with pytest.raises(Damaged, match="the actual side"):
            compare_tensors("x", self.e, other, digests=(said[0], said[0]))

    def test_the_same_bits_in_another_shape_or_dtype_have_another_digest(self) -> None:
        bits = np.zeros(4, np.float32)
        found = {digest_of(tensor_of(x)) for x in (bits, bits.reshape(2, 2), bits.view("i4"), bits[:2].view("f8"))}
        assert len(found) == 4
