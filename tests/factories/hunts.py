"""Small hunts for real: folders with a hunt.toml, a probe that is a shell script, repositories with planted changes."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from msgspec import structs

from factories.repositories import Repository
from karat.engines.job import Engine, EngineSettings, open_engine
from karat.hunts import hunt_toml
from karat.hunts.driver import run_hunt
from karat.hunts.hunt import hunt_row
from karat.hunts.hunt_toml import journal_path, workspace_of
from karat.hunts.journal import Journal
from karat.hunts.model import HuntReport
from karat.hunts.report.assemble import build_report
from karat.hunts.report.terminal import Listener

# What a value gives is written in levels.txt: a number, or how it fails. Every run leaves a line in ran.txt.
PROBE = """
echo "$1" >> ran.txt
while read -r name what; do
  [ "$name" = "$1" ] || continue
  case "$what" in
    crash) echo "ImportError: cannot import name 'x' from 'y'" >&2; exit 1;;
    hang) sleep 60;;
    skip) exit 125;;
    slow*) sleep "${what#slow }"; echo "speed: 100";;
    *) echo "speed: $what";;
  esac
done < levels.txt
"""
BEGAN = datetime(2023, 8, 24, tzinfo=UTC)


def culprits(report: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """What a hunt's JSON blames: kind, old and new."""
    changes = [culprit["change"] for culprit in report["culprits"]]
    return [(c["kind"], c["old"]["label"], c["new"]["label"]) for c in changes]


def values_hunt(folder: Path, levels: Mapping[str, str | float], more: str = "") -> Path:
    """A hunt over values, each with its level; hunt.toml's path."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "probe.sh").write_text(PROBE, encoding="utf-8")
    lines = "".join(f"{name} {what}\n" for name, what in levels.items())
    (folder / "levels.txt").write_text(lines, encoding="utf-8")
    file = folder / "hunt.toml"
    file.write_text(
        f"""
stages = ["values"]

[probe]
command = ["sh", "probe.sh", "{{value}}"]
timeout = "20 s"

[[probe.metrics]]
name = "speed"
regex = 'speed: ([0-9.]+)'
better = "higher"
unit = "MLUPS"

[values]
list = {json.dumps(list(levels))}
{more}""",
        encoding="utf-8",
    )
    return file


def stepped(count: int, *changes: tuple[int, float], first: float = 100.0) -> dict[str, str | float]:
    """Levels of `count` values: from each index on the given one, with a little noise that stays what it is."""
    levels: dict[str, str | float] = {}
    current = first
    for index in range(count):
        current = dict(changes).get(index, current)
        levels[f"v{index:03d}"] = round(current * (1 + 0.0005 * ((index * 7919) % 11 - 5) / 5), 4)
    return levels


def ran(folder: Path) -> list[str]:
    """The values that the probe was run with, in order."""
    path = folder / "ran.txt"
    return path.read_text(encoding="utf-8").split() if path.exists() else []


def dated_commits(
    repository: Repository, speeds: Sequence[int | str], every: timedelta = timedelta(minutes=10)
) -> list[str]:
    """One commit per speed, written into a file `speed`; their ids."""
    found = []
    for number, speed in enumerate(speeds):
        repository.write("speed", f"{speed}\n")
        repository.write("notes", f"{number}\n")
        found.append(commit_at(repository, BEGAN + number * every, f"change {number}"))
    return found


def commit_at(repository: Repository, when: datetime, message: str) -> str:
    """A commit of everything, dated."""
    repository.git("add", "--all")
    stamp = {"GIT_AUTHOR_DATE": when.isoformat(), "GIT_COMMITTER_DATE": when.isoformat()}
    subprocess.run(
        [
            "git",
            "-c",
            "user.name=Ann Author",
            "-c",
            "user.email=a@example.invalid",
            "-c",
            "commit.gpgsign=false",
            "commit",
            "--quiet",
            "--allow-empty",
            "-m",
            message,
        ],
        cwd=repository.root,
        env={**os.environ, **stamp},
        check=True,
        capture_output=True,
    )
    return repository.git("rev-parse", "HEAD").strip()


def commits_hunt(
    folder: Path, repositories: Mapping[str, Repository], probe: str, more: str, stages: Sequence[str]
) -> Path:
    """A hunt over commits of repositories; `probe` is a line for sh in the folder that holds them."""
    folder.mkdir(parents=True, exist_ok=True)
    listed = "".join(
        f"[[repositories]]\nname = {json.dumps(name)}\nurl = {json.dumps(str(r.root))}\n\n"
        for name, r in repositories.items()
    )
    file = folder / "hunt.toml"
    file.write_text(
        f"""
name = "two repositories"
stages = {json.dumps(list(stages))}

{listed}
[probe]
command = ["sh", "-c", {json.dumps(probe)}]
timeout = "20 s"

[[probe.metrics]]
name = "speed"
regex = 'speed: ([0-9.]+)'
better = "higher"
{more}""",
        encoding="utf-8",
    )
    return file


@contextmanager
def hunting(file: Path, engine: Engine | None = None, **changed: object) -> Iterator[Journal]:
    """A hunt that was driven in this process until it ended, by its journal; a journal that is there is resumed."""
    plain = hunt_toml.read(file)
    settings = structs.replace(plain, search=structs.replace(plain.search, **changed))
    place, path = workspace_of(file, settings), journal_path(file, settings).absolute()
    row = hunt_row(file, settings, place)
    journal = Journal.resume(path) if path.exists() else Journal.create(path, row)
    mine = engine or open_engine(EngineSettings(slots=settings.engine.slots), place.work)
    with journal, closing(mine):
        run_hunt(settings, place, mine, journal, Listener())
        yield journal


def hunted(file: Path, engine: Engine | None = None, **changed: object) -> HuntReport:
    """The report of a hunt that was driven in this process."""
    with hunting(file, engine, **changed) as journal:
        return build_report(journal)


def found(report: HuntReport) -> list[tuple[str, str, str]]:
    """Kind, last good and first bad point of every culprit."""
    return [(c.change.kind, c.change.old.label, c.change.new.label) for c in report.culprits]
