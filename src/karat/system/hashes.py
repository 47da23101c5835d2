"""SHA-256 of bytes and files; `sha256()` itself for what comes in pieces."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

sha256 = hashlib.sha256
_SHA256 = re.compile("[0-9a-f]{64}")


def sha256_hex(data: bytes | memoryview) -> str:
    """The digest of bytes, in hexadecimal."""
    return sha256(data).hexdigest()


def is_sha256(text: str) -> bool:
    """Whether a text is a digest in hexadecimal."""
    return _SHA256.fullmatch(text) is not None


def sha256_text(*parts: str) -> str:
    """The digest of texts, which are kept apart; any text has one, also one that UTF-8 cannot hold."""
    return sha256_hex("\0".join(parts).encode("utf-8", "surrogatepass"))


def sha256_file(path: Path) -> str:
    """The digest of a file, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
