"""Verifying: every change to a case is noticed, none crashes the reader, and none is a match."""

from __future__ import annotations

import json
import random
import shutil
import tracemalloc
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import msgspec
import numpy as np
import pytest

from factories.archives import zipped
from factories.captured import capture, capture_many, identity
from karat.bundles import manifest as manifests
from karat.bundles.cases import Case, cases
from karat.bundles.manifest import Manifest, case_path
from karat.bundles.places import BadPlace, open_place
from karat.bundles.verify import verify_case, verify_place
from karat.findings import KINDS, Finding
from karat.tensors.tensor import Damaged


def told(where: Path) -> tuple[Finding, ...]:
    found = verify_place(open_place(where)).findings
    assert all(finding.kind in KINDS for finding in found)
    return found


def kinds(where: Path) -> list[str]:
    return sorted(finding.kind for finding in told(where))


def only(where: Path) -> Case:
    (case,) = cases(open_place(where))
    return case


@pytest.fixture
def case(tmp_path: Path) -> Path:
    """The folder of one case with everything that a case can have; the root is three above."""
    return capture(tmp_path / "root", identity(), raw=True)


def test_a_sound_place_has_nothing_to_tell(tmp_path: Path) -> None:
    root = capture_many(tmp_path)
    seen: list[tuple[int, int]] = []
    verification = verify_place(open_place(root), lambda done, total: seen.append((done, total)))
    assert (verification.cases, verification.tensors, verification.findings) == (6, 18, ())
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert 0 < seen[-1][0] <= seen[-1][1]
    assert all(verify_case(each) == () for each in cases(open_place(root)))


def test_a_case_may_be_opened_at_any_height(case: Path) -> None:
    for folder in (case, *[*case.parents][:3]):
        assert kinds(folder) == []
        assert only(folder).path == case_path(identity())


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        ("manifest.json", "bundle-damaged"),
        ("inputs.safetensors", "bundle-damaged"),
        ("expected.safetensors", "bundle-damaged"),
        ("program/model.pte", "bundle-damaged"),
        ("raw/tensors.txt", "bundle-damaged"),
        ("raw/input.0.bin", "bundle-damaged"),
    ],
)
def test_every_flipped_bit_is_noticed(tmp_path: Path, case: Path, file: str, kind: str) -> None:
    path = case / file
    good = path.read_bytes()
    rng = random.Random(file)
    for at in [0, len(good) - 1, *(rng.randrange(len(good)) for _ in range(60))]:
        data = bytearray(good)
        data[at] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
        found = told(tmp_path / "root")
        assert [finding.kind for finding in found][:1] == [kind], (at, found)
    path.write_bytes(good)
    assert kinds(tmp_path / "root") == []


def test_a_damaged_file_is_said_once(tmp_path: Path, case: Path) -> None:
    path = case / "inputs.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    (found,) = told(tmp_path / "root")
    folder = case.relative_to(tmp_path / "root").as_posix()
    assert found.message.startswith(f"{folder}/inputs.safetensors: expected")
    assert (found.message.count(folder), found.path) == (1, folder)


@pytest.mark.parametrize(
    "file", ["inputs.safetensors", "expected.safetensors", "program/model.pte", "raw/input.0.bin", "raw/tensors.txt"]
)
def test_a_missing_cut_or_swapped_file_is_noticed(tmp_path: Path, case: Path, file: str) -> None:
    path = case / file
    good = path.read_bytes()
    for odd in (b"", good[:-1], good[: len(good) // 2], good + b"\0", b"<!DOCTYPE html><html>"):
        path.write_bytes(odd)
        assert "bundle-damaged" in kinds(tmp_path / "root"), odd[:20]
    path.unlink()
    (finding,) = told(tmp_path / "root")
    assert finding.kind == "incomplete-case"
    assert file in finding.message
    path.mkdir()
    assert kinds(tmp_path / "root") == ["incomplete-case"]


def test_tensors_of_another_case_are_noticed(tmp_path: Path, case: Path) -> None:
    other = capture(tmp_path / "other", identity("test_other"))
    for file in ("inputs.safetensors", "expected.safetensors"):
        shutil.copyfile(other / file, case / file)
    assert kinds(tmp_path / "root") == ["bundle-damaged"] * 2


def test_a_lost_manifest_leaves_an_incomplete_case(tmp_path: Path, case: Path) -> None:
    (case / "manifest.json").unlink()
    (finding,) = told(tmp_path / "root")
    assert finding.kind == "incomplete-case"
    assert "manifest" in finding.message
    assert finding.path == case_path(identity())


def test_a_file_that_nobody_knows_is_noticed(tmp_path: Path, case: Path) -> None:
    (case / "notes.txt").write_text("x", encoding="utf-8")
    (tmp_path / "root" / "stray").write_text("x", encoding="utf-8")
    assert kinds(tmp_path / "root") == ["unexpected-file", "unexpected-file"]
    (case / "inputs.safetensors").write_bytes(b"")
    assert "bundle-damaged" in kinds(tmp_path / "root")


def test_bookkeeping_of_the_session_is_nobodys_business(tmp_path: Path, case: Path) -> None:
    assert case.is_dir()
    (tmp_path / "root" / ".karat").mkdir()
    (tmp_path / "root" / ".karat" / "journal").write_text("x", encoding="utf-8")
    assert kinds(tmp_path / "root") == []


def test_a_case_in_another_folder_is_noticed(tmp_path: Path, case: Path) -> None:
    case.rename(case.with_name("renamed"))
    (finding,) = told(tmp_path / "root")
    assert finding.kind == "bundle-damaged"
    assert "found it in models/xnnpack/renamed" in finding.message
    case.with_name("renamed").rename(case)
    (tmp_path / "root" / "models").rename(tmp_path / "root" / "operators")
    assert kinds(tmp_path / "root") == ["bundle-damaged"]


def test_a_link_instead_of_a_file_is_noticed(tmp_path: Path, case: Path) -> None:
    real = tmp_path / "elsewhere"
    (case / "inputs.safetensors").rename(real)
    (case / "inputs.safetensors").symlink_to(real)
    assert kinds(tmp_path / "root") == ["incomplete-case", "unexpected-file"]


def test_an_empty_place_is_not_verified(tmp_path: Path) -> None:
    assert kinds(tmp_path) == ["nothing-compared"]


def rewritten(case: Path, change: Callable[[Manifest], Manifest]) -> None:
    """A manifest that someone changed, and sealed again."""
    path = case / "manifest.json"
    changed = change(manifests.read(path.read_bytes()))
    path.write_bytes(manifests.encode(manifests.seal(changed)))


def first(manifest: Manifest, **changes: object) -> Manifest:
    record, *rest = manifest.tensors
    return msgspec.structs.replace(manifest, tensors=(msgspec.structs.replace(record, **changes), *rest))


def replaced(**changes: object) -> Callable[[Manifest], Manifest]:
    return lambda manifest: msgspec.structs.replace(manifest, **changes)


def odd_structure(node: object) -> Callable[[Manifest], Manifest]:
    """What was expected, and beside it something that nobody can have written."""
    return lambda manifest: replaced(expected={"tuple": [manifest.expected, node]})(manifest)


@pytest.mark.parametrize(
    "change",
    [
        replaced(identity=identity("another")),
        replaced(path="../../x"),
        replaced(tensors=()),
        replaced(inputs=None),
        replaced(inputs={"tuple": [{"tensor": "input/0"}, {"tensor": "input/0"}]}),
        replaced(expected={"tensor": "input/0"}),
        odd_structure({}),
        odd_structure({"list": 5}),
        odd_structure({"float": "one"}),
        odd_structure({"complex": ["1.0"]}),
        odd_structure({"tensor": 5}),
        odd_structure({"dict": [[{"list": []}, 1]]}),
        odd_structure({"dict": [[{"scalar": 5}, 1]]}),
        odd_structure({"dataclass": 5, "fields": []}),
        odd_structure({"namedtuple": "a:B", "fields": [["x", {"unset": True}]]}),
        odd_structure({"enum": "a:B"}),
        odd_structure({"torch.Size": 3}),
        odd_structure({"torch.dtype": 3}),
        odd_structure({"numpy.dtype": "float32"}),
        replaced(headers={}),
        replaced(headers={"inputs.safetensors": "0" * 64, "expected.safetensors": "0" * 64}),
        lambda manifest: first(manifest, dtype="int32"),
        lambda manifest: first(manifest, dtype="float31"),
        lambda manifest: first(manifest, shape=(3, 2)),
        lambda manifest: first(manifest, shape=(-2, -3)),
        lambda manifest: first(manifest, nbytes=23),
        lambda manifest: first(manifest, name="input/1"),
        lambda manifest: first(manifest, file="expected.safetensors"),
        lambda manifest: first(manifest, file="../inputs.safetensors"),
        lambda manifest: first(manifest, role="expected"),
        lambda manifest: first(manifest, digest="blake3:" + "0" * 64),
        lambda manifest: first(manifest, raw=None),
        lambda manifest: first(manifest, raw="raw/../../x"),
        lambda manifest: first(manifest, raw="raw/expected.ok.bin"),
        lambda manifest: replaced(tensors=(*manifest.tensors, manifest.tensors[0]))(manifest),
        lambda manifest: replaced(program=msgspec.structs.replace(manifest.program, file="/etc/passwd"))(manifest),
        lambda manifest: replaced(program=msgspec.structs.replace(manifest.program, size=1))(manifest),
    ],
)
def test_a_manifest_that_contradicts_itself_or_its_files_is_noticed(
    tmp_path: Path, case: Path, change: Callable[[Manifest], Manifest]
) -> None:
    rewritten(case, change)
    found = told(tmp_path / "root")
    assert found
    assert {finding.kind for finding in found} <= {"bundle-damaged", "incomplete-case", "unexpected-file"}
    with pytest.raises(Damaged, match="expected"):
        use(only(tmp_path / "root"), tmp_path / "copied")


@pytest.mark.parametrize(
    "node",
    [
        {},
        [],
        {"list": 5},
        {"float": "one"},
        {"tensor": 5},
        {"dict": [[1]]},
        {"dict": [[{"scalar": 5}, 1]]},
        {"dataclass": 5, "fields": []},
        {"enum": "a:B"},
        {"torch.Size": 3},
        {"numpy.dtype": "float32"},
    ],
)
def test_an_odd_structure_is_told_before_anyone_compares_it(tmp_path: Path, case: Path, node: object) -> None:
    """`karat diff` and `karat replay` walk through structures that nobody restored."""
    rewritten(case, odd_structure(node))
    assert [finding.kind for finding in only(tmp_path / "root").findings] == ["bundle-damaged"]


def use(case: Case, target: Path) -> None:
    """Everything that a consumer does; what has no other reason to fail fails in verifying alone."""
    case.inputs()
    case.expected()
    case.copy_program(target)
    for finding in verify_case(case):
        raise Damaged(finding.message)


def test_a_case_whose_manifest_cannot_be_read_is_still_a_case(tmp_path: Path, case: Path) -> None:
    (case / "manifest.json").write_bytes(b"{}")
    each = only(tmp_path / "root")
    assert not each.readable
    assert each.path == case_path(identity())
    assert each.manifest.identity.suite == "models"
    assert [finding.kind for finding in each.findings] == ["bundle-damaged"]
    with pytest.raises(Damaged, match="manifest"):
        each.inputs()


def test_values_of_a_damaged_tensor_are_not_handed_out(tmp_path: Path, case: Path) -> None:
    path = case / "expected.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    each = only(tmp_path / "root")
    assert each.findings == ()
    each.inputs()
    with pytest.raises(Damaged, match=r"expected/ok: expected the digest"):
        each.expected()
    assert each.expected(verify=False).value["ok"].tobytes() == bytes([1, 1])


def test_a_program_is_copied_whole_or_not_at_all(tmp_path: Path, case: Path) -> None:
    each = only(tmp_path / "root")
    each.copy_program(tmp_path / "to" / "model.pte")
    assert (tmp_path / "to" / "model.pte").read_bytes() == (case / "program/model.pte").read_bytes()
    path = case / "program" / "model.pte"
    path.write_bytes(path.read_bytes()[::-1])
    with pytest.raises(Damaged, match="expected the digest"):
        only(tmp_path / "root").copy_program(tmp_path / "to" / "other.pte")
    assert not (tmp_path / "to" / "other.pte").exists()


def test_tensors_are_found_where_they_lie(tmp_path: Path, case: Path) -> None:
    each = only(tmp_path / "root")
    tensor = each.tensor("expected/logits")
    assert (tensor.dtype, tensor.shape, tensor.extent.size) == ("float64", (4,), 32)
    with pytest.raises(Damaged, match="none of that name"):
        each.tensor("expected/none")
    assert [*each.flat("input").tensors] == ["input/0"]
    assert each.program() is not None
    assert (case / "program").is_dir()


@pytest.mark.slow
def test_a_zip_with_a_flipped_bit_is_damaged_or_no_zip(tmp_path: Path) -> None:
    root = capture_many(tmp_path / "root", 1)
    files = {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*.*") if path.is_file()}
    good = zipped(files, compress=False)
    rng, noticed = random.Random(0), 0
    target = tmp_path / "x.zip"
    for _ in range(150):
        data = bytearray(good)
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        target.write_bytes(data)
        try:
            noticed += bool(told(target))
        except BadPlace:
            noticed += 1
    # Times, versions and attributes in a zip of another tool's are vouched for by nobody; `karat pack` has
    # an index that leaves no byte out.
    assert noticed > 130


def test_a_large_tensor_is_verified_in_bounded_memory(tmp_path: Path) -> None:
    array = np.zeros(48 << 20, np.uint8)
    capture(tmp_path, identity(), inputs=array, expected=1, program=None)
    del array
    tracemalloc.start()
    assert kinds(tmp_path) == []
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16 << 20


JUNK: tuple[object, ...] = (
    None,
    True,
    -1,
    0,
    2**70,
    1.5,
    "",
    "x",
    "../x",
    "\0",
    [],
    {},
    [1],
    {"tensor": "input/0"},
    {"list": [{"list": 1}]},
    {"dataclass": "os:system", "fields": [["a"]]},
    ["a"] * 3,
    "float32",
    [2**62, 2**62],
)


def mutated(node: object, rng: random.Random) -> object:
    """The same JSON with one node somewhere replaced by junk."""
    if isinstance(node, dict) and node and rng.random() < 0.9:
        key = rng.choice([*node])
        return {**node, key: mutated(node[key], rng)}
    if isinstance(node, list) and node and rng.random() < 0.9:
        at = rng.randrange(len(node))
        return [*node[:at], mutated(node[at], rng), *node[at + 1 :]]
    return rng.choice(JUNK)


def sealed(manifest: object) -> bytes:
    text = json.dumps(manifest, indent=1)
    at = text.rindex('"sha256": "') + len('"sha256": "')
    bare = f"{text[:at]}{text[at + 64 :]}\n".encode()
    return f"{text[:at]}{sha256(bare).hexdigest()}{text[at + 64 :]}\n".encode()


@pytest.mark.slow
def test_a_manifest_that_someone_made_up_never_crashes_a_reader(tmp_path: Path, case: Path) -> None:
    path = case / "manifest.json"
    good = json.loads(path.read_bytes())
    path.write_bytes(sealed({**good, "sha256": "0" * 64}))
    assert kinds(tmp_path / "root") == []
    rng, refused = random.Random(7), 0
    for number in range(400):
        odd = mutated({key: value for key, value in good.items() if key != "sha256"}, rng)
        path.write_bytes(sealed({**(odd if isinstance(odd, dict) else {}), "sha256": "0" * 64}))
        told(tmp_path / "root")
        try:
            use(only(tmp_path / "root"), tmp_path / "copies" / str(number))
        except Damaged:
            refused += 1
    assert refused > 200
