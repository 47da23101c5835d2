"""The forge against GitHub's own OpenAPI description: the double cannot drift from the interface."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from conftest import missing
from factories.forge import Forge
from factories.forge_github import GitHubRun
from factories.openapi import Description, Unavailable, fetch, translated
from karat.sources.github import GitHub

REPO = "octo/goldens"
CACHE = Path(__file__).parents[2] / "build" / "openapi"


@pytest.fixture(scope="session")
def description() -> Description:
    """GitHub's description of its REST API."""
    try:
        return Description(fetch(CACHE))
    except Unavailable as reason:
        missing(str(reason))


@pytest.fixture
def run(forge: Forge) -> GitHubRun:
    """Runs, jobs and artifacts in every state that karat looks at."""
    run = forge.github.run(REPO, run_id=1, attempts=3, conclusion="failure", shuffle=3)
    states = ["success", "failure", "neutral", "cancelled", "skipped", "timed_out", None]
    for attempt in (1, 2, 3):
        for state in states:
            run.job(f"job {state}", attempt=attempt, conclusion=state, labels=["h100", "x64"])
    run.job("waiting", attempt=3, conclusion=None, status="queued", runner=None, group=None)
    run.artifact("logs", {"a.json": b"{}"})
    run.artifact("undigested", {"a.json": b"{}"}, digest=False)
    run.artifact("expired", {"a.json": b"{}"}, expired=True)
    forge.github.run(REPO, run_id=2, conclusion=None, workflow="Nightly", private=True)
    forge.github.run(REPO, run_id=3, conclusion=None, status="queued")
    return run


@pytest.fixture
def client(forge: Forge) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {forge.github.token}"}
    with httpx.Client(base_url=forge.github_url, headers=headers) as client:
        yield client


def places(run: GitHubRun) -> list[str]:
    """Every endpoint of the forge that answers with JSON, and its variants."""
    actions = [
        "/runs",
        f"/runs?head_sha={run.sha}&status=completed&per_page=100&page=1",
        "/runs?status=failure&branch=main&event=push",
        f"/workflows/{run.workflow_id}/runs",
        f"/workflows/{run.workflow_file}/runs?per_page=1&page=2",
        *(f"/runs/{number}" for number in (1, 2, 3)),
        *(f"/runs/1/attempts/{number}" for number in (1, 2, 3)),
        "/runs/1/jobs",
        "/runs/1/jobs?filter=all&per_page=5&page=2",
        "/runs/1/jobs?filter=latest",
        *(f"/runs/1/attempts/{number}/jobs" for number in (1, 2, 3)),
        "/runs/1/artifacts",
        "/runs/1/artifacts?name=logs&per_page=1",
        *(f"/jobs/{job.id}" for job in run.jobs),
        *(f"/artifacts/{artifact.id}" for artifact in run.artifacts),
    ]
    return [f"/commits/{run.sha[:9]}", *(f"/actions{place}" for place in actions)]


@pytest.mark.slow
def test_every_answer_is_as_described(description: Description, run: GitHubRun, client: httpx.Client) -> None:
    for place in places(run):
        answer = client.get(f"/repos/{REPO}{place}")
        path, query = answer.url.path, dict(answer.url.params)
        assert description.faults_of_request(path, query) == [], place
        assert description.faults_of_answer(path, answer.status_code, answer.json()) == [], place
        if answer.links:
            assert answer.headers["link"].startswith("<http")


@pytest.mark.slow
@pytest.mark.parametrize("by", ["run", "sha"])
def test_karat_asks_for_nothing_that_is_not_described(
    description: Description, forge: Forge, run: GitHubRun, tmp_path: Path, by: str
) -> None:
    environment = {
        "GITHUB_API_URL": forge.github_url,
        "GITHUB_TOKEN": forge.github.token,
        "KARAT_CACHE_DIR": str(tmp_path),
    }
    asked: dict[str, Any] = {"run_id": run.id} if by == "run" else {"sha": run.sha[:9]}
    for number in range(120):
        run.artifact(f"more-{number}", {"a.json": b"{}"})
    source = GitHub(REPO, env=environment, **asked)
    try:
        listing = source.listing()
        list(source.fetch(listing.artifacts[:3], lambda _: True))
    finally:
        source.close()
    requests = forge.seen(host="api")
    assert len(listing.artifacts) == 123
    assert any(request.path.endswith("/zip") for request in requests)
    for request in requests:
        path = request.path.replace(f"/repositories/{run.repository.id}/", f"/repos/{REPO}/")
        assert description.faults_of_request(path, request.query) == [], request.target


@pytest.mark.slow
def test_downloads_and_errors_are_as_described(
    description: Description, forge: Forge, run: GitHubRun, client: httpx.Client
) -> None:
    logs, _, expired = run.artifacts
    zips = f"/repos/{REPO}/actions/artifacts"
    assert description.template(f"{zips}/{logs.id}/zip").endswith("/{archive_format}")
    assert client.get(f"{zips}/{logs.id}/zip").headers["location"].startswith(forge.blobs.host.url)
    gone = client.get(f"{zips}/{expired.id}/zip")
    assert description.faults_of_answer(gone.url.path, 410, gone.json()) == []
    unknown = client.get(f"/repos/{REPO}/actions/runs/1/attempts/9/jobs")
    assert description.faults_of_answer(unknown.url.path, 404, unknown.json()) == []
    no_commit = client.get(f"/repos/{REPO}/commits/0000000")
    # The description of 422 lacks `status`, which GitHub sends with every error.
    assert (no_commit.status_code, description.faults_of_error(no_commit.json())) == (422, [])
    wrong = client.get(f"/repos/{REPO}/actions/runs/1", headers={"Authorization": "Bearer no"})
    assert (wrong.status_code, description.faults_of_error(wrong.json())) == (401, [])
    forge.faults.rate_limit("/runs/1")
    limited = client.get(f"/repos/{REPO}/actions/runs/1")
    assert (limited.status_code, description.faults_of_error(limited.json())) == (403, [])


def test_a_body_that_departs_is_noticed(description: Description, run: GitHubRun, client: httpx.Client) -> None:
    path = f"/repos/{REPO}/actions/runs/{run.id}/artifacts"
    body: Any = client.get(path).json()
    first = body["artifacts"][0]
    for spoiled in (
        {key: value for key, value in first.items() if key != "expires_at"},
        first | {"id": "7"},
        first | {"id": None},
        first | {"created_at": "yesterday"},
        first | {"invented": 1},
        first | {"workflow_run": {"id": "seven"}},
    ):
        assert description.faults_of_answer(path, 200, {"total_count": 1, "artifacts": [spoiled]})
    assert description.faults_of_request(path, {"per_page": "many", "pages": "2"})


def test_nullable_means_null_or_what_it_was() -> None:
    schema = {"type": "object", "nullable": True, "properties": {"nullable": {"type": "string"}}}
    closed = {"type": "object", "properties": {"nullable": {"type": "string"}}, "additionalProperties": False}
    assert translated(schema) == {"anyOf": [closed, {"type": "null"}]}
