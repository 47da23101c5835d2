"""Pull: a snapshot becomes a folder, verified as `karat verify` does it before the folder has its name.

A digest says that the bytes are those that were pushed, not who pushed them: what belongs to no case is not pulled.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path

import msgspec

from karat.bundles.places import open_place
from karat.findings import CannotVerify, UsageError
from karat.goldens.paths import narrow
from karat.report.words import count
from karat.store import snapshot as snapshots
from karat.store.backends import Backend, StoreProblem, damaged
from karat.store.objects import EXPIRING, KEPT, Part, Watch, fetch
from karat.store.push import objections
from karat.store.snapshot import Snapshot, SnapshotFile
from karat.store.upload import LARGE, LARGE_AT_ONCE
from karat.system.command import Command
from karat.system.files import exchange, sync_folder, write_bytes
from karat.system.hashes import sha256, sha256_hex
from karat.system.locks import lock
from karat.system.pool import in_parallel

RECORD = ".karat-pull.json"
_BLOCK = 1 << 20


class PullOptions(msgspec.Struct, frozen=True, kw_only=True):
    only: tuple[str, ...] = ()  # Globs of cases.
    replace: bool = False
    workers: int = 16
    pinned: bool = False  # Where to look first.


class Pulled(msgspec.Struct, frozen=True, kw_only=True):
    store: str
    digest: str
    target: str
    cases: int
    files: int
    size: int
    fetched_bytes: int  # Bytes that had to come from the store; the rest was there from an earlier attempt.
    already: bool = False  # Everything was there already, and is intact.
    name: str = ""
    date: str = ""
    signed_by: tuple[str, ...] = ()  # The names of the key that signed the reference, where a signature was required.


class PullRecord(msgspec.Struct, frozen=True, kw_only=True):
    """.karat-pull.json: what a folder was pulled from."""

    schema: str = "karat.pulled/1"
    store: str
    digest: str
    only: tuple[str, ...] = ()


def pull(
    backend: Backend,
    digest: str,
    target: Path,
    options: PullOptions,
    sizing: Watch | None = None,
    watch: Watch | None = None,
) -> Pulled:
    target = target.absolute()
    area = KEPT if options.pinned else EXPIRING
    snapshot = snapshots.load(backend, digest, area=area)
    if options.only:
        cases = tuple(case for case in snapshot.cases if narrow(case.path, options.only))
        if not cases:
            globs, there = " or ".join(options.only), len(snapshot.cases)
            said = f"--only: expected a case that matches {globs}, found none among {there:,}"
            then = Command("karat", "ls", "--cases", f"sha256:{digest}", "--store", backend.url)
            raise UsageError(said, next_command=then)
        snapshot = msgspec.structs.replace(snapshot, cases=cases)
    wanted = dict(snapshot.files())
    pulled = Pulled(
        store=backend.url,
        digest=digest,
        target=str(target),
        cases=len(snapshot.cases),
        files=len(wanted),
        size=sum(file.size for file in wanted.values()),
        fetched_bytes=0,
    )
    record = PullRecord(store=backend.url, digest=digest, only=options.only)
    if _is_here(target, record, wanted, options.workers):
        _verify(target, backend, digest)
        clear(target)
        return msgspec.structs.replace(pulled, already=True)
    check_target(target, replace=options.replace)
    if sizing is not None:
        sizing(pulled.size)
    with staging(target, digest[:12]) as folder:
        discard_others(folder, wanted)
        fetched = _PullFetch(backend, snapshot, folder, area, watch).run(options.workers)
        try:
            _verify(folder, backend, digest)
        except StoreProblem:
            shutil.rmtree(folder, ignore_errors=True)  # fetching it again would not mend it
            raise
        write_bytes(folder / RECORD, msgspec.json.encode(record), durable=False)
        install(folder, target, replace=options.replace)
    clear(target)
    return msgspec.structs.replace(pulled, fetched_bytes=fetched)


class _PullFetch:
    """The files of a snapshot, on their way into a folder."""

    def __init__(self, backend: Backend, snapshot: Snapshot, folder: Path, area: str, watch: Watch | None) -> None:
        self._backend, self._snapshot = backend, snapshot
        self._folder, self._area, self._watch = folder, area, watch or (lambda _: None)
        self._slots = threading.BoundedSemaphore(LARGE_AT_ONCE)
        self._stopped = threading.Event()

    def run(self, workers: int) -> int:
        """Fetch everything; returns the number of bytes that had to be fetched."""
        for folder in {(self._folder / path).parent for path, _ in self._snapshot.files()}:
            folder.mkdir(parents=True, exist_ok=True)
        fetched = sum(in_parallel(list(self._tasks()), workers, stop=self._stopped.set))
        checks = [partial(self._check_whole, path, file) for path, file in self._snapshot.files() if file.chunks]
        list(in_parallel(checks, workers, stop=self._stopped.set))
        return fetched

    def _tasks(self) -> Iterator[Callable[[], int]]:
        packed: dict[int, list[tuple[str, SnapshotFile]]] = {}
        for path, file in self._snapshot.files():
            if file.pack is not None:
                packed.setdefault(file.pack, []).append((path, file))
            elif file.chunks:
                target, start = self._folder / path, 0
                before = target.stat().st_size if target.is_file() else 0
                with _writing(target), target.open("ab") as made:
                    made.truncate(file.size)
                for part in file.chunks:
                    yield partial(self._chunk, target, start, part, looked=start < before)
                    start += part.size
            else:
                yield partial(self._object, Part(file.sha256, file.size), [(path, file)])
        for number, files in packed.items():
            yield partial(self._object, self._snapshot.packs[number], files)

    def _object(self, part: Part, files: Sequence[tuple[str, SnapshotFile]]) -> int:
        """Write the files that one object holds; nothing is fetched if they are all there."""
        if self._stopped.is_set():
            return 0
        lacked = [(path, file) for path, file in files if not _is_whole(self._folder / path, file)]
        self._watch(sum(file.size for _, file in files))
        if not lacked:
            return 0
        with self._room(part.size):
            data = fetch(self._backend, part, area=self._area)
            for path, file in lacked:
                offset = 0 if file.pack is None else file.offset
                content = memoryview(data)[offset : offset + file.size]
                if len(data) != part.size or sha256_hex(content) != file.sha256:
                    raise self._mismatch(path, file)
                flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
                target = self._folder / path
                with _writing(target), os.fdopen(os.open(target, flags, 0o666), "wb") as opened:
                    opened.write(content)
                    opened.flush()
                    os.fsync(opened.fileno())
        return part.size

    def _chunk(self, target: Path, start: int, part: Part, *, looked: bool) -> int:
        if self._stopped.is_set():
            return 0
        self._watch(part.size)
        with _writing(target), target.open("r+b") as file:
            if looked and _hash_of(file.fileno(), start, part.size) == part.sha256:
                return 0
            with self._room(part.size):
                data = fetch(self._backend, part, area=self._area)
                os.pwrite(file.fileno(), data, start)
                os.fsync(file.fileno())
        return part.size

    def _check_whole(self, path: str, file: SnapshotFile) -> None:
        with (self._folder / path).open("rb") as opened:
            if _hash_of(opened.fileno(), 0, file.size) != file.sha256:
                raise self._mismatch(path, file)

    def _room(self, size: int) -> AbstractContextManager[object]:
        # Few large objects are in memory at once; small ones need not wait for each other.
        return self._slots if size > LARGE else nullcontext()

    def _mismatch(self, path: str, file: SnapshotFile) -> Exception:
        said = (
            f"{path} of {self._backend.url}: expected sha256 {file.sha256}, found that the objects which the "
            "snapshot names for it hold something else"
        )
        return damaged(said, path=path, next_command=Command("karat", "verify", self._backend.url))


def _verify(folder: Path, backend: Backend, digest: str) -> None:
    found = objections(open_place(folder))
    if found:
        more = f", and {count(len(found) - 1, 'more problem')}" if len(found) > 1 else ""
        word = f"{backend.url}#sha256:{digest}"
        said = f"{word}: expected cases as they were captured, found that {found[0].message}{more}; nothing was pulled"
        raise damaged(said, path=found[0].path, next_command=Command("karat", "verify", word))


def _is_here(target: Path, record: PullRecord, wanted: Mapping[str, SnapshotFile], workers: int) -> bool:
    """Whether the folder already holds exactly what this pull would write."""
    try:
        found = msgspec.json.decode((target / RECORD).read_bytes(), type=PullRecord)
    except (OSError, ValueError, RecursionError):
        return False
    if (found.digest, found.only) != (record.digest, record.only):
        return False
    files = (path for path in target.rglob("*") if path.is_symlink() or not path.is_dir())
    if {path.relative_to(target).as_posix() for path in files} != {*wanted, RECORD}:
        return False
    tasks = [partial(_is_whole, target / path, file) for path, file in wanted.items()]
    return all(in_parallel(tasks, workers))


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


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Tell a full disk from a bug."""
    try:
        yield
    except OSError as error:
        said = f"expected to write {path}, but: {error.strerror or error}"
        raise CannotVerify(said, next_command=Command("df", "-h", str(path.parent))) from error


@contextmanager
def staging(target: Path, mark: str) -> Iterator[Path]:
    """A hidden folder beside the target, kept for the next attempt; one process at a time."""
    folder = target.parent / f"{_prefix(target)}{mark}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        said = f"expected to make {folder}, but: {error.strerror}"
        raise CannotVerify(said, next_command=Command("ls", "-ld", str(target.parent))) from error
    try:
        _alone(handle, target)
        yield folder
    finally:
        os.close(handle)


def check_target(target: Path, *, replace: bool) -> None:
    """Refuse a target that exists unless it may be replaced; checked before anything is fetched."""
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        said = f"expected a folder's name, or nothing yet, at {target}, found something else"
        raise UsageError(said, next_command=Command("ls", "-ld", str(target)))
    if target == Path.cwd() or target in Path.cwd().parents:
        said = f"expected a folder of its own for what is pulled, found {target}, in which this command runs"
        raise UsageError(said, next_command="karat pull --help")
    if target.is_dir() and any(target.iterdir()) and not replace:
        said = f"expected nothing at {target} yet, found a folder that is not empty; --replace replaces it"
        raise UsageError(said, next_command=Command("ls", "-A", str(target)))


def discard_others(folder: Path, wanted: Collection[str]) -> None:
    """Remove what an earlier attempt wanted and this one does not."""
    for path in sorted(folder.rglob("*"), reverse=True):
        name = path.relative_to(folder).as_posix()
        if path.is_dir() and not path.is_symlink():
            with contextlib.suppress(OSError):  # not empty
                path.rmdir()
        elif name not in wanted:
            path.unlink()


def install(folder: Path, target: Path, *, replace: bool) -> None:
    """Give the folder its name; a folder of that name is exchanged for it in one step, then removed."""
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
        said = f"expected to move {folder} to {target}, but: {error.strerror}"
        raise CannotVerify(said, next_command=Command("ls", "-ld", str(target.parent))) from error


def clear(target: Path) -> None:
    """Remove what killed pulls to this folder left behind; running ones keep theirs."""
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
    """How the names of a target's hidden folders begin; the target's own may be as long as names can be."""
    name = target.name
    if len(os.fsencode(name)) > 100:
        name = sha256_hex(os.fsencode(name))
    return f".karat-pull-{name}-"


def _alone(handle: int, target: Path) -> None:
    if not lock(handle):
        said = f"expected to be the only `karat pull` to {target}, found another one running"
        raise CannotVerify(said, next_command=f"{Command('ls', '-ld', str(target.parent))}/.karat-pull-*")
