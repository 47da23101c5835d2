"""SHA-256 of bytes and files."""

from __future__ import annotations

import hashlib
from pathlib import Path


def sha256_hex(data: bytes) -> str:
    """The digest of bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def sha256_text(*parts: str) -> str:
    """The digest of texts, which are kept apart; any text has one, also one that UTF-8 cannot hold."""
    return sha256_hex("\0".join(parts).encode("utf-8", "surrogatepass"))


def sha256_file(path: Path) -> str:
    """The digest of a file, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
