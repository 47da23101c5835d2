"""GitHub: what a listing holds, whatever order and pages it comes in."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from factories.clocks import Clock
from factories.forge import Forge
from factories.forge_github import EPOCH, HOUR
from karat.findings import CannotVerify, UsageError
from karat.net.client import Retry
from karat.sources.github import GitHub
from karat.sources.source import Listing, Source

SHA = "5f0d1c2b3a49586776859403f2e1d0c9b8a79685"
OTHER = "0" * 40


@pytest.fixture
def env(forge: Forge, tmp_path: Path) -> dict[str, str]:
    return {
        "GITHUB_API_URL": forge.github_url,
        "GITHUB_TOKEN": forge.github.token,
        "KARAT_CACHE_DIR": str(tmp_path / "cache"),
    }


def listed(env: dict[str, str], repo: str = "owner/name", **more: Any) -> Listing:
    source = GitHub(repo, env=env, retry=Retry(sleep=Clock().sleep), **more)
    try:
        return source.listing()
    finally:
        source.close()


def test_it_is_a_source(env: dict[str, str]) -> None:
    source = GitHub("owner/name", run_id=1, env=env)
    assert isinstance(source, Source)
    source.close()


def test_one_run_with_its_jobs_and_artifacts(forge: Forge, env: dict[str, str]) -> None:
    run = forge.github.run("owner/name", run_id=123, attempts=2, workflow="Nightly")
    first = run.job("test (h100)", attempt=1, conclusion="failure", labels=["self-hosted", "h100"])
    second = run.job("test (h100)", attempt=2, conclusion="success", labels=["h100"], runner="r-7")
    going = run.job("late", attempt=2, conclusion=None)
    made = run.artifact("logs", {"golden.json": b"{}"}, created=EPOCH + 5)
    gone = run.artifact("old", {"golden.json": b"{}"}, expired=True)
    listing = listed(env, run_id="123")
    assert (listing.source, listing.origin, listing.repo) == ("github", "run 123 of owner/name", "owner/name")
    (known,) = listing.runs
    assert (known.id, known.attempt, known.commit, known.name, known.conclusion) == (
        "123",
        2,
        SHA,
        "Nightly",
        "success",
    )
    jobs = {job.id: job for job in listing.jobs}
    assert jobs.keys() == {str(first.id), str(second.id), str(going.id)}
    newest = jobs[str(second.id)]
    assert (newest.name, newest.attempt, newest.conclusion) == ("test (h100)", 2, "success")
    assert newest.labels == ("h100", "r-7", "GitHub Actions")
    assert (newest.started, newest.completed) == (EPOCH + 2 * HOUR, EPOCH + 2 * HOUR + 600)
    assert jobs[str(first.id)].attempt == 1
    assert (jobs[str(going.id)].conclusion, jobs[str(going.id)].completed) == (None, None)
    artifacts = {artifact.id: artifact for artifact in listing.artifacts}
    kept = artifacts[str(made.id)]
    assert (kept.name, kept.run_id, kept.size) == ("logs", "123", len(made.body))
    assert (kept.created, kept.digest, kept.attempt) == (EPOCH + 5, made.digest, None)
    assert [artifacts[str(made.id)].expired, artifacts[str(gone.id)].expired] == [False, True]
    assert listing.findings == ()


@pytest.mark.slow
def test_many_pages_in_any_order_are_one_listing(forge: Forge, env: dict[str, str]) -> None:
    run = forge.github.run("owner/name", run_id=123, attempts=3, shuffle=7)
    for i in range(250):
        run.job(f"job {i}", attempt=1 + i % 3)
    for i in range(120):
        run.artifact(f"a{i}", {})
    listing = listed(env, run_id=123)
    assert {job.name for job in listing.jobs} == {f"job {i}" for i in range(250)}
    assert len(listing.artifacts) == 120
    assert len(forge.seen(r"/jobs")) == 3
    assert listing.jobs == tuple(sorted(listing.jobs, key=lambda job: int(job.id)))


@pytest.mark.slow
def test_a_second_listing_costs_nothing(forge: Forge, env: dict[str, str]) -> None:
    run = forge.github.run("owner/name", run_id=123)
    for i in range(150):
        run.job(f"job {i}")
    first = listed(env, run_id=123)
    before = len(forge.requests)
    assert listed(env, run_id=123) == first
    assert {request.status for request in forge.requests[before:]} == {304}
    run.job("one more")
    assert len(listed(env, run_id=123).jobs) == 151


def test_all_completed_runs_of_a_commit(forge: Forge, env: dict[str, str]) -> None:
    for number, workflow in ((1, "CI"), (2, "Nightly"), (3, "CI")):
        run = forge.github.run("owner/name", run_id=number, workflow=workflow)
        run.job("t")
        run.artifact(f"a{number}", {})
    forge.github.run("owner/name", run_id=4, workflow="Slow", conclusion=None)
    forge.github.run("owner/name", run_id=5, sha=OTHER)
    listing = listed(env, sha=SHA.upper())
    assert [run.id for run in listing.runs] == ["1", "2", "3"]
    assert sorted(artifact.name for artifact in listing.artifacts) == ["a1", "a2", "a3"]
    assert {job.run_id for job in listing.jobs} == {"1", "2", "3"}
    (finding,) = listing.findings
    assert (finding.kind, finding.severity) == ("not-refreshed", "warn")
    assert "run 4 (Slow) has not finished" in finding.message


@pytest.mark.parametrize("how", ["name", "file", "path", "number"])
def test_a_workflow_by_name_file_or_number(forge: Forge, env: dict[str, str], how: str) -> None:
    run = forge.github.run("owner/name", run_id=1, workflow="Nightly Tests")
    forge.github.run("owner/name", run_id=2, workflow="CI")
    workflow = {
        "name": "Nightly Tests",
        "file": "nightly-tests.yml",
        "path": ".github/workflows/nightly-tests.yml",
        "number": str(run.workflow_id),
    }[how]
    assert [known.id for known in listed(env, sha=SHA, workflows=[workflow]).runs] == ["1"]


@pytest.mark.slow
def test_a_commit_without_completed_runs_cannot_be_verified(forge: Forge, env: dict[str, str]) -> None:
    forge.github.run("owner/name", run_id=4, workflow="Slow", conclusion=None)
    with pytest.raises(CannotVerify, match=r"found none; still going: run 4 \(Slow\)"):
        listed(env, sha=SHA)
    with pytest.raises(CannotVerify, match="of workflow Other of commit"):
        listed(env, sha=SHA, workflows=["Other"])
    with pytest.raises(CannotVerify, match="found none"):
        listed(env, sha=OTHER)


@pytest.mark.slow
def test_a_run_that_is_still_going_is_listed_with_a_warning(forge: Forge, env: dict[str, str]) -> None:
    forge.github.run("owner/name", run_id=9, conclusion=None).job("t")
    listing = listed(env, run_id=9)
    assert listing.runs[0].conclusion is None
    assert len(listing.jobs) == 1
    assert "has not finished" in listing.findings[0].message


@pytest.mark.slow
def test_no_such_run_or_no_access(forge: Forge, env: dict[str, str]) -> None:
    forge.github.run("owner/secret", run_id=1, private=True)
    forge.github.repository("owner/name")
    with pytest.raises(CannotVerify, match=r"expected run 404 in owner/name.*GITHUB_TOKEN"):
        listed(env, run_id=404)
    with pytest.raises(CannotVerify, match="or it needs a token"):
        listed({**env, "GITHUB_TOKEN": "", "PATH": ""}, "owner/secret", run_id=1)


@pytest.mark.slow
def test_a_bad_token_is_named(forge: Forge, env: dict[str, str]) -> None:
    forge.github.run("owner/name", run_id=1)
    with pytest.raises(CannotVerify, match="the token from GH_TOKEN") as caught:
        listed({**env, "GITHUB_TOKEN": "", "GH_TOKEN": "ghp_wrongwrongwrong"}, run_id=1)
    assert "ghp_wrong" not in str(caught.value)
    assert caught.value.next_command.startswith("gh auth status --hostname"), "gh does not log in over a variable"


@pytest.mark.slow
def test_trouble_while_listing_passes(forge: Forge, env: dict[str, str]) -> None:
    run = forge.github.run("owner/name", run_id=1)
    for i in range(130):
        run.job(f"job {i}")
    forge.faults.server_error(r"/jobs", times=2)
    forge.faults.too_many_requests(r"/artifacts", retry_after=2)
    forge.faults.rate_limit(r"/runs/1$", reset_in=3)
    forge.faults.cut(r"/jobs.*page=2", after=100, host="api")
    assert len(listed(env, run_id=1).jobs) == 130


def test_a_listing_shorter_than_it_says_is_told(forge: Forge, env: dict[str, str]) -> None:
    run = forge.github.run("owner/name", run_id=1)
    run.job("t")
    body = b'{"total_count": 3, "jobs": [{"id": 5, "name": "t", "status": "completed"}]}'
    from factories.faults import Fault

    forge.faults.add(Fault(pattern="/jobs", status=200, body=body, times=None))
    (finding,) = listed(env, run_id=1).findings
    assert (finding.kind, finding.severity) == ("not-refreshed", "fail")
    assert "expected 3 jobs of run 1 (CI)" in finding.message


@pytest.mark.parametrize("repo", ["name", "a/b/c", "../name", "owner/..", "owner/na me", "owner/name?x=1", "", "o/n#"])
def test_what_is_no_repository_is_refused(env: dict[str, str], repo: str) -> None:
    with pytest.raises(UsageError, match="OWNER/NAME"):
        GitHub(repo, run_id=1, env=env)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({}, "neither"),
        ({"run_id": 1, "sha": SHA}, "both"),
        ({"run_id": "1/../2"}, "number in the run"),
        ({"sha": "main"}, "SHA of a commit"),
        ({"sha": "--x"}, "SHA of a commit"),
    ],
)
def test_what_is_no_run_and_no_commit_is_refused(env: dict[str, str], asked: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        GitHub("owner/name", env=env, **asked)


def test_expired_artifacts_are_not_asked_for(forge: Forge, env: dict[str, str]) -> None:
    run = forge.github.run("owner/name", run_id=1)
    run.artifact("old", {"a": b"1"}, expired=True)
    run.artifact("new", {"a": b"1"})
    source = GitHub("owner/name", run_id=1, env=env)
    artifacts = list(source.listing().artifacts)
    random.Random(3).shuffle(artifacts)
    found = {f.artifact.name: f for f in source.fetch(artifacts, lambda _: True)}
    source.close()
    (finding,) = found["old"].findings
    assert (finding.kind, finding.next) == ("artifact-expired", "gh run list --repo 127.0.0.1/owner/name")
    assert found["new"].members.keys() == {"a"}
    assert len(forge.seen(r"/zip$")) == 1
