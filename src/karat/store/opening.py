"""Opening: from a word, a variable or a setting to the store that is meant."""

from __future__ import annotations

import pkgutil
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from karat.findings import CannotVerify, UsageError, suggest
from karat.store.backend import Absent, Backend
from karat.store.problem import Problem

GROUP = "karat.stores"
NAME = "karat-store.json"
SCHEMA = "karat.store/1"
BUILT_IN = {
    "folder": "karat.store.folder:open_folder",
    "file": "karat.store.folder:open_folder",
    "s3": "karat.store.bucket:open_bucket",
    "gs": "karat.store.bucket:open_bucket",
    "az": "karat.store.bucket:open_bucket",
}


class StoreMark(msgspec.Struct, frozen=True, kw_only=True):
    """karat-store.json: this folder or bucket is a store, and of which form."""

    schema: str = SCHEMA


_MARK = msgspec.json.encode(StoreMark()) + b"\n"


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
        raise Problem(
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
        schema = msgspec.json.decode(data, type=StoreMark).schema
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


def found_store(backend: Backend) -> None:
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
