"""GitHub Actions: runs, jobs of every attempt, and artifacts, by the REST API."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from karat.findings import CannotVerify, Finding, UsageError, fail, warn
from karat.net.client import Advice, Refused
from karat.net.forges import GITHUB_HEADERS, github_host, github_root, github_token, is_repository
from karat.sources.source import Artifact, CiJob, Listing, Run
from karat.sources.transfer import ArtifactRequest, Forge
from karat.system.command import Command

_SHA = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_PAGE = 100


class _GitHubRun(msgspec.Struct, frozen=True):
    id: int
    name: str | None = None
    run_attempt: int | None = None
    head_sha: str | None = None
    status: str | None = None
    conclusion: str | None = None
    path: str | None = None
    workflow_id: int | None = None

    @property
    def label(self) -> str:
        return f"run {self.id}" + (f" ({self.name})" if self.name else "")

    def is_of(self, workflow: str) -> bool:
        """Whether its workflow has that name, file or number."""
        file = (self.path or "").split("@")[0]
        return workflow in {self.name, str(self.workflow_id), file, file.rpartition("/")[2]}


class _GitHubJob(msgspec.Struct, frozen=True):
    id: int
    name: str
    run_attempt: int | None = None
    status: str | None = None
    conclusion: str | None = None
    labels: tuple[str, ...] = ()
    runner_name: str | None = None
    runner_group_name: str | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None


class _Artifact(msgspec.Struct, frozen=True):
    id: int
    name: str
    size_in_bytes: int | None = None
    expired: bool = False
    created_at: datetime | None = None
    digest: str | None = None


class _Runs(msgspec.Struct, frozen=True, rename={"items": "workflow_runs"}):
    items: tuple[_GitHubRun, ...]
    total_count: int = 0


class _Jobs(msgspec.Struct, frozen=True, rename={"items": "jobs"}):
    items: tuple[_GitHubJob, ...]
    total_count: int = 0


class _Artifacts(msgspec.Struct, frozen=True, rename={"items": "artifacts"}):
    items: tuple[_Artifact, ...]
    total_count: int = 0


class _Commit(msgspec.Struct, frozen=True):
    sha: str


class GitHub(Forge):
    """One run, or all completed runs of a commit, of one repository."""

    def __init__(
        self,
        repo: str,
        *,
        run_id: int | str | None = None,
        sha: str | None = None,
        workflows: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        **rest: Any,
    ) -> None:
        """`rest` is what `Forge` takes."""
        if not is_repository("github", repo):
            raise UsageError(
                f"expected --repo OWNER/NAME, found {repr(repo) if repo else 'none'}",
                next_command="karat refresh --source github --repo OWNER/NAME --run-id N --scope all",
            )
        if (run_id is None) == (sha is None):
            said = f"expected one of --run-id N and --sha SHA, found {'neither' if run_id is None else 'both'}"
            example = ("--source", "github", "--repo", repo, "--run-id", "N", "--scope", "all")
            raise UsageError(said, next_command=Command("karat", "refresh", *example))
        if run_id is not None and not (str(run_id).isascii() and str(run_id).isdigit()):
            said = f"expected --run-id to be the number in the run's URL, found {run_id!r}"
            raise UsageError(said, next_command=Command("gh", "run", "list", "--repo", repo))
        if sha is not None and not re.fullmatch(r"[0-9A-Fa-f]{4,64}", sha):
            said = f"expected the SHA of a commit, found {sha!r}"
            raise UsageError(said, next_command=Command("git", "rev-parse", sha))
        env = os.environ if env is None else env
        self._repo, self._sha, self._workflows = repo, sha, tuple(workflows)
        self._run_id = None if run_id is None else int(run_id)
        self._asked = f"run {self._run_id}" if self._run_id is not None else f"commit {sha}"
        which = ("--sha", sha or "") if self._run_id is None else ("--run-id", str(self._run_id))
        self._again = Command("karat", "refresh", "--source", "github", "--repo", repo, *which, "--scope", "all")
        self._home = f"/repos/{repo}"
        root = github_root(env)
        host = github_host(root)
        self._for_gh = repo if host == "github.com" else f"{host}/{repo}"
        token = github_token(env, host)
        # A token of the environment stays in force whatever `gh` logs in to; what it may do, `gh` can tell.
        verb = "status" if token and token.found_in in env else "login"
        super().__init__(
            root,
            token,
            env,
            headers=GITHUB_HEADERS,
            advice=Advice(again=self._again, login=Command("gh", "auth", verb, "--hostname", host)),
            **rest,
        )

    def listing(self) -> Listing:
        """Runs, jobs of every attempt, and artifacts."""
        try:
            if self._run_id is None:
                runs, findings = self._runs_of_commit()
            else:
                runs = [run := self._client.get(f"{self._home}/actions/runs/{self._run_id}", _GitHubRun)]
                findings = [] if run.status == "completed" else [self._still_going(run, "may still leave more")]
        except Refused as error:
            raise self._no_such(error, f"{self._asked} in {self._repo}", self._gh("list")) from None
        jobs: dict[int, list[CiJob]] = {}
        artifacts: dict[int, list[Artifact]] = {}
        tasks: list[Callable[[], None]] = []
        for run in runs:
            tasks += [
                lambda run=run: jobs.update({run.id: self._jobs(run, findings)}),  # type: ignore[misc]
                lambda run=run: artifacts.update({run.id: self._artifacts(run, findings)}),  # type: ignore[misc]
            ]
        self._gather(tasks)
        return Listing(
            source="github",
            origin=f"{self._asked} of {self._repo}",
            repo=self._repo,
            runs=tuple(
                Run(
                    id=str(run.id),
                    attempt=run.run_attempt or 1,
                    commit=run.head_sha,
                    name=run.name or "",
                    conclusion=run.conclusion if run.status == "completed" else None,
                    rerun=self._rerun(run, str(run.id), "--failed"),
                )
                for run in runs
            ),
            jobs=tuple(job for run in runs for job in jobs[run.id]),
            artifacts=tuple(artifact for run in runs for artifact in artifacts[run.id]),
            findings=tuple(sorted(findings, key=lambda finding: finding.message)),
        )

    def _request(self, artifact: Artifact) -> ArtifactRequest:
        # A number is never given twice, and the bytes behind it never change.
        path = f"{self._home}/actions/artifacts/{artifact.id}/zip"
        what = ("--job", artifact.job_id) if artifact.job_id else (str(artifact.run_id or self._run_id or ""),)
        return ArtifactRequest(
            artifact=artifact,
            url=self._client.url(path),
            key=("github", self._client.root, self._repo, artifact.id, artifact.digest or ""),
            look=artifact.look,
            remake=self._gh("rerun", *what),
            newer=self._gh("list"),
        )

    def _runs_of_commit(self) -> tuple[list[_GitHubRun], list[Finding]]:
        """Completed runs of the commit, and a warning for each that is not."""
        findings: list[Finding] = []
        sha = (self._sha or "").lower()
        if not _SHA.fullmatch(sha):  # the list of runs wants it in full
            sha = self._client.get(f"{self._home}/commits/{sha}", _Commit).sha
        runs: list[_GitHubRun] = self._all("runs", _Runs, "runs of the commit", findings, head_sha=sha)
        if self._workflows:
            runs = [run for run in runs if any(run.is_of(name) for name in self._workflows)]
        done = [run for run in runs if run.status == "completed"]
        going = [run for run in runs if run.status != "completed"]
        if not done:
            of = f" of workflow {' or '.join(self._workflows)}" if self._workflows else ""
            raise CannotVerify(
                f"expected completed runs{of} of commit {sha} in {self._repo}, found none"
                + (f"; still going: {', '.join(run.label for run in going)}" if going else ""),
                next_command=self._gh("list", "--commit", sha),
            )
        findings += [self._still_going(run, "is left out") for run in going]
        return done, findings

    def _rerun(self, run: _GitHubRun, *words: str) -> Command:
        """Runs some of it again; what has not finished cannot be."""
        return self._gh("rerun", *words) if run.status == "completed" else self._gh("watch", str(run.id))

    def _gh(self, *words: str) -> Command:
        return Command("gh", "run", *words, "--repo", self._for_gh)

    def _still_going(self, run: _GitHubRun, so: str) -> Finding:
        said = f"{run.label} has not finished ({run.status}); it {so}"
        return warn("not-refreshed", said, next=self._gh("watch", str(run.id)))

    def _jobs(self, run: _GitHubRun, findings: list[Finding]) -> list[CiJob]:
        jobs: list[_GitHubJob] = self._all(f"runs/{run.id}/jobs", _Jobs, f"jobs of {run.label}", findings, filter="all")
        return [
            CiJob(
                id=str(job.id),
                run_id=str(run.id),
                name=job.name,
                attempt=job.run_attempt or 1,
                conclusion=job.conclusion if job.status == "completed" else None,
                labels=tuple(dict.fromkeys(filter(None, (*job.labels, job.runner_name, job.runner_group_name)))),
                started=job.started_at.timestamp() if job.started_at else None,
                completed=job.completed_at.timestamp() if job.completed_at else None,
                rerun=self._rerun(run, "--job", str(job.id)),
            )
            for job in jobs
        ]

    def _artifacts(self, run: _GitHubRun, findings: list[Finding]) -> list[Artifact]:
        path, what = f"runs/{run.id}/artifacts", f"artifacts of {run.label}"
        artifacts: list[_Artifact] = self._all(path, _Artifacts, what, findings)
        return [
            Artifact(
                id=str(artifact.id),
                name=artifact.name,
                run_id=str(run.id),
                size=artifact.size_in_bytes,
                expired=artifact.expired,
                created=artifact.created_at.timestamp() if artifact.created_at else None,
                digest=artifact.digest,
                look=self._gh("download", str(run.id), "--name", artifact.name),
            )
            for artifact in artifacts
        ]

    def _all(
        self, path: str, kind: type[_Runs | _Jobs | _Artifacts], what: str, findings: list[Finding], **query: str
    ) -> list[Any]:
        """The items of every page, by their numbers; says so if the server announced more than it gave."""
        pages = list(self._client.pages(f"{self._home}/actions/{path}", kind, **query, per_page=_PAGE))
        said = max((page.total_count for page in pages), default=0)
        found = {item.id: item for page in pages for item in page.items}
        if len(found) < said:
            message = f"expected {said} {what}, as GitHub says, found {len(found)} in its listing"
            findings.append(fail("not-refreshed", message, next=self._again))
        return [item for _, item in sorted(found.items())]
