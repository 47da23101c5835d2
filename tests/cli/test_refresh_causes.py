"""One cause is one finding, and what is advised helps in the state it is given in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from factories.archives import zipped
from factories.commands import Outcome, karat_here
from factories.forge import Forge
from factories.forge_github import GitHubRun
from factories.repositories import Repository, curves, golden_path, golden_text

OLD, NEW = golden_text(curves(1)), golden_text(curves(2))
MEMBER = "golden_values_dev_dgx_h100.json"
REPO = "owner/name"
CASES = [f"case{n:02}" for n in range(12)]


@pytest.fixture
def tree(repository: Repository) -> Repository:
    repository.write("karat.toml", 'preset = "megatron-lm"\n')
    for case in CASES:
        repository.write(golden_path(case), OLD)
    repository.commit()
    return repository


@pytest.fixture
def run(forge: Forge) -> GitHubRun:
    return forge.github.run(REPO, conclusion="failure")


def left(run: GitHubRun, *cases: str, raw: bytes | None = None, expired: bool = False) -> None:
    for case in cases:
        run.job(f"gpt/{case} - dev", conclusion="failure", labels=["dgx-h100"])
        run.artifact(f"logs-{case}-{run.id}-0a", {MEMBER: NEW}, raw=raw, expired=expired)


def refresh(forge: Forge, run: GitHubRun, tree: Repository, *words: str, **env: str) -> Outcome:
    where = ("--source", "github", "--repo", REPO, "--run-id", str(run.id), "--scope", "all")
    known = {"GITHUB_API_URL": forge.github_url, "GITHUB_TOKEN": forge.github.token, "GH_TOKEN": ""}
    cache = str(tree.root.parent / "cache")
    return karat_here("refresh", *where, *words, cwd=tree.root, KARAT_CACHE_DIR=cache, **{**known, **env})


def found(forge: Forge, run: GitHubRun, tree: Repository, **env: str) -> list[dict[str, Any]]:
    report: dict[str, Any] = json.loads(refresh(forge, run, tree, "--json", "-", **env).out)
    return [f for f in report["findings"] if f["severity"] == "fail"]


def test_no_token_is_one_line(forge: Forge, run: GitHubRun, tree: Repository) -> None:
    left(run, *CASES)
    (finding,) = found(forge, run, tree, GITHUB_TOKEN="")
    assert finding["kind"] == "artifact-forbidden"
    assert "12 artifacts" in finding["message"]
    assert "without a token" in finding["message"]
    assert finding["next"].startswith("gh auth login")
    assert finding["numbers"]["artifacts"] == 12
    assert "12 not refreshed" in refresh(forge, run, tree, GITHUB_TOKEN="").out
    assert all(case in finding["numbers"]["names"] for case in CASES), "the report still lists each of them"


def test_expired_artifacts_are_one_line_and_a_newer_run_is_looked_for(
    forge: Forge, run: GitHubRun, tree: Repository
) -> None:
    """A run of last month cannot be run again, and no transfer was tried: what did not expire is taken."""
    left(run, *CASES[:9], expired=True)
    left(run, *CASES[9:])
    (finding,) = found(forge, run, tree)
    assert (finding["kind"], finding["numbers"]["artifacts"]) == ("artifact-expired", 9)
    assert finding["next"].startswith("gh run list --repo ")
    assert (tree.root / golden_path(CASES[11])).read_text() == NEW


def test_jobs_that_left_nothing_are_one_line(forge: Forge, run: GitHubRun, tree: Repository) -> None:
    for case in CASES:
        run.job(f"gpt/{case} - dev", conclusion="failure", labels=["dgx-h100"])
    (finding,) = found(forge, run, tree)
    assert finding["kind"] == "artifact-missing"
    assert "12 jobs" in finding["message"]
    assert finding["next"] == f"gh run rerun {run.id} --failed --repo 127.0.0.1/{REPO}"


def test_two_causes_are_two_lines(forge: Forge, run: GitHubRun, tree: Repository) -> None:
    left(run, *CASES[:3], expired=True)
    left(run, *CASES[3:6], raw=b"<!doctype html>")
    assert [f["kind"] for f in found(forge, run, tree)] == ["artifact-expired", "artifact-not-zip"]


WHOLE = zipped({MEMBER: NEW, "model.bin": b"y" * 9999})
BAD = {
    "cut short": WHOLE[:500],
    "empty": b"",
    "damaged": zipped({MEMBER: NEW}, compress=False).replace(b"lm loss", b"LM LOSS"),
}


@pytest.mark.parametrize("raw", BAD.values(), ids=list(BAD))
def test_an_archive_that_is_bad_on_the_server_blocks_no_other(
    forge: Forge, run: GitHubRun, tree: Repository, raw: bytes
) -> None:
    left(run, *CASES[:2])
    left(run, CASES[2], raw=raw)
    done = refresh(forge, run, tree)
    assert done.code == 3, done.out
    assert (tree.root / golden_path(CASES[0])).read_text() == NEW
    assert (tree.root / golden_path(CASES[2])).read_text() == OLD
    assert "run the same command again" not in done.out
    assert f"next: gh run rerun {run.id} --repo 127.0.0.1/{REPO}" in done.out


def test_bytes_that_another_try_mends_are_asked_for_again(forge: Forge, run: GitHubRun, tree: Repository) -> None:
    """Whole by its length, but not what the digest says: a proxy may have had a hand in it."""
    left(run, CASES[0])
    forge.faults.truncate(rf"logs-{CASES[0]}", keep=60, times=1)
    done = refresh(forge, run, tree)
    assert (done.code, (tree.root / golden_path(CASES[0])).read_text()) == (0, NEW), done.out


def test_a_run_that_is_not_over_is_watched_not_run_again(forge: Forge, tree: Repository) -> None:
    run = forge.github.run(REPO, conclusion=None)
    run.job(f"gpt/{CASES[0]} - dev", conclusion="failure", labels=["dgx-h100"])
    (finding,) = found(forge, run, tree)
    assert finding["next"] == f"gh run watch {run.id} --repo 127.0.0.1/{REPO}"


def test_on_gitlab_nobody_is_sent_to_github(forge: Forge, tree: Repository, tmp_path: Path) -> None:
    parent = forge.gitlab.pipeline("group/name")
    child = forge.gitlab.pipeline("group/name", source="parent_pipeline")
    parent.bridge("functional:run_dev_dgx_h100", child)
    job = child.job(CASES[0], stage="gpt", status="failed")
    died = child.job(CASES[1], stage="gpt", status="failed")
    died.artifact({MEMBER: golden_text(curves(2), stop=13)})
    words = ("--source", "gitlab", "--project", "group/name", "--pipeline-id", str(parent.id), "--scope", "all")
    env = {"CI_API_V4_URL": forge.gitlab_url, "GITLAB_TOKEN": min(forge.gitlab.tokens)}
    done = karat_here("refresh", *words, cwd=tree.root, KARAT_CACHE_DIR=str(tmp_path / "cache"), **env)
    assert done.code == 1
    assert "next: gh " not in done.out
    for one in (job, died):
        assert f"jobs/{one.id}/retry" in done.out
