from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import pytest

from karat.findings import Finding, Severity
from karat.goldens import formats, text_file

LFS_POINTER = (
    b"version https://git-lfs.github.com/spec/v1\n"
    b"oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n"
)


@pytest.mark.parametrize("data", [b'{"a": 1}', b"1 2.0\n", b"name,x\na,1\n", b"\xef\xbb\xbf{}"])
def test_plain_text_has_no_hazard(data: bytes) -> None:
    assert text_file.check(data) is None


@pytest.mark.parametrize("data", [b"", b" ", b"\r\n\t \n", b"\xef\xbb\xbf", b"\xef\xbb\xbf\n"])
def test_nothing_but_space_is_empty(data: bytes) -> None:
    found = text_file.check(data)
    assert found is not None
    assert (found.kind, found.severity) == ("empty", Severity.FAIL)


def test_lfs_pointer_names_the_command_that_fetches_it() -> None:
    found = text_file.check(LFS_POINTER)
    assert found is not None
    assert found.kind == "unreadable"
    assert "Git LFS pointer" in found.message
    assert found.next == "git lfs pull"


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_conflict_markers_are_named_with_their_line(end: bytes) -> None:
    data = end.join([b"{", b"<<<<<<< HEAD", b'"a": 1', b"=======", b'"a": 2', b">>>>>>> theirs", b"}"])
    found = text_file.check(data)
    assert found is not None
    assert (found.kind, found.where) == ("conflict-markers", "line 2")
    assert "<<<<<<< HEAD" in found.message
    assert formats.read(data, "x.json").golden is None


def test_half_resolved_conflict_is_noticed_by_its_last_marker() -> None:
    found = text_file.check(b"name,acc\na,1\n>>>>>>> theirs\n")
    assert found is not None
    assert (found.kind, found.where) == ("conflict-markers", "line 3")


@pytest.mark.parametrize("data", [b'{"a": "<<<<<<< HEAD"}', b"x<<<<<<<\n", b"<<<<<<<<< nine\n"])
def test_marker_inside_a_line_is_no_conflict(data: bytes) -> None:
    assert text_file.check(data) is None


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf16_is_named(encoding: str) -> None:
    data = "\ufeff{}".encode(encoding)
    found = text_file.check(data)
    assert found is not None
    assert "UTF-16" in found.message


def test_bad_utf8_is_named_with_offset_and_line() -> None:
    found = text_file.check(b'{\n"a": "\xe9"}')
    assert found is not None
    assert found.where == "line 2"
    assert found.numbers == {"offset": 8, "line": 2}
    assert "0xe9" in found.message


def test_nul_bytes_are_named_with_offset_and_line() -> None:
    found = text_file.check(b"one\ntwo\n\0three")
    assert found is not None
    assert (found.kind, found.where) == ("unreadable", "line 3")
    assert found.numbers["offset"] == 8


def test_line_of_counts_from_one() -> None:
    assert [text_file.line_of(b"a\nb\n", offset) for offset in range(4)] == [1, 1, 2, 2]


def limited(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    found = text_file.LimitedFindings()
    for finding in findings:
        found.add(finding)
    return found.findings()


def test_many_findings_of_a_kind_become_a_few_and_a_count() -> None:
    many = [Finding(kind="empty", severity=Severity.WARN, message=f"no {n}") for n in range(30)]
    other = Finding(kind="truncated", severity=Severity.FAIL, message="once")
    few = limited([*many, other])
    assert len(few) == 10
    assert other in few
    assert few[-1].numbers["more"] == 22
    assert "22 more" in few[-1].message
    assert "no 29" in few[-1].message


def test_few_findings_stay_as_they_are() -> None:
    some = tuple(Finding(kind="empty", severity=Severity.WARN, message=str(n)) for n in range(8))
    assert limited(some) == some


def test_findings_that_are_only_counted_are_never_made() -> None:
    made: list[int] = []

    def make(number: int) -> Finding:
        made.append(number)
        return Finding(kind="empty", severity=Severity.WARN, message=f"no {number}")

    found = text_file.LimitedFindings()
    for number in range(1000):
        found.note("empty", Severity.WARN, partial(make, number))
    assert len(found.findings()) == 9
    assert made == [*range(8), 999]


def test_counts_of_findings_add_up() -> None:
    once = limited(Finding(kind="empty", severity=Severity.WARN, message=f"no {n}") for n in range(30))
    twice = limited([*once, *once])
    assert len(twice) == 9
    assert twice[-1].numbers["more"] == 52
