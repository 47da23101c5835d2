"""The program of a case: a file whose bytes mean nothing to karat, copied and hashed in one pass."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

import karat
from karat.bundles.cases import FILES, RAW
from karat.bundles.extents import BLOCK, open_plain
from karat.bundles.manifest import (
    NAME,
    Comparator,
    Environment,
    FileRecord,
    Identity,
    Manifest,
    Role,
    TensorRecord,
    case_path,
    encode,
    read,
    safe_name,
    seal,
)
from karat.bundles.structure import flatten
from karat.bundles.tensor_files import RawRow, write_raw, write_safetensors
from karat.bundles.values import Flat
from karat.tensors.blocks import digest_of
from karat.tensors.comparison import Statistics
from karat.tensors.statistics import statistics
from karat.tensors.tensor import CannotStore, Damaged, Tensor

FOLDER = "program"


def write_program(folder: Path, program: Path | bytes, name: str | None) -> FileRecord:
    """Puts the program into the case's folder and waits for the disk."""
    called = name or (program.name if isinstance(program, Path) else "program.bin")
    file = f"{FOLDER}/{safe_name(called)}"
    (folder / FOLDER).mkdir()
    with (folder / file).open("xb") as target:
        if isinstance(program, bytes):
            target.write(program)
            digest, size = sha256(program).hexdigest(), len(program)
        else:
            digest, size = _copy(program, target.fileno())
        target.flush()
        os.fsync(target.fileno())
    return FileRecord(file=file, sha256=digest, size=size, name=called)


def _copy(source: Path, target: int) -> tuple[str, int]:
    try:
        handle = open_plain(source.resolve(), f"program {source}")
    except Damaged as error:
        raise CannotStore(str(error)) from None
    try:
        before = os.fstat(handle)
        digest, left = sha256(), before.st_size
        # One byte more than there should be is enough to see that it grows; nobody follows it.
        while block := os.read(handle, min(BLOCK, left + 1)):
            left -= len(block)
            if left < 0:
                break
            digest.update(block)
            _write(target, block)
        after = os.fstat(handle)
    finally:
        os.close(handle)
    # Someone may still be writing it: half of an old program and half of a new one is neither.
    if left or (before.st_mtime_ns, before.st_size) != (after.st_mtime_ns, after.st_size):
        raise CannotStore(f"program {source}: expected it to stay as it is, found it being written")
    return digest.hexdigest(), before.st_size


def _write(target: int, block: bytes) -> None:
    written = 0
    while written < len(block):
        written += os.write(target, block[written:])


# DOC-HERE writing: Writing a case: tensors, program and, last, the manifest, without which the folder is no case.
#
# Elements are written straight from where they lie while other threads hash them and take their statistics,
# so that a large case takes as long as the disk does. Each file is synced once.

LARGEST_MANIFEST = 64 << 20
"""Readers take a manifest whole; a list of millions of numbers belongs into a tensor."""
_THREADS = 4


class Captured(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """All there is to write about one case."""

    identity: Identity
    inputs: Any
    """A nested value, or what `flatten` made of it."""
    expected: Any
    program: Path | bytes | None = None
    program_name: str | None = None
    """As the test calls it; needed for bytes, else the name of the path."""
    comparator: Comparator
    seeds: Mapping[str, int | str] = msgspec.field(default_factory=dict)
    environment: Environment
    session: str
    created: str
    raw: bool = False
    strides: bool = False


class _Job(msgspec.Struct, frozen=True):
    """One tensor to be written."""

    role: Role
    name: str
    tensor: Tensor


def write_case(folder: Path, case: Captured) -> Manifest:
    """Writes the case into an existing, empty folder and waits for the disk.

    CannotStore for what has no form; an OSError (full, read-only) is the caller's to word. Whatever is
    raised, there is no manifest then.
    """
    flats = [_flat(case.inputs, "input"), _flat(case.expected, "expected")]
    jobs = [_Job(flat.role, name, _held(flat, name)) for flat in flats for name in flat.tensors]
    with ThreadPoolExecutor(_THREADS) as pool:
        headers = {
            FILES[flat.role]: pool.submit(write_safetensors, folder / FILES[flat.role], tensors)
            for flat in flats
            if (tensors := {job.name: job.tensor for job in jobs if job.role == flat.role})
        }
        digests = [pool.submit(digest_of, job.tensor) for job in jobs]
        numbers = [pool.submit(statistics, job.tensor) for job in jobs]
        program = (
            None
            if case.program is None
            else pool.submit(write_program, folder, case.program, case.program_name)
        )
        raw = pool.submit(_write_raw, folder, jobs) if case.raw else None
        rows = dict(raw.result()) if raw is not None else {}
        manifest = _manifest(
            case,
            inputs=flats[0].structure,
            expected=flats[1].structure,
            tensors=tuple(
                _record(
                    job,
                    digest.result(),
                    found.result(),
                    raw=rows.get(job.name),
                    strides=case.strides,
                )
                for job, digest, found in zip(jobs, digests, numbers, strict=True)
            ),
            headers={file: future.result() for file, future in headers.items()},
            program=program.result() if program is not None else None,
        )
    _write_manifest(folder, manifest)
    return manifest


def _flat(value: Any, role: Role) -> Flat:
    if not isinstance(value, Flat):
        return flatten(value, role)
    if value.role != role:
        raise ValueError(f"expected a value flattened as {role}, found one as {value.role}")
    return value


def _held(flat: Flat, name: str) -> Tensor:
    tensor = flat.tensors[name]
    if not isinstance(tensor, Tensor):
        raise CannotStore(f"{name}: expected a tensor in memory, found one that lies elsewhere")
    return tensor


def _write_raw(folder: Path, jobs: list[_Job]) -> list[tuple[str, RawRow]]:
    (folder / RAW).mkdir()
    rows = write_raw(folder / RAW, [(job.role, job.name, job.tensor) for job in jobs])
    return [(row.name, row) for row in rows]


def _record(
    job: _Job, sha256: str, numbers: Statistics, *, raw: RawRow | None, strides: bool
) -> TensorRecord:
    tensor = job.tensor
    return TensorRecord(
        name=job.name,
        role=job.role,
        dtype=tensor.dtype,
        shape=tensor.shape,
        file=FILES[job.role],
        sha256=sha256,
        nbytes=len(tensor.data),
        statistics=numbers,
        framework=tensor.framework,
        device=tensor.device,
        big_endian=tensor.big_endian,
        strides=tensor.strides if strides else None,
        raw=f"{RAW}/{raw.file}" if raw is not None else None,
    )


def _manifest(case: Captured, **found: Any) -> Manifest:
    try:
        return seal(_unsealed(case, **found))
    except UnicodeEncodeError as error:
        raise CannotStore(f"expected text that UTF-8 can hold, found {error.object!r}") from None


def _unsealed(case: Captured, **found: Any) -> Manifest:
    return Manifest(
        karat=karat.__version__,
        identity=case.identity,
        path=case_path(case.identity),
        comparator=case.comparator,
        seeds=case.seeds,
        environment=case.environment,
        session=case.session,
        created=case.created,
        **found,
    )


def _write_manifest(folder: Path, manifest: Manifest) -> None:
    data = encode(manifest)
    try:
        read(data)
    except Damaged as error:
        # An infinite tolerance, for instance: better told now than by the one who reads it.
        raise CannotStore(f"expected a manifest that JSON can hold; {error}") from None
    if len(data) > LARGEST_MANIFEST:
        raise CannotStore(
            f"expected plain values that take at most {LARGEST_MANIFEST:,} bytes in a manifest, found "
            f"{len(data):,}; hand over long lists of numbers and long bytes as arrays"
        )
    with (folder / NAME).open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    for inner in (*(path for path in folder.iterdir() if path.is_dir()), folder):
        handle = os.open(inner, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
