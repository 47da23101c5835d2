"""Retry: waits grow and stay bounded; limits are read off headers."""

from __future__ import annotations

from email.utils import formatdate

import pytest
from hypothesis import given, strategies as st

from karat.net.client import Retry, limited_for

NOW = 1_800_000_000.0


@given(st.integers(1, 1000), st.floats(0, 1, exclude_max=True))
def test_waits_are_bounded_and_spread(attempt: int, chance: float) -> None:
    retry = Retry()
    wait = retry.backoff(attempt, chance)
    assert 0 < wait <= retry.longest_wait
    assert wait <= retry.backoff(attempt + 1, chance)


@pytest.mark.parametrize(
    ("status", "headers", "seconds"),
    [
        (429, {"retry-after": "7"}, 7.0),
        (403, {"retry-after": "60", "x-ratelimit-remaining": "4000"}, 60.0),
        (503, {"retry-after": "3"}, 3.0),
        (429, {"retry-after": formatdate(NOW + 90, usegmt=True)}, 90.0),
        (429, {"retry-after": formatdate(NOW - 90, usegmt=True)}, 0.0),
        (403, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(int(NOW) + 41)}, 42.0),
        (429, {"ratelimit-remaining": "0", "ratelimit-reset": str(int(NOW) + 41)}, 42.0),
        (403, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "0"}, 1.0),
        (403, {}, None),
        (403, {"x-ratelimit-remaining": "12", "x-ratelimit-reset": "9999999999"}, None),
        (403, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "soon"}, None),
        (429, {"retry-after": "soon"}, None),
        (200, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "9999999999"}, None),
        (500, {"retry-after": "5"}, None),
    ],
)
def test_limits(status: int, headers: dict[str, str], seconds: float | None) -> None:
    assert limited_for(status, headers, NOW) == seconds


@pytest.mark.slow
@given(
    st.integers(100, 599),
    st.dictionaries(
        st.sampled_from(["retry-after", "x-ratelimit-remaining", "x-ratelimit-reset", "ratelimit-reset"]),
        st.text() | st.integers().map(str),
    ),
)
def test_no_header_breaks_it(status: int, headers: dict[str, str]) -> None:
    seconds = limited_for(status, headers, NOW)
    assert seconds is None or seconds >= 0
