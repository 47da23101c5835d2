"""Checking a case by its manifest, its file names and its headers, before a single tensor is read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from karat.bundles.identity import case_path
from karat.bundles.manifest import NAME, Manifest, Role, TensorRecord
from karat.bundles.raw import TABLE
from karat.bundles.restoring import check_structure
from karat.bundles.safetensors_header import Header
from karat.findings import Finding, Severity
from karat.tensors.dtypes import nbytes, stored
from karat.tensors.tensor import Damaged

FILES: Mapping[Role, str] = {"input": "inputs.safetensors", "expected": "expected.safetensors"}
RAW = "raw"
AGAIN = "pytest --karat-capture=NEW_FOLDER"
"""What is damaged cannot be mended; whoever has another copy will not need to be told."""
_PROGRAM = re.compile(r"program/(?!\.)[A-Za-z0-9._+=,@~-]{1,120}")
_RAW = re.compile(rf"{RAW}/(?!\.)[A-Za-z0-9._+=,@~-]{{1,120}}")


def finding(kind: str, path: str, message: str) -> Finding:
    """What is wrong with a case; the message may begin with a file of it, and then says where by itself."""
    return Finding(
        kind=kind,
        severity=Severity.FAIL,
        message=message if path and message.startswith(f"{path}/") else f"{path}: {message}",
        path=path,
        next=AGAIN,
    )


def check_case(manifest: Manifest, folder: str, files: Mapping[str, int]) -> tuple[Finding, ...]:
    """What is wrong with a case that lies in `folder` and has these files, as far as names and sizes tell."""
    path = manifest.path
    told = [*_check_place(manifest, folder), *_check_records(manifest)]
    if told:
        return tuple(finding("bundle-damaged", folder or path, message) for message in told)
    expected = expected_files(manifest)
    absent = [name for name in expected if name not in files]
    found = []
    if absent:
        found.append(
            finding("incomplete-case", path, f"expected {', '.join(absent)}, found nothing")
        )
    for name in files.keys() - expected.keys():
        message = f"expected only what the manifest names, found {name}"
        found.append(finding("unexpected-file", path, message))
    for name, size in expected.items():
        if size is not None and name in files and files[name] != size:
            message = f"expected {size:,} bytes in {name}, found {files[name]:,}"
            found.append(finding("bundle-damaged", path, message))
    return tuple(sorted(found, key=lambda one: one.message))


def expected_files(manifest: Manifest) -> dict[str, int | None]:
    """Every file that a manifest names, and its size where it says so."""
    found: dict[str, int | None] = {NAME: None}
    for record in manifest.tensors:
        found[record.file] = None
        if record.raw is not None:
            found[record.raw] = record.nbytes
            found[f"{RAW}/{TABLE}"] = None
    if manifest.program is not None:
        found[manifest.program.file] = manifest.program.size
    return found


def _check_place(manifest: Manifest, folder: str) -> Iterator[str]:
    right = case_path(manifest.identity)
    if manifest.path != right:
        yield f"expected the path {right} for its identity, found {manifest.path[:300]!r}"
    elif folder and not f"/{right}".endswith(f"/{folder}"):
        yield f"expected the case in {right}, found it in {folder}"


def _check_records(manifest: Manifest) -> Iterator[str]:
    names = [record.name for record in manifest.tensors]
    if len(set(names)) != len(names):
        yield "expected each tensor once in the manifest, found one twice"
    for record in manifest.tensors:
        yield from _check_record(record)
    structures: tuple[tuple[Role, Any], ...] = (
        ("input", manifest.inputs),
        ("expected", manifest.expected),
    )
    for role, structure in structures:
        try:
            named = Counter(check_structure(structure))
        except Damaged as damage:
            yield f"the structure of {role}: {damage}"
            continue
        recorded = Counter(record.name for record in manifest.tensors if record.role == role)
        if named != recorded:
            odd = min((named - recorded) + (recorded - named))
            yield f"expected the structure of {role} to name every tensor once, found {odd!r:.100} astray"
    if manifest.headers.keys() != {record.file for record in manifest.tensors}:
        yield "expected a hash for the header of each safetensors file, found others"
    program = manifest.program
    if program is not None and not _PROGRAM.fullmatch(program.file):
        yield f"expected a program in program/, found {program.file!r:.100}"
    raws = [record.raw.lower() for record in manifest.tensors if record.raw is not None]
    if raws and (len(set(raws)) != len(manifest.tensors) or f"{RAW}/{TABLE}" in raws):
        yield "expected a raw file for each tensor, or none, found others"


def _check_record(record: TensorRecord) -> Iterator[str]:
    what = f"{record.name!r:.100}"
    if record.file != FILES[record.role]:
        yield f"expected {what} in {FILES[record.role]}, found {record.file!r:.100}"
    if record.raw is not None and not _RAW.fullmatch(record.raw):
        yield f"expected the raw form of {what} in {RAW}/, found {record.raw!r:.100}"
    try:
        size = nbytes(record.dtype, record.shape)
    except Damaged as damage:
        yield f"{what}: {damage}"
        return
    if min(record.shape, default=0) < 0 or size != record.nbytes:
        yield f"expected {record.nbytes:,} bytes for {what}, found {record.dtype} of {record.shape!s:.200}"


def check_header(header: Header, manifest: Manifest, file: str, name: str) -> None:
    """`Damaged` unless the header of a safetensors file says just what the manifest says."""
    records = {record.name: record for record in manifest.tensors if record.file == file}
    if header.entries.keys() != records.keys():
        odd = min(header.entries.keys() ^ records.keys())
        raise Damaged(f"{name}: expected the tensors of the manifest, found {odd!r:.100} astray")
    for key, record in records.items():
        entry, form = header.entries[key], stored(record.dtype, record.shape)
        begin, end = entry.data_offsets
        if (entry.dtype, entry.shape, end - begin) != (form.code, form.header_shape, record.nbytes):
            raise Damaged(
                f"{name}: expected {key!r:.100} as {form.code} {list(form.header_shape)}, found "
                f"{entry.dtype} {list(entry.shape)} in {end - begin:,} bytes"
            )
    if header.sha256 != manifest.headers[file]:
        raise Damaged(f"{name}: expected the header as it was written, found it changed")
