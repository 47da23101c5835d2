"""What karat.toml says about checking: the table [check] and the list [[exempt]]."""

from __future__ import annotations

import msgspec


class CheckSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The table [check]."""


class Exemption(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of [[exempt]]: a deviation that is known, owned, explained, and will end."""

    kind: str
