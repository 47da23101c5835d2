"""A source whose listing and artifacts are plain data: for what `refresh` decides, not how bytes travel."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from karat.findings import Finding
from karat.sources.source import Artifact, CiJob as Job, Fetched, Listing, Progress, Run
from karat.system.command import Command


class Listed:
    """Answers from memory, in an order of its own."""

    def __init__(
        self,
        folder: Path,
        *,
        jobs: Sequence[Job] = (),
        artifacts: Sequence[tuple[Artifact, Mapping[str, bytes | str]]] = (),
        runs: Sequence[Run] = (Run(id="7", commit="c0ffee", name="CI"),),
        failing: Mapping[str, Finding] | None = None,
        source: str = "github",
    ) -> None:
        self._folder = folder
        self._contents = {artifact.id: contents for artifact, contents in artifacts}
        self._failing = failing or {}
        self._listing = Listing(
            source=source,
            origin="run 7 of owner/name",
            repo="owner/name",
            runs=tuple(runs),
            jobs=tuple(jobs),
            artifacts=tuple(artifact for artifact, _ in artifacts),
        )
        self.fetched: list[str] = []

    def listing(self) -> Listing:
        return self._listing

    def fetch(
        self, artifacts: Sequence[Artifact], wanted: Callable[[str], bool], progress: Progress | None = None
    ) -> Iterator[Fetched]:
        del progress
        for artifact in reversed(artifacts):
            self.fetched.append(artifact.name)
            if artifact.id in self._failing:
                yield Fetched(artifact=artifact, findings=(self._failing[artifact.id],))
                continue
            contents = self._contents.get(artifact.id, {})
            yield Fetched(
                artifact=artifact, members={n: self._file(artifact, n, c) for n, c in contents.items() if wanted(n)}
            )

    def _file(self, artifact: Artifact, name: str, content: bytes | str) -> Path:
        path = self._folder / artifact.id / name.replace("/", "__")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def close(self) -> None:
        pass


def job(
    name: str,
    conclusion: str | None = "failure",
    *,
    attempt: int = 1,
    id: str | None = None,  # noqa: A002 - the server's word
    labels: Sequence[str] = (),
    started: float | None = None,
) -> Job:
    """One attempt of a job of run 7; attempts begin 1000 s after one another."""
    begun = 1000.0 * attempt if started is None else started
    number = id or f"{abs(hash((name, attempt, tuple(labels)))) % 10**9}"
    return Job(
        id=number,
        rerun=Command("gh", "run", "rerun", "--job", number),
        run_id="7",
        name=name,
        attempt=attempt,
        conclusion=conclusion,
        labels=tuple(labels),
        started=begun,
        completed=begun + 500,
    )


def artifact(name: str, *, attempt: int = 1, id: str | None = None, **more: object) -> Artifact:  # noqa: A002
    """An artifact of run 7, made during an attempt."""
    return Artifact(
        id=id or f"{name}#{attempt}",
        name=name,
        run_id="7",
        created=1000.0 * attempt + 400,
        look=Command("gh", "run", "download", "7", "--name", name),
        **more,  # type: ignore[arg-type]
    )
