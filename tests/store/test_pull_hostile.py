"""Snapshots whose every byte is as its digest says, made by someone who means harm: nothing of them is pulled."""

from __future__ import annotations

import subprocess
from pathlib import Path

import msgspec
import pytest

from factories.stores import case, contents, made, pulled, pushed
from karat.bundles.manifest import encode, read, seal
from karat.store.backends import Backend, StoreProblem
from karat.store.objects import key_of
from karat.store.pull import PullOptions, pull
from karat.store.upload import CaseFiles, compare_with_store, plan_upload, upload

CONFIG = b"[core]\n\trepositoryformatversion = 0\n\tfsmonitor = touch ran; false\n"
REPOSITORY = {"HEAD": b"ref: refs/heads/main\n", "config": CONFIG, "objects/x": b"", "refs/x": b""}


def stored(backend: Backend, some: list[CaseFiles]) -> str:
    """A snapshot with its objects, as a stranger's program may write it; its digest."""
    plan = plan_upload(some, 1)
    upload(backend, plan, compare_with_store(backend, plan.parts(), 1), 1)
    backend.put(key_of(plan.digest), plan.data)
    return plan.digest


def files_of(one: CaseFiles) -> dict[str, bytes]:
    return {path.removeprefix(f"{one.path}/"): data for path, data in contents([one]).items()}


def changed(one: CaseFiles, files: dict[str, bytes]) -> CaseFiles:
    """The case with other files beside its own."""
    return made(one.path, {**files_of(one), **files})


def resealed() -> CaseFiles:
    """A manifest that says another digest of a tensor, and is sealed as if it always had."""
    manifest = read(files_of(case(1))["manifest.json"])
    lied = msgspec.structs.replace(manifest.tensors[0], digest="blake3:" + "0" * 64)
    sealed = seal(msgspec.structs.replace(manifest, tensors=(lied, *manifest.tensors[1:])))
    return changed(case(1), {"manifest.json": encode(sealed)})


HOSTILE = {
    "git": [case(1), made(".git", REPOSITORY)],
    "git-case": [case(1), made("a/.GIT", REPOSITORY)],
    "git-short": [case(1), made("GIT~1", REPOSITORY)],
    "git-hfs": [case(1), made(".g\u200cit", REPOSITORY)],
    "git-ntfs": [case(1), made(".git::$INDEX_ALLOCATION", REPOSITORY)],
    "git-in-case": [changed(case(1), {f".git/{name}": data for name, data in REPOSITORY.items()})],
    "bare-repository": [case(1), made("models", REPOSITORY)],
    "no-manifest": [case(1), made("models/xnnpack/other", {"program/run.sh": b"#!/bin/sh\n"})],
    "more-files": [changed(case(1), {"program/extra.so": b"\x7fELF"})],
    "other-path": [made("models/xnnpack/elsewhere", files_of(case(1)))],
    "unsealed": [changed(case(1), {"manifest.json": b"{}"})],
    "resealed": [resealed()],
    "hooks": [case(1), made(".gitattributes", {"x": b"* filter=evil\n"})],
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_would_not_verify_is_not_pulled(folder: Backend, tmp_path: Path, name: str) -> None:
    digest = stored(folder, HOSTILE[name])
    place = tmp_path / "place"
    place.mkdir()
    with pytest.raises(StoreProblem) as caught:
        pull(folder, digest, place / "golden", PullOptions(workers=2))
    assert caught.value.exit_code == 1
    assert caught.value.finding.kind == "bundle-damaged"
    assert list(place.iterdir()) == [], "nothing is left, hidden or not"
    # Before the first file is written: git looks into half a folder, too.
    assert name.startswith("git") == ("git's own folders" in str(caught.value))


def test_what_is_there_already_is_held_against_the_manifests_as_well(folder: Backend, tmp_path: Path) -> None:
    """A folder that an older karat pulled without looking."""
    digest = stored(folder, HOSTILE["more-files"])
    target = tmp_path / "golden"
    for path, data in contents(HOSTILE["more-files"]).items():
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        (target / path).write_bytes(data)
    record = {"schema": "karat.pulled/1", "store": folder.url, "digest": digest}
    (target / ".karat-pull.json").write_bytes(msgspec.json.encode(record))
    with pytest.raises(StoreProblem, match=r"extra\.so"):
        pull(folder, digest, target, PullOptions())


def test_git_runs_nothing_in_what_was_pulled(folder: Backend, tmp_path: Path) -> None:
    pushed(folder, [case(1)])
    target = tmp_path / "golden"
    assert pulled(folder, "models/nightly", target) == contents([case(1)])
    for inside in (target, *(path for path in target.rglob("*") if path.is_dir())):
        found = subprocess.run(["git", "rev-parse", "--git-dir"], cwd=inside, capture_output=True, check=False)
        assert found.returncode != 0, f"{inside} is a repository"
