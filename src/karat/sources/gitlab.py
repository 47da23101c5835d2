"""GitLab: a pipeline and its child pipelines, their jobs, and the archive that each job left."""

from __future__ import annotations

import os
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TypeVar
from urllib.parse import quote, urlsplit

import msgspec

from karat.findings import CannotVerify, Finding, UsageError, fail, warn
from karat.net.addresses import gitlab_root
from karat.net.client import Advice, Refused
from karat.net.retry import Retry
from karat.net.tokens import gitlab_token
from karat.sources.download import ArtifactAddress
from karat.sources.source import Artifact, Job, Listing, Run
from karat.sources.transfer import ArtifactRequest, Forge, Notice
from karat.system.archives import Limits
from karat.system.command import Command

_PROJECT = re.compile(r"[0-9]+|[A-Za-z0-9_.-]+(?:/[A-Za-z0-9_.-]+)+")
_PAGE = 100
_MOST_PIPELINES = 500
_CONCLUSIONS = {"success": "success", "failed": "failure", "canceled": "cancelled", "skipped": "skipped"}
"""GitLab's words for what is over, in GitHub's; whatever else it says is not over."""
_TIMEOUTS = {"job_execution_timeout", "stuck_or_timeout_failure"}


class _Pipeline(msgspec.Struct, frozen=True):
    id: int
    project_id: int | None = None
    sha: str | None = None
    status: str = ""
    web_url: str | None = None


class _Bridge(msgspec.Struct, frozen=True):
    id: int
    name: str
    status: str = ""
    downstream_pipeline: _Pipeline | None = None


class _Runner(msgspec.Struct, frozen=True):
    description: str | None = None
    name: str | None = None


class _File(msgspec.Struct, frozen=True):
    size: int | None = None


class _Job(msgspec.Struct, frozen=True):
    id: int
    name: str
    status: str
    stage: str = ""
    tag_list: tuple[str, ...] = ()
    runner: _Runner | None = None
    failure_reason: str | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    web_url: str | None = None
    artifacts_file: _File | None = None
    artifacts_expire_at: datetime | None = None

    @property
    def conclusion(self) -> str | None:
        if self.status == "failed" and self.failure_reason in _TIMEOUTS:
            return "timed_out"
        return _CONCLUSIONS.get(self.status)

    def outdated(self, now: float) -> bool:
        """Whether its archive may be deleted; that of a branch's newest job is kept all the same."""
        until = self.artifacts_expire_at
        return until is not None and until.timestamp() <= now


_Item = TypeVar("_Item", _Job, _Bridge)


class _Place(msgspec.Struct, frozen=True):
    """A pipeline to look at, and what started it."""

    project: str
    pipeline: int
    name: str = ""


class _Found:
    """What has been learnt so far; filled from several threads, by pipeline."""

    def __init__(self) -> None:
        self.runs: dict[int, Run] = {}
        self.jobs: dict[int, list[_Job]] = {}
        self.bridges: dict[int, list[_Bridge]] = {}
        self.projects: dict[int, str] = {}
        self.findings: list[Finding] = []


class GitLab(Forge):
    """One pipeline of one project, with every pipeline that it started."""

    def __init__(  # noqa: PLR0913 - what may be asked for, and what a test may replace
        self,
        project: str | int | None,
        pipeline_id: int | str,
        *,
        env: Mapping[str, str] | None = None,
        retry: Retry | None = None,
        limits: Limits | None = None,
        notice: Notice | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        env = os.environ if env is None else env
        named = str(project or env.get("CI_PROJECT_ID") or env.get("CI_PROJECT_PATH") or "")
        if not _PROJECT.fullmatch(named) or set(named.split("/")) & {".", ".."}:
            raise UsageError(
                f"expected a project on GitLab, its number or GROUP/NAME (also from CI_PROJECT_ID), found {named!r}",
                next_command="karat refresh --source gitlab --project GROUP/NAME --pipeline-id N --scope all",
            )
        self._project = named
        if not (str(pipeline_id).isascii() and str(pipeline_id).isdigit()):
            said = f"expected the number of a pipeline, found {pipeline_id!r}"
            raise UsageError(said, next_command="karat refresh --source gitlab --pipeline-id N --scope all")
        self._pipeline = int(pipeline_id)
        self._clock = clock
        self._projects: dict[str, str] = {}
        self._outdated: set[str] = set()
        super().__init__(
            gitlab_root(env),
            gitlab_token(env),
            env,
            headers={"Accept": "application/json"},
            retry=retry,
            limits=limits,
            notice=notice,
            advice=Advice(again=self._command(), login="export GITLAB_TOKEN=YOUR_TOKEN"),
        )

    def listing(self) -> Listing:
        """The pipeline and all below it: runs, jobs of every attempt, one artifact per job."""
        found = _Found()
        level = [_Place(self._project, self._pipeline)]
        while level:
            self._gather([partial(self._look, place, found) for place in level])
            level = self._below(level, found)
        order = sorted(found.runs)
        now = self._clock()
        self._projects = {str(job.id): found.projects[number] for number in order for job in found.jobs[number]}
        self._outdated = {str(job.id) for number in order for job in found.jobs[number] if job.outdated(now)}
        jobs = {number: _attempts(number, found.jobs[number]) for number in order}
        return Listing(
            source="gitlab",
            origin=f"pipeline {self._pipeline} of {self._project}",
            repo=self._project,
            runs=tuple(found.runs[number] for number in order),
            jobs=tuple(job for number in order for job in jobs[number]),
            artifacts=tuple(
                artifact for number in order for artifact in _artifacts(found.jobs[number], jobs[number], now)
            ),
            findings=tuple(sorted(found.findings, key=lambda finding: finding.message)),
        )

    def _command(self) -> Command:
        where = ("--project", self._project, "--pipeline-id", str(self._pipeline))
        return Command("karat", "refresh", "--source", "gitlab", *where, "--scope", "all")

    def _glab(self, project: str, job: int | str, verb: str = "") -> str:
        """The command that shows one job, or does something to it."""
        path = f"projects/{quote(project, safe='')}/jobs/{job}" + (f"/{verb}" if verb else "")
        host = urlsplit(self._client.root).hostname
        where = "" if host == "gitlab.com" else f" --hostname {host}"
        return f"glab api{where}{' --method POST' if verb else ''} {path}"

    def _request(self, artifact: Artifact) -> ArtifactRequest:
        project = self._projects.get(artifact.id, self._project)
        path = f"/projects/{quote(project, safe='')}/jobs/{quote(artifact.id, safe='')}/artifacts"
        return ArtifactRequest(
            artifact=artifact,
            address=ArtifactAddress(url=self._client.url(path), lasting=True),
            key=("gitlab", self._client.root, project, artifact.id, str(artifact.size)),
            look=self._glab(project, artifact.id),
            remake=self._glab(project, artifact.id, "retry"),
            missing_means="artifact-expired" if artifact.id in self._outdated else "artifact-missing",
        )

    def _look(self, place: _Place, found: _Found) -> None:
        """One pipeline: itself, its jobs, its bridges."""
        home = f"/projects/{quote(place.project, safe='')}/pipelines/{place.pipeline}"
        try:
            pipeline = self._client.get(home, _Pipeline)
            jobs = self._all(f"{home}/jobs", list[_Job], include_retried="true")
            bridges = self._all(f"{home}/bridges", list[_Bridge])
        except Refused as error:
            if place.pipeline == self._pipeline:
                raise self._no_such(error) from None
            said = f"{_label(place)} of project {place.project} could not be listed: {error}"
            found.findings.append(fail("not-refreshed", said, next=error.next_command))
            return
        over = _CONCLUSIONS.get(pipeline.status)
        if over is None:
            said = f"{_label(place)} has not finished ({pipeline.status}); it may still leave more"
            found.findings.append(warn("not-refreshed", said, next=self._command()))
        found.projects[place.pipeline] = place.project
        found.jobs[place.pipeline] = jobs
        found.bridges[place.pipeline] = bridges
        found.runs[place.pipeline] = Run(
            id=str(place.pipeline), commit=pipeline.sha, name=place.name, conclusion=over, url=pipeline.web_url
        )

    def _all(self, path: str, kind: type[list[_Item]], **query: str) -> list[_Item]:
        return [item for page in self._client.pages(path, kind, **query, per_page=_PAGE) for item in page]

    def _below(self, level: Sequence[_Place], found: _Found) -> list[_Place]:
        """The pipelines that these have started, each once."""
        below: dict[int, _Place] = {}
        for place in level:
            for bridge in found.bridges.get(place.pipeline, []):
                child = bridge.downstream_pipeline
                if child is None:
                    if bridge.status == "failed":
                        said = f"{bridge.name} of {_label(place)} failed before it started its pipeline"
                        retry = self._glab(place.project, bridge.id, "retry")
                        found.findings.append(warn("not-refreshed", said, next=retry))
                elif child.id not in found.runs:
                    project = place.project if child.project_id is None else str(child.project_id)
                    below.setdefault(child.id, _Place(project, child.id, bridge.name))
        if len(found.runs) + len(below) > _MOST_PIPELINES:
            said = f"expected at most {_MOST_PIPELINES} pipelines below {self._pipeline}, found more"
            raise CannotVerify(said, next_command="karat refresh --source gitlab --pipeline-id N --scope all")
        return list(below.values())

    def _no_such(self, error: Refused) -> CannotVerify:
        if error.status != 404:
            return error
        token = self._client.token
        seen = f"the token from {token.found_in} may not see it" if token else "it needs a token"
        return CannotVerify(
            f"expected pipeline {self._pipeline} in project {self._project}, found that there is "
            f"none, or {seen} (HTTP 404)",
            next_command="karat refresh --source gitlab --project PROJECT --pipeline-id N --scope all",
        )


def _attempts(pipeline: int, jobs: Sequence[_Job]) -> list[Job]:
    """Jobs of one name in the order they were made: attempt 1, 2, and so on."""
    numbers: dict[str, int] = defaultdict(int)
    found = []
    for job in sorted(jobs, key=lambda job: job.id):
        numbers[job.name] += 1
        runner = job.runner or _Runner()
        where = (*job.tag_list, runner.description or "", runner.name or "")
        found.append(
            Job(
                id=str(job.id),
                run_id=str(pipeline),
                name=job.name,
                attempt=numbers[job.name],
                conclusion=job.conclusion,
                labels=tuple(dict.fromkeys(label for label in where if label)),
                stage=job.stage,
                started=job.started_at.timestamp() if job.started_at else None,
                completed=job.finished_at.timestamp() if job.finished_at else None,
                url=job.web_url,
            )
        )
    return found


def _artifacts(known: Sequence[_Job], jobs: Sequence[Job], now: float) -> Iterator[Artifact]:
    by_id = {str(job.id): job for job in known}
    for job in jobs:
        source = by_id[job.id]
        file = source.artifacts_file
        # A date in the past without a file: there was one. Without a date there never was.
        if file is None and not source.outdated(now):
            continue
        yield Artifact(
            id=job.id,
            name=job.name,
            run_id=job.run_id,
            size=file.size if file else None,
            expired=file is None,
            created=job.completed,
            job_id=job.id,
            attempt=job.attempt,
        )


def _label(place: _Place) -> str:
    return f"pipeline {place.pipeline}" + (f" ({place.name})" if place.name else "")
