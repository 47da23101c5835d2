from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from karat.changepoints.readers.log_files import natural_key, read_names, read_pattern
from karat.findings import UsageError


def order(*paths: str, year: int | None = None) -> list[str]:
    names = read_names(paths, year=year)
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
    assert name.dated
    assert name.at is not None
    assert name.at.isoformat().startswith(at)


def test_month_and_day_and_hour_without_a_year() -> None:
    names = read_names(["OUT-08-24-13", "OUT-08-24-24", "OUT-08-25-00"])
    assert names.kind == "day"
    assert [name.label for name in names.found.values()] == ["08-24-13", "08-24-24", "08-25-00"]
    at = [name.at for name in names.found.values()]
    assert at[1] == at[2], "24 o'clock is the next day's beginning"
    assert not any(name.dated for name in names.found.values())


def test_nights_over_new_year_are_of_two_years() -> None:
    assert order("OUT-01-01", "OUT-12-30", "OUT-02-29", "OUT-11-15") == [
        "OUT-11-15",
        "OUT-12-30",
        "OUT-01-01",
        "OUT-02-29",
    ]
    assert order("OUT-01-01", "OUT-03-30", "OUT-02-28") == ["OUT-01-01", "OUT-02-28", "OUT-03-30"]
    known = read_names(["OUT-12-31", "OUT-01-01"], year=2023).found
    assert [name.at.year for name in known.values() if name.at] == [2023, 2024]
    assert all(name.dated for name in known.values())


def test_a_day_that_the_year_does_not_have_is_refused() -> None:
    with pytest.raises(UsageError, match="there is no 02-29 in that year"):
        read_names(["OUT-02-29"], year=2023)


def test_commits_in_names() -> None:
    names = read_names(["bench-1a2b3c4d5e6f.log", "bench-deadbe3f.log"])
    assert names.kind == "commit"
    assert [name.commit for name in names.found.values()] == ["1a2b3c4d5e6f", "deadbe3f"]


def test_one_name_that_does_not_fit_is_left_out_and_many_are_no_dates() -> None:
    nights = [f"OUT-07-{day:02}" for day in range(1, 10)]
    assert set(read_names([*nights, "README"]).found) == set(nights)
    assert read_names(["OUT-07-01", "README", "LICENSE"]).kind == "name"


def test_a_pattern_of_the_user_s() -> None:
    names = read_pattern(["a.24-08-2023.x", "README"], r"(?P<day>\d\d)-(?P<month>\d\d)-(?P<year>\d{4})")
    (name,) = names.found.values()
    assert (names.kind, name.label) == ("date", "24-08-2023")
    assert name.at is not None
    assert (name.at.month, name.at.day) == (8, 24)
    named = read_pattern(["x-v1.log"], r"x-(?P<label>[^.]+)\.log").found["x-v1.log"]
    assert named.label == "v1"
    commits = read_pattern(["r12-abcdef0.log"], r"-(?P<commit>\w+)\.log")
    assert (commits.kind, commits.found["r12-abcdef0.log"].commit) == ("commit", "abcdef0")


@pytest.mark.parametrize("pattern", ["(", "no groups", "(?P<month>.)(?P<moth>.)"])
def test_a_pattern_that_cannot_be_meant_is_refused(pattern: str) -> None:
    with pytest.raises(UsageError, match="--name-pattern"):
        read_pattern(["x"], pattern)


@given(st.lists(st.integers(0, 10**6), unique=True))
def test_natural_order_is_that_of_numbers(numbers: list[int]) -> None:
    names = [f"run-{number}.log" for number in numbers]
    assert sorted(names, key=natural_key) == [f"run-{number}.log" for number in sorted(numbers)]


@given(st.lists(st.text(max_size=30), min_size=1, max_size=5))
def test_any_names_are_read_without_an_error(names: list[str]) -> None:
    read = read_names(names)
    assert set(read.found) <= set(names)
    sorted(names, key=natural_key)
