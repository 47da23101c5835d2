"""The raw form: each tensor's elements in a file of their own, and a table that a C++ program can read.

`tensors.txt` begins with the line `karat-raw 1`; every further line is one tensor, seven fields apart by
tabs: role, name, dtype, shape (`2x3`, `-` for a single element without dimensions), bytes, their sha256, and the
file beside the table. Elements are in C order, little-endian, sub-byte integers in a byte each.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path

import msgspec

from karat.bundles.extents import FileExtent, open_plain
from karat.bundles.identity import safe_name
from karat.tensors.dtypes import nbytes
from karat.tensors.tensor import Damaged, Tensor, TensorExtent

TABLE = "tensors.txt"
FIRST = "karat-raw 1"
LARGEST = 64 << 20
_BLOCK = 1 << 20
_SHAPE = re.compile(r"-|\d{1,19}(x\d{1,19})*")
_FILE = re.compile(r"(?!\.)[A-Za-z0-9._+=,@~-]{1,255}")
_DIGEST = re.compile(r"[0-9a-f]{64}")


class RawRow(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the table."""

    role: str
    """`input`, `expected`, or `output` for what a program made of the inputs."""
    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    sha256: str
    """Of the file's bytes; empty where a program that wrote it had no way to hash."""
    file: str


def write_raw(folder: Path, tensors: Iterable[tuple[str, str, Tensor]]) -> tuple[RawRow, ...]:
    """Writes (role, name, tensor) into an empty folder, and the table last."""
    rows, named = [], [*tensors]
    files = file_names(name for _, name, _ in named)
    for role, name, tensor in named:
        digest = _write(folder / files[name], tensor.data)
        rows.append(
            RawRow(
                role=role,
                name=name,
                dtype=tensor.dtype,
                shape=tensor.shape,
                nbytes=len(tensor.data),
                sha256=digest,
                file=files[name],
            )
        )
    _write(folder / TABLE, memoryview(encode_rows(rows)))
    return tuple(rows)


def file_names(names: Iterable[str]) -> dict[str, str]:
    """Tensor → file: readable, safe everywhere, and no two that differ by case alone."""
    found: dict[str, str] = {}
    taken = {TABLE}
    for name in names:
        base = safe_name(name.replace("/", "."), 80)
        file, count = f"{base}.bin", 1
        while file.lower() in taken:
            count += 1
            file = f"{base}~{count}.bin"
        taken.add(file.lower())
        found[name] = file
    return found


def _write(path: Path, data: memoryview) -> str:
    digest = sha256()
    with path.open("xb") as file:
        for at in range(0, len(data), _BLOCK):
            block = data[at : at + _BLOCK]
            digest.update(block)
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()


def encode_rows(rows: Iterable[RawRow]) -> bytes:
    """The bytes of tensors.txt."""
    lines = [FIRST]
    for row in rows:
        shape = "x".join(str(length) for length in row.shape) or "-"
        fields = (row.role, row.name, row.dtype, shape, str(row.nbytes), row.sha256, row.file)
        lines.append("\t".join(fields))
    return "\n".join([*lines, ""]).encode()


def decode_rows(data: bytes, name: str = TABLE) -> tuple[RawRow, ...]:
    """The lines of a table; `Damaged` names the line that is none."""
    try:
        first, *lines = data.decode().split("\n")
    except UnicodeDecodeError:
        raise Damaged(f"{name}: expected a table in UTF-8, found other bytes") from None
    if first.rstrip("\r") != FIRST:
        raise Damaged(f"{name}: expected the first line {FIRST!r}, found {first[:80]!r}")
    rows = [
        _row(line.rstrip("\r"), f"{name}, line {number}")
        for number, line in enumerate(lines, start=2)
        if line.strip("\r")
    ]
    _check_unique([row.file.lower() for row in rows], name)
    _check_unique([f"{row.role}\t{row.name}" for row in rows], name)
    return tuple(rows)


def _row(line: str, where: str) -> RawRow:
    fields = line.split("\t")
    if len(fields) != 7:
        raise Damaged(f"{where}: expected 7 fields apart by tabs, found {len(fields)}")
    role, name, dtype, shape, size, digest, file = fields
    sound = (
        _SHAPE.fullmatch(shape)
        and size.isdecimal()
        and size.isascii()
        and len(size) < 20
        and _FILE.fullmatch(file)
        and (not digest or _DIGEST.fullmatch(digest))
    )
    if not sound:
        raise Damaged(f"{where}: expected role, name, dtype, shape, bytes, sha256, file; {line!r}")
    lengths = () if shape == "-" else tuple(int(length) for length in shape.split("x"))
    if nbytes(dtype, lengths) != int(size):
        raise Damaged(
            f"{where}: expected {nbytes(dtype, lengths):,} bytes for {dtype} of {shape}, found {size}"
        )
    return RawRow(
        role=role, name=name, dtype=dtype, shape=lengths, nbytes=int(size), sha256=digest, file=file
    )


def _check_unique(keys: Sequence[str], name: str) -> None:
    if len(set(keys)) != len(keys):
        raise Damaged(f"{name}: expected each tensor and each file once, found one twice")


def read_raw(folder: Path) -> tuple[tuple[RawRow, TensorExtent], ...]:
    """The tensors of a raw folder, for instance a program's outputs; sizes are checked, hashes are not."""
    table = folder / TABLE
    handle = open_plain(table, str(table))
    with os.fdopen(handle, "rb") as file:
        data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise Damaged(f"{table}: expected at most {LARGEST:,} bytes, found more")
    return tuple((row, _extent(folder / row.file, row)) for row in decode_rows(data, str(table)))


def _extent(path: Path, row: RawRow) -> TensorExtent:
    extent = FileExtent(path=path, start=0, size=row.nbytes, file_size=row.nbytes, name=str(path))
    extent.open().close()  # a file that is not there, or of another size, is told here
    return TensorExtent(dtype=row.dtype, shape=row.shape, extent=extent)
