"""What karat.toml says about checking: the table [check] and the list [[exempt]]."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Literal

import msgspec

Improved = Literal["fail", "warn"]
Unknown = Literal["fail", "warn", "ignore"]


class CheckSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The table [check]."""

    golden: str | None = None  # The golden's path, filled in from the identity: `goldens/{case}/{platform}.json`.
    actual: tuple[str, ...] = ()  # Patterns that read an identity off the path of a result, before `goldens.cases` do.
    columns: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Column of a result's table → the golden's column it is compared with."""
    requests: str = ""
    """A glob of a document's keys that are requests: a result may have fewer, but none that its golden lacks."""
    improved: Improved = "warn"
    unknown: Unknown = "warn"  # What a result means that is better than its golden, or that its golden does not know.
    unknown_rows: Unknown | None = None  # The same for rows of a table, if it is not as `unknown` says.


class CheckExemption(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of [[exempt]]: a deviation that is known, owned, explained, and will end."""

    kind: Literal["flaky", "expected-failure"]
    owner: str
    reason: str
    link: str
    expires: date  # The last day on which it holds.
    path: str = "*"  # Golden paths: a glob, a folder, or the end of a path.
    metric: str = "*"
    row: str | None = None  # Rows of a table, places of a document; None: the whole metric.
    covers: Literal["values", "missing"] = "values"  # `missing`: what is absent or not finite is covered, too.

    def __post_init__(self) -> None:
        for name in ("owner", "reason", "link"):
            if not getattr(self, name).strip():
                raise ValueError(f"expected {name} to say something, found an empty text")
