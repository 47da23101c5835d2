from __future__ import annotations

import pytest

from karat.findings import fail
from karat.report.terminal import COMMAND, Line, lines_by_kind, wrapped


def texts(line: Line, room: int | None) -> list[str]:
    return ["".join(text for text, _ in part) for part in wrapped(line, room)]


def test_text_wraps_at_words_below_where_it_began() -> None:
    line: Line = (("fail ", "bold red"), ("truncated  ", "bold"), ("a/b.json stops at step 13 of 50", ""))
    assert texts(line, 30) == ["fail truncated  a/b.json stops", "     at step 13 of 50"]
    assert texts((("     it stops at step 13", ""),), 20) == ["     it stops at", "     step 13"]
    assert texts((("one two three four", ""),), 10) == ["one two", "  three", "  four"]


def test_what_fits_and_what_goes_to_a_file_is_left_alone() -> None:
    line: Line = (("one two", ""),)
    assert list(wrapped(line, 7)) == [line]
    assert list(wrapped(line, None)) == [line]
    assert list(wrapped((), 80)) == [()]


def test_a_command_is_never_broken_because_it_is_copied() -> None:
    line: Line = (("     next: ", "dim"), ("git restore -- " + "x/" * 60, COMMAND))
    assert list(wrapped(line, 40)) == [line]


def test_a_path_that_fits_no_line_breaks_between_folders() -> None:
    lines = texts((("fail ", ""), ("folder/" * 12, "")), 40)
    assert all(len(line) <= 40 for line in lines)
    assert "".join(line.strip() for line in lines).replace("fail ", "") == "folder/" * 12


@pytest.mark.parametrize("room", [20, 33, 80])
def test_no_word_is_lost_and_styles_stay(room: int) -> None:
    line: Line = (("warn ", "yellow"), ("a number of words that go on ", ""), ("and on, in another style", "dim"))
    parts = list(wrapped(line, room))
    assert " ".join(" ".join(text for text, _ in part) for part in parts).split() == "".join(t for t, _ in line).split()
    assert {style for part in parts for _, style in part} >= {"yellow", "", "dim"}


def test_many_findings_of_one_kind_are_counted() -> None:
    found = [fail("empty", f"number {n}", path=f"{n}.json") for n in range(9)] + [fail("truncated", "stops", path="x")]
    text = "\n".join("".join(piece for piece, _ in line) for line in lines_by_kind(found, ""))
    assert [f"number {n}" in text for n in range(9)] == [True] * 5 + [False] * 4
    assert "… and 4 more empty findings (--json - lists all)" in text
    assert "fail truncated  x" in text
