"""Bundles that are whole and wrong: changed after the capture, and sealed again as if they never were.

Nothing about such a bundle is damaged, so `karat verify` has nothing to say; only running it does.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
from blake3 import blake3

from karat.bundles.manifest import Manifest, TensorRecord, encode, seal
from karat.tensors.digests import TensorDigest


def negate_expected(case: Path) -> None:
    """The last element of the first expected tensor of floats changes its sign."""
    manifest = _read(case)
    record = next(t for t in manifest.tensors if t.role == "expected" and "float" in t.dtype)
    path = case / record.file
    content = bytearray(path.read_bytes())
    start, end = _span(bytes(content), record)
    content[end - 1] ^= 0x80
    path.write_bytes(content)
    digest = TensorDigest(record.dtype, record.shape)
    digest.update(bytes(content[start:end]))
    changed = msgspec.structs.replace(record, digest=digest.text())
    _write(case, manifest, [changed if t == record else t for t in manifest.tensors])


def replace_program(case: Path, program: Path) -> None:
    """Another program under the same name."""
    manifest = _read(case)
    assert manifest.program is not None
    shutil.copyfile(program, case / manifest.program.file)
    content = program.read_bytes()
    file = msgspec.structs.replace(manifest.program, digest=f"blake3:{blake3(content).hexdigest()}", size=len(content))
    changed = msgspec.structs.replace(manifest, program=file)
    _write(case, changed, list(changed.tensors))


def _span(content: bytes, record: TensorRecord) -> tuple[int, int]:
    head = 8 + int.from_bytes(content[:8], "little")
    start, end = msgspec.json.decode(content[8:head])[record.name]["data_offsets"]
    return head + start, head + end


def _read(case: Path) -> Manifest:
    return msgspec.json.decode((case / "manifest.json").read_bytes(), type=Manifest)


def _write(case: Path, manifest: Manifest, tensors: list[TensorRecord]) -> None:
    changed = msgspec.structs.replace(manifest, tensors=tuple(tensors))
    (case / "manifest.json").write_bytes(encode(seal(changed)))
