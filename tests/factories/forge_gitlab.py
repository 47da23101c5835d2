"""GitLab's side of the forge: projects, pipelines, jobs, bridges, as its REST API has them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from factories.archives import zipped
from factories.blob_host import BlobHost
from factories.forge_github import EPOCH, HOUR


@dataclass(kw_only=True)
class GitLabProject:
    id: int
    path: str
    private: bool
    pipelines: dict[int, GitLabPipeline] = field(default_factory=dict)
    merge_requests: dict[int, GitLabMergeRequest] = field(default_factory=dict)
    members: dict[str, int] = field(default_factory=dict)
    """Direct members → access level."""


@dataclass(kw_only=True)
class GitLabApproval:
    username: str
    when: float


@dataclass(kw_only=True)
class GitLabCommit:
    sha: str
    author_email: str
    committer_email: str
    message: str
    parents: int


@dataclass(kw_only=True)
class GitLabMergeRequest:
    """GitLab keeps who approves, and versions of the diff; time passes by the minute."""

    iid: int
    author: str
    tells_when: bool
    """Newer servers say when each approved; of older ones only the notes tell."""
    clock: float = EPOCH
    head: str = ""
    versions: list[tuple[str, float]] = field(default_factory=list)
    approvals: list[GitLabApproval] = field(default_factory=list)
    notes: list[tuple[str, str, float]] = field(default_factory=list)
    comments: dict[int, tuple[str, str]] = field(default_factory=dict)
    """Notes that people write: number → (who, body)."""
    states: dict[str, str] = field(default_factory=dict)
    """Reviewer → `requested_changes` and the like."""
    commits: list[GitLabCommit] = field(default_factory=list)

    def push(self, sha: str) -> None:
        self.clock += 60
        self.head = sha
        self.versions.append((sha, self.clock))

    def approve(self, username: str) -> None:
        self.clock += 60
        self.approvals.append(GitLabApproval(username=username, when=self.clock))
        self.notes.append((username, "approved this merge request", self.clock))

    def withdraw(self, username: str) -> None:
        self.clock += 60
        self.approvals = [one for one in self.approvals if one.username != username]
        self.notes.append((username, "unapproved this merge request", self.clock))

    def commit(self, sha: str, email: str, *, committer: str = "", message: str = "x", parents: int = 1) -> None:
        self.commits.append(
            GitLabCommit(
                sha=sha, author_email=email, committer_email=committer or email, message=message, parents=parents
            )
        )


@dataclass(kw_only=True)
class GitLabJob:
    """One attempt of one job; a retried one has a successor of the same name."""

    id: int
    name: str
    pipeline: GitLabPipeline
    status: str
    stage: str
    retried: bool
    tags: Sequence[str]
    runner: str | None
    failure_reason: str | None
    started: float | None
    finished: float | None
    body: bytes | None = None
    expired: bool = False
    direct: bool = False
    """The archive comes from GitLab itself rather than from object storage."""
    path: str = ""

    def artifact(
        self,
        members: Mapping[str, bytes | str] | None = None,
        *,
        raw: bytes | None = None,
        expired: bool = False,
        direct: bool = False,
    ) -> GitLabJob:
        """Give the job its one archive."""
        self.body = raw if raw is not None else zipped(members or {})
        self.expired = expired
        self.direct = direct
        self.path = f"/gitlab-artifacts/{self.id}/artifacts.zip"
        blobs = self.pipeline.lab.blobs
        blobs.put(self.path, self.body, filename="artifacts.zip", modified=self.finished or EPOCH)
        return self


@dataclass(kw_only=True)
class GitLabBridge:
    """A job that starts another pipeline."""

    id: int
    name: str
    stage: str
    status: str
    downstream: GitLabPipeline | None


@dataclass(kw_only=True)
class GitLabPipeline:
    id: int
    project: GitLabProject
    lab: GitLab
    sha: str
    ref: str
    status: str
    source: str
    created: float
    shuffle: int | None
    jobs: list[GitLabJob] = field(default_factory=list)
    bridges: list[GitLabBridge] = field(default_factory=list)

    def job(
        self,
        name: str,
        *,
        status: str = "success",
        stage: str = "test",
        retried: bool = False,
        tags: Sequence[str] = (),
        runner: str | None = "shared-runner-1",
        failure_reason: str | None = None,
        started: float | None = None,
        finished: float | None = None,
        id: int | None = None,  # noqa: A002 - GitLab's word
    ) -> GitLabJob:
        begun = started if started is not None else self.created + HOUR
        ended = finished if finished is not None else begun + 600
        done = status in {"success", "failed", "canceled"}
        job = GitLabJob(
            id=id if id is not None else next(self.lab.ids),
            name=name,
            pipeline=self,
            status=status,
            stage=stage,
            retried=retried,
            tags=tuple(tags),
            runner=runner,
            failure_reason=failure_reason or ("script_failure" if status == "failed" else None),
            started=begun if done or status == "running" else None,
            finished=ended if done else None,
        )
        self.jobs.append(job)
        return job

    def bridge(
        self, name: str, downstream: GitLabPipeline | None, *, stage: str = "trigger", status: str = "success"
    ) -> GitLabBridge:
        """Add a bridge; one that started nothing has no downstream pipeline."""
        bridge = GitLabBridge(id=next(self.lab.ids), name=name, stage=stage, status=status, downstream=downstream)
        self.bridges.append(bridge)
        return bridge

    def listed(self, *, retried: bool) -> list[GitLabJob]:
        jobs = [job for job in self.jobs if retried or not job.retried]
        if self.shuffle is None:
            return sorted(jobs, key=lambda job: -job.id)
        return random.Random(self.shuffle).sample(jobs, len(jobs))


class GitLab:
    """Everything GitLab knows, to be told by a test before it asks."""

    def __init__(self, blobs: BlobHost) -> None:
        self.blobs = blobs
        self.tokens = {"glpat-ForgeTokenForTests01"}
        self.job_tokens = {"glcbt-64_ForgeJobTokenForTests"}
        self.ids: Iterator[int] = itertools.count(20_001)
        self.projects: dict[str, GitLabProject] = {}
        self.groups: dict[str, list[str]] = {}
        self.users: dict[str, int] = {}
        self.emails: dict[str, str] = {}
        """Account → the address it shows to everyone."""
        self.account = "project_1_bot"

    @property
    def token(self) -> str:
        """A personal access token that opens everything."""
        return min(self.tokens)

    @property
    def job_token(self) -> str:
        """What a job finds in CI_JOB_TOKEN."""
        return min(self.job_tokens)

    def project(self, path: str, *, private: bool = False) -> GitLabProject:
        known = self.projects.get(path)
        if known is None:
            known = GitLabProject(id=next(self.ids), path=path, private=private)
            self.projects[path] = known
        return known

    def merge_request(
        self, path: str, iid: int, *, author: str, head: str, tells_when: bool = True
    ) -> GitLabMergeRequest:
        """Add a merge request (and its project)."""
        made = GitLabMergeRequest(iid=iid, author=author, tells_when=tells_when)
        made.push(head)
        self.project(path).merge_requests[iid] = made
        return made

    def user_id(self, username: str) -> int:
        return self.users.setdefault(username, 500 + len(self.users))

    def pipeline(
        self,
        path: str,
        *,
        pipeline_id: int | None = None,
        sha: str = "5f0d1c2b3a49586776859403f2e1d0c9b8a79685",
        ref: str = "main",
        status: str = "success",
        source: str = "push",
        created: float = EPOCH,
        shuffle: int | None = None,
        private: bool = False,
    ) -> GitLabPipeline:
        """Add a pipeline (and its project)."""
        project = self.project(path, private=private)
        pipeline = GitLabPipeline(
            id=pipeline_id if pipeline_id is not None else next(self.ids),
            project=project,
            lab=self,
            sha=sha,
            ref=ref,
            status=status,
            source=source,
            created=created,
            shuffle=shuffle,
        )
        project.pipelines[pipeline.id] = pipeline
        return pipeline
