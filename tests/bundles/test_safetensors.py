"""safetensors: written by the library, read by a reader of one's own that believes nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
from hypothesis import example, given, strategies as st

from karat.bundles.extents import FileExtent, MemoryExtent
from karat.bundles.tensor_files import Header, read_header, write_safetensors
from karat.tensors.arrays import tensor_of
from karat.tensors.tensor import Damaged


def header_of(data: bytes) -> Header:
    return read_header(MemoryExtent(data=data, name="x.safetensors"), "x.safetensors")


def file_of(header: Any, content: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + content


def entry(start: int, end: int, dtype: str = "U8") -> dict[str, Any]:
    return {"dtype": dtype, "shape": [end - start], "data_offsets": [start, end]}


WELL = file_of({"a": entry(0, 3), "b": entry(3, 5)}, b"12345")


@pytest.mark.slow
@given(
    st.dictionaries(
        st.text(max_size=20),
        st.tuples(
            st.sampled_from([np.float32, np.int64, np.uint8, np.complex128, np.bool_]),
            st.lists(st.integers(0, 3), max_size=3),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_every_name_and_shape_is_found_where_the_library_put_it(
    tmp_path_factory: pytest.TempPathFactory, wanted: dict[str, tuple[Any, list[int]]]
) -> None:
    arrays = {
        name: np.full(shape, index + 1, dtype)
        for index, (name, (dtype, shape)) in enumerate(wanted.items())
    }
    path = tmp_path_factory.mktemp("written") / "t.safetensors"
    digest = write_safetensors(path, {name: tensor_of(array) for name, array in arrays.items()})
    data = path.read_bytes()
    header = header_of(data)
    assert header.entries.keys() == arrays.keys()
    assert header.sha256 == digest == sha256(data[: header.start]).hexdigest()
    for name, array in arrays.items():
        begin, end = header.entries[name].data_offsets
        assert data[header.start + begin : header.start + end] == array.tobytes()
    # The library reads what it wrote, and sees no metadata.
    known = dict(safetensors.deserialize(data))  # type: ignore[no-untyped-call]
    assert known.keys() == arrays.keys()
    assert b"__metadata__" not in data[: header.start]


def test_the_same_tensors_give_the_same_bytes_in_every_process(tmp_path: Path) -> None:
    program = (
        "import sys, pathlib, numpy as np\n"
        "from karat.bundles.tensor_files import write_safetensors\n"
        "from karat.tensors.arrays import tensor_of\n"
        "names = sys.argv[2].split(',')\n"
        "made = {n: tensor_of(np.arange(ord(n), dtype='f4')) for n in names}\n"
        "write_safetensors(pathlib.Path(sys.argv[1]), made)\n"
    )
    made = set()
    for seed, names in (("1", "a,b,c,Z"), ("2", "Z,c,b,a"), ("77", "b,Z,a,c")):
        path = tmp_path / seed
        subprocess.run(
            [sys.executable, "-c", program, str(path), names],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
        )
        made.add(path.read_bytes())
    assert len(made) == 1


def test_strided_and_big_endian_arrays_are_written_as_they_read(tmp_path: Path) -> None:
    array = np.arange(12, dtype=">f4").reshape(3, 4).T[::2]
    write_safetensors(tmp_path / "t", {"x": tensor_of(array)})
    header = header_of((tmp_path / "t").read_bytes())
    data = (tmp_path / "t").read_bytes()[header.start :]
    assert np.array_equal(np.frombuffer(data, "<f4").reshape(2, 3), array)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "0 bytes"),
        (b"1234567", "7 bytes"),
        (b"<!DOCTYPE html><html></html>", "header"),
        (file_of(b"{"), "JSON"),
        (file_of(b"\xff\xfe{}"), "JSON"),
        (file_of([]), "JSON"),
        (file_of({"a": entry(0, 3)}, b"12"), "3 bytes of tensors, found 2"),
        (file_of({"a": entry(0, 3)}, b"1234"), "3 bytes of tensors, found 4"),
        (file_of({"a": entry(0, 3), "b": entry(2, 5)}, b"12345"), "'b' at byte 3"),
        (file_of({"a": entry(0, 2), "b": entry(3, 5)}, b"12345"), "'b' at byte 2"),
        (file_of({"a": entry(1, 5)}, b"12345"), "'a' at byte 0"),
        (file_of({"a": {**entry(0, 5), "more": 1}}, b"12345"), "JSON"),
        (file_of({"a": {**entry(0, 5), "data_offsets": [5, 0]}}, b"12345"), "'a' at byte 0"),
        (file_of({"a": {**entry(0, 5), "shape": ["5"]}}, b"12345"), "JSON"),
        (
            file_of(b'{"a":%s,"a":%s}' % ((json.dumps(entry(0, 5)).encode(),) * 2), b"12345"),
            "twice",
        ),
        (file_of({"__metadata__": {"format": "pt"}, "a": entry(0, 5)}, b"12345"), "JSON"),
        ((1 << 60).to_bytes(8, "little") + b"{}", "1,152,921,504,606,846,976"),
        (file_of(b'{"a":' * 100_000), "JSON"),
    ],
    ids=[
        "empty", "short", "html", "cut", "no text", "list", "cut data", "trailing", "overlap", "gap",
        "late", "unknown field", "backwards", "odd shape", "twice", "metadata", "huge", "deep",
    ],
)  # fmt: skip
def test_what_is_not_consistent_is_damage(data: bytes, words: str) -> None:
    with pytest.raises(Damaged, match="expected") as caught:
        header_of(data)
    assert words in str(caught.value)


@given(st.binary(max_size=200))
@example(WELL)
def test_arbitrary_bytes_never_crash_the_reader(data: bytes) -> None:
    try:
        header = header_of(data)
    except Damaged:
        return
    assert sum(e.data_offsets[1] - e.data_offsets[0] for e in header.entries.values()) == (
        len(data) - header.start
    )


@given(st.integers(0, len(WELL) - 1), st.integers(0, 255))
def test_a_changed_header_is_noticed_by_its_hash_if_by_nothing_else(at: int, byte: int) -> None:
    changed = bytearray(WELL)
    changed[at] = byte
    try:
        header = header_of(bytes(changed))
    except Damaged:
        return
    original = header_of(WELL)
    inside = at < original.start and changed != WELL
    assert (header.sha256 != original.sha256) == inside


def test_a_file_that_shrinks_while_it_is_read_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(WELL)
    extent = FileExtent(path=path, start=0, size=len(WELL), file_size=len(WELL), name="x")
    reader = extent.open()
    path.write_bytes(WELL[:10])
    with pytest.raises(Damaged, match="more"):
        reader.read_into(0, memoryview(bytearray(len(WELL))))
    reader.close()
    with pytest.raises(Damaged, match="changed while it was read"):
        extent.open()
