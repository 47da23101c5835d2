"""What karat.toml says about capturing: the table [bundles]."""

from __future__ import annotations

import msgspec


class BundleSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The table [bundles]."""

    capture: tuple[str, ...] = ("*",)
    """Globs of the suites to capture, once capturing is asked for at all."""
    raw: bool = False
    """Also write headerless .bin files for readers without karat."""
    strides: bool = False
    """Record the strides that tensors had."""
    flow: str | None = None
    """The flow of tests that do not say theirs."""

    def __post_init__(self) -> None:
        if not self.capture:
            raise ValueError("capture must have at least one glob, found none")
