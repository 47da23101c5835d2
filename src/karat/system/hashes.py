"""SHA-256 of bytes and files, `sha256()` itself for what comes in pieces; BLAKE3, where there is much to hash."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any, Literal

sha256 = hashlib.sha256
_SHA256 = re.compile("[0-9a-f]{64}")


def start_hash(kind: Literal["blake3", "sha256"], data: bytes | memoryview = b"") -> Any:
    """A hash that has seen these bytes; it takes more with `update`."""
    if kind == "sha256":
        return sha256(data)
    from blake3 import blake3

    return blake3(data)


def sha256_hex(data: bytes | memoryview) -> str:
    return sha256(data).hexdigest()


def is_sha256(text: str) -> bool:
    """Whether a text is a digest in hexadecimal."""
    return _SHA256.fullmatch(text) is not None


def sha256_text(*parts: str) -> str:
    """The digest of texts, which are kept apart; any text has one, also one that UTF-8 cannot hold."""
    return sha256_hex("\0".join(parts).encode("utf-8", "surrogatepass"))


def sha256_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sealed(body: bytes) -> bytes:
    """Bytes behind their own digest."""
    return sha256_hex(body).encode() + b"\n" + body


def unsealed(data: bytes) -> bytes:
    """What was sealed; a ValueError if it is not whole."""
    checksum, _, body = data.partition(b"\n")
    if checksum != sha256_hex(body).encode():
        raise ValueError("other bytes than were sealed")
    return body
