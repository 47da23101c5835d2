"""The files of tensors: safetensors, and the raw form for readers without it.

safetensors is written by its library, which gets pointers, so that ten gigabytes are not copied; it orders tensors by
the width of their dtype and then by name, so that the same tensors make the same bytes. Its header, a length and JSON,
is read here, because the library reads neither a range of a zip's member nor of an object in a store. The header is
believed only as far as it is consistent: every byte after it belongs to exactly one tensor.

In the raw form each tensor's elements have a file of their own, in C order, little-endian, sub-byte integers in a byte
each, beside a table that a C++ program can read. `tensors.txt` begins with the line `karat-raw 1`; every further line
is one tensor, seven fields separated by tabs: role, name, dtype, shape (`2x3`, `-` for a single element without
dimensions), bytes, their sha256, and the file beside the table.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from karat.bundles.extents import FileExtent, PartExtent, open_plain, read_all
from karat.bundles.manifest import TensorRecord, safe_name
from karat.findings import UsageError
from karat.system.hashes import is_sha256, sha256, sha256_hex
from karat.tensors.dtypes import nbytes, stored
from karat.tensors.tensor import BLOCK, Damaged, Extent, Tensor, TensorExtent

LARGEST = 64 << 20  # Bytes of a header; a hundred for each tensor is usual.
_LENGTH = 8
TABLE = "tensors.txt"
FIRST = "karat-raw 1"
_SHAPE = re.compile(r"-|\d{1,19}(x\d{1,19})*")
_FILE = re.compile(r"(?!\.)[A-Za-z0-9._+=,@~-]{1,255}")


class HeaderEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The header of a file that fits the file's size."""

    entries: dict[str, HeaderEntry]
    start: int  # Where the bytes of the tensors begin; offsets count from here.
    sha256: str  # Over everything before them.


def read_header(extent: Extent, name: str) -> Header:
    """The header of a safetensors file; `Damaged` if it is none, or the file is not whole."""
    size = extent.size
    if size < _LENGTH:
        raise Damaged(f"{name}: expected a safetensors file, found {size:,} bytes")
    prefix = read_all(PartExtent(whole=extent, start=0, size=_LENGTH, name=name))
    length = int.from_bytes(prefix, "little")
    start = _LENGTH + length
    if length > min(size - _LENGTH, LARGEST):
        raise Damaged(f"{name}: expected a safetensors header, found one of {length:,} bytes in a file of {size:,}")
    whole = read_all(PartExtent(whole=extent, start=0, size=start, name=name))
    entries = _entries(whole[_LENGTH:], name)
    at = 0
    for tensor, entry in sorted(entries.items(), key=lambda item: item[1].data_offsets):
        begin, end = entry.data_offsets
        if begin != at or end < begin:
            raise Damaged(
                f"{name}: expected {tensor[:100]!r} at byte {at:,} of the tensors, found {begin:,} to {end:,}"
            )
        at = end
    if at != size - start:
        raise Damaged(f"{name}: expected {at:,} bytes of tensors, found {size - start:,}")
    return Header(entries=entries, start=start, sha256=sha256_hex(whole))


def _entries(text: bytes, name: str) -> dict[str, HeaderEntry]:
    import json

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise Damaged(f"{name}: expected each key once in the header, found one twice")
        return found

    try:
        return msgspec.convert(json.loads(text.decode(), object_pairs_hook=once), dict[str, HeaderEntry])
    except (ValueError, RecursionError) as error:
        reason = str(error)[:200]
        raise Damaged(f"{name}: expected a header of tensors in JSON; {reason}") from None


def write_safetensors(path: Path, tensors: Mapping[str, Tensor]) -> str:
    """Write a new file and wait for the disk; returns the sha256 of its header, length and padding included."""
    try:
        import safetensors
    except ImportError:
        raise UsageError(
            "writing tensors needs safetensors, which is not installed", next_command="pip install 'karat[capture]'"
        ) from None
    import numpy as np

    specs, alive = {}, []
    for name in sorted(tensors):
        tensor = tensors[name]
        form = stored(tensor.dtype, tensor.shape)
        elements = np.frombuffer(tensor.data, np.uint8)
        alive.append(elements)  # the library holds addresses only
        specs[name] = safetensors.TensorSpec(
            dtype=form.dtype,
            shape=list(form.shape),
            data_ptr=elements.ctypes.data if elements.size else 0,
            data_len=elements.size,
        )
    # The library writes another file and moves it here, readable to this user alone: so the name is taken
    # first, which fails where something is, and its mode given to what replaces it.
    with path.open("xb") as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
    try:
        safetensors.serialize_file(specs, path)
    except safetensors.SafetensorError as error:
        if (found := re.search(r"os error (\d+)", str(error))) is None:
            raise
        raise OSError(int(found[1]), os.strerror(int(found[1])), str(path)) from None
    alive.clear()
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fchmod(handle, mode)
        os.fsync(handle)
        length = os.pread(handle, _LENGTH, 0)
        header = os.pread(handle, int.from_bytes(length, "little"), _LENGTH)
    finally:
        os.close(handle)
    return sha256_hex(length + header)


class RawRow(msgspec.Struct, frozen=True, kw_only=True):
    role: str  # `input`, `expected`, or `output` for what a program made of the inputs.
    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    sha256: str  # Of the file's bytes; empty where a program that wrote it had no way to hash.
    file: str


def write_raw(folder: Path, tensors: Iterable[tuple[str, str, Tensor]]) -> tuple[RawRow, ...]:
    """Write (role, name, tensor) into an empty folder, and the table last."""
    rows, named = [], [*tensors]
    files = file_names(name for _, name, _ in named)
    for role, name, tensor in named:
        digest, size, file = _write(folder / files[name], tensor.data), len(tensor.data), files[name]
        dtype, shape = tensor.dtype, tensor.shape
        rows.append(RawRow(role=role, name=name, dtype=dtype, shape=shape, nbytes=size, sha256=digest, file=file))
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
        for at in range(0, len(data), BLOCK):
            block = data[at : at + BLOCK]
            digest.update(block)
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()


def row_of(record: TensorRecord, digest: str, file: str) -> RawRow:
    """The line of a recorded tensor in the table; `digest` is over the file's bytes."""
    row = msgspec.convert(record, RawRow, from_attributes=True)
    return msgspec.structs.replace(row, sha256=digest, file=file)


def encode_rows(rows: Iterable[RawRow]) -> bytes:
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
    plain = [line.rstrip("\r") for line in lines]
    rows = [_row(line, f"{name}, line {number}") for number, line in enumerate(plain, start=2) if line]
    for keys in ({row.file.lower() for row in rows}, {(row.role, row.name) for row in rows}):
        if len(keys) != len(rows):
            raise Damaged(f"{name}: expected each tensor and each file once, found one twice")
    return tuple(rows)


def _row(line: str, where: str) -> RawRow:
    fields = line.split("\t")
    if len(fields) != 7:
        raise Damaged(f"{where}: expected 7 fields separated by tabs, found {len(fields)}")
    role, name, dtype, shape, size, digest, file = fields
    sound = (
        _SHAPE.fullmatch(shape)
        and size.isdecimal()
        and size.isascii()
        and len(size) < 20
        and _FILE.fullmatch(file)
        and (not digest or is_sha256(digest))
    )
    if not sound:
        raise Damaged(f"{where}: expected role, name, dtype, shape, bytes, sha256, file; {line!r}")
    lengths = () if shape == "-" else tuple(int(length) for length in shape.split("x"))
    if nbytes(dtype, lengths) != int(size):
        raise Damaged(f"{where}: expected {nbytes(dtype, lengths):,} bytes for {dtype} of {shape}, found {size}")
    return RawRow(role=role, name=name, dtype=dtype, shape=lengths, nbytes=int(size), sha256=digest, file=file)


def read_raw(folder: Path) -> tuple[tuple[RawRow, TensorExtent], ...]:
    """The tensors of a raw folder, for instance a program's outputs; sizes are checked, hashes are not."""
    table = folder / TABLE
    handle = open_plain(table, str(table))
    with os.fdopen(handle, "rb") as file:
        data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise Damaged(f"{table}: expected at most {LARGEST:,} bytes, found more")
    found = []
    for row in decode_rows(data, str(table)):
        path, size = folder / row.file, row.nbytes
        extent = FileExtent(path=path, start=0, size=size, file_size=size, name=str(path))
        extent.open().close()  # a file that is missing, or of another size, is damage
        found.append((row, TensorExtent(dtype=row.dtype, shape=row.shape, extent=extent)))
    return tuple(found)
