"""Readers of captured cases, archives and stores."""

from __future__ import annotations

import io
import re
import zipfile
from hashlib import sha256
from pathlib import Path

import msgspec
import numpy as np

from factories import captured
from factories.archives import zipped
from fuzz.reader import Reader, in_file, reader, text_of
from karat.bundles import index, manifest, tensor_files
from karat.bundles.cases import cases
from karat.bundles.extents import MemoryExtent, pointer
from karat.bundles.places import open_place
from karat.bundles.structure import check_structure, flatten, restore
from karat.bundles.verify import verify_place
from karat.captures.records import read_claim
from karat.refreshes.identity import read_manifest
from karat.store import pins, references, snapshot
from karat.store.backends import NAME as STORE_FILE, StoreProblem, is_store, open_backend
from karat.store.pack import PackOptions, pack, read_sums
from karat.store.push import PushOptions, gather, push
from karat.store.survey import newest_claims
from karat.system.archives import Archive, Unusable
from karat.tensors.arrays import tensor_of
from karat.tensors.dtypes import UnknownDtype, fields_of
from karat.tensors.tensor import Damaged


def _case(folder: Path) -> Path:
    captured.capture(folder / "captures", captured.identity("test_a[static]"))
    return folder / "captures"


@reader("manifest.json")
def _manifest(folder: Path) -> Reader:
    seed = next(_case(folder).rglob(manifest.NAME)).read_bytes()

    def read(data: bytes) -> None:
        found = re.search(rb'"sha256": "([0-9a-f]{64})"\s*}\s*$', data)
        if found:  # sealed again: a stranger can
            bare = data[: found.start(1)] + data[found.end(1) :]
            data = data[: found.start(1)] + sha256(bare).hexdigest().encode() + data[found.end(1) :]
        made = manifest.read(data)
        manifest.case_path(made.identity)
        manifest.encode(made)

    return Reader((seed,), read, (Damaged,))


@reader("structure")
def _structure(_: Path) -> Reader:
    value = {"a": (np.ones(2), [1, 2.5, float("nan"), None, True, b"x"]), "b": {1, 2}, 3: slice(1, 2)}
    flat = flatten(value, "expected")
    tensors = {"expected/a/0": tensor_of(np.ones(2))}

    def read(data: bytes) -> None:
        try:
            found = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return
        check_structure(found)
        restore(found, tensors)

    return Reader((msgspec.json.encode(flat.structure),), read, (Damaged,))


@reader("safetensors header")
def _safetensors(folder: Path) -> Reader:
    seeds = [path.read_bytes() for path in _case(folder).rglob("*.safetensors")]

    def read(data: bytes) -> None:
        # A length that fits gets past the first question.
        for one in (data, (len(data[8:])).to_bytes(8, "little") + data[8:] + bytes(64)):
            try:
                tensor_files.read_header(MemoryExtent(data=one, name="a"), "a.safetensors")
            except Damaged:
                continue

    return Reader(seeds, read, (Damaged,))


@reader("raw tensors")
def _raw_tensors(_: Path) -> Reader:
    row = tensor_files.RawRow(
        role="expected", name="a b", dtype="float32", shape=(2, 3), nbytes=24, digest="blake3:" + "a" * 64, file="a.bin"
    )
    seed = tensor_files.encode_rows([row])
    return Reader((seed,), lambda data: (tensor_files.decode_rows(data), pointer(data)), (Damaged,))


@reader("index.json")
def _index(folder: Path) -> Reader:
    pack([str(_case(folder))], PackOptions(output=str(folder / "out"), combined="all.zip"))
    with zipfile.ZipFile(folder / "out" / "all.zip") as archive:
        seed = archive.read(index.NAME)

    def read(data: bytes) -> None:
        index.decode(data)
        made = msgspec.json.decode(data, type=index.Index)  # sealed again: a stranger can
        index.decode(index.encode(index.build(made.karat, made.cases, made.files, made.archive)))

    return Reader((seed,), read, (Damaged,))


@reader("claim of a capture")
def _claim(folder: Path) -> Reader:
    seed = b'{"schema":"karat.claim/1","identity":{"suite":"a","flow":"b","test":"c"},"path":"a/b/c","by":"x","host":"h","pid":7,"state":"staged"}'
    path = folder / ".karat" / "s1" / "claims" / "a.json"
    path.parent.mkdir(parents=True)
    return Reader((seed,), in_file(path, lambda path: (read_claim(path), newest_claims([str(folder)]))))


@reader("dtype")
def _dtype(_: Path) -> Reader:
    return Reader((b'[["a","<f4",[]],["",[["b","|i1",[2]]],[3]]]',), text_of(fields_of), (UnknownDtype,))


@reader("zip of cases")
def _zip_of_cases(folder: Path) -> Reader:
    captures = _case(folder)
    seeds = []
    for compression in ("stored", "deflate", "zstd"):
        out = folder / compression
        pack([str(captures)], PackOptions(output=str(out), combined="all.zip", compression=compression))
        seeds.append((out / "all.zip").read_bytes())

    def read(path: Path) -> None:
        place = open_place(path)
        try:
            verify_place(place)
            for case in cases(place):
                case.inputs()
                case.expected()
        finally:
            place.close()

    return Reader(seeds, in_file(folder / "a.zip", read), (Damaged, Unusable))


@reader("zip of an artifact")
def _artifact(_: Path) -> Reader:
    members = {"a/golden.json": b'{"a": 1}' * 50, "b.txt": b"b", "noise": bytes(range(256))}

    def read(data: bytes) -> None:
        archive = Archive(io.BytesIO(data))
        for member in archive.wanted(lambda _: True):
            archive.extract(member, io.BytesIO())

    return Reader((zipped(members), zipped(members, compress=False)), read, (Unusable,))


@reader("SHA256SUMS")
def _sums(_: Path) -> Reader:
    return Reader((b"%s  cases/a.zip\n%s  all.zip\n" % (b"a" * 64, b"b" * 64),), read_sums, (ValueError,))


class _Stored:
    """A store with one snapshot, whose files are read one by one."""

    def __init__(self, folder: Path) -> None:
        self.url = folder / "store"
        self.backend = open_backend(str(self.url))
        push(self.backend, gather(open_place(_case(folder))).values(), "models/nightly", PushOptions(workers=1))
        entry = references.entries(self.backend)[0]
        self.digest = references.read(self.backend, entry).digest
        pins.pin(self.backend, self.digest, "for the release", workers=1)

    def sealed(self, data: bytes) -> bytes:
        """With a seal that fits."""
        body = re.sub(rb',\s*"sha256": "[0-9a-f]{64}"\s*}\s*$', b"", data)
        return body + b',\n "sha256": "%s"\n}\n' % sha256(body).hexdigest().encode()


@reader("snapshot")
def _snapshot(folder: Path) -> Reader:
    stored = _Stored(folder)
    seed = snapshot.encode(snapshot.load(stored.backend, stored.digest))

    def read(data: bytes) -> None:
        try:
            found = msgspec.json.decode(data, type=snapshot.Snapshot)
            snapshot.check(found)
        except (ValueError, RecursionError):  # as `load` catches
            return
        for path, file in found.files():
            assert ".." not in path.split("/")
            snapshot.pieces(file)

    return Reader((seed,), read)


@reader("reference of a store")
def _reference(folder: Path) -> Reader:
    stored = _Stored(folder)
    entry = references.entries(stored.backend)[0]
    path = stored.url / entry.key

    def read(_: Path) -> None:
        for one in references.entries(stored.backend):
            references.read(stored.backend, one)

    return Reader((path.read_bytes(),), lambda data: in_file(path, read)(stored.sealed(data)), (StoreProblem,))


@reader("pin")
def _pin(folder: Path) -> Reader:
    stored = _Stored(folder)
    path = next((stored.url / "pins").rglob("*.json"))
    return Reader(
        (path.read_bytes(),),
        lambda data: in_file(path, lambda _: pins.read_all(stored.backend))(stored.sealed(data)),
        (StoreProblem,),
    )


@reader("store file")
def _store_file(folder: Path) -> Reader:
    stored = _Stored(folder)
    path = stored.url / STORE_FILE
    return Reader((path.read_bytes(),), in_file(path, lambda _: is_store(stored.backend)))


@reader("store lock")
def _store_lock(folder: Path) -> Reader:
    line = b'"models/nightly": {"store":"./s","digest":"%s","date":"2026-01-01"}' % (b"a" * 64)
    seed = b'{\n%s,\n"schema": "%s"\n}\n' % (line, pins.LOCK_SCHEMA.encode())
    return Reader((seed,), in_file(folder / "store.lock.json", pins.read_lock))


@reader("manifest of an artifact")
def _artifact_manifest(folder: Path) -> Reader:
    seed = b'{"schema": "karat.artifact/1", "identity": {"test": "a", "platform": "h100"}, "environment": {"image": "x"}, "files": ["a.json"]}'
    return Reader((seed,), in_file(folder / "karat.json", lambda path: read_manifest(path, "logs")))
