"""The program of a case: a file whose bytes mean nothing to karat, copied and hashed in one pass."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path

from karat.bundles.extents import BLOCK, open_plain
from karat.bundles.identity import safe_name
from karat.bundles.manifest import FileRecord
from karat.tensors.tensor import CannotStore, Damaged

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
