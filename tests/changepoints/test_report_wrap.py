from __future__ import annotations

from hypothesis import given, strategies as st

from karat.changepoints.report import wrapped

WORDS = st.lists(st.text("ab ", min_size=1, max_size=30), min_size=1, max_size=9)


def texts(*pieces: str, width: int | None) -> list[str]:
    return ["".join(text for text, _ in row) for row in wrapped(tuple((p, "") for p in pieces), width)]


def test_a_line_that_fits_or_goes_into_a_pipe_stays() -> None:
    assert texts("note: ", "a b", width=9) == ["note: a b"]
    assert texts("note: ", "a b" * 99, width=None) == ["note: " + "a b" * 99]


def test_what_does_not_fit_hangs_below_what_it_is_said_of() -> None:
    assert texts("  dip  ", "-2% 1 -> 2  ", "after a, at b", width=24) == [
        "  dip  -2% 1 -> 2  ",
        "       after a, at b",
    ]
    assert texts("note: ", "one two three", width=12) == ["note: one", "      two", "      three"]
    assert texts("a metric", "  source: ", "of words", width=20) == ["a metric  source: ", "    of words"]


@given(WORDS, st.integers(50, 70))
def test_no_word_is_lost_torn_or_out_of_place(pieces: list[str], width: int) -> None:
    rows = texts(*pieces, width=width)
    # Pieces may meet in one word, and be parted there.
    assert "".join("".join(rows).split()) == "".join("".join(pieces).split())
    assert all(len(row.rstrip()) <= width for row in rows[1:])
