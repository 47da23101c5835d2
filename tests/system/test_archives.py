"""Archives: hostile ones are made by hand, byte by byte where the library would not."""

from __future__ import annotations

import io
import stat
import struct
import tracemalloc
import unicodedata
import warnings
import zipfile
from collections.abc import Callable, Mapping

import pytest
from hypothesis import given, settings, strategies as st

from karat.findings import KINDS
from karat.system.archives import Archive, Limits, Unusable, find_directory
from karat.system.names import folded


def packed(members: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return out.getvalue()


def packed_infos(*infos: tuple[zipfile.ZipInfo, bytes]) -> bytes:
    out = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # duplicate names are the point
        with zipfile.ZipFile(out, "w") as archive:
            for info, data in infos:
                archive.writestr(info, data)
    return out.getvalue()


def info(name: str, mode: int = stat.S_IFREG | 0o644) -> zipfile.ZipInfo:
    made = zipfile.ZipInfo(name)
    made.external_attr = mode << 16
    return made


def open_bytes(data: bytes, limits: Limits | None = None) -> Archive:
    return Archive(io.BytesIO(data), limits)


def unpacked(data: bytes, limits: Limits | None = None) -> dict[str, bytes]:
    archive = open_bytes(data, limits)
    found = {}
    for member in archive.wanted(lambda _: True):
        target = io.BytesIO()
        archive.extract(member, target)
        found[member.name] = target.getvalue()
    return found


def refusal(data: bytes, limits: Limits | None = None) -> Unusable:
    with pytest.raises(Unusable) as caught:
        unpacked(data, limits)
    return caught.value


NAMES = st.lists(st.text(st.characters(categories=("L", "N")), min_size=1, max_size=8), min_size=1, max_size=3).map(
    "/".join
)


@pytest.mark.slow
@given(
    st.dictionaries(NAMES, st.binary(max_size=2000), max_size=6),
    st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]),
)
def test_what_was_packed_is_unpacked(members: dict[str, bytes], method: int) -> None:
    keys = [folded(name) for name in members]
    clash = len(set(keys)) < len(keys) or any(
        one != other and one.startswith(f"{other}/") for one in keys for other in keys
    )
    data = packed(members, method)
    if clash:
        assert refusal(data).kind == "archive-refused"
    else:
        assert unpacked(data) == members
        assert set(open_bytes(data).names) == members.keys()


@pytest.mark.slow
@settings(max_examples=300)
@given(st.data())
def test_a_damaged_archive_is_unusable_or_whole_never_a_crash(data: st.DataObject) -> None:
    members = {"golden.json": b'{"a": 1}' * 50, "logs/out.txt": b"step\n" * 200}
    raw = bytearray(packed(members))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(raw)))
    try:
        found = unpacked(bytes(raw[:cut] if cut % 3 == 0 else raw))
    except Unusable as error:
        assert error.kind in KINDS  # noqa: PT017 - either answer is sound
    else:
        assert set(found.values()) <= set(members.values())


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("../evil", "climbs"),
        ("a/../../evil", "climbs"),
        ("/etc/passwd", "absolute"),
        ("C:/evil", "absolute"),
        ("c:evil", "absolute"),
        ("a\\b", "backslash"),
        ("..\\evil", "backslash"),
        ("a\nb", "control"),
        ("a\x1b[31mb", "control"),
    ],
)
def test_names_that_are_no_plain_paths_are_refused(name: str, words: str) -> None:
    error = refusal(packed_infos((info("fine.json"), b"1"), (info(name), b"2")))
    assert error.kind == "archive-refused"
    assert words in str(error)


@pytest.mark.parametrize("name", [".git/config", "a/.GIT/x", "a/git~1/x", ".g\u200cit/x", ".git./x", "x" * 256])
def test_what_nobody_may_write_is_refused_where_it_is_wanted(name: str) -> None:
    """A checkout that was packed whole does no harm while nobody unpacks that part of it."""
    data = packed({"fine.json": b"1", name: b"2"})
    error = refusal(data)
    assert error.kind == "archive-refused"
    assert "git's own" in str(error) or "too long" in str(error)
    assert [member.name for member in open_bytes(data).wanted(lambda one: one == "fine.json")] == ["fine.json"]


def test_a_name_with_nul_is_refused() -> None:
    data = packed({"goodXbad": b"1"}).replace(b"goodXbad", b"good\0bad")
    assert "control" in str(refusal(data))


@pytest.mark.parametrize("mode", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFSOCK])
def test_links_and_devices_are_refused(mode: int) -> None:
    error = refusal(packed_infos((info("x", mode | 0o777), b"/etc/passwd")))
    assert error.kind == "archive-refused"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a.json", "a.json"),
        ("x", "x"),
        ("golden.json", "Golden.JSON"),
        ("caf\u00e9", unicodedata.normalize("NFD", "caf\u00e9")),
        ("stra\u00dfe", "STRASSE"),
        ("./a", "a"),
        ("a//b", "a/b"),
    ],
)
def test_names_that_collide_are_refused(one: str, other: str) -> None:
    error = refusal(packed_infos((info(one), b"1"), (info(other), b"2")))
    assert error.kind == "archive-refused"
    assert "it holds" in str(error)


def test_a_file_that_is_also_a_folder_is_refused() -> None:
    assert "folder of" in str(refusal(packed({"a": b"1", "a/b": b"2"})))


SHALLOW = st.lists(st.sampled_from("aAbß"), min_size=1, max_size=4).map("/".join)


@pytest.mark.slow
@given(st.sets(SHALLOW, max_size=6))
def test_no_file_is_the_folder_of_another(names: set[str]) -> None:
    keys = [folded(name) for name in names]
    nested = any(below.startswith(f"{above}/") for above in keys for below in keys)
    data = packed(dict.fromkeys(sorted(names), b""))
    if len(set(keys)) < len(keys):
        assert "it holds" in str(refusal(data))
    elif nested:
        assert "is a file and the folder of" in str(refusal(data))
    else:
        assert set(open_bytes(data).names) == names


def test_a_name_with_thousands_of_parents() -> None:
    deep = "a/" * 30_000
    assert open_bytes(packed({f"{deep}x": b"", f"{deep}y": b""})).names == (f"{deep}x", f"{deep}y")
    assert "folder of" in str(refusal(packed({"A/A": b"", f"{deep}x": b""})))


def test_folders_are_not_files() -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.mkdir("logs")
        archive.writestr("logs/a.json", b"1")
    assert open_bytes(out.getvalue()).names == ("logs/a.json",)


def test_too_many_members_are_refused_before_they_are_listed() -> None:
    data = packed({str(i): b"" for i in range(30)})
    assert "at most 20" in str(refusal(data, Limits(members=20)))


@pytest.mark.slow
@pytest.mark.parametrize("announced", [0, 5, 99_999, 100_001])
def test_a_directory_that_holds_other_than_it_announces_is_not_parsed(announced: int) -> None:
    header = packed({"a": b""}).partition(b"PK\x01\x02")[2][:-22]
    data = (b"PK\x01\x02" + header) * 100_000
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, len(data), 0, 0)
    whole = with_zip64_end(data + end, count=announced)
    tracemalloc.start()
    error = refusal(whole, Limits(members=200_000))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert f"{announced:,} members it announces" in str(error)
    assert peak < 4 * len(data)


def test_sizes_are_limited_for_what_is_wanted_only() -> None:
    data = packed({"model.bin": bytes(5000), "golden.json": b"{}"}, zipfile.ZIP_STORED)
    limits = Limits(member=1000)
    archive = open_bytes(data, limits)
    assert [m.name for m in archive.wanted(lambda name: name.endswith(".json"))] == ["golden.json"]
    assert "at most 1,000" in str(refusal(data, limits))
    assert "more than 4,000" in str(refusal(data, Limits(total=4000)))


def test_a_dense_bomb_is_refused() -> None:
    data = packed({"bomb": bytes(2 << 20)})
    assert "bomb" in str(refusal(data, Limits(ratio=100, ratio_floor=1 << 20)))
    assert unpacked(data)["bomb"] == bytes(2 << 20)


def central(data: bytes) -> int:
    return find_directory(io.BytesIO(data))[0]


def test_more_bytes_than_declared_are_not_written() -> None:
    """The directory says 10 bytes, the stream holds 100,000."""
    data = bytearray(packed({"bomb": bytes(100_000)}))
    at = central(bytes(data))
    for place in (at + 24, 22):
        struct.pack_into("<L", data, place, 10)
    archive = open_bytes(bytes(data))
    target = io.BytesIO()
    with pytest.raises(Unusable) as caught:
        archive.extract(archive.members["bomb"], target)
    assert caught.value.kind == "artifact-corrupt"
    assert len(target.getvalue()) <= 10


def test_fewer_bytes_than_declared_are_noticed_although_the_checksum_fits() -> None:
    data = bytearray(packed({"short": b"x" * 100}))
    struct.pack_into("<L", data, central(bytes(data)) + 24, 5000)
    assert "should unpack to 5,000" in str(refusal(bytes(data)))


def test_a_wrong_checksum_is_noticed() -> None:
    data = packed({"a": b"hello world"}, zipfile.ZIP_STORED).replace(b"hello", b"jello")
    assert refusal(data).kind == "artifact-corrupt"


def test_overlapping_members_are_refused() -> None:
    """Two directory entries that share one stream, as bombs do."""
    data = packed({"a": bytes(1000), "b": b"tiny"})
    at = central(data)
    second = data.index(b"PK\x01\x02", at + 4)
    patched = bytearray(data)
    struct.pack_into("<L", patched, second + 42, 0)
    assert "overlaps" in str(refusal(bytes(patched)))


def test_encrypted_members_are_refused() -> None:
    data = bytearray(packed({"a": b"1"}))
    struct.pack_into("<H", data, central(bytes(data)) + 8, 1)
    assert "encrypted" in str(refusal(bytes(data)))


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_compressions_are_refused(method: int) -> None:
    assert f"method {method}" in str(refusal(packed({"a": b"1"}, method)))


@pytest.mark.parametrize(
    ("data", "kind", "words"),
    [
        (b"", "artifact-truncated", "no bytes"),
        (b"<!DOCTYPE html><html>login", "artifact-not-zip", "HTML"),
        (b'{"message": "Not Found"}', "artifact-not-zip", "JSON"),
        (b"\x1f\x8b\x08\0", "artifact-not-zip", "gzip"),
        (b"PK", "artifact-not-zip", "2 bytes"),
    ],
)
def test_what_never_was_a_zip(data: bytes, kind: str, words: str) -> None:
    error = refusal(data)
    assert (error.kind, words in str(error)) == (kind, True)


@pytest.mark.parametrize("keep", [0.1, 0.5, 0.99])
def test_a_cut_archive_is_truncated(keep: float) -> None:
    data = packed({f"{i}.json": bytes(range(256)) * 4 for i in range(20)})
    assert refusal(data[: int(len(data) * keep)]).kind == "artifact-truncated"


def test_bytes_before_the_archive_are_not_accepted() -> None:
    assert refusal(b"#!/bin/sh\n" + packed({"a": b"1"})).kind == "artifact-corrupt"


def test_a_comment_is_no_hiding_place() -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("real", b"1")
        archive.comment = b"PK\x05\x06" + bytes(40)
    try:
        names = set(unpacked(out.getvalue()))
    except Unusable as error:
        assert error.kind == "artifact-corrupt"  # noqa: PT017 - either answer is safe
    else:
        assert names == {"real"}


def test_zip64_is_read() -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive, archive.open("a", "w", force_zip64=True) as member:
        member.write(b"hello")
    data = out.getvalue()
    assert unpacked(data) == {"a": b"hello"}
    assert unpacked(with_zip64_end(data)) == {"a": b"hello"}


def with_zip64_end(data: bytes, count: int | None = None) -> bytes:
    """The same archive with the end record that only archives above 4 GiB have."""
    start, size, held = find_directory(io.BytesIO(data))
    body, end = data[:-22], len(data) - 22
    members = held if count is None else count
    record = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, members, members, size, start)
    locator = struct.pack("<4sLQL", b"PK\x06\x07", 0, end, 1)
    last = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    return body + record + locator + last


def test_a_part_of_several_is_refused() -> None:
    data = bytearray(packed({"a": b"1"}))
    struct.pack_into("<H", data, len(data) - 14, 7)
    assert "several parts" in str(refusal(bytes(data)))


def test_a_gap_between_members_is_no_part_of_either() -> None:
    data = packed({"a": b"1" * 500, "b": b"2"}, zipfile.ZIP_STORED)
    second = data.index(b"PK\x03\x04", 4)
    gap = bytes(1_000_000)
    patched = bytearray(data[:second] + gap + data[second:])
    at = data.index(b"PK\x01\x02") + len(gap)
    struct.pack_into("<L", patched, patched.index(b"PK\x01\x02", at + 4) + 42, second + len(gap))
    struct.pack_into("<L", patched, len(patched) - 6, at)
    archive = open_bytes(bytes(patched))
    assert archive.members["a"].end - archive.members["a"].start < 100_000
    assert unpacked(bytes(patched)) == {"a": b"1" * 500, "b": b"2"}


@pytest.mark.parametrize("choose", [lambda _: True, lambda name: name == "b"])
def test_a_members_bytes_lie_within_its_span(choose: Callable[[str], bool]) -> None:
    data = packed({"a": b"1" * 500, "b": b"2" * 700, "c": b"3"})
    for member in open_bytes(data).wanted(choose):
        sparse = bytearray(len(data))
        sparse[member.start : member.end] = data[member.start : member.end]
        at = central(data)
        sparse[at:] = data[at:]
        archive = open_bytes(bytes(sparse))
        target = io.BytesIO()
        archive.extract(archive.members[member.name], target)
        assert len(target.getvalue()) == member.size
