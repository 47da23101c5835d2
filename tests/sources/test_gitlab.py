"""GitLab: pipelines and what they started, attempts by order, one archive per job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from factories.clocks import Clock
from factories.forge import Forge
from factories.forge_github import EPOCH
from karat.findings import CannotVerify, UsageError
from karat.net.client import Retry
from karat.sources.gitlab import GitLab
from karat.sources.source import Fetched, Listing, Source

DAY = 86400.0


@pytest.fixture
def env(forge: Forge, tmp_path: Path) -> dict[str, str]:
    return {
        "CI_API_V4_URL": forge.gitlab_url,
        "GITLAB_TOKEN": forge.gitlab.token,
        "KARAT_CACHE_DIR": str(tmp_path / "cache"),
    }


def look(
    env: dict[str, str], project: str | None = "group/name", pipeline: int | str = 77, **more: Any
) -> tuple[Listing, dict[str, Fetched]]:
    retry = Retry(sleep=Clock().sleep)
    source = GitLab(project, pipeline, env=env, retry=retry, **more)
    assert isinstance(source, Source)
    try:
        listing = source.listing()
        found = {f.artifact.id: f for f in source.fetch(listing.artifacts, lambda _: True)}
    finally:
        source.close()
    return listing, found


def content(fetched: Fetched, name: str = "g.json") -> bytes:
    return fetched.members[name].read_bytes()


def test_jobs_attempts_and_archives(forge: Forge, env: dict[str, str]) -> None:
    pipeline = forge.gitlab.pipeline("group/name", pipeline_id=77, shuffle=3, status="failed")
    first = pipeline.job("t", status="failed", retried=True, tags=["h100"]).artifact({"g.json": "1"})
    second = pipeline.job("t", status="failed", failure_reason="job_execution_timeout")
    third = pipeline.job("t", tags=["h100"], runner="dgx-1").artifact({"g.json": "3"}, direct=True)
    pipeline.job("lint", stage="check")
    listing, found = look(env)
    jobs = {job.id: job for job in listing.jobs}
    assert [(jobs[str(j.id)].attempt, jobs[str(j.id)].conclusion) for j in (first, second, third)] == [
        (1, "failure"),
        (2, "timed_out"),
        (3, "success"),
    ]
    newest = jobs[str(third.id)]
    assert newest.labels[:2] == ("h100", "dgx-1")
    assert (newest.run_id, newest.stage) == ("77", "test")
    assert newest.completed == newest.started + 600 if newest.started else False
    assert (listing.runs[0].conclusion, listing.repo) == ("failure", "group/name")
    assert {(a.id, a.name, a.job_id, a.attempt) for a in listing.artifacts} == {
        (str(first.id), "t", str(first.id), 1),
        (str(third.id), "t", str(third.id), 3),
    }
    assert content(found[str(first.id)]) == b"1"
    assert content(found[str(third.id)]) == b"3"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "reason", "conclusion"),
    [
        ("success", None, "success"),
        ("failed", "script_failure", "failure"),
        ("failed", "stuck_or_timeout_failure", "timed_out"),
        ("canceled", None, "cancelled"),
        ("skipped", None, "skipped"),
        ("running", None, None),
        ("manual", None, None),
        ("created", None, None),
    ],
)
def test_conclusions_in_githubs_words(
    forge: Forge, env: dict[str, str], status: str, reason: str | None, conclusion: str | None
) -> None:
    pipeline = forge.gitlab.pipeline("group/name", pipeline_id=77)
    pipeline.job("t", status=status, failure_reason=reason)
    listing, _ = look(env)
    assert listing.jobs[0].conclusion == conclusion


@pytest.mark.slow
def test_child_pipelines_of_child_pipelines_in_other_projects(forge: Forge, env: dict[str, str]) -> None:
    deepest = forge.gitlab.pipeline("other/deep")
    deep = deepest.job("t").artifact({"g.json": "deep"})
    child = forge.gitlab.pipeline("group/name", pipeline_id=78, status="running")
    middle = child.job("t").artifact({"g.json": "child"})
    child.bridge("to-deep", deepest)
    pipeline = forge.gitlab.pipeline("group/name", pipeline_id=77)
    top = pipeline.job("t").artifact({"g.json": "top"})
    pipeline.bridge("to-child", child)
    pipeline.bridge("to-child-again", child)
    pipeline.bridge("to-nothing", None, status="failed")
    listing, found = look(env)
    assert {run.id: run.name for run in listing.runs} == {"77": "", "78": "to-child", str(deepest.id): "to-deep"}
    contents = {id_: content(fetched) for id_, fetched in found.items()}
    assert contents == {str(top.id): b"top", str(middle.id): b"child", str(deep.id): b"deep"}
    assert [job.attempt for job in listing.jobs] == [1, 1, 1], "one name in three pipelines"
    messages = [finding.message for finding in listing.findings]
    assert len(messages) == 2
    assert any("pipeline 78 (to-child) has not finished" in text for text in messages)
    assert any("to-nothing" in text for text in messages)
    nexts = sorted((finding.next or "").split()[0] for finding in listing.findings)
    assert nexts == ["glab", "karat"]


def test_a_pipeline_that_two_have_started_is_looked_at_once(forge: Forge, env: dict[str, str]) -> None:
    shared = forge.gitlab.pipeline("group/name", pipeline_id=79)
    shared.job("t")
    middle = forge.gitlab.pipeline("group/name", pipeline_id=78)
    pipeline = forge.gitlab.pipeline("group/name", pipeline_id=77)
    pipeline.bridge("one", shared)
    pipeline.bridge("two", middle)
    middle.bridge("three", shared)
    listing, _ = look(env)
    assert [run.id for run in listing.runs] == ["77", "78", "79"]
    assert len(forge.seen(r"/pipelines/79/jobs")) == 1


def test_a_child_that_may_not_be_seen_is_told(forge: Forge, env: dict[str, str]) -> None:
    child = forge.gitlab.pipeline("secret/name", private=True)
    pipeline = forge.gitlab.pipeline("group/name", pipeline_id=77)
    pipeline.job("t").artifact({"g.json": "1"})
    pipeline.bridge("go", child)
    forge.faults.forbidden(rf"/projects/{child.project.id}/")
    listing, found = look(env)
    (finding,) = listing.findings
    assert (finding.kind, finding.severity) == ("not-refreshed", "fail")
    assert f"pipeline {child.id} (go)" in finding.message
    assert len(found) == 1


@pytest.mark.slow
def test_pages_are_followed(forge: Forge, env: dict[str, str]) -> None:
    pipeline = forge.gitlab.pipeline("group/name", pipeline_id=77, shuffle=1)
    for i in range(230):
        pipeline.job(f"job {i}")
    listing, _ = look(env)
    assert len({job.id for job in listing.jobs}) == 230
    assert len(forge.seen(r"/jobs")) == 3


@pytest.mark.slow
def test_an_archive_that_is_gone_is_expired_and_one_past_its_date_is_tried(forge: Forge, env: dict[str, str]) -> None:
    pipeline = forge.gitlab.pipeline("group/name", pipeline_id=77)
    gone = pipeline.job("gone").artifact({"g.json": "1"}, expired=True)
    kept = pipeline.job("kept").artifact({"g.json": "2"})
    lost = pipeline.job("lost").artifact({"g.json": "3"})
    forge.faults.forbidden(rf"/jobs/{lost.id}/artifacts", status=404, message="404 Not Found")
    listing, found = look(env, clock=lambda: EPOCH + 900 * DAY)
    assert {a.name: a.expired for a in listing.artifacts} == {"gone": True, "kept": False, "lost": False}
    assert content(found[str(kept.id)]) == b"2"
    for job, kind in ((gone, "artifact-expired"), (lost, "artifact-missing")):
        (finding,) = found[str(job.id)].findings
        path = f"projects/group%2Fname/jobs/{job.id}/retry"
        remake = f"glab api --hostname 127.0.0.1 --method POST {path}"
        assert (finding.kind, finding.next) == (kind, remake)
    assert not forge.seen(rf"/jobs/{gone.id}/artifacts")
    _, found = look(env, clock=lambda: EPOCH)
    assert [f.kind for f in found[str(lost.id)].findings] == ["artifact-missing"]


@pytest.mark.slow
@pytest.mark.parametrize("which", ["GITLAB_TOKEN", "RO_API_TOKEN", "CI_JOB_TOKEN"])
def test_tokens_travel_in_their_own_header_and_stay_home(forge: Forge, env: dict[str, str], which: str) -> None:
    pipeline = forge.gitlab.pipeline("group/name", pipeline_id=77)
    pipeline.job("t").artifact({"g.json": "1"})
    token = forge.gitlab.job_token if which == "CI_JOB_TOKEN" else forge.gitlab.token
    plain = {name: value for name, value in env.items() if name != "GITLAB_TOKEN"}
    look({**plain, which: token})
    header = "job-token" if which == "CI_JOB_TOKEN" else "private-token"
    assert {r.headers.get(header) for r in forge.seen(host="api")} == {token}
    for request in forge.seen(host="blob"):
        assert token not in str(request.headers)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["CI_PROJECT_ID", "CI_PROJECT_PATH"])
def test_the_project_may_come_from_the_environment(forge: Forge, env: dict[str, str], name: str) -> None:
    pipeline = forge.gitlab.pipeline("group/sub/name", pipeline_id=77)
    pipeline.job("t")
    value = {"CI_PROJECT_ID": str(pipeline.project.id), "CI_PROJECT_PATH": "group/sub/name"}[name]
    listing, _ = look({**env, name: value}, None)
    assert len(listing.jobs) == 1


@pytest.mark.slow
def test_no_such_pipeline(forge: Forge, env: dict[str, str]) -> None:
    forge.gitlab.project("group/name")
    with pytest.raises(CannotVerify, match="expected pipeline 77 in project group/name"):
        look(env)


@pytest.mark.parametrize("project", ["", "name", "../x", "a/../b", "a b/c", "a/b?x"])
def test_what_is_no_project_is_refused(env: dict[str, str], project: str) -> None:
    with pytest.raises(UsageError, match="--project ID or GROUP/NAME"):
        GitLab(project, 1, env=env)


def test_what_is_no_pipeline_is_refused(env: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="--pipeline-id N"):
        GitLab("a/b", "1/../2", env=env)
