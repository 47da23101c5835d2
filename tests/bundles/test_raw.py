"""The raw form: a table and bytes."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from karat.bundles.extents import read_all
from karat.bundles.tensor_files import (
    FIRST,
    TABLE,
    RawRow,
    decode_rows,
    encode_rows,
    file_names,
    read_raw,
    write_raw,
)
from karat.tensors.arrays import tensor_of
from karat.tensors.tensor import Damaged

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
        assert row.sha256 == sha256(data).hexdigest()
    first, line, *_ = (tmp_path / TABLE).read_text(encoding="utf-8").split("\n")
    assert first == "karat-raw 1"
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
            sha256=st.sampled_from(["", "a" * 64]),
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
        (b"karat-raw 2\n", "first line"),
        (b"\xff\xfe", "UTF-8"),
        (table("a\tb"), "line 2: expected 7 fields"),
        (table(GOOD.replace("2x3", "2x")), "line 2"),
        (table(GOOD.replace("\t24\t", "\t25\t")), "24 bytes"),
        (table(GOOD.replace("\t24\t", "\t-24\t")), "line 2"),
        (table(GOOD.replace("float32", "float99")), "float99"),
        (table(GOOD.replace("input.0.bin", "../x")), "line 2"),
        (table(GOOD.replace("input.0.bin", "/etc/passwd")), "line 2"),
        (table(GOOD.replace("input.0.bin", ".hidden")), "line 2"),
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
def test_arbitrary_bytes_never_crash_the_reader(data: bytes) -> None:
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
