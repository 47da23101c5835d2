"""Spooling: files that can only be read forward, unpacked once to the disk where several tensors lie in them.

A packed safetensors file of many tensors would otherwise be unpacked from its start for each of them.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from karat.bundles.cases import Case
from karat.bundles.extents import FileExtent, PartExtent
from karat.tensors.digest import blocks, digest_of
from karat.tensors.tensor import Damaged, Extent, TensorExtent


class Spool:
    """Tensors of one case, each as cheap to reach as the next; what was unpacked goes with it."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._unpacked: dict[str, FileExtent] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._folder is not None:
            self._folder.cleanup()

    def tensor(self, name: str) -> TensorExtent:
        """A tensor where it lies, or where its file was unpacked to."""
        found, file = self._case.tensor(name), self._case.record(name).file
        part = found.extent
        if part.seekable or not isinstance(part, PartExtent) or self._is_alone(file):
            return found
        whole = self._unpacked.get(file) or self._unpack(file, part.whole)
        extent = FileExtent(
            path=whole.path,
            start=part.start,
            size=part.size,
            file_size=whole.file_size,
            name=part.name,
        )
        return TensorExtent(dtype=found.dtype, shape=found.shape, extent=extent)

    def verified(self, name: str) -> TensorExtent:
        """The same, once its digest has been looked at; `Damaged` if it is another."""
        tensor, expected = self.tensor(name), self._case.record(name).sha256
        found = digest_of(tensor)
        if found != expected:
            raise Damaged(f"{name}: expected the digest {expected}, found {found}")
        return tensor

    def _is_alone(self, file: str) -> bool:
        return sum(record.file == file for record in self._case.manifest.tensors) == 1

    def _unpack(self, file: str, whole: Extent) -> FileExtent:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="karat-unpacked-")
        path = Path(self._folder.name) / str(len(self._unpacked))
        with path.open("xb") as target:
            for block in blocks(whole):
                target.write(block)
        made = FileExtent(path=path, start=0, size=whole.size, file_size=whole.size, name=file)
        self._unpacked[file] = made
        return made
