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

from karat.bundles.extents import FileExtent, MemoryExtent, read_all
from karat.bundles.tensor_files import (
    FIRST,
    TABLE,
    Header,
    RawRow,
    decode_rows,
    encode_rows,
    file_names,
    read_header,
    read_raw,
    write_raw,
    write_safetensors,
)
from karat.tensors.arrays import tensor_of
from karat.tensors.digests import digest_of
from karat.tensors.dtypes import CODES, dtype_named
from karat.tensors.tensor import Damaged, Tensor


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
    arrays = {name: np.full(shape, index + 1, dtype) for index, (name, (dtype, shape)) in enumerate(wanted.items())}
    path = tmp_path_factory.mktemp("written") / "t.safetensors"
    sealed, digests = write_safetensors(path, {name: tensor_of(array) for name, array in arrays.items()})
    data = path.read_bytes()
    header = header_of(data)
    assert header.entries.keys() == arrays.keys()
    assert header.sha256 == sealed == sha256(data[: header.start]).hexdigest()
    for name, array in arrays.items():
        begin, end = header.entries[name].data_offsets
        assert data[header.start + begin : header.start + end] == array.tobytes()
        assert digests[name] == digest_of(tensor_of(array))
    # The library reads it, and sees no metadata.
    known = dict(safetensors.deserialize(data))  # type: ignore[no-untyped-call]
    assert known.keys() == arrays.keys()
    assert b"__metadata__" not in data[: header.start]


def test_the_bytes_are_those_that_the_library_would_write(tmp_path: Path) -> None:
    made: dict[str, Tensor] = {}
    specs, alive, odd = {}, [], 'zä"\x1f\n/\\'
    for n, name in enumerate(reversed(list(CODES))):
        called, data = odd[n % len(odd)] + str(n), np.arange(2 * dtype_named(name).itemsize, dtype=np.uint8)
        made[called] = Tensor(dtype=name, shape=(2,), data=data.data)
        specs[called] = safetensors.TensorSpec(dtype=name, shape=[2], data_ptr=data.ctypes.data, data_len=data.size)
        alive.append(data)
    safetensors.serialize_file(specs, tmp_path / "library")
    write_safetensors(tmp_path / "karat", made)
    assert (tmp_path / "karat").read_bytes() == (tmp_path / "library").read_bytes()


@pytest.mark.slow
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
            [sys.executable, "-c", program, str(path), names], env={**os.environ, "PYTHONHASHSEED": seed}, check=True
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
        (file_of(b'{"a":%s,"a":%s}' % ((json.dumps(entry(0, 5)).encode(),) * 2), b"12345"), "twice"),
        (file_of({"__metadata__": {"format": "pt"}, "a": entry(0, 5)}, b"12345"), "JSON"),
        ((1 << 60).to_bytes(8, "little") + b"{}", "1,152,921,504,606,846,976"),
        (file_of(b'{"a":' * 100_000), "JSON"),
    ],
    ids=[
        "empty",
        "short",
        "html",
        "cut",
        "no text",
        "list",
        "cut data",
        "trailing",
        "overlap",
        "gap",
        "late",
        "unknown field",
        "backwards",
        "odd shape",
        "twice",
        "metadata",
        "huge",
        "deep",
    ],
)
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
    assert sum(e.data_offsets[1] - e.data_offsets[0] for e in header.entries.values()) == (len(data) - header.start)


@pytest.mark.slow
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


GOOD = f"input\tinput/0\tfloat32\t2x3\t24\t{'0' * 64}\tinput.0.bin"


def table(*lines: str) -> bytes:
    return "\n".join([FIRST, *lines, ""]).encode()


def test_what_is_written_is_read(tmp_path: Path) -> None:
    arrays = {"input/0": np.arange(6, dtype="f4").reshape(2, 3), "input/é": np.int64(4)}
    rows = write_raw(tmp_path, [("input", name, tensor_of(a)) for name, a in arrays.items()])
    assert [row.shape for row in rows] == [(2, 3), ()]
    for row, extent in read_raw(tmp_path):
        data = read_all(extent.extent)
        assert data == arrays[row.name].tobytes()
        assert row.digest == digest_of(tensor_of(arrays[row.name]))
    first, line, *_ = (tmp_path / TABLE).read_text(encoding="utf-8").split("\n")
    assert first == "karat-raw 2"
    assert line.split("\t")[:5] == ["input", "input/0", "float32", "2x3", "24"]


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), unique=True))
def test_files_are_unique_wherever_case_is_ignored(names: list[str]) -> None:
    files = [*file_names(names).values()]
    assert len({file.lower() for file in files}) == len(names)
    assert all(file.isascii() and len(file) <= 120 and "/" not in file for file in files)


@pytest.mark.slow
@given(
    st.lists(
        st.builds(
            RawRow,
            role=st.sampled_from(["input", "expected", "output"]),
            name=st.text(st.characters(exclude_characters="\t\n\r", exclude_categories=["Cs"])),
            dtype=st.just("uint8"),
            shape=st.just((3,)),
            nbytes=st.just(3),
            digest=st.sampled_from(["", "a" * 64, "blake3:" + "a" * 64]),
            file=st.from_regex(r"\A[a-z0-9]{1,20}\.bin\Z"),
        ),
        unique_by=(lambda row: row.name, lambda row: row.file),
    )
)
def test_a_table_is_read_as_it_was_written(rows: list[RawRow]) -> None:
    assert decode_rows(encode_rows(rows)) == tuple(rows)
    windows = encode_rows(rows).replace(b"\n", b"\r\n")
    assert decode_rows(windows) == tuple(rows)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "first line"),
        (b"<html>", "first line"),
        (b"karat-raw 3\n", "first line"),
        (b"\xff\xfe", "UTF-8"),
        (table("a\tb"), "line 2: expected 7 or 8 fields"),
        (table(GOOD.replace("2x3", "2x")), "line 2"),
        (table(GOOD.replace("\t24\t", "\t25\t")), "24 bytes"),
        (table(GOOD.replace("\t24\t", "\t-24\t")), "line 2"),
        (table(GOOD.replace("float32", "float99")), "float99"),
        (table(GOOD.replace("input.0.bin", "../x")), "line 2"),
        (table(GOOD.replace("input.0.bin", "/etc/passwd")), "line 2"),
        (table(GOOD.replace("input.0.bin", ".hidden")), "line 2"),
        (table(f"{GOOD}\t3x1"), "without gaps, not in C order, found 3x1"),
        (table(f"{GOOD}\t1x3"), "without gaps"),
        (table(GOOD, GOOD), "twice"),
        (table(GOOD, GOOD.replace("input/0", "input/1").replace(".0.", ".0.")), "twice"),
        (table(GOOD.replace("0" * 64, "xyz")), "line 2"),
    ],
)
def test_a_table_that_nobody_wrote_is_damage(data: bytes, words: str) -> None:
    with pytest.raises(Damaged, match="expected") as caught:
        decode_rows(data)
    assert words in str(caught.value)


@given(st.binary(max_size=100))
def test_arbitrary_bytes_never_crash_the_raw_reader(data: bytes) -> None:
    for each in (data, FIRST.encode() + b"\n" + data):
        try:
            rows = decode_rows(each)
        except Damaged:
            continue
        assert isinstance(rows, tuple)


def test_a_file_of_another_size_or_none_is_damage(tmp_path: Path) -> None:
    write_raw(tmp_path, [("output", "expected", tensor_of(np.ones(4)))])
    file = tmp_path / "expected.bin"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(Damaged, match="expected 32 bytes, found 31"):
        read_raw(tmp_path)
    file.unlink()
    with pytest.raises(Damaged, match="No such file"):
        read_raw(tmp_path)
    (tmp_path / TABLE).unlink()
    with pytest.raises(Damaged, match=r"tensors\.txt"):
        read_raw(tmp_path)
