from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from karat.changepoints.readers.logs import natural_key, read_names


def order(*paths: str) -> list[str]:
    names = read_names(paths)
    return sorted(names.found, key=lambda path: names.found[path].at)  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize(
    ("path", "label", "at"),
    [
        ("OUT-2023-08-24", "2023-08-24", "2023-08-24T00:00"),
        ("bench_20230824.log", "20230824", "2023-08-24T00:00"),
        ("2023-08-24-13.txt", "2023-08-24-13", "2023-08-24T13:00"),
        ("run-20230824T131415Z.log", "20230824T131415Z", "2023-08-24T13:14"),
        ("2023-08-24/out.log", "2023-08-24", "2023-08-24T00:00"),
        ("nightly_2023_08_24_x", "2023_08_24", "2023-08-24T00:00"),
        ("OUT-2023-08-24-99", "2023-08-24", "2023-08-24T00:00"),
    ],
)
def test_dates_in_names(path: str, label: str, at: str) -> None:
    name = read_names([path]).found[path]
    assert name.label == label
    assert name.at is not None
    assert name.at.isoformat().startswith(at)


def test_month_and_day_and_hour_without_a_year() -> None:
    names = read_names(["OUT-08-24-13", "OUT-08-24-24", "OUT-08-25-00"])
    assert names.kind == "day"
    assert [name.label for name in names.found.values()] == ["08-24-13", "08-24-24", "08-25-00"]
    at = [name.at for name in names.found.values()]
    assert at[1] == at[2], "24 o'clock is the next day's beginning"


def test_nights_over_new_year_are_of_two_years() -> None:
    assert order("OUT-01-01", "OUT-12-30", "OUT-02-29", "OUT-11-15") == [
        "OUT-11-15",
        "OUT-12-30",
        "OUT-01-01",
        "OUT-02-29",
    ]
    assert order("OUT-01-01", "OUT-03-30", "OUT-02-28") == ["OUT-01-01", "OUT-02-28", "OUT-03-30"]


def test_commits_in_names() -> None:
    names = read_names(["bench-1a2b3c4d5e6f.log", "bench-deadbe3f.log"])
    assert names.kind == "commit"
    assert [name.commit for name in names.found.values()] == ["1a2b3c4d5e6f", "deadbe3f"]


def test_one_name_that_does_not_fit_is_left_out_and_many_are_no_dates() -> None:
    nights = [f"OUT-07-{day:02}" for day in range(1, 10)]
    assert set(read_names([*nights, "README"]).found) == set(nights)
    assert read_names(["OUT-07-01", "README", "LICENSE"]).kind == "name"


@given(st.lists(st.integers(0, 10**6), unique=True))
def test_natural_order_is_that_of_numbers(numbers: list[int]) -> None:
    names = [f"run-{number}.log" for number in numbers]
    assert sorted(names, key=natural_key) == [f"run-{number}.log" for number in sorted(numbers)]


@given(st.lists(st.text(max_size=30), min_size=1, max_size=5))
def test_any_names_are_read_without_an_error(names: list[str]) -> None:
    read = read_names(names)
    assert set(read.found) <= set(names)
    sorted(names, key=natural_key)
