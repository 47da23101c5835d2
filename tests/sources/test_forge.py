"""The forge that other tests talk to: it must misbehave exactly as told, and otherwise not at all."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from factories.forge import Forge
from factories.forge_github import GitHubArtifact, GitHubRun

REPO = "octo/goldens"


@pytest.fixture
def run(forge: Forge) -> GitHubRun:
    return forge.github.run(REPO, run_id=123)


@pytest.fixture
def client(forge: Forge) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {forge.github.token}"}
    with httpx.Client(base_url=forge.github_url, headers=headers, timeout=10) as client:
        yield client


@pytest.fixture
def artifact(run: GitHubRun) -> GitHubArtifact:
    return run.artifact("logs", {"a.json": b"{}", "deep/b.json": b"[1]" * 5000})


def blob_url(client: httpx.Client, artifact: GitHubArtifact) -> str:
    answer = client.get(f"/repos/{REPO}/actions/artifacts/{artifact.id}/zip")
    assert answer.status_code == 302
    return answer.headers["location"]


@pytest.mark.slow
def test_an_artifact_is_a_redirect_to_the_other_host(
    forge: Forge, client: httpx.Client, artifact: GitHubArtifact
) -> None:
    location = httpx.URL(blob_url(client, artifact))
    assert location.port == forge.blobs.host.port != forge.api.port
    body = httpx.get(location).content
    with zipfile.ZipFile(io.BytesIO(body)) as archive:
        assert archive.namelist() == ["a.json", "deep/b.json"]
    assert [request.host for request in forge.seen()] == ["api", "blob"]


@pytest.mark.slow
@pytest.mark.parametrize("header", ["Authorization", "PRIVATE-TOKEN", "JOB-TOKEN"])
def test_the_blob_host_refuses_every_other_credential(
    client: httpx.Client, artifact: GitHubArtifact, header: str
) -> None:
    assert httpx.get(blob_url(client, artifact), headers={header: "Bearer x"}).status_code == 403


@pytest.mark.slow
def test_a_signature_is_for_one_path_and_for_a_while(
    forge: Forge, client: httpx.Client, run: GitHubRun, artifact: GitHubArtifact
) -> None:
    other = run.artifact("other", {"x": b"1"})
    good = blob_url(client, artifact)
    swapped = good.replace(artifact.path, other.path)
    assert swapped != good
    assert httpx.get(swapped).status_code == 403
    forge.blobs.signature_seconds = -1
    assert httpx.get(blob_url(client, artifact)).status_code == 403
    assert httpx.get(good).status_code == 200


@pytest.mark.slow
@pytest.mark.parametrize(
    ("asked", "status", "start", "end"),
    [
        ("bytes=0-9", 206, 0, 10),
        ("bytes=5-", 206, 5, None),
        ("bytes=5-99999999", 206, 5, None),
        ("bytes=-5", 200, 0, None),
        ("bytes=0-1,4-5", 200, 0, None),
        (None, 200, 0, None),
    ],
)
def test_ranges_are_azures(
    client: httpx.Client, artifact: GitHubArtifact, asked: str | None, status: int, start: int, end: int | None
) -> None:
    answer = httpx.get(blob_url(client, artifact), headers={} if asked is None else {"Range": asked})
    assert answer.status_code == status
    assert answer.content == artifact.body[start:end]
    size = len(artifact.body)
    if status == 206:
        assert answer.headers["content-range"] == f"bytes {start}-{(end or size) - 1}/{size}"


@pytest.mark.slow
def test_a_range_beyond_the_end_is_416(client: httpx.Client, artifact: GitHubArtifact) -> None:
    size = len(artifact.body)
    answer = httpx.get(blob_url(client, artifact), headers={"Range": f"bytes={size}-"})
    assert (answer.status_code, answer.headers["content-range"]) == (416, f"bytes */{size}")


@pytest.mark.slow
def test_if_range_and_if_match_know_the_etag(client: httpx.Client, artifact: GitHubArtifact) -> None:
    url = blob_url(client, artifact)
    head = httpx.head(url)
    assert int(head.headers["content-length"]) == len(artifact.body)
    assert not head.content
    wanted = {"Range": "bytes=0-3"}
    assert httpx.get(url, headers=wanted | {"If-Range": head.headers["etag"]}).status_code == 206
    assert httpx.get(url, headers=wanted | {"If-Range": '"old"'}).status_code == 200
    assert httpx.get(url, headers=wanted | {"If-Match": '"old"'}).status_code == 412


@pytest.mark.slow
def test_expired_missing_private_and_forbidden(forge: Forge, client: httpx.Client, run: GitHubRun) -> None:
    expired = run.artifact("gone", {"a": b""}, expired=True)
    secret = forge.github.run("octo/secret", private=True)
    base = f"/repos/{REPO}/actions"
    assert client.get(f"{base}/artifacts/{expired.id}/zip").status_code == 410
    assert client.get(f"{base}/artifacts/1/zip").status_code == 404
    assert client.get(f"{base}/runs/1").status_code == 404
    hidden = f"/repos/octo/secret/actions/runs/{secret.id}"
    assert client.get(hidden).status_code == 200
    with httpx.Client(base_url=forge.github_url) as anyone:
        assert anyone.get(hidden).status_code == 404
        assert anyone.get(f"{base}/runs/123").status_code == 200
        assert anyone.get(f"{base}/artifacts/{expired.id}/zip").status_code == 401
        wrong = anyone.get(f"{base}/runs/123", headers={"Authorization": "Bearer ghp_wrong"})
        assert (wrong.status_code, wrong.json()["message"]) == (401, "Bad credentials")


@pytest.mark.slow
def test_pages_are_linked_under_the_repositorys_number(client: httpx.Client, run: GitHubRun) -> None:
    for number in range(205):
        run.artifact(f"a{number:03}", {"x": b""})
    run.shuffle = 5
    names: list[str] = []
    url: str | None = f"/repos/{REPO}/actions/runs/123/artifacts?per_page=1000"
    pages = 0
    while url is not None:
        answer = client.get(url)
        page = answer.json()
        assert page["total_count"] == 205
        assert len(page["artifacts"]) <= 100
        names += [one["name"] for one in page["artifacts"]]
        url = answer.links.get("next", {}).get("url")
        assert url is None or f"/repositories/{run.repository.id}/" in url
        pages += 1
    assert pages == 3
    assert names != sorted(names)
    assert sorted(names) == [f"a{number:03}" for number in range(205)]


def test_what_has_not_changed_is_304_and_costs_nothing(client: httpx.Client, run: GitHubRun) -> None:
    url = f"/repos/{REPO}/actions/runs/123/jobs"
    first = client.get(url)
    again = client.get(url, headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    remaining = "x-ratelimit-remaining"
    assert again.headers[remaining] == first.headers[remaining]
    run.job("new")
    assert client.get(url, headers={"If-None-Match": first.headers["etag"]}).status_code == 200


@pytest.mark.parametrize("carry_over", [True, False])
def test_attempts(forge: Forge, client: httpx.Client, carry_over: bool) -> None:  # noqa: FBT001 - a parameter of the test
    run = forge.github.run(REPO, run_id=9, attempts=3, shuffle=1, carry_over=carry_over)
    run.job("test", attempt=1, conclusion="failure")
    run.job("test", attempt=3, conclusion="success")
    run.job("test", attempt=2, conclusion="failure")
    run.job("lint", attempt=1)
    base = f"/repos/{REPO}/actions/runs/9"

    def listed(url: str) -> set[tuple[str, int]]:
        return {(job["name"], job["run_attempt"]) for job in client.get(base + url).json()["jobs"]}

    kept = {("lint", 1)} if carry_over else set()
    assert listed("/jobs") == {("test", 3)} | kept
    assert listed("/attempts/2/jobs") == {("test", 2)} | kept
    assert listed("/jobs?filter=all") == {("test", 1), ("test", 2), ("test", 3), ("lint", 1)}
    assert client.get(f"{base}/attempts/2").json()["run_attempt"] == 2
    assert client.get(base).json()["run_attempt"] == 3
    assert client.get(f"{base}/attempts/4").status_code == 404


def test_runs_of_a_commit(forge: Forge, client: httpx.Client, run: GitHubRun) -> None:
    newer = forge.github.run(REPO, sha=run.sha, workflow="Nightly Tests", created=run.created + 9)
    forge.github.run(REPO, sha="f" * 40)
    forge.github.run(REPO, sha=run.sha, conclusion=None)
    base = f"/repos/{REPO}/actions"

    def listed(url: str, **query: str) -> list[int]:
        runs = client.get(base + url, params=query).json()["workflow_runs"]
        return [one["id"] for one in runs]

    assert listed("/runs", head_sha=run.sha, status="completed") == [newer.id, run.id]
    assert listed("/workflows/nightly-tests.yml/runs") == [newer.id]
    assert listed(f"/workflows/{newer.workflow_id}/runs", head_sha="0" * 40) == []


@pytest.mark.slow
def test_faults_come_as_often_as_told_and_no_more(forge: Forge, client: httpx.Client, run: GitHubRun) -> None:
    url = f"/repos/{REPO}/actions/runs/{run.id}"
    forge.faults.too_many_requests(r"/runs/123$", retry_after=7)
    forge.faults.rate_limit(r"/runs/123$", reset_in=60, times=1)
    first = client.get(url)
    assert first.status_code == 403  # the one said last has the last word
    assert first.headers["x-ratelimit-remaining"] == "0"
    assert client.get(url).status_code == 200
    forge.faults.server_error(r"/runs/", status=503, times=2)
    assert [client.get(url).status_code for _ in range(3)] == [503, 503, 200]
    forge.faults.secondary_limit(r"/runs/", retry_after=3)
    limited = client.get(url)
    assert (limited.status_code, limited.headers["retry-after"]) == (403, "3")


def received(url: str) -> bytes:
    """What comes before the connection breaks."""
    got = b""
    with httpx.stream("GET", url) as answer:
        try:
            for piece in answer.iter_raw():
                got += piece
        except httpx.TransportError:
            return got
    pytest.fail("the connection was not cut")


@pytest.mark.slow
@pytest.mark.parametrize("reset", [True, False])
def test_a_cut_body_can_be_resumed(
    forge: Forge,
    client: httpx.Client,
    run: GitHubRun,
    reset: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    big = run.artifact("big", raw=bytes(300_000))
    forge.faults.cut(r"/big\.zip", after=100_000, reset=reset)
    url = blob_url(client, big)
    got = received(url)
    assert 0 < len(got) <= 100_000
    rest = httpx.get(url, headers={"Range": f"bytes={len(got)}-"})
    assert (rest.status_code, len(got) + len(rest.content)) == (206, 300_000)


@pytest.mark.slow
def test_bodies_that_lie(forge: Forge, client: httpx.Client, artifact: GitHubArtifact) -> None:
    url = blob_url(client, artifact)
    forge.faults.truncate(r"logs\.zip", keep=20, times=1)
    assert httpx.get(url).content == artifact.body[:20]
    forge.faults.overstate(r"logs\.zip", length=len(artifact.body) + 1)
    with pytest.raises(httpx.RemoteProtocolError):
        httpx.get(url)
    forge.faults.html(r"logs\.zip", times=1)
    assert httpx.get(url).text.startswith("<!DOCTYPE html>")
    forge.faults.no_ranges(times=1)
    whole = httpx.get(url, headers={"Range": "bytes=0-3"})
    assert (whole.status_code, "accept-ranges" in whole.headers) == (200, False)
    forge.faults.stale_signature(r"logs\.zip")
    assert [httpx.get(url).status_code for _ in range(2)] == [403, 200]


@pytest.mark.slow
def test_a_slow_body_trickles(forge: Forge, client: httpx.Client, artifact: GitHubArtifact) -> None:
    url = blob_url(client, artifact)
    forge.faults.slow(r"logs\.zip", rate=len(artifact.body) / 60)
    with httpx.stream("GET", url) as answer:
        first = next(answer.iter_raw())
    assert artifact.body.startswith(first)
    assert len(first) < len(artifact.body) / 2


@pytest.mark.slow
def test_latency_is_of_both_hosts(forge: Forge, client: httpx.Client, artifact: GitHubArtifact) -> None:
    url = blob_url(client, artifact)
    forge.latency = 60
    for place in (url, f"{forge.github_url}/repos/{REPO}/actions/runs/123"):
        with pytest.raises(httpx.ReadTimeout):
            httpx.get(place, timeout=0.1)


@pytest.mark.slow
def test_many_connections_at_once(forge: Forge, client: httpx.Client, artifact: GitHubArtifact) -> None:
    forge.latency = 0.02
    url = blob_url(client, artifact)
    limits = httpx.Limits(max_connections=32)
    with httpx.Client(limits=limits) as parallel, ThreadPoolExecutor(32) as pool:
        bodies = list(pool.map(lambda _: parallel.get(url).content, range(200)))
    assert bodies == [artifact.body] * 200


def test_stopping_breaks_off_open_connections(run: GitHubRun) -> None:
    with Forge() as forge, httpx.Client(base_url=forge.github_url) as client:
        forge.github.repositories["octo/goldens"] = run.repository
        assert client.get(f"/repos/{REPO}/actions/runs/123").status_code == 200
        forge.api.stop()
        with pytest.raises(httpx.TransportError):
            client.get(f"/repos/{REPO}/actions/runs/123")


@pytest.mark.slow
def test_gitlab_pipelines_jobs_and_bridges(forge: Forge) -> None:
    lab = forge.gitlab
    parent = lab.pipeline("group/sub/project", pipeline_id=7, private=True)
    child = lab.pipeline("group/sub/project", source="parent_pipeline")
    parent.bridge("trigger: h100", child)
    parent.bridge("not started", None, status="skipped")
    for number in range(25):
        child.job(f"job {number}")
    old = child.job("flaky", status="failed", retried=True)
    headers = {"PRIVATE-TOKEN": lab.token}
    with httpx.Client(base_url=forge.gitlab_url + "/", headers=headers) as client:
        project = "projects/group%2Fsub%2Fproject"
        assert client.get(f"{project}/pipelines/7").json()["sha"] == parent.sha
        bridges = client.get(f"{project}/pipelines/7/bridges").json()
        downs = [bridge["downstream_pipeline"] for bridge in bridges]
        assert downs[0]["id"] == child.id
        assert downs[1] is None
        jobs = f"projects/{downs[0]['project_id']}/pipelines/{child.id}/jobs"
        first = client.get(jobs)
        assert (len(first.json()), first.headers["x-next-page"]) == (20, "2")
        second = client.get(first.links["next"]["url"])
        assert (len(second.json()), second.headers["x-next-page"]) == (5, "")
        every = client.get(jobs, params={"include_retried": "true", "per_page": "100"}).json()
        assert {job["id"] for job in every} - {job["id"] for job in first.json() + second.json()} == {old.id}
        assert client.get(f"{project}/pipelines/8").status_code == 404
    with httpx.Client(base_url=forge.gitlab_url + "/") as anyone:
        assert anyone.get(f"{project}/pipelines/7").status_code == 404
        wrong = anyone.get(f"{project}/pipelines/7", headers={"PRIVATE-TOKEN": "glpat-wrong"})
        assert wrong.status_code == 401


@pytest.mark.slow
@pytest.mark.parametrize("direct", [True, False])
def test_gitlab_artifacts(forge: Forge, direct: bool) -> None:  # noqa: FBT001 - a parameter of the test
    pipeline = forge.gitlab.pipeline("group/project", private=True)
    job = pipeline.job("train").artifact({"a.json": b"{}"}, direct=direct)
    bare = pipeline.job("lint")
    gone = pipeline.job("old").artifact({"a.json": b"{}"}, expired=True)
    headers = {"JOB-TOKEN": forge.gitlab.job_token}
    with httpx.Client(base_url=forge.gitlab_url + "/", headers=headers) as client:
        base = "projects/group%2Fproject/jobs"
        answer = client.get(f"{base}/{job.id}/artifacts")
        assert answer.status_code == (200 if direct else 302)
        body = answer.content if direct else httpx.get(answer.headers["location"]).content
        assert body == job.body
        for empty in (bare, gone):
            assert client.get(f"{base}/{empty.id}/artifacts").status_code == 404
            assert "artifacts_file" not in client.get(f"{base}/{empty.id}").json()
        assert client.get(f"{base}/{job.id}").json()["artifacts_file"]["size"] == len(body)
