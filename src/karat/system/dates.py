"""Today, on which exemptions are looked at, and now, when something is built or captured; as the environment may say."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, date, datetime

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


def build_time() -> datetime:
    """Now in UTC, or what SOURCE_DATE_EPOCH says."""
    told = os.environ.get("SOURCE_DATE_EPOCH")
    try:
        return datetime.fromtimestamp(int(told), UTC) if told else datetime.now(UTC)
    except (ValueError, OverflowError, OSError) as error:
        text = f"SOURCE_DATE_EPOCH: expected seconds since 1970, found {told!r}"
        raise UsageError(text, next_command=Command("unset", "SOURCE_DATE_EPOCH")) from error
