"""Places: folders and zips, sound and not."""

from __future__ import annotations

import io
import os
import socket
import stat
import struct
import zipfile
import zlib
from pathlib import Path

import msgspec
import pytest
import zstandard
from hypothesis import given, strategies as st

from conftest import missing
from karat.bundles.extents import read_all
from karat.bundles.places import BadPlace, FolderPlace, Place, open_place
from karat.bundles.zips import DEFLATE, STORED, ZSTD, ZipMember, bundle_limits, directory, local_header
from karat.findings import CannotVerify, ExitCode, UsageError
from karat.system.archives import Limits
from karat.system.foreign.limits import DENSE
from karat.tensors.tensor import Damaged

LARGE = bytes(range(256)) * (70_000)  # 17 MiB: more than what is unpacked into memory


def packed(files: dict[str, bytes], method: int) -> bytes:
    """A zip in the form that `karat pack` writes."""
    out, members = b"", []
    for name, data in files.items():
        body = squeezed(data, method)
        member = ZipMember(
            name=name, method=method, size=len(data), packed=len(body), crc=zlib.crc32(data), start=len(out)
        )
        members.append(member)
        out += local_header(member) + body
    return out + directory(members, len(out))


def squeezed(data: bytes, method: int) -> bytes:
    if method == ZSTD:
        return zstandard.ZstdCompressor().compress(data)
    if method == DEFLATE:
        packer = zlib.compressobj(1, zlib.DEFLATED, -15)
        return packer.compress(data) + packer.flush()
    return data


def opened(tmp_path: Path, data: bytes, limits: Limits | None = None) -> Place:
    path = tmp_path / "some bundle.zip"
    path.write_bytes(data)
    return open_place(path, limits=limits)


def bad(tmp_path: Path, data: bytes, limits: Limits | None = None) -> BadPlace:
    with pytest.raises(BadPlace) as caught:
        opened(tmp_path, data, limits)
    error = caught.value
    assert error.exit_code == ExitCode.FAIL
    assert error.next_command.startswith("file '")
    assert error.finding.severity == "fail"
    assert "some bundle.zip: expected" in str(error)
    return error


@pytest.mark.parametrize("method", [STORED, DEFLATE, ZSTD])
@pytest.mark.parametrize("size", [0, 1, 1000, len(LARGE)])
def test_members_are_read_in_any_order(tmp_path: Path, method: int, size: int) -> None:
    data = LARGE[:size]
    place = opened(tmp_path, packed({"b/x": data, "a é": b"other"}, method))
    assert dict(place.files()) == {"a é": 5, "b/x": size}
    assert [*place.files()] == ["a é", "b/x"]
    extent = place.extent("b/x")
    assert read_all(extent) == data
    assert extent.seekable == (method == STORED or size < len(LARGE))
    reader = extent.open()
    for start, end in ((0, size // 2), (size // 2, size), (size // 3, size // 2), (0, size)):
        buffer = bytearray(end - start)
        reader.read_into(start, memoryview(buffer))
        assert buffer == data[start:end]
    with pytest.raises(Damaged, match="in all"):
        reader.read_into(size, memoryview(bytearray(1)))
    reader.close()
    assert place.read("a é") == b"other"
    place.close()


@given(st.integers(0, 400), st.integers(1, 255))
def test_a_flipped_byte_is_damage_or_changes_what_is_read(
    tmp_path_factory: pytest.TempPathFactory, at: int, flip: int
) -> None:
    """Packed bytes are vouched for by their checksum; stored ones by digests, higher up."""
    tmp_path = tmp_path_factory.mktemp("flipped")
    content = b"".join(b"%d, " % number for number in range(200))
    for method in (DEFLATE, ZSTD):
        good = packed({"x": content}, method)
        data = bytearray(good)
        data[at % len(data)] ^= flip
        try:
            place = opened(tmp_path, bytes(data))
            assert dict(place.files()) == {"x": len(content)}
            assert place.read("x") == content
        except (BadPlace, Damaged, AssertionError, UsageError):
            continue
        # Only bytes that no reader needs: times, versions, attributes and the like.
        assert data[31 : 31 + len(squeezed(content, method))] == squeezed(content, method)


def test_an_html_page_is_no_bundle(tmp_path: Path) -> None:
    error = bad(tmp_path, b"<!DOCTYPE html><html><body>404</body></html>")
    assert error.finding.kind == "not-a-bundle"
    assert "an HTML page" in str(error)


@pytest.mark.parametrize("data", [b"", b"{}", b"\x1f\x8b123", b"junk" * 100])
def test_something_else_is_no_bundle(tmp_path: Path, data: bytes) -> None:
    assert bad(tmp_path, data).finding.kind == "not-a-bundle"


def test_a_cut_zip_is_damaged(tmp_path: Path) -> None:
    whole = packed({"x": b"123" * 100}, STORED)
    for length in (4, 40, len(whole) // 2, len(whole) - 1):
        assert bad(tmp_path, whole[:length]).finding.kind == "bundle-damaged"


def test_a_zip_with_something_in_front_is_damaged(tmp_path: Path) -> None:
    assert bad(tmp_path, b"junk" + packed({"x": b"1"}, STORED)).finding.kind == "bundle-damaged"


def test_an_encrypted_zip_is_refused(tmp_path: Path) -> None:
    data = bytearray(packed({"x": b"1"}, STORED))
    for magic, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(magic) + offset] |= 1
    assert "encrypted" in str(bad(tmp_path, bytes(data)))


@pytest.mark.parametrize("name", ["../x", "/x", "a\\b", "C:x", "a\x01b"])
def test_names_that_climb_or_hide_are_refused(tmp_path: Path, name: str) -> None:
    assert bad(tmp_path, packed({name: b"1"}, STORED)).finding.kind == "bundle-damaged"


def test_names_that_collide_are_refused(tmp_path: Path) -> None:
    assert "beside" in str(bad(tmp_path, packed({"A": b"1", "a": b"2"}, STORED)))


def test_links_in_a_zip_are_refused(tmp_path: Path) -> None:
    out = io.BytesIO()
    info = zipfile.ZipInfo("x")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(info, "/etc/passwd")
    assert "a symbolic link" in str(bad(tmp_path, out.getvalue()))


def test_a_bomb_is_refused_and_a_tensor_of_zeros_is_not(tmp_path: Path) -> None:
    zeros = bytes(32 << 20)
    for method in (DEFLATE, ZSTD):
        place = opened(tmp_path, packed({"x": zeros}, method))
        assert read_all(place.extent("x")) == zeros
    low = msgspec.structs.replace(bundle_limits(), ratio_floor=1 << 20)
    assert "a bomb" in str(bad(tmp_path, packed({"x": zeros}, ZSTD), low))
    most = DENSE.value()
    assert "a bomb; KARAT_MAX_DENSE_MB changes the limit" in str(bad(tmp_path, claiming(most + 1, 1)))
    assert "a bomb" in str(bad(tmp_path, claiming(most // 16, 17)))
    assert len(opened(tmp_path, claiming(most, 1)).files()) == 1
    assert len(opened(tmp_path, claiming(most // 16, 16)).files()) == 16


def test_what_deflate_packs_a_thousandfold_counts_as_dense(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DENSE.variable, "31")
    assert "a bomb" in str(bad(tmp_path, packed({"x": bytes(32 << 20)}, DEFLATE)))


def claiming(size: int, count: int) -> bytes:
    """A zip of members that say they unpack to so many bytes."""
    out, members = b"", []
    for number in range(count):
        body = squeezed(b"0", ZSTD)
        member = ZipMember(name=f"{number}", method=ZSTD, size=size, packed=len(body), crc=0, start=len(out))
        members.append(member)
        out += local_header(member) + body
    return out + directory(members, len(out))


def test_too_many_members_are_refused(tmp_path: Path) -> None:
    data = packed({f"{number}": b"" for number in range(20)}, STORED)
    assert "at most 10 members" in str(bad(tmp_path, data, Limits(members=10)))


def test_a_method_nobody_knows_is_refused(tmp_path: Path) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("x", "1" * 100)
    assert "method 12" in str(bad(tmp_path, out.getvalue()))


def test_a_zip_of_any_other_tool_is_read(tmp_path: Path) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("streamed", "w", force_zip64=True) as member:
            member.write(b"1234" * 1000)
        archive.writestr("plain", b"x", zipfile.ZIP_STORED)
        archive.mkdir("folder")
    place = opened(tmp_path, out.getvalue())
    assert place.read("streamed") == b"1234" * 1000
    assert place.read("plain") == b"x"


def test_a_local_header_that_disagrees_with_the_directory_is_damage(tmp_path: Path) -> None:
    data = bytearray(packed({"abc": b"12345"}, STORED))
    data[30] ^= 1
    with pytest.raises(Damaged, match="fits the zip's directory"):
        opened(tmp_path, bytes(data)).read("abc")


def test_a_zip_that_changes_while_it_is_open_is_damage(tmp_path: Path) -> None:
    place = opened(tmp_path, packed({"x": b"12345"}, STORED))
    (tmp_path / "some bundle.zip").write_bytes(b"")
    with pytest.raises(Damaged, match="changed while it was read"):
        place.read("x")
    (tmp_path / "some bundle.zip").unlink()
    with pytest.raises(Damaged, match="No such file"):
        place.read("x")


def test_a_packed_member_that_says_another_size_is_damage(tmp_path: Path) -> None:
    content = b"0123456789" * 100
    for size in (len(content) - 1, len(content) + 1):
        data = bytearray(packed({"x": content}, DEFLATE))
        for magic, offset in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
            struct.pack_into("<L", data, data.index(magic) + offset, size)
        with pytest.raises(Damaged, match="x: expected"):
            opened(tmp_path, bytes(data)).read("x")


def test_without_zstandard_a_zstd_zip_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(UsageError) as caught:
        opened(tmp_path, packed({"x": b"1"}, ZSTD))
    assert caught.value.next_command == "pip install 'karat[zstd]'"


def test_a_folder_lists_plain_files_with_any_name(tmp_path: Path) -> None:
    for name in ("b/ü x", "a", ".karat-staging/x", ".karat.json", "b/.karat-inside"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    place = open_place(str(tmp_path))
    assert [*place.files()] == ["a", "b/.karat-inside", "b/ü x"]
    assert place.read("b/ü x") == "b/ü x".encode()
    assert place.findings() == ()
    with pytest.raises(Damaged, match="found nothing"):
        place.extent("../x")


def test_links_pipes_and_sockets_are_findings_and_never_opened(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    root = tmp_path / "root"
    root.mkdir()
    (root / "link").symlink_to(tmp_path / "target")
    (root / "loop").symlink_to(root)
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.fspath(root / "socket"))
    place = open_place(root)
    assert dict(place.files()) == {}
    told = {finding.path: finding for finding in place.findings()}
    assert told.keys() == {"link", "loop", "pipe", "socket"}
    assert all(f.kind == "unexpected-file" and f.severity == "fail" for f in told.values())
    assert "symbolic link" in told["loop"].message


def test_a_file_that_becomes_a_pipe_a_link_or_nothing_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"123")
    place = open_place(tmp_path)
    path.unlink()
    with pytest.raises(Damaged, match="No such file"):
        place.read("x")
    os.mkfifo(path)
    with pytest.raises(Damaged, match="plain file"):
        place.read("x")
    path.unlink()
    path.symlink_to("/etc/passwd")
    with pytest.raises(Damaged, match="readable file"):
        place.read("x")


def test_a_file_larger_than_the_limit_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"12345")
    with pytest.raises(Damaged, match="at most 4 bytes"):
        open_place(tmp_path).read("x", 4)


def test_names_that_collide_in_a_folder_are_told(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")
    (tmp_path / "A").write_bytes(b"")
    if len([*tmp_path.iterdir()]) == 1:
        missing("a file system that tells A from a")
    (told,) = open_place(tmp_path).findings()
    assert "which some file systems take for the same" in told.message


def test_names_that_are_no_text_are_told(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff")).write_bytes(b"")
    (tmp_path / "a\nb").write_bytes(b"")
    place = open_place(tmp_path)
    assert dict(place.files()) == {}
    for finding in place.findings():
        assert finding.kind == "unexpected-file"
        finding.message.encode()


def test_what_is_not_there_or_neither_is_wrong_usage(tmp_path: Path) -> None:
    for word in (tmp_path / "none", tmp_path / "none" / "none", "a\0b", Path(os.devnull)):
        with pytest.raises(UsageError, match="expected a folder or a zip"):
            open_place(word)


def test_what_cannot_be_read_cannot_be_verified(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(CannotVerify, match="symbolic links"):
        open_place(tmp_path / "loop")


def test_a_link_to_a_place_is_that_place(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "x").write_bytes(b"1")
    (tmp_path / "link").symlink_to("real")
    place = open_place(tmp_path / "link")
    assert isinstance(place, FolderPlace)
    assert place.read("x") == b"1"


def test_nothing_is_left_open(tmp_path: Path) -> None:
    handles = Path("/proc/self/fd")
    if not handles.exists():
        missing("/proc")
    before = len([*handles.iterdir()])
    place = opened(tmp_path, packed({"x": LARGE}, DEFLATE))
    read_all(place.extent("x"))
    place.close()
    assert len([*handles.iterdir()]) == before
