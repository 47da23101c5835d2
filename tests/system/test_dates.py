from __future__ import annotations

from datetime import date

import pytest

from karat.findings import UsageError
from karat.system.dates import day


def test_the_variable_says_which_day_it_is() -> None:
    assert day({"KARAT_TODAY": "2026-01-01"}) == date(2026, 1, 1)


@pytest.mark.parametrize("environment", [{}, {"KARAT_TODAY": ""}])
def test_today_is_where_the_person_is(environment: dict[str, str]) -> None:
    before = date.today()  # noqa: DTZ011 - that is what is asked
    assert before <= day(environment) <= date.today()  # noqa: DTZ011


def test_what_is_no_day_is_refused() -> None:
    with pytest.raises(UsageError, match=r"^KARAT_TODAY: expected a day as YYYY-MM-DD, found 'soon'") as no:
        day({"KARAT_TODAY": "soon"})
    assert no.value.next_command == "unset KARAT_TODAY"
