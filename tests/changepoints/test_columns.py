"""Decimal commas, thousands apart and units, as people and spreadsheets write them."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from karat.changepoints.readers.columns import NumberFormat, number_format


def numbers(*cells: str, decimal_comma: bool = False) -> list[float | None] | None:
    writing = number_format(cells, decimal_comma=decimal_comma)
    return None if writing is None else [writing.number(cell) for cell in cells]


@pytest.mark.parametrize(
    ("cells", "read"),
    [
        (("998.73", "1,012.33"), [998.73, 1012.33]),
        (("998,73", "1.012,33", "1.012"), [998.73, 1012.33, 1012]),
        (("1,234", "998", "2,345,678"), [1234, 998, 2345678]),
        (("3,5", "4,25"), [3.5, 4.25]),
        (("0,234", "0,235"), [0.234, 0.235]),
        (("1'234.5", "1"), [1234.5, 1]),
        (("1\u202f234,5", "-2,5e3"), [1234.5, -2500]),
        (("−3,5", "2,25"), [-3.5, 2.25]),
        (("12.3 ms", "11 ms", "0"), [12.3, 11, 0]),
        (("3.2GiB", "1e1GiB"), [3.2, 10]),
        (("45%", "4.5 %"), [45, 4.5]),
        (("$3.50", "$1,003.50"), [3.5, 1003.5]),
        (("10 it/s", "9.5 it/s"), [10, 9.5]),
    ],
)
def test_a_column_is_understood_as_a_whole(cells: tuple[str, ...], read: list[float | None]) -> None:
    assert numbers(*cells) == read


def test_units_are_never_converted_nor_guessed() -> None:
    assert numbers("900 us", "950 us", "960 us", "1.2 ms", "7") == [900, 950, 960, None, None]
    assert numbers("1 ms", "2 us", "3 ns", "4 s") is None


def test_one_comma_is_decimal_where_semicolons_part_the_cells() -> None:
    assert numbers("1,234", "2,345", decimal_comma=True) == [1.234, 2.345]
    assert numbers("1,234", "2,345") == [1234, 2345]


@pytest.mark.parametrize(
    "cells",
    [
        ("1.5", "2"),
        ("01.02.2024", "02.02.2024"),
        ("1.2.3", "1.2.4"),
        ("8e3a91c", "1234abc"),
        ("a", "b"),
        (),
        ("2024-01-01", "2024-01-02"),
        ("1,2,3", "4,5,6"),
        ("9" * 100 + "ms",),
    ],
)
def test_plain_numbers_dates_versions_and_hashes_are_left_alone(cells: tuple[str, ...]) -> None:
    assert numbers(*cells) is None


@given(st.floats(-1e12, 1e12, allow_nan=False), st.sampled_from([(".", ","), (",", ".")]), st.sampled_from(["", " ms"]))
def test_what_is_written_is_read(value: float, marks: tuple[str, str], unit: str) -> None:
    text = f"{value:,.3f}".translate(str.maketrans(".,", marks[0] + marks[1])) + unit
    assert NumberFormat(decimal=marks[0], unit=unit.strip()).number(text) == float(f"{value:.3f}")
