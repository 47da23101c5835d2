"""What karat.toml says about the store of bundles: the table [store]."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import msgspec


class StoreSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The table [store]."""

    url: str | None = None  # A folder, or s3://, gs://, az://; KARAT_STORE overrules it, --store both.
    retention: int = 90  # Days that a reference is kept, unless it is pinned.
    locks: tuple[str, ...] = ()  # Lock files, or globs of them, whose digests `karat gc` must keep.

    signers: str = ".karat/allowed_signers"
    """Whose SSH keys may sign references: ssh-keygen's ALLOWED SIGNERS, seen from where karat.toml is."""

    def seen_from(self, root: Path) -> Self:
        """The same with relative paths taken from where karat.toml is, not from where one stands."""
        url = self.url
        if url is not None and "://" not in url and not url.startswith(("/", "~")):
            url = str(root / url)
        return msgspec.structs.replace(self, url=url, signers=str(root / Path(self.signers).expanduser()))

    def __post_init__(self) -> None:
        if not 1 <= self.retention <= 36500:
            raise ValueError(f"retention must be from 1 to 36500 days, found {self.retention}")
