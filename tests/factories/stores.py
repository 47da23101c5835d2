"""Stores, and cases to put into them: seeded bytes, the same every time, without a framework."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
from blake3 import blake3

from karat.bundles.cases import FILES
from karat.bundles.extents import MemoryExtent
from karat.bundles.manifest import (
    Comparator,
    Environment,
    FileRecord,
    Identity,
    Manifest,
    Role,
    TensorRecord,
    case_path,
    encode,
    seal,
)
from karat.store import pins, references
from karat.store.backends import Absent, Backend, StoredObject
from karat.store.pull import RECORD, PullOptions, pull
from karat.store.push import Pushed, PushOptions, push
from karat.store.upload import CaseFiles
from karat.tensors.comparison import Statistics
from karat.tensors.digests import TensorDigest

SIZES: Mapping[Role, int] = {"input": 300, "expected": 120}


def case(
    number: int, version: str = "", files: Mapping[str, int] | None = None, night: str = "", program: int = 70_000
) -> CaseFiles:
    """One case; another version has other bytes, another night another manifest.

    With `files`, just so many bytes under these names: no case that anyone could verify, or pull.
    """
    if files is not None:
        content = {name: _random(size, number, version, name) for name, size in files.items()}
        return made(f"models/xnnpack/case-{number:05}", content)
    content, records, headers = {}, [], {}
    for role, size in SIZES.items():
        name, file, data = f"{role}/0", FILES[role], _random(size, number, version, role)
        entry = {name: {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}
        header = msgspec.json.encode(entry)
        header = len(header).to_bytes(8, "little") + header
        digest = TensorDigest("uint8", (size,))
        digest.update(data)
        content[file], headers[file] = header + data, sha256(header).hexdigest()
        records.append(
            TensorRecord(
                name=name,
                role=role,
                dtype="uint8",
                shape=(size,),
                file=file,
                digest=digest.text(),
                nbytes=size,
                statistics=Statistics(),
            )
        )
    data = content["program/model.pte"] = _random(program, number, version, "program")
    identity = Identity(suite="models", flow="xnnpack", test=f"case-{number:05}")
    sealed = seal(
        Manifest(
            karat="1",
            identity=identity,
            path=case_path(identity),
            inputs={"tensor": "input/0"},
            expected={"tensor": "expected/0"},
            tensors=tuple(records),
            headers=headers,
            program=FileRecord(
                file="program/model.pte", digest=f"blake3:{blake3(data).hexdigest()}", size=program, name="model.pte"
            ),
            comparator=Comparator(name="caller"),
            seeds={},
            environment=Environment(platform="linux", machine="x86_64", python="3.11.7"),
            session=night,
            created="2026-11-15T04:00:00Z",
        )
    )
    return made(sealed.path, {**content, "manifest.json": encode(sealed)})


def _random(size: int, *seed: object) -> bytes:
    return random.Random(" ".join(map(str, seed))).randbytes(size)


def made(path: str, contents: Mapping[str, bytes]) -> CaseFiles:
    return CaseFiles(path=path, files={name: MemoryExtent(data=data, name=name) for name, data in contents.items()})


def cases(count: int, *, changed: int = 0, **more: Any) -> list[CaseFiles]:
    """So many cases, the first of them changed."""
    return [case(i, "changed" if i < changed else "", **more) for i in range(count)]


def contents(some: Sequence[CaseFiles]) -> dict[str, bytes]:
    """Path → bytes of all files."""
    return {
        f"{one.path}/{name}": extent.data
        for one in some
        for name, extent in one.files.items()
        if isinstance(extent, MemoryExtent)
    }


def pushed(
    backend: Backend, some: Sequence[CaseFiles], name: str = "models/nightly", *, pin: str | None = None, **options: Any
) -> Pushed:
    """What was pushed; kept for good, where there is a reason to `pin` it."""
    told = push(backend, some, name, PushOptions(**{"workers": 4, **options}))
    if pin is not None:
        pins.pin(backend, told.digest, pin, name, workers=1)
    return told


def pulled(backend: Backend, word: str, target: Path) -> dict[str, bytes]:
    """Path → bytes of what a pull brings."""
    digest = references.resolve(backend, word).digest
    pull(backend, digest, target, PullOptions(workers=4))
    return files_below(target)


def files_below(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != RECORD
    }


class Killed(BaseException):
    """As kill −9 would: nobody gets to clean up."""


class Watched:
    """A real backend that counts what is asked of it, and lets something happen before any of it."""

    def __init__(self, backend: Backend, before: Callable[[int, str, str], None]) -> None:
        self._backend, self._before = backend, before
        self.url = backend.url
        self.count = 0

    def _next(self, verb: str, key: str) -> None:
        self.count += 1
        self._before(self.count, verb, key)

    def put(self, key: str, data: bytes | memoryview, *, replace: bool = False) -> bool:
        self._next("put", key)
        return self._backend.put(key, data, replace=replace)

    def get(self, key: str) -> bytes:
        self._next("get", key)
        return self._backend.get(key)

    def head(self, key: str) -> StoredObject | None:
        self._next("head", key)
        return self._backend.head(key)

    def list(self, prefix: str) -> Iterator[StoredObject]:
        self._next("list", prefix)
        return self._backend.list(prefix)

    def copy(self, source: str, target: str) -> None:
        self._next("copy", source)
        self._backend.copy(source, target)

    def touch(self, key: str) -> None:
        self._next("touch", key)
        self._backend.touch(key)

    def delete(self, keys: Sequence[str]) -> None:
        self._next("delete", ",".join(keys))
        self._backend.delete(keys)

    def local(self, key: str) -> Path | None:
        if key:
            self._next("local", key)
        return self._backend.local(key)

    def look(self, key: str) -> str:
        return self._backend.look(key)


def dying(backend: Backend, at: int) -> Watched:
    """A backend whose user is killed before its operation number `at`, and does nothing from then on."""

    def before(number: int, _verb: str, _key: str) -> None:
        if number >= at:
            raise Killed

    return Watched(backend, before)


class Memory:
    """A backend in memory, quick enough to try every order of things; its clock is the test's."""

    def __init__(self) -> None:
        self.url = "memory"
        self.now = 1_900_000_000.0
        self._things: dict[str, tuple[bytes, float]] = {}

    def put(self, key: str, data: bytes | memoryview, *, replace: bool = False) -> bool:
        if key in self._things and not replace:
            return False
        self._things[key] = (bytes(data), self.now)
        return True

    def get(self, key: str) -> bytes:
        if key not in self._things:
            raise Absent(key)
        return self._things[key][0]

    def head(self, key: str) -> StoredObject | None:
        found = self._things.get(key)
        return None if found is None else StoredObject(key, len(found[0]), found[1])

    def list(self, prefix: str) -> Iterator[StoredObject]:
        found = [(key, *thing) for key, thing in self._things.items() if key.startswith(prefix)]
        return iter([StoredObject(key, len(data), modified) for key, data, modified in found])

    def copy(self, source: str, target: str) -> None:
        self._things[target] = (self.get(source), self.now)

    def touch(self, key: str) -> None:
        self.copy(key, key)

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._things.pop(key, None)

    def local(self, key: str) -> Path | None:  # noqa: ARG002 - the protocol's signature
        return None

    def look(self, key: str) -> str:
        return f"look {key}"

    def twin(self) -> Memory:
        """Another one, with the same in it."""
        made = Memory()
        made.now, made._things = self.now, dict(self._things)
        return made
