"""`karat refresh` as a user runs it, against a forge on loopback that behaves like the real ones."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from factories.archives import zipped
from factories.commands import Outcome, karat
from factories.forge import Forge
from factories.forge_github import EPOCH, HOUR, GitHubRun
from factories.repositories import Repository, curves, golden_path, golden_text
from karat.goldens.provenance import read_lock

REPO = "owner/name"
LOCK = "tests/functional_tests/test_cases/goldens.lock.json"
OLD, NEW = golden_text(curves(1)), golden_text(curves(2))
H100, GB200 = ["self-hosted", "dgx-h100"], ["self-hosted", "dgx-gb200"]


@pytest.fixture
def tree(repository: Repository) -> Repository:
    for case in ("a", "b", "c", "d"):
        for platform in ("dgx_h100", "dgx_gb200"):
            repository.write(golden_path(case, platform), OLD)
    repository.write("karat.toml", 'preset = "megatron-lm"\n')
    repository.commit()
    return repository


def member(platform: str = "dgx_h100") -> str:
    return f"golden_values_dev_{platform}.json"


class Runner:
    """Runs karat with the forge's addresses and token, and a cache of its own."""

    def __init__(self, forge: Forge, tree: Repository, cache: Path) -> None:
        self.tree = tree
        self.env = {
            "GITHUB_API_URL": forge.github_url,
            "GITHUB_TOKEN": forge.github.token,
            "CI_API_V4_URL": forge.gitlab_url,
            "GITLAB_TOKEN": min(forge.gitlab.tokens),
            "KARAT_CACHE_DIR": str(cache),
        }

    def __call__(self, *words: str, **more: str) -> Outcome:
        return karat("refresh", *words, cwd=self.tree.root, **{**self.env, **more})

    def github(self, run: GitHubRun, *words: str, **more: str) -> Outcome:
        return self("--source", "github", "--repo", REPO, "--run-id", str(run.id), *words, **more)

    def read(self, case: str, platform: str = "dgx_h100") -> str:
        return (self.tree.root / golden_path(case, platform)).read_text()

    def changed(self) -> set[str]:
        listed = self.tree.git("status", "--porcelain", "-z", "-uall").split("\0")
        return {line[3:] for line in listed if line}


@pytest.fixture
def run_karat(forge: Forge, tree: Repository, tmp_path: Path) -> Runner:
    return Runner(forge, tree, tmp_path / "cache")


def during(attempt: int) -> float:
    return EPOCH + attempt * HOUR + 500


@pytest.mark.slow
def test_platforms_attempts_expiry_a_crash_and_junk_at_once(forge: Forge, run_karat: Runner) -> None:
    """The worst ordinary day: only the right files are written, the rest is named, exit 1."""
    run = forge.github.run(REPO, attempts=3, conclusion="failure", shuffle=5)
    values = {n: golden_text(curves(10 + n)) for n in (1, 2, 3)}
    for attempt in (1, 2, 3):  # one name, two platforms, three attempts
        for labels, platform in ((H100, "dgx_h100"), (GB200, "dgx_gb200")):
            run.job("gpt/a - dev", attempt=attempt, conclusion="failure", labels=labels)
            run.artifact(
                f"logs-a-{run.id}-{attempt}{platform[-2:]}0",
                {member(platform): values[attempt]},
                created=during(attempt),
            )
    run.job("gpt/b - dev", conclusion="failure", labels=H100)
    run.artifact(f"logs-b-{run.id}-0b", {member(): NEW}, expired=True)
    run.job("gpt/c - dev", conclusion="failure", labels=H100)
    run.artifact(f"logs-c-{run.id}-0c", {member(): golden_text(curves(2), stop=13)})
    run.job("gpt/d - dev", conclusion="failure", labels=H100)
    run.artifact(
        f"logs-d-{run.id}-0d", {member(): NEW, "golden_values_dev_dgx_h100_2nd.json": NEW, "trace.log": "x" * 9999}
    )
    run.job("lint", conclusion="failure")
    done = run_karat.github(run, "--scope", "only-failing", "--json", "report.json")
    assert done.code == 1, done.err
    assert run_karat.read("a", "dgx_h100") == run_karat.read("a", "dgx_gb200") == values[3]
    assert run_karat.read("d") == NEW
    assert run_karat.read("b") == run_karat.read("c") == OLD
    written = {golden_path("a"), golden_path("a", "dgx_gb200"), golden_path("d"), LOCK}
    assert run_karat.changed() == written | {"report.json"}
    assert "artifact-expired" in done.out
    assert "step 13 of 50" in done.out
    assert "_2nd.json" in done.out
    assert "Total golden values found: 4" in done.out
    report = json.loads((run_karat.tree.root / "report.json").read_text())
    schema = json.loads(karat("schema", "karat.refresh-report/1", cwd=run_karat.tree.root).out)
    jsonschema.validate(report, schema)
    assert report["totals"]["superseded"] == 4
    assert {f["kind"] for f in report["findings"]} == {"artifact-expired", "not-a-golden"}
    lock = read_lock(run_karat.tree.root / LOCK)
    assert {entry.attempt for path, entry in lock.items() if "/a/" in path} == {3}


def simple_run(forge: Forge, *, cases: str = "ab", padding: int = 0) -> GitHubRun:
    run = forge.github.run(REPO, conclusion="failure")
    for case in cases:
        run.job(f"gpt/{case} - dev", conclusion="failure", labels=H100)
        noise = random.Random(case).randbytes(padding)
        run.artifact(f"logs-{case}-{run.id}-0{case}", {member(): NEW, "noise.bin": noise})
    return run


def test_scope_is_never_a_silent_default(forge: Forge, run_karat: Runner) -> None:
    done = run_karat.github(simple_run(forge))
    assert done.code == 2
    assert "--scope only-failing" in done.err
    assert "--scope all" in done.err
    assert run_karat.changed() == set()


@pytest.mark.parametrize("source", [("folder", "results"), ("file:///tmp/results",)])
def test_where_there_are_no_jobs_none_can_have_failed(source: tuple[str, ...], run_karat: Runner) -> None:
    done = run_karat("--source", *source)
    assert done.code == 2
    assert "only-failing" not in done.err
    assert done.err.rstrip().endswith("--scope all")


@pytest.mark.slow
def test_a_repository_that_was_not_named_is_asked_for(run_karat: Runner) -> None:
    done = run_karat("--source", "github", "--run-id", "1", "--scope", "all", GITHUB_REPOSITORY="")
    assert done.code == 2
    assert "expected --repo OWNER/NAME, found none\nnext: " in done.err


@pytest.mark.slow
def test_in_ci_nothing_is_rewritten_unasked(forge: Forge, run_karat: Runner) -> None:
    run = simple_run(forge)
    assert run_karat.github(run, "--scope", "all", CI="true").code == 2
    assert run_karat.changed() == set()
    assert run_karat.github(run, "--scope", "all", "--write", CI="true").code == 0
    assert run_karat.read("a") == NEW


@pytest.mark.slow
def test_ci_set_to_false_is_no_ci(forge: Forge, run_karat: Runner) -> None:
    run = simple_run(forge)
    tried = run_karat.github(run, "--scope", "all", "--dry-run", CI="false")
    assert "--write" not in tried.out
    assert run_karat.github(run, "--scope", "all", CI="false").code == 0
    assert run_karat.read("a") == NEW


@pytest.mark.slow
def test_a_dry_run_writes_nothing_and_names_the_real_command(forge: Forge, run_karat: Runner) -> None:
    done = run_karat.github(simple_run(forge), "--scope", "all", "--dry-run")
    assert done.code == 0
    assert run_karat.changed() == set()
    assert done.out.splitlines()[-1].startswith("next: karat refresh --source github")
    assert "--dry-run" not in done.out.splitlines()[-1]


@pytest.mark.slow
def test_summary_knows_what_was_refreshed(forge: Forge, run_karat: Runner) -> None:
    run = simple_run(forge)
    run_karat.github(run, "--scope", "only-failing")
    text = karat("summary", cwd=run_karat.tree.root).out
    assert f"failing functional tests from GitHub workflow run `{run.id}`" in text


@pytest.mark.slow
def test_a_commit_stands_for_all_its_completed_runs(forge: Forge, run_karat: Runner) -> None:
    sha = "1" * 40
    for case, workflow in (("a", "CI"), ("b", "Nightly")):
        run = forge.github.run(REPO, sha=sha, workflow=workflow, conclusion="failure")
        run.job(f"gpt/{case} - dev", conclusion="failure", labels=H100)
        run.artifact(f"logs-{case}-{run.id}-0a", {member(): NEW})
    forge.github.run(REPO, sha=sha, workflow="Slow", conclusion=None)
    words = ("--source", "github", "--repo", REPO, "--sha", sha, "--scope", "all")
    done = run_karat(*words, "--workflow", "Nightly", "--dry-run")
    assert "Total golden values found: 1" in done.out
    done = run_karat(*words)
    assert done.code == 0, done.err
    assert (run_karat.read("a"), run_karat.read("b")) == (NEW, NEW)
    assert "Slow" in done.out


@pytest.mark.slow
def test_gitlab_with_child_pipelines(forge: Forge, run_karat: Runner) -> None:
    parent = forge.gitlab.pipeline("group/name")
    child = forge.gitlab.pipeline("group/name", source="parent_pipeline")
    parent.bridge("functional:run_dev_dgx_h100", child)
    for case, status in (("a", "failed"), ("b", "success")):
        inside = f"results/iteration=0/0/assets/basic/{case}-dev/{member()}"
        child.job(case, stage="gpt", status=status).artifact({inside: NEW})
    words = ("--source", "gitlab", "--project", "group/name", "--pipeline-id", str(parent.id))
    done = run_karat(*words, "--scope", "only-failing")
    assert done.code == 0, done.err + done.out
    assert run_karat.changed() == {golden_path("a"), LOCK}
    entry = read_lock(run_karat.tree.root / LOCK)["gpt/a/golden_values_dev_dgx_h100.json"]
    assert (entry.source, entry.run, entry.platform) == ("gitlab", str(child.id), "dgx_h100")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (b"<!doctype html><title>Sign in</title>", "artifact-not-zip"),
        (zipped({member(): NEW, "x": b"y" * 9999})[:500], "artifact-truncated"),
        (zipped({member(): NEW, "../../evil": "x"}), "archive-refused"),
        (zipped({member(): "not a golden at all"}), "unreadable"),
    ],
)
def test_what_is_wrong_with_an_artifact_is_its_own_finding(
    forge: Forge, run_karat: Runner, raw: bytes, kind: str
) -> None:
    run = simple_run(forge, cases="a")
    run.job("gpt/b - dev", conclusion="failure", labels=H100)
    run.artifact(f"logs-b-{run.id}-0b", raw=raw)
    done = run_karat.github(run, "--scope", "all", "--keep-going")
    assert done.code in {1, 3}
    assert kind in done.out
    assert run_karat.changed() == {golden_path("a"), LOCK}


@pytest.mark.slow
def test_a_forbidden_artifact_is_told_and_the_rest_is_taken(forge: Forge, run_karat: Runner) -> None:
    run = simple_run(forge, cases="a")
    run.job("gpt/b - dev", conclusion="failure", labels=H100)
    secret = run.artifact(f"logs-b-{run.id}-0b", {member(): NEW})
    forge.faults.forbidden(rf"/actions/artifacts/{secret.id}/zip", times=None)
    done = run_karat.github(run, "--scope", "all")
    assert done.code == 3
    assert "artifact-forbidden" in done.out
    assert run_karat.changed() == {golden_path("a"), LOCK}


@pytest.mark.slow
def test_without_a_network_nothing_is_touched(run_karat: Runner) -> None:
    done = run_karat(
        "--source", "github", "--repo", REPO, "--run-id", "1", "--scope", "all", GITHUB_API_URL="http://127.0.0.1:9"
    )
    assert done.code == 3
    assert "next: " in done.err
    assert run_karat.changed() == set()


@pytest.mark.slow
def test_a_read_only_tree_is_said_to_be_one(forge: Forge, run_karat: Runner) -> None:
    run = simple_run(forge)
    lock = run_karat.tree.root / ".git/karat"
    lock.write_text("in the way")
    done = run_karat.github(run, "--scope", "all")
    assert done.code == 3
    assert "expected to write" in done.err
    assert run_karat.changed() == set()


@pytest.mark.slow
def test_two_at_once_both_succeed(forge: Forge, run_karat: Runner) -> None:
    run = simple_run(forge, cases="abcd", padding=300_000)
    words = [
        sys.executable,
        "-m",
        "karat",
        "refresh",
        "--source",
        "github",
        "--repo",
        REPO,
        "--run-id",
        str(run.id),
        "--scope",
        "all",
    ]
    env = {**{k: v for k, v in os.environ.items() if k != "CI"}, **run_karat.env}
    both = [
        subprocess.Popen(words, cwd=run_karat.tree.root, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    outputs = [p.communicate() for p in both]
    assert [p.returncode for p in both] == [0, 0], outputs
    assert all(run_karat.read(case) == NEW for case in "abcd")
    assert len(read_lock(run_karat.tree.root / LOCK)) == 4


@pytest.mark.slow
def test_nothing_that_arrived_is_fetched_again(forge: Forge, run_karat: Runner) -> None:
    run = simple_run(forge)
    run_karat.github(run, "--scope", "all", "--dry-run")
    before = len(forge.seen(r"/actions-results/"))
    assert before
    run_karat.github(run, "--scope", "all")
    assert len(forge.seen(r"/actions-results/")) == before


def test_a_reset_alone_has_no_report_and_says_so(run_karat: Runner) -> None:
    done = run_karat("--reset", "--json", "-")
    assert done.code == 2
    assert json.loads(done.out)["next"] == "karat refresh --reset"
