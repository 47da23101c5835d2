"""Bucket: artifacts in object storage, as loose objects or zip archives."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from urllib.parse import unquote, urlsplit

from karat.findings import UsageError
from karat.sources.archive import Limits
from karat.sources.bucket_fetch import BucketFetch, version
from karat.sources.bucket_store import BucketAddress, BucketStore, parse_address
from karat.sources.cache import Cache
from karat.sources.crew import crew_size, in_parallel
from karat.sources.folder import Folder
from karat.sources.layout import Group, grouped, is_archive
from karat.sources.listing import Artifact, Fetched, Listing, Progress
from karat.sources.outcome import Obtained, Wanted, Watch, outcome
from karat.sources.shelf import Shelf
from karat.sources.unusable import Unusable


def open_bucket(url: str, *, notice: Callable[[str], None] | None = None) -> Bucket | Folder:
    """The source behind `s3://`, `gs://`, `az://` or `file://`."""
    if not url.lower().startswith("file:"):
        return Bucket(url, notice=notice)
    parts = urlsplit(url)
    if parts.netloc not in {"", "localhost"} or not parts.path or parts.query:
        raise UsageError(
            f"expected file:///PATH, found {url!r}", next_command="karat refresh --help"
        )
    return Folder(unquote(parts.path))


class Bucket:
    """A source in object storage."""

    def __init__(
        self,
        url: str,
        *,
        limits: Limits | None = None,
        notice: Callable[[str], None] | None = None,
    ) -> None:
        self._address = parse_address(url)
        self._limits = limits or Limits()
        self._workers = crew_size(os.environ)
        self._stopped = threading.Event()
        self._store: BucketStore | None = None
        self._groups: dict[str, Group] = {}
        self._cache = Cache(os.environ, notice=notice)

    def listing(self) -> Listing:
        """Zip archives and folders of loose objects; nothing is read yet."""
        # In a thread: obstore, waiting for a server that is silent, hears no Ctrl-C.
        (groups,) = in_parallel([self._find], 1, stop=self._stopped.set)
        self._groups = {group.id: group for group in groups}
        return Listing(
            source=self._address.scheme,
            origin=self._address.url,
            artifacts=tuple(group.artifact() for group in groups),
        )

    def fetch(
        self, artifacts: Sequence[Artifact], wanted: Wanted, progress: Progress | None = None
    ) -> Iterator[Fetched]:
        """The wanted files, several artifacts at a time."""
        if self._store is None:
            self.listing()
        tasks = [partial(self._fetched, artifact, wanted, progress) for artifact in artifacts]
        return in_parallel(tasks, self._workers, stop=self._stopped.set)

    def close(self) -> None:
        """Let go of what is not worth keeping."""
        self._stopped.set()
        self._cache.close()

    def _find(self) -> tuple[Group, ...]:
        """What is there; a prefix may also be the name of one archive."""
        address = self._address
        if is_archive(address.prefix):
            folder, _, name = address.prefix.rpartition("/")
            above = BucketAddress(scheme=address.scheme, bucket=address.bucket, prefix=folder)
            self._store = BucketStore(above)
            entry = self._store.entry(name)
            if entry is not None:
                return grouped([entry])
        self._store = BucketStore(address)
        return grouped(self._store.entries())

    def _fetched(self, artifact: Artifact, wanted: Wanted, progress: Progress | None) -> Fetched:
        def then(problem: Unusable) -> str:
            return problem.next_command or self._address.look

        obtain = partial(self._obtained, artifact, wanted)
        return outcome(artifact, progress, obtain, then)

    def _obtained(self, artifact: Artifact, wanted: Wanted, watch: Watch) -> Obtained:
        group, store = self._groups.get(artifact.id), self._store
        if group is None or store is None:
            where = self._address.url
            raise Unusable("artifact-missing", f"expected it in {where}, found no such objects")

        def onto(shelf: Shelf) -> Obtained:
            fetch = BucketFetch(store, shelf, self._limits, watch, self._check_stopped)
            return fetch.obtain(group, wanted)

        key = ("bucket", self._address.url, group.id, version(group))
        return self._cache.with_shelf(key, onto, called_off=self._check_stopped)

    def _check_stopped(self) -> None:
        if self._stopped.is_set():
            raise Unusable("transfer-failed", "expected to be let finish, found a stop")
