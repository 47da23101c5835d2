"""numpy arrays there and back: every dtype, every layout, every bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st
from hypothesis.extra import numpy as hnp

from factories.bit_patterns import ODD_NAMES, patterns, tensor
from karat.tensors.arrays import is_tensor, tensor_of, value_and_note, value_of
from karat.tensors.digests import digest_of
from karat.tensors.dtypes import TABLE
from karat.tensors.numpy_arrays import numpy_dtype
from karat.tensors.tensor import CannotStore, Tensor

NAMES = [name for name in (*TABLE, *ODD_NAMES) if numpy_dtype(name) is not None]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(3, 4), (), (0, 2), (1,), (2, 1, 3)])
def test_every_dtype_comes_back_bit_by_bit(name: str, shape: tuple[int, ...]) -> None:
    dtype = numpy_dtype(name)
    assert dtype is not None
    array = patterns(name, shape).view(dtype).reshape(shape)
    made = tensor_of(array)
    assert (made.dtype, made.shape, made.framework) == (name, shape, "numpy")
    back = value_of(made)
    assert type(back) is np.ndarray
    assert (back.dtype, back.shape) == (array.dtype, shape)
    assert back.tobytes() == array.tobytes()
    assert back.flags.writeable
    assert not np.shares_memory(back, array)


any_array = hnp.arrays(
    dtype=st.one_of(
        hnp.scalar_dtypes(),
        hnp.unicode_string_dtypes(min_len=1),
        hnp.byte_string_dtypes(min_len=1),
        hnp.array_dtypes(st.one_of(hnp.integer_dtypes(), hnp.floating_dtypes(sizes=(32, 64))), max_size=3),
    ),
    shape=hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4),
)


@pytest.mark.slow
@given(any_array, st.data())
def test_any_array_in_any_layout_comes_back(array: Any, data: st.DataObject) -> None:
    assume(not any(len(entry) > 2 for entry in (array.dtype.fields or {}).values()))  # titles
    view = array
    if array.ndim:
        view = array.transpose(data.draw(st.permutations(range(array.ndim))))
        view = view[tuple(slice(None, None, data.draw(st.sampled_from([1, 2, -1]))) for _ in view.shape)]
    back = value_of(tensor_of(view))
    assert (back.dtype, back.shape) == (view.dtype, view.shape)
    assert back.tobytes() == np.ascontiguousarray(view).tobytes()


def test_contiguous_memory_is_not_copied() -> None:
    array = np.arange(12.0).reshape(3, 4)
    assert np.shares_memory(np.frombuffer(tensor_of(array).data, np.uint8), array)
    assert np.shares_memory(value_of(tensor_of(array), copy=False), array)


def test_strides_are_those_of_what_lies_without_gaps() -> None:
    array = np.arange(12.0).reshape(3, 4)
    assert tensor_of(array).strides is None
    assert tensor_of(array.T).strides == (1, 4)
    assert value_of(tensor_of(array.T)).strides == array.T.strides
    for gaps in (array[::-1, ::2], np.broadcast_to(np.float32(1), (2, 2)), array[:, 1:], array[:0].T):
        assert tensor_of(gaps).strides is None


def test_a_field_of_records_is_read_where_it_lies() -> None:
    records = np.zeros(3, [("a", "i1"), ("b", "<f4")])
    records["b"] = [1, 2, 3]
    made = tensor_of(records["b"])
    assert made.strides is None  # 5 bytes apart is no number of elements
    assert value_of(made).tolist() == [1, 2, 3]


@pytest.mark.parametrize("dtype", [">f4", ">f8", ">i2", ">u8", ">c16", ">U3", ">M8[s]", ">f2"])
def test_big_endian_arrays_are_little_endian_bytes_and_come_back(dtype: str) -> None:
    array = np.array([1, 2, 513]).astype(dtype)
    made = tensor_of(array)
    assert made.big_endian
    assert bytes(made.data) == array.astype(array.dtype.newbyteorder("<")).tobytes()
    assert digest_of(made) == digest_of(tensor_of(array.astype(array.dtype.newbyteorder("<"))))
    back = value_of(made)
    assert back.dtype == np.dtype(dtype)
    assert back.tobytes() == array.tobytes()


def test_nan_payloads_and_negative_zeros_survive_a_change_of_byte_order() -> None:
    bits = np.array([0x7F800001, 0xFFC12345, 0x80000000], ">u4")
    array = bits.view(">f4")
    assert value_of(tensor_of(array)).tobytes() == array.tobytes()


def test_padding_means_nothing_and_is_zero() -> None:
    aligned = np.dtype([("a", "i1"), ("b", "<f8")], align=True)
    dirty = np.full(2 * aligned.itemsize, 0xAA, np.uint8).view(aligned)
    clean = np.zeros(2, aligned)
    for field in ("a", "b"):
        dirty[field] = clean[field] = 1
    assert digest_of(tensor_of(dirty)) == digest_of(tensor_of(clean))
    back = value_of(tensor_of(dirty))
    assert back.dtype == aligned
    assert (back == dirty).all()


def test_stray_bits_of_narrow_types_are_no_part_of_the_value() -> None:
    import ml_dtypes

    dirty = np.array([0x0F, 0xFF, 0x1F], np.uint8).view(ml_dtypes.int4)
    assert bytes(tensor_of(dirty).data) == b"\x0f\x0f\x0f"


def test_long_doubles_have_no_stray_bytes() -> None:
    raw = np.full(32, 0xAA, np.uint8)
    raw.view(np.longdouble)[:] = [1.5, -2]
    dirty = raw.view(np.longdouble)
    clean = np.zeros(32, np.uint8).view(np.longdouble)
    clean[:] = [1.5, -2]
    assert bytes(tensor_of(dirty).data) == bytes(tensor_of(clean).data)
    assert (value_of(tensor_of(dirty)) == dirty).all()


@pytest.mark.parametrize(
    "scalar",
    [
        np.float32(1.5),
        np.int8(-1),
        np.bool_(True),
        np.complex64(1j),
        np.datetime64("2020-01-01"),
        np.str_("ab"),
        np.bytes_(b"ab"),
        np.longdouble(2),
    ],
)
def test_scalars_come_back_as_scalars(scalar: np.generic) -> None:
    assert is_tensor(scalar)
    back = value_of(tensor_of(scalar))
    assert type(back) is type(scalar)
    assert back == scalar


def test_a_map_of_a_file_is_an_array(tmp_path: Path) -> None:
    path = tmp_path / "x.bin"
    path.write_bytes(np.arange(4, dtype="<i4").tobytes())
    mapped = np.memmap(path, dtype="<i4", mode="r")
    back = value_of(tensor_of(mapped))
    assert type(back) is np.ndarray
    assert back.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (np.array([object()]), "objects"),
        (np.array([{}], dtype=object), "objects"),
        (np.zeros(2, [("a", "O")]), "objects"),
        (np.ma.masked_array([1, 2], mask=[False, True]), "mask"),
        (np.array([1, 2]).view(np.recarray), "recarray"),
        (np.zeros(1, [(("title", "name"), "<f4")]), "titles"),
        (np.zeros(1, {"names": ["a", "b"], "formats": ["<i4", "<i2"], "offsets": [0, 2]}), "in order"),
    ],
)
def test_what_has_no_form_is_refused_in_a_sentence(value: Any, words: str) -> None:
    assert is_tensor(value)
    with pytest.raises(CannotStore, match=words):
        tensor_of(value)


def test_text_of_any_length_is_refused() -> None:
    if not hasattr(np, "dtypes") or not hasattr(np.dtypes, "StringDType"):
        return  # before numpy 2 there was none to refuse
    with pytest.raises(CannotStore, match="StringDType"):
        tensor_of(np.array(["a", "bb"], dtype=np.dtypes.StringDType()))


@pytest.mark.parametrize("value", [3, "text", None, [1, 2], {"a": 1}, object(), int, np.float32, b"x"])
def test_what_is_no_array_is_not_taken_for_one(value: object) -> None:
    assert not is_tensor(value)
    with pytest.raises(CannotStore, match="expected an array"):
        tensor_of(value)


def test_a_framework_nobody_knows_gives_numpy_and_says_so() -> None:
    value, note = value_and_note(tensor("float32"), "paddle")
    assert type(value) is np.ndarray
    assert note is not None
    assert "'paddle'" in note


def test_what_numpy_does_not_have_comes_as_bits_with_a_note() -> None:
    made = Tensor(dtype="bits16", shape=(2,), data=memoryview(b"\1\2\3\4"))
    value, note = value_and_note(made)
    assert value.tobytes() == b"\1\2\3\4"
    assert note is not None
    assert "bits16" in note
