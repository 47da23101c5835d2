"""Ranges: a file of stretches reads like the file itself; plans cover what is wanted."""

from __future__ import annotations

import io
import itertools
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from karat.sources.cache import RangeFile, Span, merge_spans, span_bytes

SPANS = st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 500)).map(lambda s: (s[0], s[0] + s[1])), max_size=40)


def covered(spans: list[Span]) -> set[int]:
    return {place for start, end in spans for place in range(start, end)}


@pytest.mark.slow
@given(SPANS, st.integers(0, 300), st.integers(1, 10))
def test_coalesced_spans_cover_all_and_are_few(spans: list[Span], gap: int, most: int) -> None:
    joined = merge_spans(spans, gap=gap, most=most)
    assert covered(spans) <= covered(joined)
    assert len(joined) <= most
    assert all(one[1] < other[0] for one, other in itertools.pairwise(joined))
    assert span_bytes(joined) == len(covered(joined))


@pytest.mark.slow
@given(SPANS)
def test_without_a_gap_nothing_more_is_fetched_than_wanted(spans: list[Span]) -> None:
    assert covered(merge_spans(spans, gap=0, most=10_000)) == covered(spans)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stretches")


DATA = bytes(range(256)) * 20


class Bringer:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.brought: list[Span] = []

    def __call__(self, start: int, end: int) -> Path:
        self.brought.append((start, end))
        path = self.folder / f"{start}-{end}"
        path.write_bytes(DATA[start:end])
        return path


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.integers(0, len(DATA) + 10), st.integers(0, 700)), max_size=12),
    st.lists(st.tuples(st.integers(0, len(DATA) - 1), st.integers(0, 900)), max_size=4),
)
def test_stretches_read_like_the_file(folder: Path, reads: list[tuple[int, int]], ahead: list[tuple[int, int]]) -> None:
    bring = Bringer(folder)
    plain = io.BytesIO(DATA)
    with RangeFile(len(DATA), bring) as remote:
        for start, length in ahead:
            remote.add(start, min(start + length, len(DATA)))
        for start, length in reads:
            assert remote.seek(start) == plain.seek(start)
            assert remote.read(length) == plain.read(length)
            assert remote.tell() == plain.tell()


def test_nothing_is_brought_twice(folder: Path) -> None:
    bring = Bringer(folder)
    with RangeFile(len(DATA), bring) as remote:
        remote.add(1000, 2000)
        remote.seek(500)
        assert remote.read(2000) == DATA[500:2500]
        remote.seek(600)
        assert remote.read(1500) == DATA[600:2100]
    assert bring.brought == [(1000, 2000), (500, 1000), (2000, 2500)]


def test_places_before_the_start_are_refused(folder: Path) -> None:
    with RangeFile(10, Bringer(folder)) as remote, pytest.raises(ValueError, match="before"):
        remote.seek(-11, io.SEEK_END)
