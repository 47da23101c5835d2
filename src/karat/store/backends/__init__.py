"""Backends: where a store's objects are kept, what every kind of place must be able to do, and how one is opened.

A backend is called from many threads at once. A key it does not have is `Absent`; anything else that goes wrong is
`CannotVerify`, raised only after sensible retries.

Third parties register theirs under the entry point `karat.stores`: a callable from a URL to a `Backend`.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from karat.findings import UNVERIFIED, CannotVerify, ExitCode, KaratError, UsageError, fail, suggest
from karat.system.command import Command

STAGING, TOUCHING = ".staging/", "touching/"
"""Prefixes of unfinished writes; old keys here were left by killed processes."""
NAME = "karat-store.json"
SCHEMA = "karat.store/2"
_SCHEMA_1 = "karat.store/1"  # References without links; the next push makes it the second.
BUILT_IN = {
    "folder": "karat.store.backends.folder:open_folder",
    "file": "karat.store.backends.folder:open_folder",
    "s3": "karat.store.backends.bucket:open_bucket",
    "gs": "karat.store.backends.bucket:open_bucket",
    "az": "karat.store.backends.bucket:open_bucket",
}


class Absent(Exception):  # noqa: N818 - a state of the store, not a bug
    """There is nothing under this key."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


class StoreProblem(KaratError):  # noqa: N818 - a state of the store, not a bug
    """An error that is a finding, so that reports and exit codes agree on it."""

    def __init__(self, kind: str, message: str, *, next_command: str, path: str = "") -> None:
        super().__init__(message, next_command=next_command)
        self.exit_code = ExitCode.CANNOT_VERIFY if kind in UNVERIFIED else ExitCode.FAIL
        self.finding = fail(kind, message, path=path, next=self.next_command)


def damaged(message: str, *, path: str, next_command: str) -> StoreProblem:
    """The bytes do not match their digest."""
    return StoreProblem("bundle-damaged", message, next_command=next_command, path=path)


class StoredObject(msgspec.Struct, frozen=True):
    """One key in a store."""

    key: str
    size: int
    modified: float  # Seconds since 1970, by the store's clock.


class Backend(Protocol):
    """A folder or a bucket; keys are `/`-separated and plain ASCII."""

    url: str  # As a person would type it, without credentials.

    def put(self, key: str, data: bytes | memoryview, *, replace: bool = False) -> bool:
        """Write a whole object; False, and no change, if one exists and may not be replaced."""

    def get(self, key: str) -> bytes:
        """Read a whole object."""

    def head(self, key: str) -> StoredObject | None:
        """Look up size and time."""

    def list(self, prefix: str) -> Iterator[StoredObject]:
        """List every key with a prefix, which ends in a slash; in any order."""

    def copy(self, source: str, target: str) -> None:
        """Copy on the server, replacing the target."""

    def touch(self, key: str) -> None:
        """Set the time to now; the object stays readable meanwhile."""

    def delete(self, keys: Sequence[str]) -> None:
        """Delete the keys; absent ones are ignored."""

    def local(self, key: str) -> Path | None:
        """Return a file of this machine that can be read in place, if there is one."""

    def look(self, key: str) -> str:
        """Return the shell command that shows the object."""


class StoreFile(msgspec.Struct, frozen=True, kw_only=True):
    """karat-store.json: marks a folder or bucket as a store, and says which format it has."""

    schema: str = SCHEMA


_STORE_FILE, _STORE_FILE_1 = (msgspec.json.encode(StoreFile(schema=one)) + b"\n" for one in (SCHEMA, _SCHEMA_1))


def store_url(said: str | None, configured: str | None, environment: Mapping[str, str]) -> str:
    """The store to use: --store, KARAT_STORE, [store].url, or a folder of this user."""
    chosen = said or environment.get("KARAT_STORE") or configured
    if chosen:
        return chosen
    base = environment.get("XDG_DATA_HOME", "")
    # The XDG specification says to ignore a relative path.
    data = Path(base) if base.startswith("/") else Path("~/.local/share").expanduser()
    return str(data / "karat" / "store")


def open_backend(url: str) -> Backend:
    """Open a folder or bucket, whether or not it is a store yet."""
    scheme, separator, _ = url.partition("://")
    kind = scheme if separator else "folder"
    if kind in BUILT_IN:
        factory: Callable[[str], Backend] = pkgutil.resolve_name(BUILT_IN[kind])
        return factory(url)
    from importlib.metadata import entry_points

    known = {point.name: point for point in entry_points(group="karat.stores")}
    if kind not in known:
        names = sorted({*BUILT_IN, *known} - {"folder"})
        said = (
            f"expected a folder, or a store of a known kind ({', '.join(names)}), found {kind}://{suggest(kind, names)}"
        )
        raise UsageError(said, next_command="karat push --help")
    factory = known[kind].load()
    return factory(url)


def open_store(url: str) -> Backend:
    """Open an existing store; `reference-missing` if nothing was ever pushed to it."""
    backend = open_backend(url)
    if not is_store(backend):
        said = f"expected a store in {backend.url}, found no {NAME}; nothing was ever pushed there"
        then = Command("karat", "push", "PLACE", "NAME", "--store", backend.url)
        raise StoreProblem("reference-missing", said, next_command=then)
    return backend


def is_store(backend: Backend) -> bool:
    """Whether it is a store in a format that this karat knows."""
    try:
        data = backend.get(NAME)
    except Absent:
        return False
    if data in {_STORE_FILE, _STORE_FILE_1}:
        return True
    try:
        schema = msgspec.json.decode(data, type=StoreFile).schema
    except (ValueError, RecursionError):  # msgspec's are among the former
        schema = SCHEMA
    newer = schema not in {SCHEMA, _SCHEMA_1}
    said = f"expected {SCHEMA} in {NAME} of {backend.url}, found " + (repr(schema[:60]) if newer else "it changed")
    raise CannotVerify(said, next_command="pip install --upgrade karat" if newer else backend.look(NAME))


def is_store_folder(path: Path) -> bool:
    return (path / NAME).is_file()


def create_store(backend: Backend) -> None:
    if not is_store(backend) or backend.get(NAME) != _STORE_FILE:
        backend.put(NAME, _STORE_FILE, replace=True)
