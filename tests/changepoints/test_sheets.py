from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, strategies as st

from karat.changepoints.readers.sheets import parse_date, parse_dates, since_1970, utc

DAY = datetime(2023, 8, 24, tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    [
        "2023-08-24",
        "20230824",
        "2023-08-24T00:00Z",
        "2023-08-24T02:00:00+02:00",
        "2023-08-24 02:00:00 +0200",
        "Thu Aug 24 00:00:00 2023 +0000",
        " 2023-08-24 ",
    ],
)
def test_forms_that_mean_one_thing(text: str) -> None:
    found = parse_date(text)
    assert found is not None
    assert utc(found) == DAY


@pytest.mark.parametrize(
    "text", ["08/09/2023", "", "main", "1a2b3c4", "12345", "2023-13-01", "99999999", "0001-01-01", None, 3]
)
def test_what_does_not_say_when(text: object) -> None:
    assert parse_date(text) is None


def test_a_column_is_of_moments_only_if_all_its_cells_are() -> None:
    assert parse_dates(["2023-08-24", "yesterday"]) is None
    assert parse_dates([]) is None
    assert parse_dates(["1692835200", "1692921600"]) is None, "numbers are moments only in a column called a time"
    assert parse_dates(["1692835200", 1692921600], clock=True) == [DAY, DAY + timedelta(days=1)]
    mixed = parse_dates(["2023-08-24", "Fri Aug 25 00:00:00 2023 +0000"])
    assert mixed is not None
    assert [utc(when).day for when in mixed] == [24, 25]


def test_seconds_and_their_parts_since_1970() -> None:
    assert {since_1970(1692835200 * scale) for scale in (1, 10**3, 10**6, 10**9)} == {DAY}
    assert since_1970(True) is None
    assert since_1970(12) is None
    assert since_1970("nan") is None


def test_without_a_zone_it_is_utc_and_the_end_of_the_calendar_is_no_error() -> None:
    assert utc(datetime(2023, 8, 24)) == DAY  # noqa: DTZ001 - that is the point
    late = datetime.max.replace(tzinfo=timezone(timedelta(hours=-5)))
    assert utc(late).year == 9999


@given(st.datetimes(datetime(1970, 1, 2), datetime(2099, 12, 30), timezones=st.timezones()))  # noqa: DTZ001
def test_iso_texts_come_back_in_every_zone(when: datetime) -> None:
    found = parse_date(when.isoformat())
    assert found is not None
    assert utc(found) == when.astimezone(UTC)


@given(st.text(max_size=40))
def test_any_text_is_read_without_an_error(text: str) -> None:
    found = parse_date(text)
    assert found is None or 1970 <= found.year <= 2100
