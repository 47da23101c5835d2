"""Pull: a snapshot becomes a folder, verified as `karat verify` does it before the folder has its name.

A digest says that the bytes are those that were pushed, not who pushed them: what belongs to no case is not pulled.
"""

from __future__ import annotations

import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path

import msgspec

from karat.bundles.extents import open_plain
from karat.bundles.places import open_place
from karat.findings import CannotVerify, UsageError
from karat.goldens.paths import narrow
from karat.report.words import byte_size, count
from karat.store import snapshot as snapshots
from karat.store.backends import Backend, StoreProblem, damaged
from karat.store.objects import EXPIRING, KEPT, Part, Watch, fetch, key_of, name_of, name_of_range
from karat.store.push import objections
from karat.store.snapshot import Snapshot, SnapshotFile, pieces
from karat.store.upload import LARGE, LARGE_AT_ONCE
from karat.system.command import Command
from karat.system.files import copy_range, exchange, expecting, sync_folder, write_bytes
from karat.system.foreign.limits import CLOSED, NO_FOLLOW
from karat.system.hashes import sha256_hex
from karat.system.locks import lock
from karat.system.pool import in_parallel
from karat.tensors.tensor import Damaged

RECORD = ".karat-pull.json"


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
    if _is_here(target, record, snapshot, options.workers):
        _verify(target, backend, digest)
        clear(target)
        return msgspec.structs.replace(pulled, already=True)
    check_target(target, replace=options.replace)
    if sizing is not None:
        sizing(pulled.size)
    with staging(target, digest[:12]) as folder:
        # What an earlier attempt wanted and this one does not.
        for path in sorted(folder.rglob("*"), reverse=True):
            if path.is_dir() and not path.is_symlink():
                with suppress(OSError):  # not empty
                    path.rmdir()
            elif path.relative_to(folder).as_posix() not in wanted:
                path.unlink()
        fetch = _PullFetch(backend, snapshot, folder, area, watch)
        fetched = fetch.run(options.workers)
        try:
            with ThreadPoolExecutor(1) as beside:  # the disk writes while the bytes are verified
                synced = beside.submit(fetch.sync, options.workers)
                _verify(folder, backend, digest)
                synced.result()
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
        self._earlier = {path for path, _ in snapshot.files() if (folder / path).exists()}  # An attempt left them.
        self._written: set[str] = set()

    def run(self, workers: int) -> int:
        """Fetch everything; returns the number of bytes that had to be fetched."""
        for folder in {(self._folder / path).parent for path, _ in self._snapshot.files()}:
            folder.mkdir(parents=True, exist_ok=True)
        tasks: list[Callable[[], int]] = []
        packed: dict[int, list[tuple[str, SnapshotFile]]] = {}
        for path, file in self._snapshot.files():
            start = 0
            for part in pieces(file) if file.pack is None else ():
                tasks.append(partial(self._piece, path, file, start, part))
                start += part.size
            if file.pack is not None:
                packed.setdefault(file.pack, []).append((path, file))
        tasks += [partial(self._pack, self._snapshot.packs[number], files) for number, files in packed.items()]
        return sum(in_parallel(tasks, workers, stop=self._stopped.set))

    def sync(self, workers: int) -> None:
        """Wait for the disk."""

        def sync(path: str) -> None:
            target = self._folder / path
            with expecting(f"write {target}", target.parent), target.open("rb") as file:
                os.fsync(file.fileno())

        list(in_parallel([partial(sync, path) for path in self._written], workers))

    def _pack(self, part: Part, files: Sequence[tuple[str, SnapshotFile]]) -> int:
        """Write the files that one object holds; nothing is fetched if they are all there."""
        if self._stopped.is_set():
            return 0
        lacked = [
            (path, file)
            for path, file in files
            if path not in self._earlier or not _is_whole(self._folder / path, file, self._snapshot)
        ]
        self._watch(sum(file.size for _, file in files))
        if not lacked:
            return 0
        with self._room(part.size):
            data = fetch(self._backend, part, area=self._area)
            for path, file in lacked:
                content = memoryview(data)[file.offset : file.offset + file.stored]
                if len(data) != part.size or name_of(content, file.digest) != file.digest:
                    said = (
                        f"{path} of {self._backend.url}: expected the digest {file.digest}, found that the objects which "
                        "the snapshot names for it hold something else"
                    )
                    raise damaged(said, path=path, next_command=Command("karat", "verify", self._backend.url))
                with self._opened(path, file) as handle:
                    os.pwrite(handle, content, 0)
        return part.size

    def _piece(self, path: str, file: SnapshotFile, start: int, part: Part) -> int:
        """Write the part of a file that an object is."""
        if self._stopped.is_set():
            return 0
        self._watch(part.size)
        with self._opened(path, file) as handle:
            if path in self._earlier and name_of_range(handle, start, part.size, part.digest) == part.digest:
                return 0
            # From a file of this machine, if the store is in one; what then stands there is verified.
            local = self._backend.local(key_of(part.digest, self._area))
            copied = False
            with suppress(Damaged):  # `fetch` says what is wrong, and looks into the other area
                if local is not None:
                    source = open_plain(local, part.digest)
                    try:
                        copy_range(source, 0, handle, start, part.size)
                    finally:
                        os.close(source)
                    copied = name_of_range(handle, start, part.size, part.digest) == part.digest
            if not copied:
                with self._room(part.size):
                    os.pwrite(handle, fetch(self._backend, part, area=self._area), start)
        return part.size

    @contextmanager
    def _opened(self, path: str, file: SnapshotFile) -> Iterator[int]:
        """The file to write to, as long as it will be, with its tail."""
        target = self._folder / path
        with expecting(f"write {target}", target.parent):
            handle = os.open(target, os.O_RDWR | os.O_CREAT | CLOSED | NO_FOLLOW, 0o666)
            try:
                os.ftruncate(handle, file.size)
                os.pwrite(handle, self._snapshot.tail_of(file), file.stored)
                self._written.add(path)
                yield handle
            finally:
                os.close(handle)

    def _room(self, size: int) -> AbstractContextManager[object]:
        # Few large objects are in memory at once; small ones need not wait for each other.
        return self._slots if size > LARGE else nullcontext()


def _verify(folder: Path, backend: Backend, digest: str) -> None:
    found = objections(open_place(folder))
    if found:
        more = f", and {count(len(found) - 1, 'more problem')}" if len(found) > 1 else ""
        word = f"{backend.url}#sha256:{digest}"
        said = f"{word}: expected cases as they were captured, found that {found[0].message}{more}; nothing was pulled"
        raise damaged(said, path=found[0].path, next_command=Command("karat", "verify", word))


def _is_here(target: Path, record: PullRecord, snapshot: Snapshot, workers: int) -> bool:
    """Whether the folder already holds exactly what this pull would write."""
    try:
        found = msgspec.json.decode((target / RECORD).read_bytes(), type=PullRecord)
    except (OSError, ValueError, RecursionError):
        return False
    if (found.digest, found.only) != (record.digest, record.only):
        return False
    files = (path for path in target.rglob("*") if path.is_symlink() or not path.is_dir())
    wanted = dict(snapshot.files())
    if {path.relative_to(target).as_posix() for path in files} != {*wanted, RECORD}:
        return False
    tasks = [partial(_is_whole, target / path, file, snapshot) for path, file in wanted.items()]
    return all(in_parallel(tasks, workers))


def _is_whole(path: Path, file: SnapshotFile, snapshot: Snapshot) -> bool:
    try:
        handle = open_plain(path, path.name)
    except Damaged:
        return False
    try:
        start = 0
        for part in pieces(file):
            if name_of_range(handle, start, part.size, part.digest) != part.digest:
                return False
            start += part.size
        return os.pread(handle, file.size - start + 1, start) == snapshot.tail_of(file)
    finally:
        os.close(handle)


@contextmanager
def staging(target: Path, mark: str) -> Iterator[Path]:
    """A hidden folder beside the target, kept for the next attempt; one process at a time."""
    folder = target.parent / f"{_prefix(target)}{mark}"
    with expecting(f"make {folder}", target.parent):
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY | CLOSED | NO_FOLLOW)
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


def install(folder: Path, target: Path, *, replace: bool) -> None:
    """Give the folder its name; a folder of that name is exchanged for it in one step, then removed."""
    check_target(target, replace=replace)  # once more: another pull may have been quicker
    with expecting(f"move {folder} to {target}", target.parent):
        sync_folder(folder)
        if target.is_dir() and any(target.iterdir()):
            exchange(folder, target)
            shutil.rmtree(folder, ignore_errors=True)
        else:
            folder.replace(target)
        sync_folder(target.parent)


def clear(target: Path) -> None:
    """Remove what killed pulls to this folder left behind; running ones keep theirs."""
    for folder in target.parent.glob(".karat-pull-*"):
        name = folder.name.removeprefix(_prefix(target))
        if not re.fullmatch("[0-9a-f]{12}(-old[0-9a-f]*)?", name) or folder.is_symlink():
            continue
        with suppress(OSError, CannotVerify):
            handle = os.open(folder, os.O_RDONLY | CLOSED | NO_FOLLOW)
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


def lines(pulled: Pulled) -> Iterator[str]:
    verb = "is in" if pulled.already else "pulled to"
    yield f"{pulled.name or 'snapshot'} {verb} {pulled.target}"
    yield f"  sha256:{pulled.digest}" + (f" of {pulled.date[:19]}Z" if pulled.date else "")
    yield f"  {count(pulled.cases, 'case')}, {count(pulled.files, 'file')}, {byte_size(pulled.size)}; every byte verified"
    if pulled.signed_by:
        yield f"  signed by {', '.join(pulled.signed_by)}"
    if not pulled.already:
        yield f"  fetched {byte_size(pulled.fetched_bytes)}"
