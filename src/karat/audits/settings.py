"""What karat.toml says about auditing: the table [audit]."""

from __future__ import annotations

import msgspec


class AuditSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The table [audit]."""

    tests: tuple[str, ...] = ()
    """Paths of tests, with placeholders of `goldens.cases`: a golden is a test's where all that both name is the same."""
    named_in: tuple[str, ...] = ()  # Globs of the files in which tests name their goldens.
    names: tuple[str, ...] = ()  # Paths of goldens, with {name} for what a file of `named_in` must hold.
    stale_months: int = 12  # Months without a refresh after which a golden is stale; 0: never.
