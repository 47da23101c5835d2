"""Today: the day on which exemptions are looked at, those of goldens and those of gradients."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date

from karat.findings import UsageError
from karat.system.command import Command

_VARIABLE = "KARAT_TODAY"


def day(said: str | None, environment: Mapping[str, str]) -> date:
    """As said by option, as KARAT_TODAY says for those who must repeat a check, or today."""
    today = date.today()  # noqa: DTZ011 - the day where the person is
    where, word, instead = _VARIABLE, environment.get(_VARIABLE), Command("unset", _VARIABLE)
    if said:
        where, word, instead = "--today", said, Command("--today", today.isoformat())
    if not word:
        return today
    try:
        return date.fromisoformat(word)
    except ValueError as error:
        raise UsageError(f"{where}: expected a day as YYYY-MM-DD, found {word!r}", next_command=instead) from error
