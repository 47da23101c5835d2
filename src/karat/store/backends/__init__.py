"""Backends: where a store's objects lie, and the few things every kind of place must be able to do.

A backend is asked by many threads at once. What it is asked for and does not have is `Absent`; what goes
wrong otherwise is `CannotVerify` in karat's voice, after it has tried again as often as is sensible.
Third parties register theirs under the entry point `karat.stores`: a callable from a URL to a `Backend`.
"""

from __future__ import annotations

import pkgutil
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from karat.findings import (
    UNVERIFIED,
    CannotVerify,
    ExitCode,
    Finding,
    KaratError,
    Severity,
    UsageError,
    suggest,
)

STAGING, TOUCHING = ".staging/", "touching/"
"""Where backends make things that have no name yet; what is old there was left by the killed."""


class Absent(Exception):  # noqa: N818 - a state of the store, not a bug
    """There is nothing under this key."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


class Stored(msgspec.Struct, frozen=True):
    """One thing in a store."""

    key: str
    size: int
    modified: float
    """Seconds since 1970, by the clock of whoever keeps it."""


class Backend(Protocol):
    """A folder or a bucket; keys are `/`-separated and plain ASCII."""

    url: str
    """As a person would type it; no credentials are in it."""

    def put(self, key: str, data: bytes | memoryview, *, replace: bool = False) -> bool:
        """Puts it there whole; False, and nothing happens, if there is one already and it may not be replaced."""

    def get(self, key: str) -> bytes:
        """All of it."""

    def head(self, key: str) -> Stored | None:
        """What is under the key, if anything is."""

    def list(self, prefix: str) -> Iterator[Stored]:
        """Everything whose key starts with the prefix, which ends in a slash; in any order."""

    def copy(self, source: str, target: str) -> None:
        """A second one, made where the first lies; what was at the target is replaced."""

    def touch(self, key: str) -> None:
        """Makes it as young as if it had just been put there; it is readable all the while."""

    def delete(self, keys: Sequence[str]) -> None:
        """Takes them away; those that are not there are not missed."""

    def local(self, key: str) -> Path | None:
        """A file of this machine that holds it, and can be read in place."""

    def look(self, key: str) -> str:
        """The command with which a person looks at it."""


# DOC-HERE problem: Problems: an error that is a finding, so that reports and exit codes say the same of it.


class StoreProblem(KaratError):  # noqa: N818 - a state of the store, not a bug
    """What went wrong with a store, as the finding that a report shows."""

    def __init__(self, kind: str, message: str, *, next_command: str, path: str = "") -> None:
        super().__init__(message, next_command=next_command)
        self.exit_code = ExitCode.CANNOT_VERIFY if kind in UNVERIFIED else ExitCode.FAIL
        self.finding = Finding(
            kind=kind, severity=Severity.FAIL, message=message, path=path, next=next_command
        )


def damaged(message: str, *, path: str, next_command: str) -> StoreProblem:
    """Bytes are not what their digest says."""
    return StoreProblem("bundle-damaged", message, next_command=next_command, path=path)


# DOC-HERE opening: Opening: from a word, a variable or a setting to the store that is meant.

GROUP = "karat.stores"
NAME = "karat-store.json"
SCHEMA = "karat.store/1"
BUILT_IN = {
    "folder": "karat.store.backends.folder:open_folder",
    "file": "karat.store.backends.folder:open_folder",
    "s3": "karat.store.backends.bucket:open_bucket",
    "gs": "karat.store.backends.bucket:open_bucket",
    "az": "karat.store.backends.bucket:open_bucket",
}


class StoreFile(msgspec.Struct, frozen=True, kw_only=True):
    """karat-store.json: this folder or bucket is a store, and of which form."""

    schema: str = SCHEMA


_MARK = msgspec.json.encode(StoreFile()) + b"\n"


def store_url(said: str | None, configured: str | None, environment: Mapping[str, str]) -> str:
    """The store to use: --store, KARAT_STORE, [store].url, or a folder of this user's."""
    chosen = said or environment.get("KARAT_STORE") or configured
    if chosen:
        return chosen
    base = environment.get("XDG_DATA_HOME", "")
    # A relative one is to be ignored, says the specification of these folders.
    data = Path(base) if base.startswith("/") else Path("~/.local/share").expanduser()
    return str(data / "karat" / "store")


def open_backend(url: str) -> Backend:
    """The folder or bucket, whether or not it is a store yet."""
    scheme, found, _ = url.partition("://")
    return _factory(scheme if found else "folder")(url)


def open_store(url: str) -> Backend:
    """A store that is there; `reference-missing` if nothing was ever pushed to it."""
    backend = open_backend(url)
    if not is_store(backend):
        raise StoreProblem(
            "reference-missing",
            f"expected a store in {backend.url}, found no {NAME}; nothing was ever pushed there",
            next_command=f"karat push PLACE NAME --store {shlex.quote(backend.url)}",
        )
    return backend


def is_store(backend: Backend) -> bool:
    """Whether it is one, of a form that this karat knows."""
    try:
        data = backend.get(NAME)
    except Absent:
        return False
    if data == _MARK:
        return True
    try:
        schema = msgspec.json.decode(data, type=StoreFile).schema
    except ValueError:  # msgspec's are among them
        schema = SCHEMA
    newer = schema != SCHEMA
    raise CannotVerify(
        f"expected {SCHEMA} in {NAME} of {backend.url}, found "
        + (repr(schema[:60]) if newer else "it changed"),
        next_command="pip install --upgrade karat" if newer else backend.look(NAME),
    )


def is_store_folder(path: Path) -> bool:
    """Whether a folder of this machine is a store."""
    return (path / NAME).is_file()


def create_store(backend: Backend) -> None:
    """Makes it a store, if it is none."""
    if not is_store(backend):
        backend.put(NAME, _MARK)


def _factory(kind: str) -> Callable[[str], Backend]:
    if kind in BUILT_IN:
        return pkgutil.resolve_name(BUILT_IN[kind])  # type: ignore[no-any-return]
    from importlib.metadata import entry_points  # noqa: PLC0415 - only for third parties' stores

    known = {point.name: point for point in entry_points(group=GROUP)}
    if kind not in known:
        names = sorted({*BUILT_IN, *known} - {"folder"})
        raise UsageError(
            f"expected a folder, or a store of a kind that is known ({', '.join(names)}), "
            f"found {kind}://{suggest(kind, names)}",
            next_command="karat push --help",
        )
    return known[kind].load()  # type: ignore[no-any-return]
