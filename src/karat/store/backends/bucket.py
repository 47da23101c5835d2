"""A store in a bucket: `s3://`, `gs://` or `az://`, through obstore.

It relies on what all three promise: an object exists completely or not at all, a write is visible to whoever reads or
lists next, and "put unless it exists" is decided by the server.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from karat.findings import CannotVerify
from karat.net.buckets import BucketAddress, is_anonymous, open_objects, parse_address, reason_of
from karat.store.backends import TOUCHING, Absent, StoredObject
from karat.system.command import Command

T = TypeVar("T")
_ATTEMPTS = 8
_FIRST_WAIT, _LONGEST_WAIT = 0.1, 5.0
_ENOUGH = 90.0  # seconds after which nothing is tried again
_FINAL = {"PermissionDeniedError", "UnauthenticatedError", "InvalidPathError", "NotSupportedError"}
_ABSENT = {"NotFoundError", "FileNotFoundError"}
_TAKEN = {"AlreadyExistsError", "PreconditionError"}


def open_bucket(url: str) -> BucketBackend:
    return BucketBackend(parse_address(url))


class BucketBackend:
    """One bucket, and the folder in it that is the root."""

    def __init__(self, address: BucketAddress) -> None:
        self.address = address
        self.url = address.url
        self._anonymous = is_anonymous(address.scheme, os.environ)
        self._objects = open_objects(address, anonymous=self._anonymous)  # says what to install

        import obstore

        self._api: Any = obstore

    def put(self, key: str, data: bytes | memoryview, *, replace: bool = False) -> bool:
        """Write in one request, so that no partial object can appear."""
        mode: Any = "overwrite" if replace else "create"
        content = data if isinstance(data, bytes) else bytes(data)

        def attempt() -> bool:
            try:
                self._api.put(self._objects, key, content, mode=mode, use_multipart=False)
            except Exception as error:
                if type(error).__name__ in _TAKEN:
                    return False
                raise
            return True

        return self._retry("write", key, attempt)

    def get(self, key: str) -> bytes:
        return self._retry("read", key, lambda: bytes(self._api.get(self._objects, key).bytes()))

    def head(self, key: str) -> StoredObject | None:
        try:
            return self._retry("look at", key, lambda: _stored(self._api.head(self._objects, key)))
        except Absent:
            return None

    def list(self, prefix: str) -> Iterator[StoredObject]:
        def attempt() -> list[StoredObject]:
            pages = self._api.list(self._objects, prefix=prefix or None, chunk_size=1000)
            return [_stored(one) for page in pages for one in page]

        yield from self._retry("list", prefix, attempt)

    def copy(self, source: str, target: str) -> None:
        """Copy on the server; the bytes do not travel."""
        self._retry("copy", source, lambda: self._api.copy(self._objects, source, target))

    def touch(self, key: str) -> None:
        """Copy away and back: a server refuses to copy an object onto itself."""
        aside = f"{TOUCHING}{os.urandom(12).hex()}"
        self.copy(key, aside)
        self.copy(aside, key)
        self.delete([aside])

    def delete(self, keys: Sequence[str]) -> None:
        """Delete many per request where the server supports it."""
        if keys:
            self._retry("delete", keys[0], lambda: self._api.delete(self._objects, list(keys)), absent=False)

    def local(self, key: str) -> Path | None:  # noqa: ARG002 - the protocol's signature
        return None

    def look(self, key: str) -> str:
        prefix = f"{self.address.prefix}/" if self.address.prefix else ""
        if self.address.scheme == "s3":
            return str(Command("aws", "s3", "ls", f"s3://{self.address.bucket}/{prefix}{key}"))
        return self.address.look

    def _retry(self, verb: str, key: str, attempt: Callable[[], T], *, absent: bool = True) -> T:
        """Try again what may succeed later: obstore does so for most errors, not for truncated bodies."""
        until = time.monotonic() + _ENOUGH
        for number in range(1, _ATTEMPTS + 1):
            try:
                return attempt()
            except Exception as error:  # noqa: BLE001 - obstore's errors share no base with FileNotFoundError
                name = type(error).__name__
                no_bucket = "NoSuchBucket" in str(error) or "ContainerNotFound" in str(error)
                if name in _ABSENT and not no_bucket:
                    if absent:
                        raise Absent(key) from None
                    return None  # type: ignore[return-value]  # deleting what is gone
                final = name in _FINAL or name in _ABSENT or time.monotonic() > until
                if final or number == _ATTEMPTS:
                    how = " without credentials" if self._anonymous else ""
                    said = f"expected to {verb} {key} in {self.url}{how}, found {reason_of(error)}"
                    raise CannotVerify(said, next_command=self.address.look) from None
            longest = min(_LONGEST_WAIT, _FIRST_WAIT * 2.0 ** (number - 1))
            time.sleep(longest * random.uniform(0.5, 1.0))  # noqa: S311 - spreads the crowd, keeps no secret
        raise AssertionError("unreachable")


def _stored(one: Any) -> StoredObject:
    return StoredObject(one["path"], one["size"], one["last_modified"].timestamp())
