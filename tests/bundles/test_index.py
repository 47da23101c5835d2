from __future__ import annotations

import io
import json
import zipfile
from hashlib import sha256
from pathlib import Path

import jsonschema
import msgspec
import numpy as np
import pytest
from hypothesis import given, strategies as st

from karat.bundles.index import (
    NAME,
    Index,
    IndexedArchive,
    IndexedCase,
    IndexedFile,
    build,
    check,
    decode,
    encode,
    read,
)
from karat.bundles.places import open_place
from karat.findings import Finding
from karat.schemas import names, schema
from karat.store.zips import ZipWriter
from karat.tensors.arrays import tensor_of
from karat.tensors.digests import digest_of
from karat.tensors.tensor import Damaged

HEX = st.text("0123456789abcdef", min_size=64, max_size=64)
PATHS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)
INDEXES = st.builds(
    build,
    st.just("0.1.0"),
    st.lists(st.builds(IndexedCase, path=PATHS, sha256=HEX), max_size=4),
    st.lists(st.builds(IndexedFile, path=PATHS, size=st.integers(0, 2**62)), max_size=4),
    st.none() | st.builds(IndexedArchive, size=st.integers(0, 2**62), sha256=HEX, digest=st.none() | HEX),
)
FILES = {"s/f/c/manifest.json": b'{"sha256":"' + b"a" * 64 + b'"}', "s/f/c/x.bin": b"12345"}


def index_of(files: dict[str, bytes], archive: IndexedArchive | None = None) -> Index:
    listed = [IndexedFile(path=path, size=len(data)) for path, data in files.items()]
    return build("0.1.0", [IndexedCase(path="s/f/c", sha256="a" * 64)], listed, archive)


def folder(tmp_path: Path, files: dict[str, bytes]) -> Path:
    for path, data in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(data)
    return tmp_path


def checked(root: Path, index: Index) -> tuple[Finding, ...]:
    place = open_place(root)
    try:
        return tuple(check(place, index))
    finally:
        place.close()


@pytest.mark.slow
@given(INDEXES)
def test_an_index_comes_back_as_it_was(index: Index) -> None:
    assert decode(encode(index)) == index
    assert [c.path for c in index.cases] == sorted(c.path for c in index.cases)
    assert [f.path for f in index.files] == sorted(f.path for f in index.files)


@given(INDEXES, st.data())
def test_every_flipped_bit_of_an_index_is_noticed(index: Index, draw: st.DataObject) -> None:
    data = bytearray(encode(index))
    data[draw.draw(st.integers(0, len(data) - 1))] ^= 1 << draw.draw(st.integers(0, 7))
    with pytest.raises(Damaged):
        decode(bytes(data))


@given(st.binary(max_size=80))
def test_anything_else_is_damaged_and_nothing_worse(data: bytes) -> None:
    with pytest.raises(Damaged):
        decode(data)


def test_an_index_fits_its_schema() -> None:
    assert "karat.index/1" in names()
    index = index_of(FILES, IndexedArchive(size=3, sha256="0" * 64))
    jsonschema.validate(json.loads(encode(index)), schema("karat.index/1"))


def test_another_schema_is_named() -> None:
    other = msgspec.structs.replace(index_of(FILES), schema="karat.index/2")
    with pytest.raises(Damaged, match=r"expected schema karat\.index/1, found .karat\.index/2"):
        decode(encode(other))


def test_a_folder_that_is_as_indexed(tmp_path: Path) -> None:
    root = folder(tmp_path, FILES)
    assert checked(root, index_of(FILES)) == ()


@pytest.mark.parametrize(
    ("path", "data", "kind", "said"),
    [
        ("s/f/c/manifest.json", b'{"sha256":"' + b"b" * 64 + b'"}', "bundle-damaged", "the seal aaaa"),
        ("s/f/c/x.bin", b"1234", "bundle-damaged", "expected 5 bytes, found 4"),
        ("s/f/c/x.bin", None, "bundle-damaged", "expected by the index, found nothing"),
        ("s/f/c/y.bin", b"", "unexpected-file", "found a file that it does not know"),
        ("y", b"1", "unexpected-file", "found a file that it does not know"),
    ],
)
def test_what_is_not_as_indexed_is_named(tmp_path: Path, path: str, data: bytes | None, kind: str, said: str) -> None:
    root = folder(tmp_path, FILES)
    if data is None:
        (root / path).unlink()
    else:
        (root / path).write_bytes(data)
    (finding,) = checked(root, index_of(FILES))
    assert (finding.kind, finding.severity, finding.path) == (kind, "fail", path)
    assert said in finding.message
    assert finding.next


def test_a_manifest_with_another_seal_is_named(tmp_path: Path) -> None:
    root = folder(tmp_path, FILES)
    other = msgspec.structs.replace(index_of(FILES), cases=(IndexedCase(path="s/f/c", sha256="b" * 64),))
    (finding,) = checked(root, other)
    assert "expected the seal bbbb" in finding.message


def archive_of(data: bytes) -> IndexedArchive:
    digest = digest_of(tensor_of(np.frombuffer(data, np.uint8)))
    return IndexedArchive(size=len(data), sha256=sha256(data).hexdigest(), digest=digest)


def packed(path: Path, files: dict[str, bytes]) -> Path:
    with path.open("x+b") as file:
        writer = ZipWriter(file)
        for name, data in files.items():
            writer.add(name, [data], len(data))
        file.seek(0)
        archive = archive_of(file.read())
        data = encode(index_of(files, archive))
        writer.add(NAME, [data], len(data), stored=True)
        writer.close()
    return path


@pytest.mark.slow
def test_every_flipped_bit_of_a_zip_is_noticed(tmp_path: Path) -> None:
    """Every one: the reader refuses it, the index does not decode, or the check objects."""
    path = packed(tmp_path / "a.zip", FILES)
    whole = path.read_bytes()
    unnoticed = []
    for bit in range(0, 8 * len(whole), 3):
        data = bytearray(whole)
        data[bit // 8] ^= 1 << (bit % 8)
        path.write_bytes(data)
        unnoticed += [] if _objects(path) else [bit]
    assert unnoticed == []
    path.write_bytes(whole)
    assert not _objects(path)


def _objects(path: Path) -> bool:
    from karat.findings import KaratError

    try:
        place = open_place(path)
        index = read(place)
        return index is None or bool(tuple(check(place, index)))
    except (Damaged, KaratError):
        return True


def test_a_zip_packed_anew_by_another_tool_is_no_longer_karat_s(tmp_path: Path) -> None:
    path = packed(tmp_path / "a.zip", FILES)
    again = io.BytesIO()
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(again, "w") as new:
        for info in old.infolist():
            new.writestr(info.filename, old.read(info))
    path.write_bytes(again.getvalue())
    place = open_place(path)
    index = read(place)
    assert index is not None
    (finding,) = check(place, index)
    assert "another tool repacked" in finding.message


def test_what_lies_between_the_archive_s_end_and_the_index_is_noticed(tmp_path: Path) -> None:
    """Listed, and in no one's hash."""
    more = {**FILES, "s/f/c/y.bin": b"more"}
    with (tmp_path / "a.zip").open("x+b") as file:
        writer = ZipWriter(file)
        for name, data in FILES.items():
            writer.add(name, [data], len(data))
        file.seek(0)
        archive = archive_of(file.read())
        writer.add("s/f/c/y.bin", [b"more"], 4)
        index = encode(index_of(more, archive))
        writer.add(NAME, [index], len(index), stored=True)
        writer.close()
    place = open_place(tmp_path / "a.zip")
    (finding,) = check(place, decode(index))
    assert "bytes before index.json, found" in finding.message


def test_a_place_without_an_index_has_none(tmp_path: Path) -> None:
    assert read(open_place(folder(tmp_path, FILES))) is None
