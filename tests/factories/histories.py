"""Real git repositories with a history that tests write in one go, and hunts over them."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from factories.repositories import Repository
from karat.engines.job import Job, JobCommand, JobResult
from karat.engines.runner import Slot, run_job
from karat.hunts.settings import CheckoutSettings, HuntSettings, ProbeSettings, RepositorySettings, Stage
from karat.hunts.timelines.timeline import Timeline, Workspace

NOON = int(datetime(2023, 8, 24, 12, tzinfo=UTC).timestamp())
HOUR = 3600


class History(Repository):
    """A repository whose commits are dated by the test."""

    def at(self, time: int, message: str = "more", **files: str) -> str:
        """One commit on the branch that is checked out, made at that time."""
        for name, text in files.items():
            self.write(name, text)
        self.git("add", "--all")
        return self._dated(time, "commit", "--quiet", "--allow-empty", f"--message={message}")

    def merge(self, time: int, *branches: str, message: str = "merge") -> str:
        return self._dated(time, "merge", "--quiet", "--no-ff", f"--message={message}", *branches)

    def _dated(self, time: int, *words: str) -> str:
        date = f"{time} +0000"
        subprocess.run(
            ["git", "-c", "user.name=Zoë Ünal", "-c", "user.email=z@example.invalid", *words],
            cwd=self.root,
            check=True,
            capture_output=True,
            env={
                "PATH": "/usr/bin:/bin",
                "GIT_COMMITTER_DATE": date,
                "GIT_AUTHOR_DATE": date,
                "GIT_CONFIG_GLOBAL": "/dev/null",
            },
        )
        return self.git("rev-parse", "HEAD").strip()


def imported(root: Path, dates: Sequence[int]) -> History:
    """A repository with one commit for each date, made in one process."""
    history = History(root)
    parts = []
    for number, date in enumerate(dates):
        parts.append(
            f"commit refs/heads/main\ncommitter t <t@example.invalid> {date} +0000\n"
            f"data {len(f'c{number}')}\nc{number}\n"
            f"M 100644 inline n.txt\ndata {len(str(number))}\n{number}\n"
        )
    subprocess.run(["git", "fast-import", "--quiet"], cwd=root, input="".join(parts).encode(), check=True)
    return history


def place(folder: Path, hunt: str = "h1") -> Workspace:
    return Workspace(root=folder, work=folder / "work", hunt=hunt)


def hunting(
    repositories: Mapping[str, Path | str],
    *,
    checkouts: CheckoutSettings | None = None,
    commits: CheckoutSettings | None = None,
    submodules: bool = False,
    branch: str = "main",
) -> HuntSettings:
    return HuntSettings(
        stages=("checkouts by hour", "commits"),
        probe=ProbeSettings(command="true"),
        repositories=tuple(
            RepositorySettings(name=name, url=str(url), submodules=submodules, branch=branch)
            for name, url in repositories.items()
        ),
        checkouts=checkouts or CheckoutSettings(),
        commits=commits,
    )


HOURS = Stage(timeline="checkouts", step=3600.0, text="checkouts by hour")
COMMITS = Stage(timeline="commits", text="commits")


def run(timeline: Timeline, number: int, area: Path, *argv: str) -> JobResult:
    """A point of a timeline put under test, for real, with one command."""
    point = timeline.points[number]
    return run_point(timeline, point, area, *argv)


def run_point(timeline: Timeline, point: object, area: Path, *argv: str) -> JobResult:
    own = JobCommand(role="measure", argv=argv or ("true",))
    commands = (*timeline.prepare(point), timeline.command(point, own))  # type: ignore[arg-type]
    area.mkdir(parents=True, exist_ok=True)
    return run_job(Job(key="k", commands=commands), Slot(number=0, area=area), lambda: False)


def printed(result: JobResult) -> str:
    """What the last command printed; what failed before it, otherwise."""
    bad = [msgspec.to_builtins(r) for r in result.ran if r.exit_code != 0 and not r.skipped]
    assert not bad, bad
    return result.ran[-1].output.decode().strip()
