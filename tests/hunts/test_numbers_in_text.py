from __future__ import annotations

from math import inf, isnan

import pytest
from hypothesis import given, strategies as st

from karat.hunts.probe.metrics import parse_number


@pytest.mark.parametrize(
    ("text", "found"),
    [("587.92", 587.92), ("1,234,567.5", 1234567.5), ("1e5", 1e5), ("-3", -3), (" +.5 ", 0.5), ("1_000", 1000), ("5.", 5),
     ("-inf", -inf), ("Infinity", inf), ("1.5E-3", 0.0015), ("\N{MINUS SIGN}5", -5)],
)  # fmt: skip
def test_numbers(text: str, found: float) -> None:
    assert parse_number(text) == found


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "1,23",
        "1,2345",
        "1 2",
        "3 ms",
        "0x10",
        ".",
        "e5",
        "-",
        "1.2.3",
        "12%",
        "1,234,5",
        ".E5",
        ".e5",
        "--inf",
        "1__0",
    ],
)
def test_what_is_no_number(text: str) -> None:
    assert parse_number(text) is None


def test_nan_is_told_apart() -> None:
    for text in ("nan", "NaN", "-nan"):
        found = parse_number(text)
        assert found is not None
        assert isnan(found)


@pytest.mark.parametrize(
    ("text", "unit", "found"),
    [
        ("12 ms", "ms", 12),
        ("12ms", "s", 0.012),
        ("2 min", "s", 120),
        ("12 %", "%", 12),
        ("12 GB/s", "GB/s", 12),
        ("12 GB", "MB", None),
        ("12", "ms", 12),
    ],
)
def test_units(text: str, unit: str, found: float | None) -> None:
    assert parse_number(text, unit) == (None if found is None else pytest.approx(found))


@given(st.text(alphabet="0123456789.,_eE+-infnams\N{MINUS SIGN} ", max_size=12))
def test_whatever_stands_there_is_a_number_or_none(text: str) -> None:
    assert isinstance(parse_number(text), float | None)


@given(st.floats(allow_nan=False))
def test_what_python_prints_is_read_exactly(value: float) -> None:
    assert parse_number(repr(value)) == value
    assert parse_number(str(value)) == value


@given(st.integers(-(10**15), 10**15))
def test_thousands(value: int) -> None:
    assert parse_number(f"{value:,}") == value
    assert parse_number(f"{value:_}") == value
