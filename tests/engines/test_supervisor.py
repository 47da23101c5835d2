from __future__ import annotations

from hypothesis import given, strategies as st

from karat.engines.supervisor import RecentOutput

PIECES = st.lists(st.binary(max_size=30), max_size=30)


@given(PIECES, st.integers(0, 40), st.integers(1, 40))
def test_the_beginning_and_the_end_are_kept(pieces: list[bytes], first: int, last: int) -> None:
    output, whole = RecentOutput(first, last), b"".join(pieces)
    for piece in pieces:
        output.add(piece)
    gone = len(whole) - first - last
    said = b"\n[karat left out %d bytes here]\n" % gone
    expected = whole if gone <= 0 else whole[:first] + said + whole[len(whole) - last :]
    assert output.text() == expected


def test_of_what_is_printed_letter_by_letter_no_more_is_kept_than_twice_the_end() -> None:
    output = RecentOutput(10, 100_000)
    for _ in range(300_000):
        output.add(b"x")
    assert len(output._tail) <= 200_000
    assert b"left out 199,990 bytes" in output.text()
