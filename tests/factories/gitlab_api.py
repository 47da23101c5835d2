"""GitLab's REST endpoints for pipelines and jobs, over what `forge_gitlab` was told."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote, urlencode

from factories.blob_host import Blob, serve
from factories.forge_gitlab import GitLab, GitLabBridge, GitLabJob, GitLabPipeline, GitLabProject
from factories.gitlab_reviews import ROOT, GitLabReviewsApi, Refused
from factories.http_host import Request, Response

__all__ = ["ROOT", "GitLabApi"]


class GitLabApi:
    """Answers requests under /api/v4."""

    def __init__(self, lab: GitLab, url: Callable[[], str]) -> None:
        self._lab = lab
        self._url = url
        pipeline = r"pipelines/(?P<pipeline_id>\d+)"
        job = r"jobs/(?P<job_id>\d+)"
        self._routes: list[tuple[str, Callable[..., Response]]] = [
            ("pipelines", self._pipelines),
            (pipeline, self._pipeline),
            (rf"{pipeline}/jobs", self._jobs),
            (rf"{pipeline}/bridges", self._bridges),
            (job, self._job),
            (rf"{job}/artifacts", self._download),
        ]
        self._reviews = GitLabReviewsApi(lab, self._page)
        self._routes += self._reviews.routes

    def answer(self, request: Request) -> Response:
        try:
            return self._route(request)
        except Refused as refused:
            return _json({"message": str(refused)}, status=refused.status)

    def _route(self, request: Request) -> Response:
        known = self._known(request)
        if (answer := self._reviews.elsewhere(request, known=known)) is not None:
            return answer
        place = re.fullmatch(rf"{ROOT}/projects/(?P<project>[^/]+)/(?P<rest>.+)", request.path)
        if place is None or (request.method not in {"GET", "HEAD"} and "/notes" not in place["rest"]):
            raise Refused(404, "404 Not Found")
        project = self._project(unquote(place["project"]))
        if project is None or (project.private and not known):
            raise Refused(404, "404 Project Not Found")
        for pattern, endpoint in self._routes:
            found = re.fullmatch(pattern, place["rest"])
            if found is not None:
                return endpoint(request, project, **found.groupdict())
        raise Refused(404, "404 Not Found")

    def _known(self, request: Request) -> bool:
        """Wrong credentials are refused even where none are needed."""
        headers = request.headers
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        private = headers.get("private-token") or bearer
        job = headers.get("job-token")
        if (private and private not in self._lab.tokens) or (job and job not in self._lab.job_tokens):
            raise Refused(401, "401 Unauthorized")
        return bool(private or job)

    def _project(self, word: str) -> GitLabProject | None:
        if word.isdecimal():
            every = self._lab.projects.values()
            return next((one for one in every if one.id == int(word)), None)
        return self._lab.projects.get(word)

    def _pipelines(self, request: Request, project: GitLabProject) -> Response:
        return self._page(request, [self._short(pipeline) for pipeline in project.pipelines.values()])

    def _pipeline(self, request: Request, project: GitLabProject, pipeline_id: str) -> Response:  # noqa: ARG002 - endpoints are called alike
        pipeline = _pipeline(project, pipeline_id)
        finished = _when(pipeline.created + 7200)
        return _json(
            {
                **self._short(pipeline),
                "before_sha": "0" * 40,
                "tag": False,
                "yaml_errors": None,
                "user": _user(),
                "started_at": _when(pipeline.created + 10),
                "finished_at": finished if pipeline.status != "running" else None,
                "committed_at": None,
                "duration": 7190,
                "queued_duration": 10,
                "coverage": None,
                "detailed_status": {"text": pipeline.status, "group": pipeline.status},
            }
        )

    def _jobs(self, request: Request, project: GitLabProject, pipeline_id: str) -> Response:
        pipeline = _pipeline(project, pipeline_id)
        retried = request.query.get("include_retried", "false") == "true"
        return self._page(request, [self._job_body(j) for j in pipeline.listed(retried=retried)])

    def _bridges(self, request: Request, project: GitLabProject, pipeline_id: str) -> Response:
        pipeline = _pipeline(project, pipeline_id)
        return self._page(request, [self._bridge_body(pipeline, b) for b in pipeline.bridges])

    def _job(self, request: Request, project: GitLabProject, job_id: str) -> Response:  # noqa: ARG002 - endpoints are called alike
        return _json(self._job_body(_job(project, job_id)))

    def _download(self, request: Request, project: GitLabProject, job_id: str) -> Response:
        job = _job(project, job_id)
        if job.body is None or job.expired:
            raise Refused(404, "404 Not Found")
        if job.direct:
            blob = Blob(body=job.body, etag=f'"{job.id}"', modified=job.finished or 0, filename="artifacts.zip")
            return serve(request, blob)
        return Response(status=302, headers={"location": self._lab.blobs.signed_url(job.path)})

    def _short(self, pipeline: GitLabPipeline) -> dict[str, Any]:
        """A pipeline as it stands inside other answers."""
        return {
            "id": pipeline.id,
            "iid": pipeline.id % 1000,
            "project_id": pipeline.project.id,
            "sha": pipeline.sha,
            "ref": pipeline.ref,
            "status": pipeline.status,
            "source": pipeline.source,
            "created_at": _when(pipeline.created),
            "updated_at": _when(pipeline.created + 7200),
            "web_url": f"{self._url()}/{pipeline.project.path}/-/pipelines/{pipeline.id}",
        }

    def _job_body(self, job: GitLabJob) -> dict[str, Any]:
        pipeline = job.pipeline
        kept = job.body is not None and not job.expired
        size = len(job.body or b"")
        trace = {"file_type": "trace", "size": 1000, "filename": "job.log", "file_format": None}
        archive = {"file_type": "archive", "size": size, "filename": "artifacts.zip", "file_format": "zip"}
        expiry = None if job.finished is None else _when(job.finished + 30 * 86_400)
        body = {
            **_job_frame(pipeline, job.id, job.name, job.stage, job.status),
            "pipeline": self._short(pipeline),
            "web_url": f"{self._url()}/{pipeline.project.path}/-/jobs/{job.id}",
            "started_at": None if job.started is None else _when(job.started),
            "finished_at": None if job.finished is None else _when(job.finished),
            "tag_list": list(job.tags),
            "runner": _runner(job.runner),
            "artifacts": [archive, trace] if kept else [trace],
            "artifacts_expire_at": expiry if job.body is not None else None,
        }
        if job.failure_reason is not None:
            body["failure_reason"] = job.failure_reason
        if kept:
            body["artifacts_file"] = {"filename": "artifacts.zip", "size": size}
        return body

    def _bridge_body(self, pipeline: GitLabPipeline, bridge: GitLabBridge) -> dict[str, Any]:
        down = bridge.downstream
        return {
            **_job_frame(pipeline, bridge.id, bridge.name, bridge.stage, bridge.status),
            "pipeline": self._short(pipeline),
            "web_url": f"{self._url()}/{pipeline.project.path}/-/jobs/{bridge.id}",
            "started_at": _when(pipeline.created + 20),
            "finished_at": _when(pipeline.created + 30),
            "downstream_pipeline": None if down is None else self._short(down),
        }

    def _page(self, request: Request, items: Sequence[Any]) -> Response:
        query = request.query
        size = min(100, max(1, int(query.get("per_page", "20"))))
        page = max(1, int(query.get("page", "1")))
        last = max(1, -(-len(items) // size))
        response = _json(items[(page - 1) * size : page * size])
        here = f"{self._url()}{request.path}"
        places = {"first": 1, "last": last}
        if page > 1:
            places["prev"] = page - 1
        if page < last:
            places["next"] = page + 1
        told = {"page": str(page), "per_page": str(size)}
        response.headers |= {
            "link": ", ".join(
                f'<{here}?{urlencode(query | told | {"page": str(number)})}>; rel="{rel}"'
                for rel, number in places.items()
            ),
            "x-page": str(page),
            "x-per-page": str(size),
            "x-prev-page": str(page - 1) if page > 1 else "",
            "x-next-page": str(page + 1) if page < last else "",
            "x-total": str(len(items)),
            "x-total-pages": str(last),
        }
        return response


def _job_frame(pipeline: GitLabPipeline, number: int, name: str, stage: str, status: str) -> dict[str, Any]:
    """What jobs and bridges have in common."""
    return {
        "id": number,
        "status": status,
        "stage": stage,
        "name": name,
        "ref": pipeline.ref,
        "tag": False,
        "coverage": None,
        "allow_failure": False,
        "created_at": _when(pipeline.created),
        "erased_at": None,
        "duration": 600.0,
        "queued_duration": 1.5,
        "user": _user(),
        "commit": {
            "id": pipeline.sha,
            "short_id": pipeline.sha[:8],
            "title": "Bump the image",
            "message": "Bump the image",
            "created_at": _when(pipeline.created - 60),
        },
        "project": {"ci_job_token_scope_enabled": False},
    }


def _user() -> dict[str, Any]:
    return {"id": 1, "username": "octo", "name": "Octo", "state": "active"}


def _runner(name: str | None) -> dict[str, Any] | None:
    if name is None:
        return None
    return {
        "id": 32,
        "description": name,
        "active": True,
        "paused": False,
        "is_shared": True,
        "runner_type": "instance_type",
        "name": "gitlab-runner",
        "online": True,
        "status": "online",
    }


def _pipeline(project: GitLabProject, pipeline_id: str) -> GitLabPipeline:
    pipeline = project.pipelines.get(int(pipeline_id))
    if pipeline is None:
        raise Refused(404, "404 Not found")
    return pipeline


def _job(project: GitLabProject, job_id: str) -> GitLabJob:
    for pipeline in project.pipelines.values():
        for job in pipeline.jobs:
            if job.id == int(job_id):
                return job
    raise Refused(404, "404 Not found")


def _when(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def _json(content: Any, *, status: int = 200) -> Response:
    headers = {"content-type": "application/json"}
    return Response(status=status, headers=headers, body=json.dumps(content).encode())
