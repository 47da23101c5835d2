"""GitHub's side of the forge: repositories, runs, attempts, jobs and artifacts, as its REST API has them."""

from __future__ import annotations

import hashlib
import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from factories.archives import zipped
from factories.blob_host import BlobHost

EPOCH = 1_767_225_600.0
"""2026-01-01, when everything here began."""
HOUR = 3600.0
Item = TypeVar("Item")


@dataclass(kw_only=True)
class GitHubJob:
    """One attempt of one job."""

    id: int
    name: str
    attempt: int
    status: str
    conclusion: str | None
    labels: Sequence[str]
    runner: str | None
    group: str | None
    started: float
    completed: float | None
    key: str
    """What makes two attempts one job: its name, and where it runs."""


@dataclass(kw_only=True)
class GitHubArtifact:
    id: int
    name: str
    run: GitHubRun
    body: bytes
    created: float
    expired: bool
    digest: str | None
    size: int
    path: str
    """Where the blob host keeps it."""


@dataclass(kw_only=True)
class GitHubRepository:
    id: int
    full_name: str
    private: bool
    runs: dict[int, GitHubRun] = field(default_factory=dict)
    workflows: dict[str, int] = field(default_factory=dict)
    pulls: dict[int, GitHubPull] = field(default_factory=dict)
    comments: list[GitHubIssueComment] = field(default_factory=list)


@dataclass(kw_only=True)
class GitHubIssueComment:
    id: int
    number: int
    login: str
    body: str


@dataclass(kw_only=True)
class GitHubReview:
    """One review; a dismissal changes its state in place."""

    id: int
    login: str | None
    state: str
    commit: str | None
    submitted: float | None


@dataclass(kw_only=True)
class GitHubCommit:
    """A commit of a pull request; without accounts GitHub knows only addresses."""

    sha: str
    author: str | None
    author_email: str
    committer: str | None
    committer_email: str
    message: str
    parents: int


@dataclass(kw_only=True)
class GitHubPull:
    number: int
    author: str
    head: str
    merge: str | None
    ids: Iterator[int]
    reviews: list[GitHubReview] = field(default_factory=list)
    commits: list[GitHubCommit] = field(default_factory=list)
    retargeted: list[float] = field(default_factory=list)
    """When it was pointed at another branch."""

    def retarget(self) -> float:
        """Point it at another branch, after all reviews so far."""
        self.retargeted.append(EPOCH + 60.0 * len(self.reviews) - 30.0)
        return self.retargeted[-1]

    def review(self, login: str | None, state: str = "APPROVED", commit: str | None = "") -> GitHubReview:
        """Add a review, by default of the head as it is now."""
        number = next(self.ids)
        review = GitHubReview(
            id=number,
            login=login,
            state=state,
            commit=self.head if commit == "" else commit,
            submitted=None if state == "PENDING" else EPOCH + 60.0 * len(self.reviews),
        )
        self.reviews.append(review)
        return review

    def commit(
        self,
        sha: str,
        author: str | None,
        *,
        email: str = "",
        committer: str | None = "web-flow",
        committer_email: str = "noreply@github.com",
        message: str = "Bump the image",
        parents: int = 1,
    ) -> GitHubCommit:
        commit = GitHubCommit(
            sha=sha,
            author=author,
            author_email=email or f"{author}@example.invalid",
            committer=committer,
            committer_email=committer_email,
            message=message,
            parents=parents,
        )
        self.commits.append(commit)
        return commit


@dataclass(kw_only=True)
class GitHubRun:
    """One workflow run; `attempts` is the newest."""

    id: int
    repository: GitHubRepository
    hub: GitHub
    sha: str
    workflow: str
    attempts: int
    status: str
    conclusion: str | None
    branch: str
    event: str
    created: float
    number: int
    shuffle: int | None
    """A seed: jobs and artifacts are listed in that disorder."""
    carry_over: bool
    """Whether listings of an attempt show the jobs it did not run again. GitHub has done both."""
    jobs: list[GitHubJob] = field(default_factory=list)
    artifacts: list[GitHubArtifact] = field(default_factory=list)

    @property
    def workflow_id(self) -> int:
        return self.repository.workflows[self.workflow]

    @property
    def workflow_file(self) -> str:
        return self.workflow.lower().replace(" ", "-") + ".yml"

    def job(
        self,
        name: str,
        *,
        attempt: int = 1,
        conclusion: str | None = "success",
        status: str | None = None,
        labels: Sequence[str] = ("ubuntu-latest",),
        runner: str | None = "GitHub Actions 7",
        group: str | None = "GitHub Actions",
        started: float | None = None,
        completed: float | None = None,
        id: int | None = None,  # noqa: A002 - GitHub's word
    ) -> GitHubJob:
        """Add an attempt of a job; without a conclusion it is still running."""
        begun = started if started is not None else self.created + attempt * HOUR
        ended = completed if completed is not None else begun + 600
        job = GitHubJob(
            id=id if id is not None else next(self.hub.ids),
            name=name,
            attempt=attempt,
            status=status or ("in_progress" if conclusion is None else "completed"),
            conclusion=conclusion,
            labels=tuple(labels),
            runner=runner,
            group=group,
            started=begun,
            completed=None if conclusion is None else ended,
            key="\n".join([name, *labels]),
        )
        self.jobs.append(job)
        return job

    def artifact(
        self,
        name: str,
        members: Mapping[str, bytes | str] | None = None,
        *,
        raw: bytes | None = None,
        created: float | None = None,
        expired: bool = False,
        digest: bool = True,
        id: int | None = None,  # noqa: A002 - GitHub's word
    ) -> GitHubArtifact:
        """Add an artifact: members of a zip, or `raw` bytes instead of one."""
        body = raw if raw is not None else zipped(members or {})
        number = id if id is not None else next(self.hub.ids)
        artifact = GitHubArtifact(
            id=number,
            name=name,
            run=self,
            body=body,
            created=created if created is not None else self.created + HOUR + 500,
            expired=expired,
            digest=f"sha256:{hashlib.sha256(body).hexdigest()}" if digest else None,
            size=len(body),
            path=f"/actions-results/{self.id}/artifacts/{number}/{name}.zip",
        )
        self.artifacts.append(artifact)
        if not expired:
            self.hub.blobs.put(artifact.path, body, filename=f"{name}.zip", modified=artifact.created)
        return artifact

    def jobs_of(self, attempt: int | None) -> list[GitHubJob]:
        """What listing an attempt shows; None for every attempt there was."""
        if attempt is None:
            return self.disorder(self.jobs)
        if not self.carry_over:
            return self.disorder([job for job in self.jobs if job.attempt == attempt])
        newest: dict[str, GitHubJob] = {}
        for job in self.jobs:
            if job.attempt <= attempt and (job.key not in newest or newest[job.key].attempt < job.attempt):
                newest[job.key] = job
        return self.disorder(list(newest.values()))

    def disorder(self, items: list[Item]) -> list[Item]:
        """The same disorder every time, so that pages fit together."""
        if self.shuffle is None:
            return items
        return random.Random(self.shuffle).sample(items, len(items))


class GitHub:
    """Everything GitHub knows, to be told by a test before it asks."""

    def __init__(self, blobs: BlobHost) -> None:
        self.blobs = blobs
        self.tokens = {"ghs_ForgeTokenForTests0123456789abcdef"}
        self.ids: Iterator[int] = itertools.count(10_001)
        self.repositories: dict[str, GitHubRepository] = {}
        self.anonymous_downloads = False
        """Real GitHub wants a token for downloads, even from public repositories."""
        self.limit = 5000
        self.used = 0
        self.teams: dict[str, list[str]] = {}
        """`org/slug` → accounts; whoever lacks the scope sees none of them."""
        self.emails: dict[str, str] = {}
        """Account → the address it shows to everyone."""
        self.account: str | None = None
        """Whose the tokens are; nobody's in a workflow."""
        self.reads_only = False
        """Whether tokens may only read, as in a pull request from a fork."""

    @property
    def token(self) -> str:
        """A token that opens everything."""
        return min(self.tokens)

    def repository(self, full_name: str, *, private: bool = False) -> GitHubRepository:
        known = self.repositories.get(full_name.lower())
        if known is None:
            known = GitHubRepository(id=next(self.ids), full_name=full_name, private=private)
            self.repositories[full_name.lower()] = known
        return known

    def pull(self, full_name: str, number: int, *, author: str, head: str, merge: str | None = None) -> GitHubPull:
        """Add a pull request (and its repository)."""
        pull = GitHubPull(number=number, author=author, head=head, merge=merge, ids=self.ids)
        self.repository(full_name).pulls[number] = pull
        return pull

    def run(
        self,
        full_name: str,
        *,
        run_id: int | None = None,
        sha: str = "5f0d1c2b3a49586776859403f2e1d0c9b8a79685",
        workflow: str = "CI",
        attempts: int = 1,
        status: str | None = None,
        conclusion: str | None = "success",
        branch: str = "main",
        event: str = "push",
        created: float = EPOCH,
        shuffle: int | None = None,
        carry_over: bool = True,
        private: bool = False,
    ) -> GitHubRun:
        """Add a run (and its repository); without a conclusion it is still running."""
        repository = self.repository(full_name, private=private)
        repository.workflows.setdefault(workflow, next(self.ids))
        run = GitHubRun(
            id=run_id if run_id is not None else next(self.ids),
            repository=repository,
            hub=self,
            sha=sha,
            workflow=workflow,
            attempts=attempts,
            status=status or ("in_progress" if conclusion is None else "completed"),
            conclusion=conclusion,
            branch=branch,
            event=event,
            created=created,
            number=len(repository.runs) + 1,
            shuffle=shuffle,
            carry_over=carry_over,
        )
        repository.runs[run.id] = run
        return run

    def artifacts(self) -> Iterator[GitHubArtifact]:
        for repository in self.repositories.values():
            for run in repository.runs.values():
                yield from run.artifacts
