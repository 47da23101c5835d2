"""The files of tensors: safetensors, and the raw form for readers without it.

safetensors, a header of a length and JSON and then the tensors' bytes, is written and read here: its library neither
hashes what it writes, nor writes with several threads, nor reads a range of a zip's member or of an object in a store. Tensors are in
the library's order, by dtype and then by name, so that the same tensors make the same bytes. A header is believed
only as far as it is consistent: every byte after it belongs to exactly one tensor.

In the raw form each tensor's elements have a file of their own, in C order, little-endian, sub-byte integers in a byte
each, beside a table that a C++ program can read. `tensors.txt` begins with the line `karat-raw 2`; every further line
is one tensor, seven fields separated by tabs: role, name, dtype, shape (`2x3`, `-` for a single element without
dimensions), bytes, the tensor's digest, and the file beside the table; an eighth, `1x2`, has the strides, in elements,
of a tensor that did not lie in C order in memory. In `karat-raw 1`, of bundles of format 1, the
digest is the file's plain sha256.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from karat.bundles.extents import FileExtent, PartExtent, open_plain, read_all
from karat.bundles.manifest import TensorRecord, safe_name
from karat.system.foreign.limits import CLOSED
from karat.system.hashes import is_sha256, sha256_hex, start_hash
from karat.tensors.digests import PIECE, TensorDigest, digest_of, is_digest
from karat.tensors.dtypes import CODES, nbytes, stored
from karat.tensors.tensor import Damaged, Extent, Tensor, TensorExtent, layout_of

SMALL = 1 << 20  # Bytes up to which a file is not worth a thread, or a sync, of its own.
LARGEST = 64 << 20  # Bytes of a header; a hundred for each tensor is usual.
_LENGTH = 8
_FIRST = 4096  # Bytes that hold most headers.
_PART = 4 << 20  # Bytes that are hashed and written while they are in a cache.
TABLE = "tensors.txt"
FIRST = "karat-raw 2"
FIRST_1 = "karat-raw 1"
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
    import json

    size = extent.size
    if size < _LENGTH:
        raise Damaged(f"{name}: expected a safetensors file, found {size:,} bytes")
    first = read_all(PartExtent(whole=extent, start=0, size=min(size, _FIRST), name=name))
    length = int.from_bytes(first[:_LENGTH], "little")
    start = _LENGTH + length
    if length > min(size - _LENGTH, LARGEST):
        raise Damaged(f"{name}: expected a safetensors header, found one of {length:,} bytes in a file of {size:,}")
    whole = first[:start]
    if start > len(first):
        whole = read_all(PartExtent(whole=extent, start=0, size=start, name=name))

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise Damaged(f"{name}: expected each key once in the header, found one twice")
        return found

    try:
        parsed = json.loads(whole[_LENGTH:].decode(), object_pairs_hook=once)
        entries = msgspec.convert(parsed, dict[str, HeaderEntry])
    except (ValueError, RecursionError) as error:
        raise Damaged(f"{name}: expected a header of tensors in JSON; {str(error)[:200]}") from None
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


def write_safetensors(
    path: Path, tensors: Mapping[str, Tensor], run: Callable[..., Iterable[bytes]] = map
) -> tuple[str, dict[str, str]]:
    """Write a new file and wait for the disk if it is large; the sha256 of its header, and the digest of each tensor.

    Each byte is hashed on its way. The bytes are those that the format's library would write. `run` maps a function over pieces of tensors, an
    executor's `map` for instance; what lies on a device is brought to the host piece by piece.
    """
    forms = {name: stored(tensor.dtype, tensor.shape) for name, tensor in tensors.items()}
    order = [*CODES.values()]
    at, entries, places = 0, {}, {}
    for name in sorted(tensors, key=lambda name: (order.index(forms[name][0]), name)):
        size, places[name] = tensors[name].size, at
        entries[name] = {"dtype": forms[name][0], "shape": forms[name][1], "data_offsets": (at, at + size)}
        at += size
    text = msgspec.json.encode(entries)
    text += b" " * (-len(text) % _LENGTH)
    header = len(text).to_bytes(_LENGTH, "little") + text
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | CLOSED, 0o666)
    try:
        _write_at(handle, memoryview(header), 0)
        digests = {}
        for name, tensor in tensors.items():
            digest = TensorDigest(tensor.dtype, tensor.shape)
            start = len(header) + places[name]
            digests[name] = digest.text(
                [*run(partial(_write_piece, handle, start, tensor), range(0, tensor.size or 1, PIECE))]
            )
        if len(header) + at >= SMALL:
            os.fsync(handle)
    finally:
        os.close(handle)
    return sha256_hex(header), digests


def _write_piece(handle: int, start: int, tensor: Tensor, at: int) -> bytes:
    """Write a piece of a tensor whose elements start there in the file; the hash of the piece."""
    from karat.tensors.bits import TensorBlocks  # whoever only verifies needs no numpy

    running, stop = start_hash("blake3"), min(tensor.size, at + PIECE)
    with closing(TensorBlocks(tensor, _PART)) as blocks:
        for first in range(at, stop, _PART):
            block = blocks.block(first, min(stop, first + _PART)).data
            running.update(block)
            _write_at(handle, block, start + first)
    return bytes(running.digest())


def _write_at(handle: int, data: memoryview, at: int) -> None:
    while data:
        done = os.pwrite(handle, data, at)
        data, at = data[done:], at + done


class RawRow(msgspec.Struct, frozen=True, kw_only=True):
    role: str  # `input`, `expected`, or `output` for what a program made of the inputs.
    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    digest: str  # The tensor's, in a table of format 1 the sha256 of the file; empty where a program could not hash.
    file: str
    strides: tuple[int, ...] | None = None  # In elements, of what did not lie in C order.


def write_raw(
    folder: Path,
    tensors: Iterable[tuple[str, str, Tensor]],
    digest: Callable[[str, Tensor], str] = lambda _, tensor: digest_of(tensor),
) -> tuple[RawRow, ...]:
    """Write (role, name, tensor) into an empty folder, and the table last; `digest` is that of a name, if it is known."""
    rows, named = [], [*tensors]
    files = file_names(name for _, name, _ in named)
    for role, name, tensor in named:
        file, size = files[name], tensor.size
        _write(folder / file, tensor.data)
        told = {name: getattr(tensor, name) for name in ("dtype", "shape", "strides")}
        rows.append(RawRow(role=role, name=name, nbytes=size, digest=digest(name, tensor), file=file, **told))
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


def _write(path: Path, data: memoryview) -> None:
    with path.open("xb") as file:
        file.write(data)


def row_of(record: TensorRecord, digest: str, file: str) -> RawRow:
    """The line of a recorded tensor in the table."""
    row = msgspec.convert(record, RawRow, from_attributes=True)
    return msgspec.structs.replace(row, digest=digest, file=file)


def encode_rows(rows: Iterable[RawRow], first: str = FIRST) -> bytes:
    lines = [first]
    for row in rows:
        shape = "x".join(map(str, row.shape)) or "-"
        fields = [row.role, row.name, row.dtype, shape, str(row.nbytes), row.digest, row.file]
        if row.strides is not None and first == FIRST:
            fields.append("x".join(map(str, row.strides)))
        lines.append("\t".join(fields))
    return "\n".join([*lines, ""]).encode()


def decode_rows(data: bytes, name: str = TABLE) -> tuple[RawRow, ...]:
    """The lines of a table; `Damaged` names the line that is none."""
    try:
        first, *lines = data.decode().split("\n")
    except UnicodeDecodeError:
        raise Damaged(f"{name}: expected a table in UTF-8, found other bytes") from None
    if first.rstrip("\r") not in {FIRST, FIRST_1}:
        raise Damaged(f"{name}: expected the first line {FIRST!r}, found {first[:80]!r}")
    plain = [line.rstrip("\r") for line in lines]
    rows = [_row(line, f"{name}, line {number}") for number, line in enumerate(plain, start=2) if line]
    for keys in ({row.file.lower() for row in rows}, {(row.role, row.name) for row in rows}):
        if len(keys) != len(rows):
            raise Damaged(f"{name}: expected each tensor and each file once, found one twice")
    return tuple(rows)


def _row(line: str, where: str) -> RawRow:
    fields = line.split("\t")
    if len(fields) not in {7, 8}:
        raise Damaged(f"{where}: expected 7 or 8 fields separated by tabs, found {len(fields)}")
    role, name, dtype, shape, size, digest, file, *layout = fields
    sound = (
        all(_SHAPE.fullmatch(lengths) for lengths in (shape, *layout))
        and size.isdecimal()
        and size.isascii()
        and len(size) < 20
        and _FILE.fullmatch(file)
        and (not digest or is_digest(digest) or is_sha256(digest))
    )
    if not sound:
        raise Damaged(f"{where}: expected role, name, dtype, shape, bytes, digest, file; {line!r}")
    lengths, *strides = [() if text == "-" else tuple(map(int, text.split("x"))) for text in (shape, *layout)]
    if nbytes(dtype, lengths) != int(size):
        raise Damaged(f"{where}: expected {nbytes(dtype, lengths):,} bytes for {dtype} of {shape}, found {size}")
    if strides and layout_of(lengths, strides[0]) is None:
        raise Damaged(
            f"{where}: expected the strides of a tensor without gaps, not in C order, found {layout[0][:100]}"
        )
    found = RawRow(role=role, name=name, dtype=dtype, shape=lengths, nbytes=int(size), digest=digest, file=file)
    return msgspec.structs.replace(found, strides=strides[0]) if strides else found


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
