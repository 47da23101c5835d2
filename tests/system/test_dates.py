from __future__ import annotations

from datetime import date

import pytest

from karat.findings import UsageError
from karat.system.dates import day


def test_an_option_outdoes_the_variable() -> None:
    assert day("2026-01-02", {"KARAT_TODAY": "2026-01-01"}) == date(2026, 1, 2)
    assert day(None, {"KARAT_TODAY": "2026-01-01"}) == date(2026, 1, 1)


@pytest.mark.parametrize("environment", [{}, {"KARAT_TODAY": ""}])
def test_today_is_where_the_person_is(environment: dict[str, str]) -> None:
    before = date.today()  # noqa: DTZ011 - that is what is asked
    assert before <= day(None, environment) <= date.today()  # noqa: DTZ011


@pytest.mark.parametrize(
    ("said", "variable", "told", "instead"),
    [("soon", "2026-01-01", "--today", "--today 2"), (None, "soon", "KARAT_TODAY", "unset KARAT_TODAY")],
)
def test_what_is_no_day_is_refused_where_it_was_said(said: str | None, variable: str, told: str, instead: str) -> None:
    with pytest.raises(UsageError, match=f"^{told}: expected a day as YYYY-MM-DD, found 'soon'") as no:
        day(said, {"KARAT_TODAY": variable})
    assert (no.value.next_command or "").startswith(instead)
