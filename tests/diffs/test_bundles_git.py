from __future__ import annotations

import hashlib
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from factories.captured import capture, identity
from factories.repositories import Repository, curves, golden_path, golden_text
from factories.runners import flip
from karat.compare.change import Verdict
from karat.diffs.diff import DiffOptions, diff
from karat.diffs.result import Diff
from karat.findings import ExitCode, exit_code

X = np.random.default_rng(7).standard_normal((6, 5)).astype(np.float32)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "repository")


def put(root: Path, test: str = "test_a", scale: float = 2.0, **changes: Any) -> Path:
    """A captured case, in place of the one that was there."""
    who = identity(test)
    shutil.rmtree(next(root.rglob(f"*_{test}-*"), root / "none"), ignore_errors=True)
    return capture(root, who, **{"inputs": (X,), "expected": (X * np.float32(scale),), **changes})


def verdicts(result: Diff) -> dict[str, Verdict]:
    return {change.path.rpartition("-")[0]: change.verdict for change in result.changes}


def kinds(result: Diff) -> set[str]:
    return {finding.kind for finding in result.all_findings()}


A, B = (f"golden/models/xnnpack/tests_test_models.py_test_{name}" for name in "ab")


def test_committed_cases_are_compared_as_cases(repository: Repository) -> None:
    golden = repository.root / "golden"
    for test in ("test_a", "test_b"):
        put(golden, test)
    first = repository.commit()
    put(golden, "test_a", scale=3.0)
    in_tree = diff(cwd=repository.root)
    assert verdicts(in_tree) == {A: Verdict.BREAK}
    assert in_tree.unchanged == 1
    assert {change.shape for change in in_tree.changes} == {"bundle"}
    repository.commit()
    between = diff(first, "HEAD", cwd=repository.root)
    assert verdicts(between) == {A: Verdict.BREAK}
    assert between.unchanged == 1
    everything = diff(first, "HEAD", cwd=repository.root, options=DiffOptions(everything=True))
    assert verdicts(everything) == {A: Verdict.BREAK, B: Verdict.SAME}
    assert everything.unchanged == 0


def test_cases_that_git_knows_to_be_the_same_are_no_complaint(repository: Repository) -> None:
    put(repository.root / "captured")
    repository.commit()
    result = diff(cwd=repository.root)
    assert (result.changes, result.unchanged, kinds(result)) == ((), 1, set())


def test_cases_come_and_go_in_the_work_tree_with_advice_that_runs(repository: Repository) -> None:
    golden = repository.root / "golden"
    gone = put(golden, "test_a")
    repository.commit()
    shutil.rmtree(gone)
    put(golden, "test_b")
    result = diff(cwd=repository.root)
    assert verdicts(result) == {A: Verdict.REMOVED, B: Verdict.NEW}
    advice = {f.kind: f.next or "" for f in result.all_findings()}
    repository.git(*advice["removed-golden"].split()[1:])
    assert (gone / "manifest.json").exists()
    assert advice["new-golden"].startswith("karat diff --only ")


def test_a_folder_of_the_repository_is_that_folder_of_the_revision(repository: Repository) -> None:
    put(repository.root / "golden")
    repository.commit()
    put(repository.root / "golden", scale=3.0)
    result = diff("HEAD", "golden", cwd=repository.root)
    assert verdicts(result) == {A.removeprefix("golden/"): Verdict.BREAK}


@pytest.mark.parametrize("turned", [False, True])
def test_a_revision_against_a_zip_is_about_cases_alone(
    repository: Repository,
    turned: bool,  # noqa: FBT001
) -> None:
    repository.write(golden_path("gpt"), golden_text(curves(1)))
    put(repository.root / "golden")
    repository.commit()
    with zipfile.ZipFile(repository.root / "nightly.zip", "w") as packed:
        for path in sorted((repository.root / "golden").rglob("*.*")):
            if path.is_file():
                packed.write(path, path.relative_to(repository.root / "golden"))
    sides = ("nightly.zip", "HEAD") if turned else ("HEAD", "nightly.zip")
    result = diff(*sides, cwd=repository.root)
    assert verdicts(result) == {A.removeprefix("golden/"): Verdict.SAME}
    assert kinds(result) == set()


def test_other_goldens_beside_cases_are_compared_as_before(repository: Repository) -> None:
    path = golden_path("gpt")
    repository.write(path, golden_text(curves(1)))
    put(repository.root / "golden")
    repository.commit()
    repository.write(path, golden_text(curves(2)))
    repository.write("golden/golden_values.json", golden_text(curves(1)))
    put(repository.root / "golden", scale=3.0)
    result = diff(cwd=repository.root)
    shapes = {change.path: change.shape for change in result.changes}
    assert shapes.pop(path) == "series"
    assert shapes.pop("golden/golden_values.json") == "series"
    assert [*shapes.values()] == ["bundle"]


@pytest.mark.parametrize("side", ["old", "new", "both"])
def test_damage_that_was_committed_is_never_the_same(repository: Repository, side: str) -> None:
    folder = put(repository.root / "golden")
    if side != "new":
        flip(folder / "expected.safetensors")
    first = repository.commit()
    if side != "both":
        flip(folder / "expected.safetensors")
    repository.commit()
    result = diff(first, "HEAD", cwd=repository.root, options=DiffOptions(everything=True))
    assert verdicts(result) == {A: Verdict.UNREADABLE}
    assert exit_code(result.all_findings()) is ExitCode.FAIL


def test_a_manifest_that_says_nothing_any_more_is_still_a_case(repository: Repository) -> None:
    folder = put(repository.root / "golden")
    repository.commit()
    (folder / "manifest.json").write_text("{}", encoding="utf-8")
    assert verdicts(diff(cwd=repository.root)) == {A: Verdict.UNREADABLE}


def pointers(root: Path, pattern: str, fetched: Path | None = None) -> None:
    """What `git lfs track PATTERN` leaves in a checkout without its objects."""
    for path in [p for p in root.rglob(pattern) if p.is_file()]:
        data = path.read_bytes()
        oid = hashlib.sha256(data).hexdigest()
        if fetched is not None:
            there = fetched / oid[:2] / oid[2:4] / oid
            there.parent.mkdir(parents=True, exist_ok=True)
            there.write_bytes(data)
        path.write_text(
            f"version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize {len(data)}\n", encoding="utf-8"
        )


@pytest.mark.parametrize("pattern", ["*.safetensors", "manifest.json", "*"])
def test_a_pointer_of_git_lfs_is_named_and_no_damage(repository: Repository, pattern: str) -> None:
    golden = repository.root / "golden"
    put(golden)
    pointers(golden, pattern)
    repository.commit()
    put(golden)
    for sides in ((), ("HEAD", "golden")):
        result = diff(*sides, cwd=repository.root)
        (finding,) = result.all_findings()
        assert finding.kind == "cannot-read"
        assert "Git LFS pointer" in finding.message
        assert (finding.next or "").startswith("git lfs fetch")
        assert exit_code([finding]) is ExitCode.CANNOT_VERIFY


@pytest.mark.parametrize("pattern", ["*.safetensors", "*"])
def test_what_git_lfs_has_fetched_is_compared(repository: Repository, pattern: str) -> None:
    golden = repository.root / "golden"
    put(golden)
    pointers(golden, pattern, repository.root / ".git/lfs/objects")
    repository.commit()
    put(golden, scale=3.0)
    assert verdicts(diff(cwd=repository.root)) == {A: Verdict.BREAK}
    pointers(golden, pattern, repository.root / ".git/lfs/objects")
    assert verdicts(diff(cwd=repository.root)) == {A: Verdict.BREAK}


def test_what_git_lfs_has_fetched_by_halves_is_not_taken(repository: Repository) -> None:
    golden, objects = repository.root / "golden", repository.root / ".git/lfs/objects"
    put(golden)
    pointers(golden, "*.safetensors", objects)
    repository.commit()
    put(golden)
    for path in [p for p in objects.rglob("*") if p.is_file()]:
        path.write_bytes(path.read_bytes()[:-1])
    assert kinds(diff(cwd=repository.root)) == {"cannot-read"}


def test_a_program_that_is_called_a_manifest_is_no_case_of_its_own(repository: Repository) -> None:
    text = (put(repository.root / "other") / "manifest.json").read_bytes()
    golden = repository.root / "golden"
    put(golden, program=text, program_name="manifest.json")
    shutil.rmtree(repository.root / "other")
    repository.commit()
    put(golden, scale=3.0, program=text, program_name="manifest.json")
    result = diff(cwd=repository.root)
    assert (verdicts(result), result.unchanged) == ({A: Verdict.BREAK}, 0)


@pytest.mark.slow
def test_large_blobs_are_compared(repository: Repository) -> None:
    wide = np.arange(700_000, dtype=np.float32)
    golden = repository.root / "golden"
    several = (wide, wide + 1)
    put(golden, "test_a", inputs=(wide,), expected=several, program=bytes(3 << 20))
    put(golden, "test_b", inputs=(wide,), expected=(wide,))
    first = repository.commit()
    put(golden, "test_a", inputs=(wide,), expected=(wide, wide + 2), program=bytes(3 << 20))
    put(golden, "test_b", inputs=(wide,), expected=(wide * 2,))
    repository.commit()
    result = diff(first, "HEAD", cwd=repository.root)
    assert verdicts(result) == {A: Verdict.BREAK, B: Verdict.BREAK}
    rows = {row.metric: row.verdict for change in result.changes for row in change.metrics}
    assert rows["expected/1"] is Verdict.BREAK
    assert rows["input/0"] is Verdict.SAME


def test_an_object_that_git_does_not_have_is_cannot_verify(repository: Repository) -> None:
    folder = put(repository.root / "golden")
    repository.commit()
    name = (folder / "expected.safetensors").relative_to(repository.root)
    oid = repository.git("rev-parse", f"HEAD:{name}").strip()
    put(repository.root / "golden", scale=3.0)
    (repository.root / ".git/objects" / oid[:2] / oid[2:]).unlink()
    result = diff(cwd=repository.root)
    assert kinds(result) == {"cannot-read"}
    assert exit_code(result.all_findings()) is ExitCode.CANNOT_VERIFY


def test_exclusions_hold_for_cases_too(repository: Repository) -> None:
    put(repository.root / "golden")
    put(repository.root / "fixtures")
    repository.commit()
    for name in ("golden", "fixtures"):
        put(repository.root / name, scale=3.0)
    result = diff(cwd=repository.root, options=DiffOptions(exclude=("fixtures/**",)))
    assert verdicts(result) == {A: Verdict.BREAK}
    assert len(diff(cwd=repository.root).changes) == 2


def test_what_a_session_has_not_published_is_no_case(repository: Repository) -> None:
    put(repository.root / "golden")
    repository.commit()
    put(repository.root / "golden/.karat-staging")
    result = diff(cwd=repository.root)
    assert (result.changes, result.unchanged) == ((), 1)


def test_a_capture_directory_may_lie_anywhere_in_a_folder(tmp_path: Path) -> None:
    for side, scale in (("old", 2.0), ("new", 3.0)):
        put(tmp_path / side / "one/golden", "test_a", scale=scale)
        put(tmp_path / side / "two", "test_a")
        (tmp_path / side / "web").mkdir()
        (tmp_path / side / "web/manifest.json").write_text('{"name": "app"}', encoding="utf-8")
    result = diff("old", "new", cwd=tmp_path)
    bundles = {c.path.rpartition("-")[0]: c.verdict for c in result.changes if c.shape == "bundle"}
    assert bundles == {f"one/{A}": Verdict.BREAK, A.replace("golden", "two", 1): Verdict.SAME}
    assert kinds(result) == {"tensor-mismatch", "taken-by-extension"}


def test_a_strangers_manifest_at_the_root_hides_no_case(tmp_path: Path) -> None:
    for side in ("old", "new"):
        put(tmp_path / side)
        (tmp_path / side / "manifest.json").write_text('{"name": "app"}', encoding="utf-8")
    bundles = [c for c in diff("old", "new", cwd=tmp_path).changes if c.shape == "bundle"]
    assert [c.verdict for c in bundles] == [Verdict.SAME]


def test_two_folders_that_are_a_case_each_are_compared_whatever_they_are_called(tmp_path: Path) -> None:
    one, two = put(tmp_path / "old", "test_a"), put(tmp_path / "new", "test_b", scale=3.0)
    assert [c.verdict for c in diff(str(one), str(two)).changes] == [Verdict.BREAK]
    flip(two / "manifest.json")
    assert [c.verdict for c in diff(str(one), str(two)).changes] == [Verdict.UNREADABLE]
