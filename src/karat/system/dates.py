"""Today: the day on which exemptions are looked at, those of goldens and those of gradients."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date

from karat.findings import UsageError
from karat.system.command import Command

_VARIABLE = "KARAT_TODAY"


def day(environment: Mapping[str, str]) -> date:
    """As KARAT_TODAY says for those who must repeat a check, or today."""
    word = environment.get(_VARIABLE)
    if not word:
        return date.today()  # noqa: DTZ011 - the day where the person is
    try:
        return date.fromisoformat(word)
    except ValueError as error:
        text = f"{_VARIABLE}: expected a day as YYYY-MM-DD, found {word!r}"
        raise UsageError(text, next_command=Command("unset", _VARIABLE)) from error
