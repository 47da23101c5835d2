"""Write a case: tensors, program and, last, the manifest, without which the folder is no case.

Elements are hashed on their way to the file, by several threads, so that a large case takes as long as the disk does;
what lies on a device comes to the host piece by piece. Small files are synced all at once in the end, which the disk does in one go.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

import karat
from karat.bundles.cases import FILES, RAW
from karat.bundles.compare import accepted_controls
from karat.bundles.extents import open_plain
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
from karat.bundles.tensor_files import SMALL, write_raw, write_safetensors
from karat.bundles.values import Flat
from karat.system.files import sync_all
from karat.system.processes import available_cores
from karat.tensors.digests import FileDigest
from karat.tensors.statistics import statistics
from karat.tensors.tensor import BLOCK, CannotStore, Damaged, Tensor

LARGEST_MANIFEST = 64 << 20  # Readers take a manifest whole; a list of millions of numbers belongs into a tensor.


class CaseContent(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What the test says about a case."""

    identity: Identity
    inputs: Any  # A nested value, or what `flatten` made of it.
    expected: Any
    program: Any = None  # Path or bytes; captures report anything else when it is written.
    program_name: str | None = None  # As the test calls it; needed for bytes, else the name of the path.
    comparator: Comparator
    seeds: Mapping[str, int | str] = msgspec.field(default_factory=dict)
    raw: bool = False


class NewCase(CaseContent, frozen=True, kw_only=True, eq=False):
    environment: Environment
    session: str
    created: str


def write_case(folder: Path, case: NewCase) -> Manifest:
    """Write the case into an existing, empty folder and wait for the disk.

    CannotStore for what has no form; an OSError (full, read-only) is the caller's to word. Whatever is
    raised, there is no manifest then.
    """
    flats: list[Flat] = []
    jobs: list[tuple[Role, str, Tensor]] = []
    sides: tuple[tuple[Role, Any], ...] = (("input", case.inputs), ("expected", case.expected))
    for role, value in sides:
        flat = value if isinstance(value, Flat) else flatten(value, role)
        if flat.role != role:
            raise ValueError(f"expected a value flattened as {role}, found one as {flat.role}")
        flats.append(flat)
        for name, tensor in flat.tensors.items():
            if not isinstance(tensor, Tensor):
                raise CannotStore(f"{name}: expected a tensor in memory, found one on disk")
            jobs.append((flat.role, name, tensor))
    small = sum(tensor.size for _, _, tensor in jobs) < SMALL
    files: dict[str, dict[str, Tensor]] = {}
    for role, name, tensor in jobs:
        files.setdefault(FILES[role], {})[name] = tensor
    # For a small case, threads cost more than they save.
    with ExitStack() as stack:
        run: Callable[..., Iterable[Any]] = map
        if not small:
            run = stack.enter_context(ThreadPoolExecutor(max(4, min(16, available_cores())))).map
        numbers = run(statistics, [tensor for _, _, tensor in jobs])
        programs = (
            [] if case.program is None else run(partial(write_program, folder, name=case.program_name), [case.program])
        )
        news = {file: write_safetensors(folder / file, held, run) for file, held in files.items()}
        raws: dict[str, str] = {}
        if case.raw and jobs:  # without tensors there is nothing for a reader to read
            (folder / RAW).mkdir()
            known = {name: digest for _, digests in news.values() for name, digest in digests.items()}
            rows = write_raw(folder / RAW, jobs, lambda name, _: known[name])
            raws = {row.name: f"{RAW}/{row.file}" for row in rows}
        records = tuple(
            TensorRecord(
                name=name,
                role=role,
                dtype=tensor.dtype,
                shape=tensor.shape,
                file=FILES[role],
                digest=news[FILES[role]][1][name],
                nbytes=tensor.size,
                statistics=found,
                framework=tensor.framework,
                device=tensor.device,
                big_endian=tensor.big_endian,
                strides=tensor.strides,
                raw=raws.get(name),
            )
            for (role, name, tensor), found in zip(jobs, numbers, strict=True)
        )
        unsealed = Manifest(
            karat=karat.__version__,
            identity=case.identity,
            path=case_path(case.identity),
            inputs=flats[0].structure,
            expected=flats[1].structure,
            tensors=records,
            vacuous=accepted_controls(flats[0], flats[1], case.comparator),
            headers={file: header for file, (header, _) in news.items()},
            program=next(iter(programs), None),
            **{name: getattr(case, name) for name in ("comparator", "seeds", "environment", "session", "created")},
        )
    try:
        manifest = seal(unsealed)
    except UnicodeEncodeError as error:
        raise CannotStore(f"expected text that UTF-8 can hold, found {error.object!r}") from None
    data = encode(manifest)
    try:
        read(data)
    except Damaged as error:
        # An infinite tolerance, for instance: better reported now than when it is read.
        raise CannotStore(f"expected a manifest that JSON can hold; {error}") from None
    if len(data) > LARGEST_MANIFEST:
        raise CannotStore(
            f"expected plain values that take at most {LARGEST_MANIFEST:,} bytes in a manifest, found "
            f"{len(data):,}; hand over long lists of numbers and long bytes as arrays"
        )
    (folder / NAME).write_bytes(data)
    try:
        sync_all([*(f"{at}/{name}" for at, _, names in os.walk(folder) for name in ("", *names))])
    except OSError:
        (folder / NAME).unlink()
        raise
    return manifest


def write_program(folder: Path, program: Path | bytes, name: str | None) -> FileRecord:
    """Copy the program into the case's folder, hashed in one pass."""
    called = name or (program.name if isinstance(program, Path) else "program.bin")
    file = f"program/{safe_name(called)}"
    (folder / "program").mkdir()
    digest = FileDigest()
    with (folder / file).open("xb") as target:
        if isinstance(program, bytes):
            target.write(program)
            digest.update(program)
            size = len(program)
        else:
            try:
                source = os.fdopen(open_plain(program.resolve(), f"program {program}"), "rb", 0)
            except Damaged as error:
                raise CannotStore(str(error)) from None
            with source:
                before = os.fstat(source.fileno())
                size = left = before.st_size
                # One byte more than there should be is enough to see that it grows.
                while block := source.read(min(BLOCK, left + 1)):
                    left -= len(block)
                    if left < 0:
                        break
                    digest.update(block)
                    target.write(block)
                after = os.fstat(source.fileno())
            # It may still be being written: half of an old program and half of a new one is neither.
            if left or (before.st_mtime_ns, size) != (after.st_mtime_ns, after.st_size):
                raise CannotStore(f"program {program}: expected it to stay as it is, found it being written")
    return FileRecord(file=file, digest=digest.text(), size=size, name=called)
