"""Cases: what was captured, each with its manifest, checked by names and headers before a single tensor is read."""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from posixpath import basename, dirname
from typing import TYPE_CHECKING, Self

import msgspec

from karat.bundles.extents import FETCH, LONGEST, FileExtent, PartExtent, not_fetched, pointer, require_file, whole_file
from karat.bundles.layout import folders_above
from karat.bundles.manifest import (
    NAME,
    Comparator,
    Environment,
    Identity,
    Manifest,
    Role,
    TensorRecord,
    case_path,
    read,
)
from karat.bundles.places import FolderPlace, Place, head
from karat.bundles.structure import check_structure, restore, tensor_names
from karat.bundles.tensor_files import TABLE, Header, read_header
from karat.bundles.values import Flat, Restored
from karat.findings import Finding, Severity, fail
from karat.system.names import refusal
from karat.tensors.digests import digest_of, hash_of, is_digest, require_digest
from karat.tensors.dtypes import nbytes, stored
from karat.tensors.tensor import Damaged, Extent, Tensor, TensorExtent, read_blocks

if TYPE_CHECKING:
    from tempfile import TemporaryDirectory

FILES: Mapping[Role, str] = {"input": "inputs.safetensors", "expected": "expected.safetensors"}
RAW = "raw"
AGAIN = "pytest --karat-capture=NEW_FOLDER"  # What is damaged cannot be repaired, only captured again.
_PROGRAM = re.compile(r"program/(?!\.)[A-Za-z0-9._+=,@~-]{1,120}")
_RAW = re.compile(rf"{RAW}/(?!\.)[A-Za-z0-9._+=,@~-]{{1,120}}")


class Case:
    """One captured case in a place; nothing but its manifest has been read.

    `findings` say what is wrong already: a case with a `fail` among them must not be used. If the manifest itself
    cannot be read, `readable` is False and `manifest` a stand-in without tensors, with the identity that the folder's
    name suggests.
    """

    def __init__(self, place: Place, folder: str, files: Mapping[str, int]) -> None:
        self.place = place
        self.folder = folder  # Where in the place; empty for a place that is a single case.
        self.files = files  # The case's files, without its folder, and their sizes.
        self.readable = True
        self._headers: dict[str, Header] = {}
        pointed: dict[str, int] = {}
        if isinstance(place, FolderPlace):  # as git left it; LFS may not have fetched all files
            small = {file: pointer(head(self.extent(file))) for file, size in files.items() if size <= LONGEST}
            pointed = {file: found[1] for file, found in small.items() if found is not None}
        away = tuple(
            fail("cannot-read", f"{self.name_of(file)}: {not_fetched(size)}", path=folder or place.name, next=FETCH)
            for file, size in pointed.items()
        )
        try:
            self.manifest = read(place.read(self.name_of(NAME)), self.name_of(NAME))
        except Damaged as damage:
            self.readable = False
            # What the folder's name suggests.
            suite, flow, test = (["", "", *(folder or place.name).split("/")])[-3:]
            self.manifest = Manifest(
                karat="",
                identity=Identity(suite=suite, flow=flow, test=test),
                path=folder or place.name,
                inputs=None,
                expected=None,
                tensors=(),
                program=None,
                comparator=Comparator(name="caller"),
                seeds={},
                environment=Environment(platform="", machine="", python=""),
                session="",
                created="",
            )
            damaged = (finding("bundle-damaged", self.path, str(damage)),)
            self.findings: tuple[Finding, ...] = away if NAME in pointed else (*away, *damaged)
        else:
            self.findings = (*away, *check_case(self.manifest, folder, {**files, **pointed}))
        self._records = {record.name: record for record in self.manifest.tensors}

    @property
    def path(self) -> str:
        """suite/flow/leaf, as the manifest says."""
        return self.manifest.path

    def name_of(self, file: str) -> str:
        """The path in the place of a file of the case."""
        return f"{self.folder}/{file}" if self.folder else file

    def record(self, name: str) -> TensorRecord:
        if name not in self._records:
            raise Damaged(f"{self.path}: expected a tensor {name!r:.100}, found none of that name")
        return self._records[name]

    def extent(self, file: str) -> Extent:
        return self.place.extent(self.name_of(file))

    def header(self, file: str) -> Header:
        """The header of a safetensors file, if it says what the manifest says; else `Damaged`."""
        if file not in self._headers:
            header = read_header(self.extent(file), self.name_of(file))
            name, records = self.name_of(file), {one.name: one for one in self.manifest.tensors if one.file == file}
            if header.entries.keys() != records.keys():
                odd = min(header.entries.keys() ^ records.keys())
                raise Damaged(f"{name}: expected the tensors of the manifest, found {odd!r:.100} out of place")
            for key, record in records.items():
                entry, (code, shape) = header.entries[key], stored(record.dtype, record.shape)
                begin, end = entry.data_offsets
                if (entry.dtype, entry.shape, end - begin) != (code, shape, record.nbytes):
                    said = f"{entry.dtype} {list(entry.shape)} in {end - begin:,} bytes"
                    raise Damaged(f"{name}: expected {key!r:.100} as {code} {list(shape)}, found {said}")
            if header.sha256 != self.manifest.headers[file]:
                raise Damaged(f"{name}: expected the header as it was written, found it changed")
            self._headers[file] = header
        return self._headers[file]

    def tensor(self, name: str) -> TensorExtent:
        """A tensor on disk; reading it does not check its digest."""
        record = self.record(name)
        header, whole = self.header(record.file), self.extent(record.file)
        begin, end = header.entries[name].data_offsets
        shown = f"{self.name_of(record.file)}, {name}"
        part = PartExtent(whole=whole, start=header.start + begin, size=end - begin, name=shown)
        return TensorExtent(dtype=record.dtype, shape=record.shape, extent=part)

    def flat(self, role: Role) -> Flat:
        structure = self.manifest.inputs if role == "input" else self.manifest.expected
        tensors = {name: self.tensor(name) for name in tensor_names(structure)}
        return Flat(role=role, structure=structure, tensors=tensors)

    def inputs(self, *, classes: Iterable[type] = (), framework: str | None = None, verify: bool = True) -> Restored:
        """The inputs as the test had them; `Damaged` if a tensor is not what its digest says."""
        return self._restored("input", classes, framework, verify=verify)

    def expected(self, *, classes: Iterable[type] = (), framework: str | None = None, verify: bool = True) -> Restored:
        """The expected outputs as the test had them; `Damaged` if a tensor is not what its digest says."""
        return self._restored("expected", classes, framework, verify=verify)

    def _restored(self, role: Role, classes: Iterable[type], framework: str | None, *, verify: bool) -> Restored:
        for wrong in self.findings:
            if wrong.severity is Severity.FAIL:
                raise Damaged(wrong.message)
        structure = self.manifest.inputs if role == "input" else self.manifest.expected
        import numpy as np

        tensors: dict[str, Tensor] = {}
        shared = ("dtype", "shape", "strides", "framework", "big_endian", "device")
        with Spool(self) as spool:
            for record in (record for record in self.manifest.tensors if record.role == role):
                there = spool.tensor(record.name).extent
                data = np.empty(there.size, np.uint8).data
                with contextlib.closing(there.open()) as reader:
                    reader.read_into(0, data)
                tensor = Tensor(data=data, **{name: getattr(record, name) for name in shared})
                if verify:
                    found = digest_of(tensor, hash_of(record.digest))
                    require_digest(f"{self.name_of(record.file)}, {record.name}", record.digest, found)
                tensors[record.name] = tensor
        # The memory is not shared: no need for a second copy of it.
        return restore(structure, tensors, classes=classes, framework=framework, copy=False)

    def program(self) -> Extent | None:
        return None if self.manifest.program is None else self.extent(self.manifest.program.file)

    def copy_program(self, to: Path) -> None:
        """Write the program to a new file; `Damaged`, and no file, if it is not whole."""
        record, extent = self.manifest.program, self.program()
        if record is None or extent is None:
            raise Damaged(f"{self.path}: expected a program, found a case without one")
        to.parent.mkdir(parents=True, exist_ok=True)
        try:
            with to.open("xb") as file:
                require_file(extent, record.digest, self.name_of(record.file), file.write)
        except Damaged:
            to.unlink()
            raise


def cases(place: Place, without: Collection[str] = ()) -> tuple[Case, ...]:
    """Every case of a place, sorted by folder, but for some folders; also those whose manifest is not whole."""
    found = sorted(divide(place)[0].items())
    return tuple(Case(place, folder, files) for folder, files in found if folder not in without)


def divide(place: Place) -> tuple[dict[str, dict[str, int]], tuple[str, ...]]:
    """The files of each folder that has a manifest, and the files of none.

    A manifest inside another case's folder is a file of that case: a program may be called so. Other
    programs have a manifest.json, too; theirs is a file of no case.
    """
    files = place.files()
    named = (path for path in files if path.endswith(NAME) and basename(path) == NAME)
    folders = {dirname(path) for path in named if _is_ours(place, path)}
    owned: dict[str, dict[str, int]] = {}
    strays, prefix = [], "/"  # What the names in a folder begin with; the files of one come in a row.
    for path, size in files.items():
        if not path.startswith(prefix):
            folder = next((above for above in folders_above(path) if above in folders), None)
            if folder is None:
                strays.append(path)
                continue
            prefix = f"{folder}/" if folder else ""
        owned.setdefault(prefix[:-1], {})[path[len(prefix) :]] = size
    return owned, tuple(strays)


def _is_ours(place: Place, manifest: str) -> bool:
    """Whether a manifest is a case's: one that is damaged may be, one that is intact says so."""
    beside = (f"{manifest.removesuffix(NAME)}{file}" for file in FILES.values())
    if place.kind != "folder" or any(file in place.files() for file in beside):
        return True  # nobody else puts files into a zip or a store
    try:
        content = msgspec.json.decode(place.read(manifest))
    except (Damaged, ValueError, RecursionError):  # msgspec's are among the second
        return True
    return isinstance(content, dict) and not {"identity", "comparator"}.isdisjoint(content)


class Spool:
    """Tensors of one case, each as cheap to read as the next.

    A packed file that can only be read forward is unpacked once to disk if several tensors lie in it, instead of from
    its start for each of them.
    """

    def __init__(self, case: Case) -> None:
        self._case = case
        self._folder: TemporaryDirectory[str] | None = None
        self._unpacked: dict[str, FileExtent] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._folder is not None:
            self._folder.cleanup()

    def tensor(self, name: str) -> TensorExtent:
        found, file = self._case.tensor(name), self._case.record(name).file
        part = found.extent
        alone = sum(record.file == file for record in self._case.manifest.tensors) == 1
        if part.seekable or not isinstance(part, PartExtent) or alone:
            return found
        if file not in self._unpacked:
            if self._folder is None:
                import tempfile

                self._folder = tempfile.TemporaryDirectory(prefix="karat-unpacked-")
            path = Path(self._folder.name) / str(len(self._unpacked))
            with path.open("xb") as unpacked:
                for block in read_blocks(part.whole):
                    unpacked.write(block)
            self._unpacked[file] = msgspec.structs.replace(whole_file(path), name=file)
        extent = msgspec.structs.replace(part, whole=self._unpacked[file])
        return TensorExtent(dtype=found.dtype, shape=found.shape, extent=extent)

    def verified(self, name: str) -> TensorExtent:
        """The same, once its digest has been checked; `Damaged` if it is another."""
        tensor, expected = self.tensor(name), self._case.record(name).digest
        require_digest(name, expected, digest_of(tensor, hash_of(expected)))
        return tensor


def finding(kind: str, path: str, message: str) -> Finding:
    """What is wrong with a case; a message that begins with a file of it says where by itself."""
    named = message if path and message.startswith(f"{path}/") else f"{path}: {message}"
    return fail(kind, named, path=path, next=AGAIN)


def check_case(manifest: Manifest, folder: str, files: Mapping[str, int]) -> tuple[Finding, ...]:
    """What is wrong with a case in `folder` with these files, judged by names and sizes."""
    path = manifest.path
    if problems := [*_check_manifest(manifest, folder)]:
        return tuple(finding("bundle-damaged", folder or path, message) for message in problems)
    expected: dict[str, int | None] = {NAME: None}
    for record in manifest.tensors:
        expected[record.file] = None
        if record.raw is not None:
            expected |= {record.raw: record.nbytes, f"{RAW}/{TABLE}": None}
    if manifest.program is not None:
        expected[manifest.program.file] = manifest.program.size
    absent = [name for name in expected if name not in files]
    found = []
    if absent:
        found.append(finding("incomplete-case", path, f"expected {', '.join(absent)}, found nothing"))
    found += [
        finding("unexpected-file", path, f"expected only what the manifest names, found {name}")
        for name in files.keys() - expected.keys()
    ]
    for name, size in expected.items():
        if size is not None and name in files and files[name] != size:
            message = f"expected {size:,} bytes in {name}, found {files[name]:,}"
            found.append(finding("bundle-damaged", path, message))
    return tuple(sorted(found, key=lambda one: one.message))


def _check_manifest(manifest: Manifest, folder: str) -> Iterator[str]:
    right = case_path(manifest.identity)
    if manifest.path != right:
        yield f"expected the path {right} for its identity, found {manifest.path[:300]!r}"
    elif folder and not f"/{right}".endswith(f"/{folder}"):
        yield f"expected the case in {right}, found it in {folder}"
    names = [record.name for record in manifest.tensors]
    if len(set(names)) != len(names):
        yield "expected each tensor once in the manifest, found one twice"
    for record in manifest.tensors:
        yield from _check_record(record)
    digests = {record.name: record.digest for record in manifest.tensors}
    if manifest.program is not None:
        digests["program"] = manifest.program.digest
    for name, digest in digests.items():
        if not is_digest(digest):
            yield f"expected a digest of {name!r:.100} such as blake3:1f3c…, found {digest!r:.100}"
    for role, structure in (("input", manifest.inputs), ("expected", manifest.expected)):
        try:
            named = sorted(check_structure(structure))
        except Damaged as damage:
            yield f"the structure of {role}: {damage}"
            continue
        recorded = sorted(record.name for record in manifest.tensors if record.role == role)
        if named != recorded:
            odd = min((Counter(named) - Counter(recorded)) + (Counter(recorded) - Counter(named)))
            yield f"expected the structure of {role} to name every tensor once, found {odd!r:.100} out of place"
    if manifest.headers.keys() != {record.file for record in manifest.tensors}:
        yield "expected a hash for the header of each safetensors file, found others"
    program = manifest.program
    if program is not None and (not _PROGRAM.fullmatch(program.file) or refusal(program.file)):
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
