"""Installing: a folder appears under its name whole, or not at all."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from pathlib import Path

import msgspec

from karat.findings import CannotVerify, UsageError
from karat.goldens.paths import narrow
from karat.store import snapshot as snapshots
from karat.store.backends import Backend, damaged
from karat.store.objects import EXPIRING, KEPT, Part, Watch, fetch, together
from karat.store.snapshot import Snapshot, SnapshotFile, pieces
from karat.system.files import exchange, sync_folder, write_bytes
from karat.system.locks import lock
from karat.system.pool import in_parallel


@contextmanager
def staging(target: Path, mark: str) -> Iterator[Path]:
    """A hidden folder beside the target, left there for the next attempt; one process at a time."""
    folder = target.parent / f"{_prefix(target)}{mark}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        raise CannotVerify(
            f"expected to make {folder}, but: {error.strerror}",
            next_command=f"ls -ld {shlex.quote(str(target.parent))}",
        ) from error
    try:
        _alone(handle, target)
        yield folder
    finally:
        os.close(handle)


def check_target(target: Path, *, replace: bool) -> None:
    """Nothing stands in the way, or it may be replaced; asked before anything is fetched."""
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise UsageError(
            f"expected a folder's name, or nothing yet, at {target}, found something else",
            next_command=f"ls -ld {shlex.quote(str(target))}",
        )
    if target == Path.cwd() or target in Path.cwd().parents:
        raise UsageError(
            f"expected a folder of its own for what is pulled, found {target}, in which this command runs",
            next_command="karat pull --help",
        )
    if target.is_dir() and any(target.iterdir()) and not replace:
        raise UsageError(
            f"expected nothing at {target} yet, found a folder with something in it; "
            "--replace puts the new one in its place",
            next_command=f"ls -A {shlex.quote(str(target))}",
        )


def discard_others(folder: Path, wanted: Collection[str]) -> None:
    """Takes away what an earlier attempt wanted and this one does not."""
    for path in sorted(folder.rglob("*"), reverse=True):
        name = path.relative_to(folder).as_posix()
        if path.is_dir() and not path.is_symlink():
            with contextlib.suppress(OSError):  # not empty
                path.rmdir()
        elif name not in wanted:
            path.unlink()


def install(folder: Path, target: Path, *, replace: bool) -> None:
    """Gives the folder its name; one that has it already is exchanged for it in one step, then removed."""
    check_target(target, replace=replace)  # once more: another pull may have been quicker
    try:
        sync_folder(folder)
        if target.is_dir() and any(target.iterdir()):
            exchange(folder, target)
            shutil.rmtree(folder, ignore_errors=True)
        else:
            folder.replace(target)
        sync_folder(target.parent)
    except OSError as error:
        raise CannotVerify(
            f"expected to move {folder} to {target}, but: {error.strerror}",
            next_command=f"ls -ld {shlex.quote(str(target.parent))}",
        ) from error


def clear(target: Path) -> None:
    """Takes away what pulls to this folder left when they were killed; those at work keep theirs."""
    for folder in target.parent.glob(".karat-pull-*"):
        name = folder.name.removeprefix(_prefix(target))
        if not re.fullmatch("[0-9a-f]{12}(-old[0-9a-f]*)?", name) or folder.is_symlink():
            continue
        with contextlib.suppress(OSError, CannotVerify):
            handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                _alone(handle, target)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(handle)


def _prefix(target: Path) -> str:
    """How the hidden folders of a target begin; a name may be as long as a name can be."""
    name = target.name
    if len(os.fsencode(name)) > 100:
        name = sha256(os.fsencode(name)).hexdigest()
    return f".karat-pull-{name}-"


def _alone(handle: int, target: Path) -> None:
    if not lock(handle):
        raise CannotVerify(
            f"expected to be the only `karat pull` to {target}, found another at work",
            next_command=f"ls -ld {shlex.quote(str(target.parent))}/.karat-pull-*",
        )


# DOC-HERE pulling: Pulling: a snapshot becomes a folder, every byte of it verified before the folder has its name.

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


class PullRecord(msgspec.Struct, frozen=True, kw_only=True):
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
    mark = PullRecord(store=backend.url, digest=digest, only=options.only)
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


def _is_here(target: Path, mark: PullRecord, snapshot: Snapshot, workers: int) -> bool:
    """Whether the folder is what this pull would make of it, to the byte."""
    try:
        found = msgspec.json.decode((target / MARK).read_bytes(), type=PullRecord)
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
