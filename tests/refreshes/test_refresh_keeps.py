"""What a refresh must not lose: other metrics, other people's edits, other goldens, the old side."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from factories.commands import karat
from factories.listed import job
from factories.repositories import Repository, curves, golden_path, golden_text
from factories.worlds import H100, LOCK, NEW, OLD, World, kinds, logs, member, options
from karat.findings import CannotVerify, ExitCode, Severity
from karat.goldens.paths import PathFilter
from karat.goldens.provenance import read_lock
from karat.refreshes.report import RefreshReport, State
from karat.refreshes.worktree import list_goldens

JOBS = [job("gpt/a - dev", labels=H100)]


@pytest.fixture
def world(repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.chdir(repository.root)
    return World(repository, tmp_path / "cache")


def taken(world: World, text: str = NEW, **more: object) -> RefreshReport:
    return world.refresh(JOBS, [(logs("a"), {member(): text})], options(**more))  # type: ignore[arg-type]


def have_back(result: RefreshReport) -> None:
    """Run the command that the report names, as a person would paste it."""
    (kept,) = [f for f in result.all_findings() if f.kind == "kept-edits"]
    assert kept.next is not None
    subprocess.run(["bash", "-c", kept.next], check=True)


def test_one_metric_after_another_adds_up(world: World) -> None:
    taken(world, metrics=("lm loss",))
    taken(world, metrics=("num-zeros",))
    old, new, got = (json.loads(t) for t in (OLD, NEW, world.read("a")))
    assert got == {**old, "lm loss": new["lm loss"], "num-zeros": new["num-zeros"]}
    entry = read_lock(world.repository.root / LOCK)["gpt/a/golden_values_dev_dgx_h100.json"]
    assert set(entry.metrics) == {"lm loss", "num-zeros"}


def test_one_metric_leaves_an_edit_of_another_alone(world: World) -> None:
    edited = json.loads(OLD)
    edited["num-zeros"]["values"]["7"] = 1.0
    world.repository.write(golden_path("a"), json.dumps(edited, indent=2) + "\n")
    result = taken(world, metrics=("lm loss",))
    expected = {**edited, "lm loss": json.loads(NEW)["lm loss"]}
    assert world.read("a") == json.dumps(expected, indent=2) + "\n"
    assert "kept-edits" in kinds(result, Severity.WARN)


def test_one_metric_goes_into_head_s_version_where_the_work_tree_s_is_a_wreck(world: World) -> None:
    world.repository.write(golden_path("a"), "<<<<<<< HEAD\n")
    taken(world, metrics=("lm loss",))
    old, new = json.loads(OLD), json.loads(NEW)
    assert json.loads(world.read("a")) == {**old, "lm loss": new["lm loss"]}


@pytest.mark.parametrize("staged", [False, True])
def test_a_golden_that_was_never_committed_is_given_to_git_before_it_is_replaced(world: World, *, staged: bool) -> None:
    mine = golden_text(curves(9))
    world.repository.git("rm", "--quiet", "--cached", golden_path("a"))
    world.repository.git("commit", "--quiet", "--message=not yet")
    world.repository.write(golden_path("a"), mine)
    if staged:
        world.repository.git("add", golden_path("a"))
    dry = taken(world, dry_run=True)
    assert "kept-edits" in kinds(dry, Severity.WARN)
    assert world.read("a") == mine
    result = taken(world)
    assert world.read("a") == NEW
    have_back(result)
    assert world.read("a") == mine


def test_an_edit_comes_back_to_its_place_also_from_below_the_root(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(world.repository.root / "tests")
    mine = golden_text(curves(9))
    world.repository.write(golden_path("a"), mine)
    have_back(taken(world))
    assert world.read("a") == mine


def test_line_endings_of_the_checkout_are_nobody_s_edit_and_stay(world: World) -> None:
    world.repository.git("config", "core.autocrlf", "true")
    (world.repository.root / golden_path("a")).unlink()
    world.repository.git("checkout", "--quiet", "--", golden_path("a"))
    windows = OLD.replace("\n", "\r\n").encode()
    assert (world.repository.root / golden_path("a")).read_bytes() == windows
    result = taken(world, OLD)
    assert [o.state for o in result.outcomes] == [State.UNCHANGED]
    result = taken(world)
    assert "kept-edits" not in kinds(result, Severity.WARN)
    written = (world.repository.root / golden_path("a")).read_bytes()
    assert written == NEW.replace("\n", "\r\n").encode()


def test_goldens_behind_a_filter_are_judged_by_what_is_checked_out(world: World) -> None:
    """As Git LFS does it: the repository holds something else than the work tree."""
    world.repository.git("config", "filter.hidden.clean", "base64 -w0")
    world.repository.git("config", "filter.hidden.smudge", "base64 -d")
    world.repository.write(".gitattributes", "*.json filter=hidden\n")
    world.repository.git("add", "--renormalize", ".")
    world.repository.commit()
    assert "lm loss" not in world.repository.git("show", f"HEAD:{golden_path('a')}")
    spoilt = json.loads(NEW)
    del spoilt["num-zeros"]
    result = taken(world, json.dumps(spoilt))
    assert kinds(result) == ["lost-metric"]
    result = taken(world, golden_text(curves(2), indent=None))
    assert world.read("a") == NEW
    assert kinds(result, Severity.WARN) == ["value-drift"]


def test_an_old_side_that_git_has_lost_is_not_a_new_golden(world: World) -> None:
    spoilt = json.dumps({"lm loss": json.loads(NEW)["lm loss"]})
    for what in (f"HEAD:{golden_path('a')}", "HEAD:tests"):
        oid = world.repository.git("rev-parse", what).strip()
        (world.repository.root / f".git/objects/{oid[:2]}/{oid[2:]}").unlink()
        with pytest.raises(CannotVerify):
            taken(world, spoilt)
        assert world.read("a") == OLD


def test_without_a_first_commit_everything_is_new(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "young")
    world = World(repository, tmp_path / "cache")
    repository.git("update-ref", "-d", "HEAD")
    (repository.root / golden_path("a")).unlink()
    result = taken(world)
    assert [o.state for o in result.outcomes] == [State.WRITTEN]


def test_a_newline_in_a_golden_s_path_is_no_hindrance(world: World) -> None:
    name = "tests/golden\nvalues/golden_values.json"
    world.repository.write(name, OLD)
    world.repository.commit()
    standing = list_goldens(world.repository.root, PathFilter(("**/golden_values*.json",)))
    both = standing.old_bytes([name, golden_path("a")])
    assert both == [OLD.encode(), OLD.encode()]


def test_a_golden_that_is_a_link_does_not_keep_the_others_from_being_refreshed(world: World) -> None:
    link = world.repository.root / golden_path("a")
    link.unlink()
    link.symlink_to("elsewhere")
    jobs = [*JOBS, job("gpt/b - dev", labels=H100)]
    result = world.refresh(jobs, [(logs("a"), {member(): NEW}), (logs("b"), {member(): NEW})])
    assert [o.state for o in result.outcomes] == [State.REFUSED, State.WRITTEN]
    assert kinds(result) == ["not-refreshed"]
    assert world.read("b") == NEW
    assert list(read_lock(world.repository.root / LOCK)) == ["gpt/b/golden_values_dev_dgx_h100.json"]


@pytest.mark.parametrize(
    "words", [("--source", "folder"), ("--source", "folder", "x"), ("x",), ("--source", "floder", "x")]
)
def test_a_mistake_in_the_words_resets_nothing(world: World, words: tuple[str, ...]) -> None:
    world.repository.write(golden_path("a"), NEW)
    done = karat("refresh", "--reset", *words, cwd=world.repository.root)
    assert done.code == 2
    assert world.read("a") == NEW


def test_a_lock_that_cannot_be_read_is_known_before_anything_is_written(world: World) -> None:
    world.repository.write(LOCK, "<<<<<<< HEAD\n")
    opts = options()
    globs = ("tests/functional_tests/test_cases/gpt/a/*.json", *opts.globs)
    jobs = [*JOBS, job("gpt/b - dev", labels=H100)]
    found = [(logs("a"), {member(): NEW}), (logs("b"), {member(): NEW})]
    with pytest.raises(CannotVerify, match="merge-conflict markers"):
        world.refresh(jobs, found, msgspec.structs.replace(opts, globs=globs))
    assert (world.read("a"), world.read("b")) == (OLD, OLD)


@pytest.mark.slow
@pytest.mark.parametrize("committed", [True, False])
def test_a_golden_that_cannot_be_read_is_not_overwritten(world: World, tmp_path: Path, *, committed: bool) -> None:
    """An uncommitted version that nobody may read is not "not there"."""
    if not committed:
        world.repository.git("rm", "--quiet", "--cached", golden_path("a"))
        world.repository.commit()
    own = golden_text(curves(3))
    golden = world.repository.root / golden_path("a")
    golden.write_text(own)
    golden.chmod(0o200)
    for case in ("a", "b"):
        incoming = tmp_path / "results" / golden_path(case)
        incoming.parent.mkdir(parents=True)
        incoming.write_text(NEW)
    # Root may read everything, unless it gives that up.
    no_override = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
    done = subprocess.run(
        [
            *(no_override if os.geteuid() == 0 else []),
            *(sys.executable, "-m", "karat", "refresh", "--write", "--scope", "all"),
            *("--source", "folder", str(tmp_path / "results")),
        ],
        cwd=world.repository.root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert golden.stat().st_mode & 0o777 == 0o200
    golden.chmod(0o600)
    assert golden.read_text() == own
    assert world.read("b") == NEW, "the others are refreshed"
    assert done.returncode == ExitCode.CANNOT_VERIFY, done.stdout + done.stderr
    assert "Permission denied" in done.stdout
    assert done.stderr.splitlines()[-1] == f"next: ls -ld {shlex.quote(str(golden))}"
