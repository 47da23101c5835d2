"""What a source knows before anything is downloaded, and what a download leaves.

A source (GitHub, GitLab, a bucket, a folder) answers two questions. `listing()`: which runs, jobs
and artifacts are there? `fetch()`: the wanted files of some artifacts, as files on this disk. It
judges nothing: which artifact belongs to which job, and which golden it becomes, is `karat.refresh`'s
business. Whatever goes wrong with one artifact is a finding on that artifact; only what makes the
whole listing impossible (no such run, no access) raises, as `CannotVerify` or `UsageError`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

import msgspec

from karat.findings import Finding
from karat.system.archives import Unusable, no_room


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One CI execution: a GitHub workflow run, a GitLab pipeline (a child one, too)."""

    id: str
    attempt: int = 1  # The newest attempt the server knows of.
    commit: str | None = None
    name: str = ""  # The workflow's name; for a child pipeline, the name of the bridge that started it.
    conclusion: str | None = None  # None while it has not finished.
    rerun: str | None = None
    """The command that runs its failed jobs again, once it has finished; until then, one that waits for that."""


class CiJob(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of one job of a run."""

    id: str
    run_id: str
    name: str
    attempt: int = 1
    conclusion: str | None = None
    """GitHub's words (`success`, `failure`, `cancelled`, `timed_out`, `skipped`, …); None: not finished."""
    labels: tuple[str, ...] = ()  # What the job says of where it ran: runner labels or tags, runner and group name.
    stage: str = ""
    started: float | None = None
    completed: float | None = None  # POSIX seconds.
    rerun: str | None = None
    """The command that runs it again, once its run has finished; until then, one that waits for that."""


class Artifact(msgspec.Struct, frozen=True, kw_only=True):
    """One archive (or folder) that a run left behind."""

    id: str
    name: str
    run_id: str | None = None
    size: int | None = None  # Bytes as the server says; for progress, never for trust.
    expired: bool = False
    created: float | None = None
    job_id: str | None = None  # The job that made it, where the server knows.
    attempt: int | None = None
    digest: str | None = None  # `sha256:…` of the archive, where the server says.
    url: str | None = None
    look: str | None = None  # The command that shows it as it is.


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a source knows about what was asked for."""

    source: str  # `github`, `gitlab`, `folder`, `s3`, …
    origin: str  # What it was asked for, for people: `run 123 of owner/name`, a path, a URL without secrets.
    repo: str | None = None  # OWNER/NAME, where the source has one.
    runs: tuple[Run, ...] = ()
    jobs: tuple[CiJob, ...] = ()
    artifacts: tuple[Artifact, ...] = ()
    findings: tuple[Finding, ...] = ()


class Fetched(msgspec.Struct, frozen=True, kw_only=True):
    """What came of fetching one artifact."""

    artifact: Artifact
    members: Mapping[str, Path] = msgspec.field(default_factory=dict)
    """The wanted files by name (`/`-separated, relative), as plain files on this disk; read-only for the caller."""
    findings: tuple[Finding, ...] = ()  # A `fail` among them: nothing of this artifact can be used.
    received: int = 0  # Bytes that came over the network.


class Progress(Protocol):
    """Someone who watches downloads; called from several threads."""

    def begin(self, artifact: Artifact, total: int | None) -> None:
        """A transfer starts; `total` in bytes, where known."""

    def advance(self, artifact: Artifact, received: int) -> None:
        """So many more bytes came in."""

    def end(self, artifact: Artifact) -> None:
        """The transfer is over, well or badly."""


@runtime_checkable
class Source(Protocol):
    """Where new values come from."""

    def listing(self) -> Listing:
        """Runs, jobs and artifacts; nothing is downloaded yet."""

    def fetch(
        self, artifacts: Sequence[Artifact], wanted: Callable[[str], bool], progress: Progress | None = None
    ) -> Iterator[Fetched]:
        """The wanted files of each artifact, in the order they arrive; one `Fetched` per artifact."""

    def close(self) -> None:
        """Let go of connections, and of files that are not worth keeping."""


Notice = Callable[[str], None]
Wanted = Callable[[str], bool]
Obtained = dict[str, Path]  # The wanted files of an artifact by name; it may have none.


class TransferProgress:
    """Counts what comes, and tells whoever watches; several threads may bring one artifact."""

    def __init__(self, artifact: Artifact, progress: Progress | None) -> None:
        self._artifact, self._progress = artifact, progress
        self._lock = threading.Lock()
        self._begun = False
        self.received = 0

    def begin(self, total: int | None) -> None:
        """It starts, and so many bytes will come; later calls are ignored."""
        if self._progress and not self._begun:
            self._progress.begin(self._artifact, total)
            if self.received:
                self._progress.advance(self._artifact, self.received)
        self._begun = True

    def advance(self, count: int) -> None:
        with self._lock:
            self.received += count
        if self._progress and self._begun:
            self._progress.advance(self._artifact, count)

    def end(self) -> None:
        """It is over, if it began."""
        if self._progress and self._begun:
            self._progress.end(self._artifact)


def fetch_one(
    artifact: Artifact,
    progress: Progress | None,
    obtain: Callable[[TransferProgress], Obtained],
    then: Callable[[Unusable], str],
) -> Fetched:
    """What `obtain` brings, or why it cannot; `then` gives the next command for what is unusable."""
    watch = TransferProgress(artifact, progress)
    try:
        members = obtain(watch)
    except Unusable as error:
        problem = error
    except OSError as error:
        problem = no_room(error)
    else:
        return Fetched(artifact=artifact, members=members, received=watch.received)
    finally:
        watch.end()
    finding = problem.finding(artifact.name, then(problem))
    return Fetched(artifact=artifact, findings=(finding,), received=watch.received)
