"""GitLab: a pipeline and its child pipelines, their jobs, and the archive that each job left."""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import msgspec
from msgspec import structs

from karat.findings import CannotVerify, Finding, UsageError, fail, warn
from karat.net.client import Advice, Refused
from karat.net.forges import gitlab_root, gitlab_token, is_repository
from karat.sources.source import Artifact, CiJob, Listing, Run
from karat.sources.transfer import ArtifactRequest, Forge
from karat.system.command import Command

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


class _Bridge(msgspec.Struct, frozen=True):
    id: int
    name: str
    status: str = ""
    downstream_pipeline: _Pipeline | None = None


class _Runner(msgspec.Struct, frozen=True):
    description: str | None = None
    name: str | None = None


class _JobArchive(msgspec.Struct, frozen=True):
    size: int | None = None


class _GitLabJob(msgspec.Struct, frozen=True):
    id: int
    name: str
    status: str
    stage: str = ""
    tag_list: tuple[str, ...] = ()
    runner: _Runner | None = None
    failure_reason: str | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    artifacts_file: _JobArchive | None = None
    artifacts_expire_at: datetime | None = None

    def job(self, pipeline: str, attempt: int) -> CiJob:
        runner = self.runner or _Runner()
        timed_out = self.status == "failed" and self.failure_reason in _TIMEOUTS
        return CiJob(
            id=str(self.id),
            run_id=pipeline,
            name=self.name,
            attempt=attempt,
            conclusion="timed_out" if timed_out else _CONCLUSIONS.get(self.status),
            labels=tuple(dict.fromkeys(filter(None, (*self.tag_list, runner.description, runner.name)))),
            stage=self.stage,
            started=self.started_at.timestamp() if self.started_at else None,
            completed=self.finished_at.timestamp() if self.finished_at else None,
        )


_Item = TypeVar("_Item", _GitLabJob, _Bridge)


class _Place(msgspec.Struct, frozen=True):
    """A pipeline to look at, and what started it."""

    project: str
    pipeline: int
    name: str = ""

    @property
    def label(self) -> str:
        return f"pipeline {self.pipeline}" + (f" ({self.name})" if self.name else "")


class _Seen(msgspec.Struct, frozen=True):
    """What a pipeline turned out to be."""

    run: Run
    project: str
    jobs: list[_GitLabJob]
    bridges: list[_Bridge]


class GitLab(Forge):
    """One pipeline of one project, with every pipeline that it started."""

    def __init__(
        self,
        project: str | int | None,
        pipeline_id: int | str | None,
        *,
        env: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.time,
        **rest: Any,
    ) -> None:
        """`rest` is what `Forge` takes."""
        env = os.environ if env is None else env
        named = str(project or env.get("CI_PROJECT_ID") or env.get("CI_PROJECT_PATH") or "")
        example = ("karat", "refresh", "--source", "gitlab", "--project")
        if not is_repository("gitlab", named):
            said = f"expected --project ID or GROUP/NAME, or CI_PROJECT_ID, found {named or 'none'!r}"
            raise UsageError(said, next_command=Command(*example, "GROUP/NAME", "--pipeline-id", "N", "--scope", "all"))
        self._project = named
        if not re.fullmatch("[0-9]+", str(pipeline_id)):
            said = f"expected --pipeline-id N, found {pipeline_id!r}"
            raise UsageError(said, next_command=Command(*example, named, "--pipeline-id", "N", "--scope", "all"))
        self._pipeline = int(str(pipeline_id))
        self._again = Command(*example, named, "--pipeline-id", str(self._pipeline), "--scope", "all")
        self._clock = clock
        self._projects: dict[str, str] = {}
        super().__init__(
            gitlab_root(env),
            gitlab_token(env),
            env,
            headers={"Accept": "application/json"},
            advice=Advice(again=self._again, login="export GITLAB_TOKEN=YOUR_TOKEN"),
            **rest,
        )

    def listing(self) -> Listing:
        """The pipeline and all below it: runs, jobs of every attempt, one artifact per job."""
        seen: dict[int, _Seen] = {}
        findings: list[Finding] = []
        level = [_Place(self._project, self._pipeline)]
        while level:
            self._gather([partial(self._look, place, seen, findings) for place in level])
            level = self._below(level, seen, findings)
        pipelines = [seen[number] for number in sorted(seen)]
        now = self._clock()
        jobs: list[CiJob] = []
        artifacts: list[Artifact] = []
        for pipeline in pipelines:
            attempts: Counter[str] = Counter()  # jobs of one name, in the order they were made
            for listed in sorted(pipeline.jobs, key=lambda job: job.id):
                attempts[listed.name] += 1
                job = listed.job(pipeline.run.id, attempts[listed.name])
                jobs.append(structs.replace(job, rerun=self._glab(pipeline.project, f"jobs/{job.id}", "retry")))
                self._projects[job.id] = pipeline.project
                file, until = listed.artifacts_file, listed.artifacts_expire_at
                # A date in the past without a file: there was one. Without a date there never was.
                if file is not None or (until is not None and until.timestamp() <= now):
                    artifacts.append(
                        Artifact(
                            id=job.id,
                            name=job.name,
                            run_id=job.run_id,
                            size=file.size if file else None,
                            expired=file is None,
                            created=job.completed,
                            job_id=job.id,
                            attempt=job.attempt,
                        )
                    )
        return Listing(
            source="gitlab",
            origin=f"pipeline {self._pipeline} of {self._project}",
            repo=self._project,
            runs=tuple(pipeline.run for pipeline in pipelines),
            jobs=tuple(jobs),
            artifacts=tuple(artifacts),
            findings=tuple(sorted(findings, key=lambda finding: finding.message)),
        )

    def _glab(self, project: str, what: str, verb: str = "") -> Command:
        """The command that shows a job or a pipeline, or does something to it."""
        path = f"projects/{quote(project, safe='')}/{what}" + (f"/{verb}" if verb else "")
        host = urlsplit(self._client.root).hostname
        where = () if host == "gitlab.com" else ("--hostname", host or "")
        return Command("glab", "api", *where, *(("--method", "POST") if verb else ()), path)

    def _request(self, artifact: Artifact) -> ArtifactRequest:
        project = self._projects.get(artifact.id, self._project)
        path = f"/projects/{quote(project, safe='')}/jobs/{quote(artifact.id, safe='')}/artifacts"
        return ArtifactRequest(
            artifact=artifact,
            url=self._client.url(path),
            key=("gitlab", self._client.root, project, artifact.id, str(artifact.size)),
            look=self._glab(project, f"jobs/{artifact.id}"),
            remake=self._glab(project, f"jobs/{artifact.id}", "retry"),
        )

    def _look(self, place: _Place, seen: dict[int, _Seen], findings: list[Finding]) -> None:
        """One pipeline: itself, its jobs, its bridges."""
        home = f"/projects/{quote(place.project, safe='')}/pipelines/{place.pipeline}"
        try:
            pipeline = self._client.get(home, _Pipeline)
            jobs = self._all(f"{home}/jobs", list[_GitLabJob], include_retried="true")
            bridges = self._all(f"{home}/bridges", list[_Bridge])
        except Refused as error:
            if place.pipeline == self._pipeline:
                look = "karat refresh --source gitlab --project PROJECT --pipeline-id N --scope all"
                what = f"pipeline {self._pipeline} in project {self._project}"
                raise self._no_such(error, what, look) from None
            said = f"{place.label} of project {place.project} could not be listed: {error}"
            findings.append(fail("not-refreshed", said, next=error.advice))
            return
        over = _CONCLUSIONS.get(pipeline.status)
        if over is None:
            said = f"{place.label} has not finished ({pipeline.status}); it may still leave more"
            findings.append(warn("not-refreshed", said, next=self._again))
        run = Run(
            id=str(place.pipeline),
            commit=pipeline.sha,
            name=place.name,
            conclusion=over,
            rerun=self._glab(place.project, f"pipelines/{place.pipeline}", "retry" if over else ""),
        )
        seen[place.pipeline] = _Seen(run, place.project, jobs, bridges)

    def _all(self, path: str, kind: type[list[_Item]], **query: str) -> list[_Item]:
        return [item for page in self._client.pages(path, kind, **query, per_page=_PAGE) for item in page]

    def _below(self, level: Sequence[_Place], seen: dict[int, _Seen], findings: list[Finding]) -> list[_Place]:
        """The pipelines that these have started, each once."""
        below: dict[int, _Place] = {}
        for place in level:
            for bridge in seen[place.pipeline].bridges if place.pipeline in seen else ():
                child = bridge.downstream_pipeline
                if child is None:
                    if bridge.status == "failed":
                        said = f"{bridge.name} of {place.label} failed before it started its pipeline"
                        retry = self._glab(place.project, f"jobs/{bridge.id}", "retry")
                        findings.append(warn("not-refreshed", said, next=retry))
                elif child.id not in seen:
                    project = place.project if child.project_id is None else str(child.project_id)
                    below.setdefault(child.id, _Place(project, child.id, bridge.name))
        if len(seen) + len(below) > _MOST_PIPELINES:
            said = f"expected at most {_MOST_PIPELINES} pipelines below {self._pipeline}, found more"
            raise CannotVerify(said, next_command="karat refresh --source gitlab --pipeline-id N --scope all")
        return list(below.values())
