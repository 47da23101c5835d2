"""Answers of an API, kept with their ETag, so that asking again costs nothing.

An answer is found by its URL and by who asked: what one token may see is never shown to another.
Neither the URL nor the token is written; both go into a salted hash.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from contextlib import suppress
from pathlib import Path

import msgspec

from karat.sources.tokens import Token

_LARGEST = 16 << 20


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """One answer as it was given."""

    etag: str
    link: str = ""
    body: bytes
    checksum: str = ""


class Answers:
    """A folder of answers; one that cannot be read or written is as good as an empty one."""

    def __init__(self, folder: Path, salt: bytes) -> None:
        self._folder = folder
        self._salt = salt

    def find(self, url: str, token: Token | None) -> Answer | None:
        """What was answered the last time, or None; a damaged one is thrown away."""
        path = self._path(url, token)
        try:
            answer = msgspec.msgpack.decode(path.read_bytes(), type=Answer)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, msgspec.MsgspecError):
            answer = None
        if answer is None or answer.checksum != _checksum(answer):
            with suppress(OSError):
                path.unlink()
            return None
        with suppress(OSError):
            os.utime(path)
        return answer

    def keep(self, url: str, token: Token | None, answer: Answer) -> None:
        """Remembers an answer, if the disk allows it."""
        if len(answer.body) > _LARGEST:
            return
        whole = msgspec.structs.replace(answer, checksum=_checksum(answer))
        path = self._path(url, token)
        draft = path.with_name(f".{os.urandom(8).hex()}.tmp")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            draft.write_bytes(msgspec.msgpack.encode(whole))
            draft.replace(path)
        except OSError:
            with suppress(OSError):
                draft.unlink()

    def _path(self, url: str, token: Token | None) -> Path:
        who = token.secret.reveal() if token else ""
        name = hmac.new(self._salt, f"{who}\0{url}".encode(), "sha256").hexdigest()
        return self._folder / name[:2] / name[2:]


def _checksum(answer: Answer) -> str:
    head = f"{answer.etag}\0{answer.link}\0".encode()
    return hashlib.sha256(head + answer.body).hexdigest()
