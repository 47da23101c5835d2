from __future__ import annotations

import os
import random
import shutil
import subprocess
import time
import zipfile
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest

from conftest import missing
from factories.captured import capture, capture_many, identity
from factories.packed import NAME, packed, tree
from karat.bundles.cases import cases
from karat.bundles.index import decode
from karat.bundles.layout import SUMS
from karat.bundles.manifest import case_path
from karat.bundles.places import open_place
from karat.bundles.verify import verify_place
from karat.findings import ExitCode, UsageError
from karat.store.pack import Packed, PackOptions, pack
from karat.store.survey import survey
from karat.store.zips import Compression, pack_case


def kinds(told: Packed) -> list[str]:
    return [finding.kind for finding in told.findings]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return capture_many(tmp_path / "captures", 2)


def test_every_case_alone_and_all_together(tmp_path: Path, root: Path) -> None:
    told = packed(tmp_path, root)
    out = tmp_path / "out"
    paths = [case_path(identity(f"test_{i}[static]", flow=f)) for f in ("portable", "xnnpack") for i in (0, 1)]
    assert told.exit_code == 0
    assert (told.state, told.found, told.packed, told.tensors) == ("written", 4, 4, 12)
    assert sorted(tree(out)) == sorted([SUMS, NAME, *(f"cases/{path}.zip" for path in paths)])
    with zipfile.ZipFile(out / NAME) as archive:
        assert archive.testzip() is None
        names = archive.namelist()
        assert names == [*sorted(names[:-1]), "index.json"]
        assert {"/".join(name.split("/")[:3]) for name in names[:-1]} == set(paths)
        for name in names[:-1]:
            assert archive.read(name) == (root / name).read_bytes()
        index = decode(archive.read("index.json"))
        assert [case.path for case in index.cases] == sorted(paths)
        assert told.size == sum(file.size for file in index.files)
    for output in told.outputs:
        place = open_place(out / output.path)
        assert verify_place(place).findings == ()
        assert output.sha256 == sha256((out / output.path).read_bytes()).hexdigest()


def test_sha256sum_accepts_the_sums(tmp_path: Path, root: Path) -> None:
    if shutil.which("sha256sum") is None:
        missing("sha256sum (coreutils)")
    packed(tmp_path, root)
    done = subprocess.run(["sha256sum", "--strict", "-c", SUMS], cwd=tmp_path / "out", capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(b": OK") == 5


@pytest.mark.parametrize("compression", ["stored", "deflate", "zstd"])
def test_the_same_cases_give_the_same_bytes(
    tmp_path: Path, root: Path, compression: Compression, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed(tmp_path, root, compression=compression, jobs=1)
    other = tmp_path / "elsewhere" / "copy"
    files = list(tree(root).items())
    random.Random(4).shuffle(files)
    before = os.umask(0o077)
    try:
        for name, data in files:
            (other / name).parent.mkdir(parents=True, exist_ok=True)
            (other / name).write_bytes(data)
            os.utime(other / name, (1, 1))
        monkeypatch.setenv("TZ", "Asia/Kolkata")
        time.tzset()
        packed(tmp_path, other, out="second", compression=compression, jobs=4)
    finally:
        os.umask(before)
        monkeypatch.undo()
        time.tzset()
    assert tree(tmp_path / "out") == tree(tmp_path / "second")


def test_shards_are_merged_whatever_their_order(tmp_path: Path) -> None:
    one = capture_many(tmp_path / "one", 2, flows=("xnnpack",))
    two = capture_many(tmp_path / "two", 2, flows=("portable",))
    whole = capture_many(tmp_path / "whole", 2)
    packed(tmp_path, one, two, out="a")
    packed(tmp_path, two, one, out="b")
    packed(tmp_path, whole, out="c")
    assert tree(tmp_path / "a") == tree(tmp_path / "b") == tree(tmp_path / "c")


def test_one_case_in_two_directories_is_packed_from_neither(tmp_path: Path) -> None:
    one = capture_many(tmp_path / "one", 2, flows=("xnnpack",))
    two = tmp_path / "two"
    capture(two, identity("test_1[static]"))
    told = packed(tmp_path, one, two)
    assert (told.exit_code, told.state, kinds(told)) == (1, "refused", ["captured-twice"])
    assert str(one) in told.findings[0].message
    assert str(two) in told.findings[0].message
    assert not (tmp_path / "out").exists()
    going = packed(tmp_path, one, two, keep_going=True)
    assert (going.exit_code, going.state, going.packed, going.found) == (1, "written", 1, 3)


def damage(root: Path, name: str, how: str) -> None:
    path = next(root.rglob(name))
    if how == "gone":
        path.unlink()
    elif how == "cut":
        path.write_bytes(path.read_bytes()[:-1])
    elif how == "flip":
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
    else:
        path.write_bytes(b"<!DOCTYPE html><html>Bad gateway</html>")


@pytest.mark.parametrize("name", ["manifest.json", "inputs.safetensors", "expected.safetensors", "model.pte"])
@pytest.mark.parametrize("how", ["gone", "cut", "flip", "html"])
def test_a_case_that_is_not_whole_is_named_and_fails(tmp_path: Path, root: Path, name: str, how: str) -> None:
    damage(root, name, how)
    told = packed(tmp_path, root)
    assert told.exit_code == 1
    assert not (tmp_path / "out").exists()
    assert any("models/" in finding.message for finding in told.findings)
    going = packed(tmp_path, root, keep_going=True)
    assert (going.exit_code, going.packed) == (1, 3)
    assert verify_place(open_place(tmp_path / "out" / NAME)).findings == ()


def test_raw_files_and_their_table_are_verified_as_they_go_by(tmp_path: Path) -> None:
    root = tmp_path / "captures"
    folder = capture(root, identity("test_raw"), raw=True)
    assert packed(tmp_path, root).exit_code == 0
    names = [str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()]
    assert len(names) == 8
    for number, name in enumerate(names):
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        told = packed(tmp_path, root, out=str(number))
        assert (told.exit_code, kinds(told)) == (1, ["bundle-damaged"]), name
        assert name.rsplit("/", 1)[-1] in told.findings[0].message, name
        (folder / name).write_bytes(data)


def test_the_tensor_that_changed_is_named(tmp_path: Path, root: Path) -> None:
    path = next(root.rglob("expected.safetensors"))
    data = bytearray(path.read_bytes())
    data[-3] ^= 4
    path.write_bytes(data)
    told = packed(tmp_path, root)
    assert [f.message.split(": ")[0].rsplit("/", 2)[1:] for f in told.findings] == [
        ["expected.safetensors, expected", "logits"]
    ]


def test_what_changes_after_it_was_looked_at_is_not_packed(tmp_path: Path, root: Path) -> None:
    """The manifest of a case is read before its files are packed; a session may run meanwhile."""
    found = survey([str(root)])
    candidate = found.candidates[0]
    path = root / candidate.path / "manifest.json"
    other = msgspec.structs.replace(candidate.manifest, session="session-2")
    shutil.rmtree(path.parent)
    capture(root, other.identity, session=other.session)
    assert path.stat().st_size == candidate.files[path.name], "as large, and sealed"
    part = pack_case(candidate, tmp_path / "a.zip", "stored", lambda _: None)
    assert part.output is None
    assert [said.split(":")[0] for said in part.wrong] == ["manifest.json"]


@pytest.mark.parametrize("compression", ["deflate", "zstd"])
def test_zeros_are_no_bomb(tmp_path: Path, compression: Compression) -> None:
    import numpy as np

    root = tmp_path / "captures"
    capture(root, identity(), expected=np.zeros(8 << 20, np.uint8))
    assert packed(tmp_path, root, compression=compression).exit_code == 0
    assert verify_place(open_place(tmp_path / "out" / NAME)).findings == ()


def test_what_readers_would_take_for_a_bomb_is_not_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np

    root = tmp_path / "captures"
    capture(root, identity(), expected=np.zeros(8 << 20, np.uint8))
    # 64 GiB of zeros are more than a test should write.
    monkeypatch.setenv("KARAT_MAX_DENSE_MB", "1")
    with pytest.raises(UsageError, match="--compression zstd: expected a zip that readers open"):
        packed(tmp_path, root, compression="zstd")
    assert not (tmp_path / "out").exists()
    assert packed(tmp_path, root).exit_code == 0


def test_a_pack_tells_how_far_it_is(tmp_path: Path, root: Path) -> None:
    seen: list[tuple[int, int]] = []
    options = PackOptions(output=str(tmp_path / "out"), combined=NAME)
    told = pack([str(root)], options, lambda done, total: seen.append((done, total)))
    assert seen[-1] == (told.size, told.size)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def claim(root: Path, path: str, state: str, *, session: str = "session-1") -> Path:
    folder = root / ".karat" / session / "claims"
    folder.mkdir(parents=True, exist_ok=True)
    said = {
        "schema": "karat.claim/1",
        "path": path,
        "state": state,
        "by": "x",
        "host": "h",
        "pid": 1,
        "identity": {"suite": "models", "flow": "f", "test": "t.py::test_x", "subtest": ""},
    }
    made = folder / f"{sha256(path.encode()).hexdigest()}.json"
    made.write_bytes(msgspec.json.encode(said))
    return made


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("published", "expected the case that session session-1"),
        ("failed", "writing it failed"),
        ("staged", "still staged"),
    ],
)
def test_a_case_that_was_claimed_and_is_not_there(tmp_path: Path, root: Path, state: str, said: str) -> None:
    claim(root, "models/f/gone-0123456789abcdef", state)
    told = packed(tmp_path, root)
    assert (told.exit_code, kinds(told)) == (1, ["incomplete-case"])
    assert "t.py::test_x [models/f]" in told.findings[0].message
    assert said in told.findings[0].message


def test_claims_of_cases_that_are_there_are_nobody_s_business(tmp_path: Path, root: Path) -> None:
    path = case_path(identity("test_0[static]"))
    claim(root, path, "published")
    # It failed in an earlier session; the newest claim decides.
    old = claim(root, path, "failed", session="session-0")
    os.utime(old, (1, 1))
    (old.parent / "half.json").write_bytes(b'{"sch')
    assert packed(tmp_path, root).exit_code == 0
    os.utime(old)
    os.utime(root / ".karat/session-1/claims" / old.name, (1, 1))
    told = packed(tmp_path, root, out="later")
    assert kinds(told) == ["incomplete-case"]
    assert "only that of an earlier session" in told.findings[0].message


def test_a_case_without_a_program_beside_others_that_have_one(tmp_path: Path, root: Path) -> None:
    capture(root, identity("test_bare"), program=None)
    told = packed(tmp_path, root)
    assert (told.exit_code, kinds(told)) == (0, ["incomplete-case"])
    assert "as other cases of its suite and flow have" in told.findings[0].message
    strict = packed(tmp_path, root, out="strict", require_program=True)
    assert (strict.exit_code, strict.state) == (1, "refused")
    assert "as --require-program says" in strict.findings[0].message


def test_a_stray_file_is_named(tmp_path: Path, root: Path) -> None:
    (root / "models" / "notes.txt").write_text("x", encoding="utf-8")
    told = packed(tmp_path, root)
    assert (told.exit_code, kinds(told)) == (1, ["unexpected-file"])


def test_nothing_to_pack_is_not_verified(tmp_path: Path) -> None:
    (tmp_path / "empty" / ".karat").mkdir(parents=True)
    told = packed(tmp_path, tmp_path / "empty")
    assert told.exit_code is ExitCode.CANNOT_VERIFY
    assert not (tmp_path / "out").exists()


def test_a_folder_unpacked_from_a_zip_packs_to_the_same_bytes(tmp_path: Path, root: Path) -> None:
    packed(tmp_path, root)
    with zipfile.ZipFile(tmp_path / "out" / NAME) as archive:
        archive.extractall(tmp_path / "unpacked")
    assert verify_place(open_place(tmp_path / "unpacked")).findings == ()
    packed(tmp_path, tmp_path / "unpacked", out="again")
    assert tree(tmp_path / "out") == tree(tmp_path / "again")


def test_a_single_case_s_folder_packs_as_the_case(tmp_path: Path, root: Path) -> None:
    packed(tmp_path, root)
    path = case_path(identity("test_0[static]"))
    packed(tmp_path, root / path, out="single")
    name = f"cases/{path}.zip"
    assert tree(tmp_path / "single")[name] == tree(tmp_path / "out")[name]


def test_zips_read_like_the_folder(tmp_path: Path, root: Path) -> None:
    packed(tmp_path, root, compression="zstd")
    folder = {case.path: case for case in cases(open_place(root))}
    for case in cases(open_place(tmp_path / "out" / NAME)):
        assert case.manifest == folder[case.path].manifest
        logits = case.expected().value["logits"]
        assert (logits == folder[case.path].expected().value["logits"]).all()
