"""Words: what a person types for a place with cases, wherever it is.

golden/                           a folder of cases or of zips, or a zip
store:models/nightly              a reference in the store that is configured
s3://bucket/golden#models/nightly a reference in that store; a folder's path serves as well
"""

from __future__ import annotations

import os
from pathlib import Path

from karat.bundles.places import Place, open_place
from karat.bundles.zips_place import is_of_zips, open_zips
from karat.findings import UsageError
from karat.store import pins, references
from karat.store.backend import Backend
from karat.store.opening import is_store_folder, open_store, store_url
from karat.store.place import SnapshotPlace

SCHEME = "store:"


def open_word(word: str | Path, *, store: str | None = None) -> Place:
    """The place that is meant; `store` is the one that `store:` stands for, if not KARAT_STORE's."""
    split = split_word(str(word), store) if isinstance(word, str) else None
    if split is None:
        of_zips = is_of_zips(Path(word))
        return open_zips(Path(word), str(word)) if of_zips else open_place(word)
    url, reference = split
    return open_snapshot(open_store(url), reference, str(word))


def open_snapshot(backend: Backend, reference: str, name: str) -> SnapshotPlace:
    """The snapshot behind a reference."""
    digest = references.resolve(backend, reference).digest
    pinned = pins.read(backend, digest) is not None
    return SnapshotPlace(backend, digest, name, pinned=pinned)


def split_word(word: str, store: str | None = None) -> tuple[str, str] | None:
    """A store and a reference in it; None for a path."""
    if word.startswith(SCHEME) and not Path(word).exists():
        return store_url(store, None, os.environ), word.removeprefix(SCHEME)
    url, mark, reference = word.rpartition("#")
    if mark and ("://" in url or (not Path(word).exists() and is_store_folder(Path(url)))):
        return url, reference
    if "://" in word:
        raise UsageError(
            f"expected URL#REFERENCE, such as {word.rstrip('/')}#models/nightly, found {word}",
            next_command=f"karat ls --store {word}",
        )
    return None
