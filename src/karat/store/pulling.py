"""Pulling: a snapshot becomes a folder, every byte of it verified before the folder has its name."""

from __future__ import annotations

import os
import shlex
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path

import msgspec

from karat.findings import CannotVerify, UsageError
from karat.goldens.atomic import write_bytes
from karat.goldens.paths import narrow
from karat.sources.crew import in_parallel
from karat.store import snapshot as snapshots
from karat.store.backend import Backend
from karat.store.installing import check_target, clear, discard_others, install, staging
from karat.store.objects import EXPIRING, KEPT, Part, Watch, fetch
from karat.store.problem import damaged
from karat.store.snapshot import Snapshot, SnapshotFile, pieces
from karat.store.teamwork import together

MARK = ".karat-pull.json"
_LARGE = 4 << 20
_MANY_LARGE = 4
_BLOCK = 1 << 20


class PullOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to pull."""

    only: tuple[str, ...] = ()
    """Globs of cases."""
    replace: bool = False
    workers: int = 16
    pinned: bool = False
    """Where to look first."""


class Pulled(msgspec.Struct, frozen=True, kw_only=True):
    """What a pull did."""

    store: str
    digest: str
    target: str
    cases: int
    files: int
    size: int
    fetched_bytes: int
    """Of objects that had to come from the store; the rest was there from an earlier attempt."""
    already: bool = False
    """It was all there, and is what it should be."""
    name: str = ""
    date: str = ""


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """.karat-pull.json: what a folder was pulled from."""

    schema: str = "karat.pulled/1"
    store: str
    digest: str
    only: tuple[str, ...] = ()


def pull(
    backend: Backend, digest: str, target: Path, options: PullOptions,
    sizing: Callable[[int], None] | None = None, watch: Watch | None = None,
) -> Pulled:  # fmt: skip
    """Brings a snapshot, or some cases of it, into a new folder."""
    target = target.absolute()
    drawer = KEPT if options.pinned else EXPIRING
    snapshot = snapshots.load(backend, digest, drawer=drawer)
    snapshot = _narrowed(
        snapshot, options.only, f"sha256:{digest} --store {shlex.quote(backend.url)}"
    )
    wanted = dict(snapshot.files())
    told = Pulled(
        store=backend.url, digest=digest, target=str(target), cases=len(snapshot.cases),
        files=len(wanted), size=sum(file.size for file in wanted.values()), fetched_bytes=0,
    )  # fmt: skip
    mark = Mark(store=backend.url, digest=digest, only=options.only)
    if _is_here(target, mark, snapshot, options.workers):
        clear(target)
        return msgspec.structs.replace(told, already=True)
    check_target(target, replace=options.replace)
    if sizing is not None:
        sizing(told.size)
    with staging(target, digest[:12]) as folder:
        discard_others(folder, wanted)
        fetched = _Fetch(backend, snapshot, folder, drawer, watch).run(options.workers)
        write_bytes(folder / MARK, msgspec.json.encode(mark), durable=False)
        install(folder, target, replace=options.replace)
    clear(target)
    return msgspec.structs.replace(told, fetched_bytes=fetched)


class _Fetch:
    """The files of a snapshot, on their way into a folder."""

    def __init__(
        self, backend: Backend, snapshot: Snapshot, folder: Path, drawer: str, watch: Watch | None
    ) -> None:
        self._backend, self._snapshot = backend, snapshot
        self._folder, self._drawer, self._watch = folder, drawer, watch
        self._slots = threading.BoundedSemaphore(_MANY_LARGE)
        self._stopped = threading.Event()

    def run(self, workers: int) -> int:
        """Bytes that had to be fetched."""
        for folder in {(self._folder / path).parent for path, _ in self._snapshot.files()}:
            folder.mkdir(parents=True, exist_ok=True)
        fetched = sum(in_parallel(list(self._tasks()), workers, stop=self._stopped.set))
        chunked = [(path, file) for path, file in self._snapshot.files() if file.chunks]
        checks = [partial(self._check_whole, path, file) for path, file in chunked]
        for _ in in_parallel(checks, workers, stop=self._stopped.set):
            pass
        return fetched

    def _tasks(self) -> Iterator[Callable[[], int]]:
        packed: dict[int, list[tuple[str, SnapshotFile]]] = {}
        for path, file in self._snapshot.files():
            if file.pack is not None:
                packed.setdefault(file.pack, []).append((path, file))
            elif file.chunks:
                yield from self._chunk_tasks(path, file)
            else:
                part = Part(file.sha256, file.size)
                yield partial(self._object, part, [(path, file, 0)])
        for number, files in packed.items():
            places = [(path, file, file.offset) for path, file in files]
            yield partial(self._object, self._snapshot.packs[number], places)

    def _chunk_tasks(self, path: str, file: SnapshotFile) -> Iterator[Callable[[], int]]:
        target = self._folder / path
        before = target.stat().st_size if target.is_file() else 0
        with _writing(target), target.open("ab") as made:
            made.truncate(file.size)
        start = 0
        for part in pieces(file):
            yield partial(self._chunk, target, start, part, looked=start < before)
            start += part.size

    def _object(self, part: Part, places: Sequence[tuple[str, SnapshotFile, int]]) -> int:
        """One object into the files that lie in it; nothing if they are all there."""
        if self._stopped.is_set():
            return 0
        lacked = [place for place in places if not _is_whole(self._folder / place[0], place[1])]
        self._tell(sum(file.size for _, file, _ in places))
        if not lacked:
            return 0
        with self._room(part.size):
            data = fetch(self._backend, part, drawer=self._drawer)
            for path, file, offset in lacked:
                content = memoryview(data)[offset : offset + file.size]
                if len(data) != part.size or sha256(content).hexdigest() != file.sha256:
                    raise self._untrue(path, file)
                with _writing(self._folder / path):
                    _write(self._folder / path, content)
        return part.size

    def _chunk(self, target: Path, start: int, part: Part, *, looked: bool) -> int:
        if self._stopped.is_set():
            return 0
        self._tell(part.size)
        with _writing(target), target.open("r+b") as file:
            if looked and _hash_of(file.fileno(), start, part.size) == part.sha256:
                return 0
            with self._room(part.size):
                data = fetch(self._backend, part, drawer=self._drawer)
                os.pwrite(file.fileno(), data, start)
                os.fsync(file.fileno())
        return part.size

    def _check_whole(self, path: str, file: SnapshotFile) -> None:
        with (self._folder / path).open("rb") as opened:
            if _hash_of(opened.fileno(), 0, file.size) != file.sha256:
                raise self._untrue(path, file)

    def _room(self, size: int) -> threading.BoundedSemaphore | threading.Lock:
        # Large objects are few in memory at once; small ones need not wait for each other.
        return self._slots if size > _LARGE else threading.Lock()

    def _tell(self, size: int) -> None:
        if self._watch is not None:
            self._watch(size)

    def _untrue(self, path: str, file: SnapshotFile) -> Exception:
        return damaged(
            f"{path} of {self._backend.url}: expected sha256 {file.sha256}, found that the objects which the "
            "snapshot names for it hold something else",
            path=path,
            next_command=f"karat verify {shlex.quote(self._backend.url)}",
        )


def _narrowed(snapshot: Snapshot, only: tuple[str, ...], where: str) -> Snapshot:
    if not only:
        return snapshot
    cases = tuple(case for case in snapshot.cases if narrow(case.path, only))
    if not cases:
        raise UsageError(
            f"--only: expected a case that matches {' or '.join(only)}, found none among {len(snapshot.cases):,}",
            next_command=f"karat ls --cases {where}",
        )
    return msgspec.structs.replace(snapshot, cases=cases)


def _is_here(target: Path, mark: Mark, snapshot: Snapshot, workers: int) -> bool:
    """Whether the folder is what this pull would make of it, to the byte."""
    try:
        found = msgspec.json.decode((target / MARK).read_bytes(), type=Mark)
    except (OSError, ValueError, RecursionError):
        return False
    if (found.digest, found.only) != (mark.digest, mark.only):
        return False
    wanted = dict(snapshot.files())
    names = {
        path.relative_to(target).as_posix()
        for path in target.rglob("*")
        if path.is_symlink() or not path.is_dir()
    }
    if names != {*wanted, MARK}:
        return False
    tasks = [partial(_is_whole, target / path, file) for path, file in wanted.items()]
    return all(together(tasks, workers))


def _is_whole(path: Path, file: SnapshotFile) -> bool:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        same_size = os.fstat(handle).st_size == file.size
        return same_size and _hash_of(handle, 0, file.size) == file.sha256
    finally:
        os.close(handle)


def _hash_of(handle: int, start: int, size: int) -> str:
    whole = sha256()
    buffer = bytearray(min(_BLOCK, size))
    end = start + size
    while start < end:
        got = os.preadv(handle, [memoryview(buffer)[: end - start]], start)
        if not got:
            break
        whole.update(memoryview(buffer)[:got])
        start += got
    return whole.hexdigest()


def _write(path: Path, data: memoryview) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    with os.fdopen(os.open(path, flags, 0o666), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


class _writing:  # noqa: N801 - reads as a word
    """Tells a full disk from a bug."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, OSError):
            raise CannotVerify(
                f"expected to write {self._path}, but: {error.strerror or error}",
                next_command=f"df -h {shlex.quote(str(self._path.parent))}",
            ) from error
