from __future__ import annotations

import io
import shutil
import subprocess
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings, strategies as st

from conftest import missing
from karat.bundles.zips import WHOLE, ZSTD, ZipMember, directory, local_header, read_members
from karat.store.zips import Compression, ZipWriter
from karat.tensors.tensor import Damaged

NAMES = st.lists(
    st.text(st.characters(codec="utf-8", exclude_characters="\0\\"), min_size=1, max_size=20), unique=True, max_size=6
)
COMPRESSIONS: tuple[Compression, ...] = ("stored", "deflate", "zstd")


def written(files: Iterable[tuple[str, bytes]], compression: Compression = "stored") -> bytes:
    sink = io.BytesIO()
    writer = ZipWriter(sink, compression)
    for name, data in files:
        writer.add(name, (data[i : i + 7] for i in range(0, len(data), 7)), len(data))
    writer.close()
    return sink.getvalue()


@pytest.mark.slow
@given(NAMES.flatmap(lambda names: st.tuples(*(st.tuples(st.just(n), st.binary()) for n in names))))
@settings(max_examples=60)
@pytest.mark.parametrize("compression", ["stored", "deflate"])
def test_python_reads_what_was_written(compression: Compression, files: tuple[tuple[str, bytes], ...]) -> None:
    data = written(files, compression)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        assert [(i.orig_filename, archive.read(i)) for i in archive.infolist()] == list(files)
    assert [m.name for m in read_members(io.BytesIO(data))] == [name for name, _ in files]


@pytest.mark.slow
@given(st.binary(min_size=1, max_size=400), st.data())
@settings(max_examples=200)
def test_every_flipped_bit_outside_the_data_is_noticed(content: bytes, draw: st.DataObject) -> None:
    data = bytearray(written([("a/b.bin", content), ("ü", b"xy")]))
    members = read_members(io.BytesIO(bytes(data)))
    inside = {i for m in members for i in range(m.data, m.end)}
    at = draw.draw(st.sampled_from([i for i in range(len(data)) if i not in inside]))
    data[at] ^= 1 << draw.draw(st.integers(0, 7))
    with pytest.raises(Damaged):
        read_members(io.BytesIO(bytes(data)))


def test_a_directory_that_begins_elsewhere_is_damaged() -> None:
    data = bytearray(written([("a/b.bin", b"0"), ("ü", b"xy")]))
    data[-6] += 1  # the offset in the end record
    with pytest.raises(Damaged, match="other bytes in it"):
        read_members(io.BytesIO(bytes(data)))


@given(st.binary(max_size=300))
def test_reading_members_of_anything_is_damaged_and_nothing_else(data: bytes) -> None:
    with pytest.raises(Damaged):
        read_members(io.BytesIO(data))
    with pytest.raises(Damaged):
        read_members(io.BytesIO(written([("a", b"1")]) + data[:40] + b"\x01"))


def test_zstd_members_hold_whole_frames_with_a_checksum() -> None:
    content = bytes(range(256)) * 40
    data = written([("t.bin", content)], "zstd")
    (member,) = read_members(io.BytesIO(data))
    assert member.method == ZSTD
    packed = data[member.data : member.end]
    assert zstandard.ZstdDecompressor().decompressobj().decompress(packed) == content
    assert zstandard.get_frame_parameters(packed).has_checksum
    assert member.packed < member.size


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_other_tools_find_nothing_wrong(tmp_path: Path, compression: Compression) -> None:
    path = tmp_path / "a.zip"
    files = [("suite/flow/ä/manifest.json", b"{}"), ("suite/flow/ä/x.bin", bytes(10_000))]
    path.write_bytes(written(files, compression))
    tools = {"unzip": ["unzip", "-t"], "bsdtar": ["bsdtar", "-xOf"], "7zz": ["7zz", "t"]}
    # Info-ZIP's unzip knows no zstd.
    able = ["bsdtar", "7zz"] if compression == "zstd" else ["unzip", "bsdtar", "7zz"]
    found = [tool for tool in able if shutil.which(tool)]
    if not found:
        missing(f"one of {', '.join(able)} (apt install libarchive-tools 7zip unzip)")
    for tool in found:
        done = subprocess.run([*tools[tool], str(path)], capture_output=True, check=False)
        assert done.returncode == 0, done


def test_unzip_gives_plain_files(tmp_path: Path) -> None:
    if shutil.which("unzip") is None:
        missing("unzip (apt install unzip)")
    (tmp_path / "a.zip").write_bytes(written([("s/f/c/m.json", b"{}")]))
    subprocess.run(["unzip", "-q", "a.zip"], cwd=tmp_path, check=True, env={"TZ": "UTC", "PATH": "/usr/bin"})
    made = tmp_path / "s/f/c/m.json"
    assert made.read_bytes() == b"{}"
    assert made.stat().st_mode & 0o777 == 0o644
    assert int(made.stat().st_mtime) == 315532800, "1980-01-01"


class Holes(io.FileIO):
    """A file that keeps zeros as holes, so that gigabytes cost nothing."""

    def write(self, data: Any) -> int:
        if len(data) == len(ZEROS):
            self.seek(len(data), 1)
            return len(data)
        return super().write(data)


ZEROS = bytes(64 << 20)


@pytest.mark.slow
def test_beyond_four_gigabytes(tmp_path: Path) -> None:
    path = tmp_path / "large.zip"
    size = 64 * len(ZEROS) + 7
    with Holes(path, "w+") as sink:
        writer = ZipWriter(sink)
        writer.add("zeros", (*(ZEROS for _ in range(64)), bytes(7)), size)
        writer.add("after", [b"the end"], 7)
        writer.close()
    assert path.stat().st_blocks * 512 < 1 << 20, "it is sparse"
    with zipfile.ZipFile(path) as archive:
        zeros, after = archive.infolist()
        assert (zeros.file_size, zeros.compress_size, zeros.CRC) == (size, size, 0x6522DF69)
        assert after.header_offset > WHOLE
        assert archive.read(after) == b"the end"
        with archive.open(zeros) as first:
            assert first.read(100) == bytes(100)
    with path.open("rb") as file:
        assert [m.size for m in read_members(file)] == [size, 7]
    if shutil.which("unzip"):
        listed = subprocess.run(["unzip", "-l", path], capture_output=True, check=True, text=True)
        assert str(size) in listed.stdout


@pytest.mark.slow
def test_more_members_than_sixteen_bits_count() -> None:
    data = written((f"{i:05x}", b"") for i in range(66_000))
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert len(archive.infolist()) == 66_000
        assert archive.read(archive.infolist()[-1]) == b""
    assert len(read_members(io.BytesIO(data))) == 66_000


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_members_are_taken_over_as_they_lie(compression: Compression) -> None:
    parts = [[("a/1", b"one" * 50), ("a/2", b"")], [("b/1", b"three")]]
    sink = io.BytesIO()
    writer = ZipWriter(sink, compression)
    for part in parts:
        data = written(part, compression)
        for member in read_members(io.BytesIO(data)):
            writer.take(member, [data[member.start : member.end]])
    writer.close()
    assert sink.getvalue() == written([*parts[0], *parts[1]], compression)


def test_a_file_that_changes_meanwhile_is_not_packed() -> None:
    writer = ZipWriter(io.BytesIO())
    with pytest.raises(Damaged, match="expected 5 bytes of x, found 4"):
        writer.add("x", [b"1234"], 5)
    member = ZipMember(name="y", method=0, size=3, packed=3, crc=0, start=0)
    with pytest.raises(Damaged):
        ZipWriter(io.BytesIO()).take(member, [local_header(member), b"12"])


def test_nothing_lies_between_members_and_directory() -> None:
    member = ZipMember(name="n", method=0, size=1, packed=1, crc=zlib.crc32(b"x"), start=0)
    head = local_header(member) + b"x"
    assert read_members(io.BytesIO(head + directory([member], len(head)))) == (member,)
    with pytest.raises(Damaged, match="expected the directory at byte"):
        read_members(io.BytesIO(head + b"junk" + directory([member], len(head) + 4)))


def test_a_directory_says_what_its_members_say() -> None:
    crc = zlib.crc32(b"x")
    member = ZipMember(name="n", method=0, size=1, packed=1, crc=crc, start=0)
    assert written([("n", b"x")]) == local_header(member) + b"x" + directory([member], member.end)
