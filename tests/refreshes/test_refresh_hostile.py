"""What names and manifests of a run cannot do: reach git's own files, end a refresh, or keep the lock from being written."""

from __future__ import annotations

import json
import resource
from pathlib import Path

import pytest
from msgspec import structs

from factories.listed import artifact
from factories.repositories import Repository, golden_path
from factories.worlds import LOCK, NEW, OLD, World, kinds, logs, member, options
from karat.findings import KaratError, Severity
from karat.goldens.provenance import LockEntry, read_lock, write_lock
from karat.refreshes.report import State
from karat.system.command import Command


@pytest.fixture
def world(repository: Repository, tmp_path: Path) -> World:
    return World(repository, tmp_path / "cache")


def told(**identity: str) -> str:
    return json.dumps({"schema": "karat.artifact/1", "identity": {"model": "gpt", **identity}})


@pytest.mark.parametrize(
    "text",
    [
        told(case="x" * 300),
        told(case="é" * 130),
        told(case="x" * 900_000),
        told(case="x", lane="y" * 250),
        told(case="x", platform="dgx_" + "h" * 300),
        told(case="a", owner="z" * 300),
        told(case="x").replace('"identity"', f'"run_id": {"9" * 5000}, "identity"'),
        told(case="x").replace('"identity"', f'"job_id": "{"9" * 5000}", "identity"'),
        told(case="x").replace('"identity"', f'"job": "{"j" * 50_000}", "identity"'),
        told(case="x").replace('"identity"', f'"attempt": {"9" * 100}, "identity"'),
        told(case="x").replace('"identity"', f'"run_id": {"9" * 400}, "identity"'),
        told(case="\ud800"),
    ],
    ids=[
        "case",
        "bytes",
        "huge",
        "together",
        "platform",
        "unused",
        "number",
        "digits",
        "job",
        "attempt",
        "run",
        "half",
    ],
)
def test_a_name_that_no_disk_takes_is_one_finding_and_the_others_are_refreshed(world: World, text: str) -> None:
    long = (artifact("tests"), {member(): NEW, "karat-manifest.json": text})
    result = world.refresh([], [long, (logs("b"), {member(): NEW, "karat-manifest.json": told(case="b")})])
    assert len(kinds(result)) == 1
    assert len(next(f.message for f in result.all_findings())) < 2000
    assert (world.read("a"), world.read("b")) == (OLD, NEW)
    assert list(read_lock(world.repository.root / LOCK)) == ["gpt/b/golden_values_dev_dgx_h100.json"]


SPELLINGS = (".GIT", ".git ", ".git.", ".git::$DATA", "git~1", "GIT~1", ".g\u200cit", "\ufeff.git", ".gi\u202et")


@pytest.mark.parametrize("name", SPELLINGS)
def test_no_spelling_leads_among_git_s_own_files(world: World, name: str) -> None:
    result = world.refresh(
        [], [(artifact("tests"), {member(): NEW, "karat-manifest.json": told(model=name, case="hooks")})]
    )
    assert kinds(result) == ["archive-refused"]
    assert world.status() == []


def test_a_name_that_only_the_target_completes_is_refused_as_well(world: World) -> None:
    settings = structs.replace(options().settings, target="tests/.{model}/{case}_golden.json")
    chosen = structs.replace(options(), settings=settings, globs=("**",))
    result = world.refresh(
        [], [(artifact("tests"), {member(): NEW, "karat-manifest.json": told(model="git", case="x")})], chosen
    )
    assert kinds(result) == ["archive-refused"]
    assert not (world.repository.root / "tests/.git").exists()


def test_a_place_that_cannot_be_written_is_one_finding(world: World) -> None:
    """A file stands where the golden's folder should be."""
    world.repository.write("tests/functional_tests/test_cases/gpt/c", "in the way")
    found = [(logs(case), {member(): NEW, "karat-manifest.json": told(case=case)}) for case in ("a", "b", "c")]
    result = world.refresh([], found)
    assert [(o.path, o.state) for o in result.outcomes if o.state is not State.WRITTEN] == [
        (golden_path("c"), State.REFUSED)
    ]
    assert len(kinds(result)) == 1
    assert len(read_lock(world.repository.root / LOCK)) == 2


@pytest.mark.parametrize("what", ["folder", "link", "dangling"])
def test_a_lock_that_is_no_file_is_told_before_anything_is_written(world: World, what: str) -> None:
    lock = world.repository.root / LOCK
    if what == "folder":
        lock.mkdir()
    else:
        lock.symlink_to(world.repository.write("other", "{}") if what == "link" else "/nonexistent/lock")
    with pytest.raises(KaratError, match="expected a plain file at"):
        world.refresh([], [(logs("b"), {member(): NEW, "karat-manifest.json": told(case="b")})])
    assert world.read("b") == OLD


def test_a_lock_that_cannot_be_written_is_one_finding(world: World) -> None:
    """No file may grow beyond what a golden takes, as on a disk that is full; the lock is longer."""
    lines = {f"gpt/c{n:04}/x.json": LockEntry(source="github", sha256="0" * 64) for n in range(2000)}
    write_lock(world.repository.root / LOCK, lines)
    before, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        result = world.refresh([], [(logs("b"), {member(): NEW, "karat-manifest.json": told(case="b")})])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, hard))
    (finding,) = [f for f in result.all_findings() if f.severity is Severity.FAIL]
    assert (finding.kind, finding.path) == ("not-refreshed", LOCK)
    assert "File too large" in finding.message
    look = Command("ls", "-ld", str((world.repository.root / LOCK).parent))
    assert finding.next == str(look), "the same command would fail the same way"
    assert world.read("b") == NEW
    assert result.locks == ()
    assert read_lock(world.repository.root / LOCK) == lines


@pytest.mark.slow
def test_whatever_ends_a_refresh_the_lock_has_a_line_for_what_was_written(world: World) -> None:
    """Goldens are written some at a time; of the last ones, git has lost the old version."""
    names = [f"c{number:03}" for number in range(70)]
    for name in names:
        world.repository.write(golden_path(name), OLD if name < "c069" else OLD + "\n")
    world.repository.commit()
    lost = world.repository.git("rev-parse", f"HEAD:{golden_path('c069')}").strip()
    (world.repository.root / ".git/objects" / lost[:2] / lost[2:]).unlink()
    found = [(artifact(f"logs-{n}-7-ab12"), {member(): NEW, "karat-manifest.json": told(case=n)}) for n in names]
    with pytest.raises(KaratError):
        world.refresh([], found)
    written = {name for name in names if world.read(name) == NEW}
    assert written
    assert {line.split("/")[1] for line in read_lock(world.repository.root / LOCK)} == written
