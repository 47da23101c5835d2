"""Options: how to check, as the command line and karat.toml say it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Literal

import msgspec

from karat.check.matching import Where
from karat.check.settings import Exemption
from karat.compare.rules import STATUS_ORDER, RuleBook
from karat.runs.settings import RecordSettings


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How to check."""

    where: Where
    today: date
    rules: RuleBook = msgspec.field(default_factory=RuleBook)
    status: tuple[str, ...] = STATUS_ORDER
    record: RecordSettings = msgspec.field(default_factory=RecordSettings)
    exemptions: tuple[Exemption, ...] = ()
    fill: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Column → what an empty cell of a result stands for."""
    exact: tuple[str, ...] = ()
    improved: Literal["fail", "warn"] = "warn"
    unknown: Literal["fail", "warn", "ignore"] = "warn"
    strict: bool = False
    environment: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Where the CI says who it is; nothing else of it is read."""
