"""Folders that are not quite a capture directory: the verbs that read cases say so in the same way."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

from factories.captured import capture, capture_many, identity
from factories.commands import karat
from karat.bundles.cases import cases
from karat.bundles.places import open_place

VERBS = {"verify": (), "pack": ("-o", "packed"), "replay": ("--run", "json:loads")}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def point(path: Path) -> None:
    """What a checkout without Git LFS has in a file's place."""
    data = path.read_bytes()
    oid = hashlib.sha256(data).hexdigest()
    path.write_text(f"version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize {len(data)}\n")


@pytest.mark.parametrize("verb", VERBS)
def test_a_capture_directory_further_down_is_named(verb: str) -> None:
    capture_many(Path("checkout/some golden"), 1)
    Path("checkout/manifest.json").write_text('{"name": "of another program"}')
    done = karat(verb, "checkout", *VERBS[verb], cwd=Path.cwd())
    assert done.code == 2
    told = done.err
    assert "found one further down, at checkout/some golden" in told
    assert f"next: karat {verb} 'checkout/some golden'" in told


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("pattern", ["*.safetensors", "program/*", "manifest.json"])
def test_a_pointer_of_git_lfs_is_named_and_no_damage(verb: str, pattern: str) -> None:
    folder = capture(Path("golden"), identity())
    for path in folder.glob(pattern):
        point(path)
    told = karat(verb, "golden", *VERBS[verb], cwd=Path.cwd())
    assert told.code == 3, told
    assert "found a Git LFS pointer that was not fetched" in told.out
    assert "next: git lfs pull" in told.err
    assert "digest" not in told.out


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["verify", "replay"])
def test_a_zip_that_was_not_fetched_is_named(verb: str) -> None:
    capture_many(Path("golden"), 1)
    assert karat("pack", "golden", "--name", "all", "-q", cwd=Path.cwd()).code == 0
    point(Path("packed/all.zip"))
    told = karat(verb, "packed/all.zip", *VERBS[verb], cwd=Path.cwd())
    assert told.code == 3, told
    assert "found a Git LFS pointer that was not fetched" in told.out + told.err
    assert "next: git lfs pull" in told.err


def test_a_strangers_manifest_is_no_case() -> None:
    capture_many(Path("golden"), 1)
    for where in ("golden", "golden/web"):
        Path(where).mkdir(exist_ok=True)
        Path(where, "manifest.json").write_text('{"name": "of another program"}')
    found = cases(open_place("golden"))
    assert len(found) == 2
    assert all(case.readable and not case.findings for case in found)
    assert karat("replay", "golden", *VERBS["replay"], "--only", "nothing", "-q", cwd=Path.cwd()).code == 3


@pytest.mark.parametrize("damage", [b"", b"{", b'{"schema": "karat.bunele/1", "identity": {}, "comparator": {}}'])
def test_a_damaged_manifest_is_still_a_case(damage: bytes) -> None:
    folder = capture(Path("golden"), identity(), inputs=(), expected=1, program=None)
    Path(folder, "manifest.json").write_bytes(damage)
    (found,) = cases(open_place("golden"))
    assert not found.readable
    assert karat("verify", "golden", "-q", cwd=Path.cwd()).code == 1


@pytest.mark.slow
def test_one_case_and_a_part_of_a_capture_directory_may_be_given() -> None:
    folder = capture(Path("golden"), identity())
    shutil.copytree(folder, "a/b/c/d/e/alone")
    for word in (str(folder), "golden/models", "golden/models/xnnpack", "a/b/c/d/e/alone"):
        assert karat("verify", word, "-q", cwd=Path.cwd()).code == 0
