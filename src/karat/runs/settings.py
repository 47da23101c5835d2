"""What karat.toml says about reading a run's own files: the table [record]."""

from __future__ import annotations

import msgspec


class RecordSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The table [record]."""
