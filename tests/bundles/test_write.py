"""Writing a case: all of it, or no manifest."""

from __future__ import annotations

import errno
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import numpy as np
import pytest

from conftest import missing
from factories.captured import COMPARATOR, ENVIRONMENT, capture, identity
from karat.bundles import manifest as manifests
from karat.bundles.manifest import Comparator, Environment, Identity, Manifest, case_path
from karat.bundles.structure import flatten
from karat.bundles.write import NewCase, write_case
from karat.schemas import schema
from karat.tensors.arrays import tensor_of
from karat.tensors.compare import compare_tensors
from karat.tensors.comparison import Comparison, Statistics, TensorNumbers, Tolerance
from karat.tensors.digests import digest_of
from karat.tensors.tensor import CannotStore, Damaged

SCHEMA = schema("karat.bundle/2")


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def read(folder: Path) -> Manifest:
    return manifests.read((folder / "manifest.json").read_bytes())


def test_a_case_has_the_files_that_its_manifest_names(tmp_path: Path) -> None:
    folder = capture(tmp_path, identity(), raw=True)
    assert files(folder).keys() == {
        "manifest.json",
        "inputs.safetensors",
        "expected.safetensors",
        "program/model.pte",
        "raw/tensors.txt",
        "raw/input.0.bin",
        "raw/expected.logits.bin",
        "raw/expected.ok.bin",
    }
    manifest = read(folder)
    assert manifest.path == case_path(identity()) == str(folder.relative_to(tmp_path))
    assert manifest.program is not None
    assert manifest.program.size == len((folder / "program/model.pte").read_bytes())


def test_without_tensors_or_program_there_is_only_a_manifest(tmp_path: Path) -> None:
    folder = capture(tmp_path, identity(), inputs=(1, "a"), expected=None, program=None)
    assert files(folder).keys() == {"manifest.json"}
    assert read(folder).program is None


def test_the_same_case_gives_the_same_bytes(tmp_path: Path) -> None:
    one, other = (capture(tmp_path / name, identity(), raw=True) for name in ("one", "other"))
    assert files(one) == files(other)


def test_a_record_says_everything_about_its_tensor(tmp_path: Path) -> None:
    array = np.array([[1, math.nan, math.inf, -3]], ">f8").T
    folder = capture(tmp_path, identity(), inputs=array, expected=1)
    (record,) = read(folder).tensors
    assert (record.name, record.role, record.dtype, record.shape) == ("input", "input", "float64", (4, 1))
    assert record.big_endian
    assert record.nbytes == 32
    assert record.digest == digest_of(tensor_of(array))
    numbers = record.statistics
    assert (numbers.min, numbers.max, numbers.mean, numbers.nan, numbers.inf) == (-3, 1, -1, 1, 1)


def test_the_memory_layout_is_recorded_unless_it_has_gaps(tmp_path: Path) -> None:
    array = np.ones((4, 6), np.float32)
    folder = capture(tmp_path, identity(), inputs=(array.T, array[::2, ::3]), raw=True)
    assert [record.strides for record in read(folder).tensors[:2]] == [(1, 6), None]
    rows = [line.split("\t") for line in (folder / "raw" / "tensors.txt").read_text().splitlines()[1:3]]
    assert [row[7:] for row in rows] == [["1x6"], []]


def test_a_value_that_is_taken_apart_already_is_written_as_it_is(tmp_path: Path) -> None:
    value = (np.ones(2), {"a": 1})
    one = capture(tmp_path / "1", identity(), inputs=value)
    other = capture(tmp_path / "2", identity(), inputs=flatten(value, "input"))
    assert files(one) == files(other)
    with pytest.raises(ValueError, match="flattened as input"):
        capture(tmp_path / "3", identity(), inputs=flatten(value, "expected"))


def test_a_program_is_copied_from_its_path(tmp_path: Path) -> None:
    source = tmp_path / "mein Modell: v1.pte"
    source.write_bytes(os.urandom(3_000_000))
    folder = capture(tmp_path / "root", identity(), program=source, program_name=None)
    record = read(folder).program
    assert record is not None
    assert record.name == "mein Modell: v1.pte"
    assert record.file == "program/mein_Modell_v1.pte"
    assert (folder / record.file).read_bytes() == source.read_bytes()


@pytest.mark.parametrize("make", [None, Path.mkdir, os.mkfifo], ids=["none", "folder", "pipe"])
def test_a_program_that_is_no_file_is_named_and_there_is_no_manifest(tmp_path: Path, make: Any) -> None:
    source = tmp_path / "model.pte"
    if make:
        make(source)
    with pytest.raises(CannotStore, match=r"program .*model\.pte: expected"):
        capture(tmp_path / "root", identity(), program=source)
    assert not [*(tmp_path / "root").rglob("manifest.json")]


def test_a_program_that_grows_while_it_is_copied_is_refused_and_not_followed(tmp_path: Path) -> None:
    # The kernel says that it has no bytes, and gives some all the same: as a file that is being written.
    source = Path("/proc/self/status")
    if not source.exists():
        missing("/proc")
    with pytest.raises(CannotStore, match="found it being written"):
        capture(tmp_path, identity(), program=source)
    assert not [*tmp_path.rglob("manifest.json")]


def test_what_cannot_be_stored_leaves_no_manifest(tmp_path: Path) -> None:
    with pytest.raises(CannotStore, match=r"inputs\[0\]"):
        capture(tmp_path, identity(), inputs=(object(),))
    assert not [*tmp_path.rglob("manifest.json")]


@pytest.mark.parametrize(
    "changes",
    [
        {"identity": Identity(suite="\ud800", flow="", test="")},
        {"environment": Environment(platform="\udcff", machine="", python="")},
        {
            "comparator": Comparator(
                name="karat",
                results=(Comparison(name="x", dtype="f", shape=(), tolerance=Tolerance(rtol=math.inf, atol=0)),),
            )
        },
    ],
    ids=["identity", "environment", "infinite tolerance"],
)
def test_what_json_cannot_hold_is_told_by_the_writer(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(CannotStore, match="expected"):
        capture(tmp_path, identity(), **changes)
    assert not [*tmp_path.rglob("manifest.json")]


def test_values_too_long_for_a_manifest_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("karat.bundles.write.LARGEST_MANIFEST", 20_000)
    with pytest.raises(CannotStore, match="as arrays"):
        capture(tmp_path, identity(), inputs=bytes(20_000))


def test_a_full_or_occupied_folder_is_the_callers_to_word(tmp_path: Path) -> None:
    folder = capture(tmp_path, identity())
    case = NewCase(
        identity=identity(),
        inputs=1,
        expected=np.ones(1),
        comparator=COMPARATOR,
        environment=ENVIRONMENT,
        session="",
        created="",
    )
    with pytest.raises(FileExistsError):
        write_case(folder, case)


@pytest.mark.parametrize("elements", [8, 1 << 19])
def test_every_file_and_folder_has_reached_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, elements: int
) -> None:
    synced: dict[Path, int] = {}
    sync = os.fsync

    def watched(handle: int) -> None:
        path = Path(f"/proc/self/fd/{handle}").readlink()
        synced[path] = path.stat().st_size if path.is_file() else len(list(path.iterdir()))
        sync(handle)

    monkeypatch.setattr(os, "fsync", watched)
    folder = capture(tmp_path, identity("test_a"), expected=np.ones(elements, np.float32), raw=True)
    below = {p: p.stat().st_size if p.is_file() else len(list(p.iterdir())) for p in (folder, *folder.rglob("*"))}
    assert {path: size for path, size in synced.items() if path in below} == below


def test_a_disk_that_does_not_take_a_file_leaves_no_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        capture(tmp_path, identity("test_a"))
    assert not list(tmp_path.rglob("manifest.json"))


def test_files_are_as_readable_as_others_of_this_user(tmp_path: Path) -> None:
    folder = capture(tmp_path, identity(), raw=True)
    (tmp_path / "other").write_bytes(b"")
    modes = {path.stat().st_mode for path in folder.rglob("*") if path.is_file()}
    assert modes == {(tmp_path / "other").stat().st_mode}


FULL = """
import pathlib, resource, sys
import numpy as np
from factories.captured import capture, identity

resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
try:
    capture(pathlib.Path(sys.argv[1]), identity(), inputs=np.ones(4096))
except OSError as error:
    print(type(error).__name__, error.errno == 27)
"""


def test_a_file_that_does_not_fit_is_an_os_error_and_there_is_no_manifest(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL, tmp_path / "root"],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "OSError True\n"
    assert not [*tmp_path.rglob("manifest.json")]


# The manifest itself.


def test_a_manifest_is_read_as_it_was_written(tmp_path: Path) -> None:
    folder = capture(tmp_path, identity())
    data = (folder / "manifest.json").read_bytes()
    manifest = manifests.read(data)
    assert manifests.seal(manifest) == manifest
    assert manifests.encode(manifest) == data
    changed = msgspec.structs.replace(manifest, session="other")
    assert manifests.seal(changed).sha256 != manifest.sha256
    with pytest.raises(Damaged, match="sealed"):
        manifests.read(manifests.encode(changed))


def test_every_changed_byte_of_a_manifest_is_noticed(tmp_path: Path) -> None:
    folder = capture(tmp_path, identity())
    data = (folder / "manifest.json").read_bytes()
    rng = np.random.default_rng(0)
    for at in rng.integers(0, len(data), 300):
        changed = bytearray(data)
        changed[at] ^= int(rng.integers(1, 256))
        with pytest.raises(Damaged, match="expected"):
            manifests.read(bytes(changed))
    for odd in (b"", b"[]", b"<html>", data[:-1], data + b"\n", data.replace(b" ", b"  ", 1)):
        with pytest.raises(Damaged, match="expected"):
            manifests.read(odd)


def test_a_manifest_of_a_newer_karat_is_named(tmp_path: Path) -> None:
    folder = capture(tmp_path, identity())
    data = (folder / "manifest.json").read_bytes().replace(b"karat.bundle/2", b"karat.bundle/9")
    with pytest.raises(Damaged, match=r"schema karat\.bundle/2 or karat\.bundle/1, found 'karat\.bundle/9'"):
        manifests.read(data)


def test_manifests_are_as_the_schema_says(tmp_path: Path) -> None:
    results = compare_tensors("expected", tensor_of(np.ones(3)), tensor_of(np.ones(3) + 1e-9))
    folders = [
        capture(tmp_path / "1", identity(), raw=True),
        capture(tmp_path / "2", identity(), program=None, inputs=None, expected=(1.5, {2: "a"})),
        capture(
            tmp_path / "3",
            identity(),
            seeds={"torch": 2**63 + 1, "python": "unknown"},
            inputs=np.asfortranarray(np.ones((2, 3), ">c16")),
            comparator=Comparator(name="caller", note="by eye", equal_nan=True, results=(results,)),
            environment=msgspec.structs.replace(
                ENVIRONMENT, packages={"torch": "2.13"}, image="x", commit="a", dirty=True, ci={"a": "b"}
            ),
        ),
    ]
    for folder in folders:
        jsonschema.validate(
            json.loads((folder / "manifest.json").read_bytes()), SCHEMA, cls=jsonschema.Draft202012Validator
        )


@pytest.mark.parametrize(
    "struct",
    [
        Identity,
        manifests.TensorRecord,
        Statistics,
        manifests.FileRecord,
        Comparator,
        Environment,
        Comparison,
        TensorNumbers,
        Tolerance,
    ],
)
def test_the_schema_knows_every_field(struct: type[msgspec.Struct]) -> None:
    assert SCHEMA["$defs"][struct.__name__]["properties"].keys() == set(struct.__struct_fields__)
    assert SCHEMA["$defs"][struct.__name__]["additionalProperties"] is False


def test_the_schema_knows_every_field_of_the_manifest() -> None:
    assert SCHEMA["properties"].keys() == set(Manifest.__struct_fields__)
    assert SCHEMA["$id"] == manifests.SCHEMA
