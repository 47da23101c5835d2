"""Raw files for commands: a case's inputs written out, and what a command left read back.

The form is that of `karat.bundles.raw`; inputs are streamed and their digests looked at on the way, so that
a damaged case is noticed before anything runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path

import msgspec

from karat.bundles.cases import Case
from karat.bundles.extents import FileExtent
from karat.bundles.manifest import TensorRecord
from karat.bundles.raw import TABLE, RawRow, encode_rows, file_names, read_raw
from karat.bundles.spooling import Spool
from karat.report.tensor_rows import shape_text
from karat.tensors import digest
from karat.tensors.tensor import Damaged, TensorExtent


class Outputs(msgspec.Struct, frozen=True, kw_only=True):
    """What a command left."""

    tensors: Mapping[str, TensorExtent]
    """By the name of the expected tensor, or whatever else the command called it."""
    problems: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    """Files that are no expected tensor's."""


def write_inputs(
    case: Case, records: Sequence[TensorRecord], folder: Path, *, verify: bool
) -> None:
    """The inputs in the raw form; `Damaged` if they are not what was captured."""
    files = file_names(record.name for record in records)
    rows = []
    with Spool(case) as spool:
        for record in records:
            plain, own = _copy(spool.tensor(record.name), folder / files[record.name])
            if verify and own != record.sha256:
                raise Damaged(f"{record.name}: expected the digest {record.sha256}, found {own}")
            rows.append(_row(record, plain, files[record.name]))
    (folder / TABLE).write_bytes(encode_rows(rows))


def write_expected_list(records: Sequence[TensorRecord], path: Path) -> None:
    """What the command is expected to leave: names, dtypes, shapes and files, and no digest."""
    files = file_names(record.name for record in records)
    path.write_bytes(encode_rows(_row(record, "", files[record.name]) for record in records))


def _row(record: TensorRecord, digest_of_bytes: str, file: str) -> RawRow:
    return RawRow(
        role=record.role, name=record.name, dtype=record.dtype, shape=record.shape,
        nbytes=record.nbytes, sha256=digest_of_bytes, file=file,
    )  # fmt: skip


def _copy(tensor: TensorExtent, path: Path) -> tuple[str, str]:
    """Writes the elements; their plain sha256, and the tensor's digest."""
    plain, own = sha256(), digest.start(tensor.dtype, tensor.shape)
    with path.open("xb") as file:
        for block in digest.blocks(tensor.extent):
            plain.update(block)
            own.update(block)
            file.write(block)
    return plain.hexdigest(), str(own.hexdigest())


def read_outputs(folder: Path, expected: Sequence[TensorRecord]) -> Outputs:
    """What a command left.

    With a table, names, dtypes and shapes are the table's. Without one, files go by the names that the
    expected tensors have in the raw form, and are taken for what is expected.
    """
    if (folder / TABLE).exists():
        try:
            rows = read_raw(folder)
        except Damaged as error:
            return Outputs(tensors={}, problems=(str(error),))
        return Outputs(tensors={_expected_name(row.name): tensor for row, tensor in rows})
    return _bare_files(folder, expected)


def _bare_files(folder: Path, expected: Sequence[TensorRecord]) -> Outputs:
    files = file_names(record.name for record in expected)
    tensors, problems = {}, []
    for record in expected:
        path = folder / files[record.name]
        if path.is_file() and path.stat().st_size == record.nbytes:
            extent = _extent(path)
            tensors[record.name] = TensorExtent(
                dtype=record.dtype, shape=record.shape, extent=extent
            )
        elif path.exists():
            problems.append(_wrong_size(path, record))
    known = set(files.values())
    extra = tuple(path.name for path in sorted(folder.glob("*.bin")) if path.name not in known)
    return Outputs(tensors=tensors, problems=tuple(problems), extra=extra)


def _wrong_size(path: Path, record: TensorRecord) -> str:
    found = f"{path.stat().st_size:,} bytes" if path.is_file() else "no plain file"
    return (
        f"{path.name}: expected {record.nbytes:,} bytes ({record.dtype} {shape_text(record.shape)}), "
        f"found {found}; a {TABLE} beside it can say another dtype or shape"
    )


def _expected_name(name: str) -> str:
    """`output/0` stands for `expected/0`."""
    first, slash, rest = name.partition("/")
    return f"expected{slash}{rest}" if first == "output" else name


def _extent(path: Path) -> FileExtent:
    size = path.stat().st_size
    return FileExtent(path=path, start=0, size=size, file_size=size, name=path.name)
