"""What is known of commits beforehand: it saves runs where it is right, and excludes nothing where it is wrong."""

from __future__ import annotations

import json
import random
from datetime import timedelta
from pathlib import Path

import pytest

from factories.commands import karat_here
from factories.hunts import BEGAN, commit_at, commits_hunt
from factories.repositories import Repository
from factories.simulated_hunts import Simulated, pairs, stepped
from karat.hunts.model import Metric
from karat.hunts.search.strategies import open_strategy
from karat.hunts.settings import SearchSettings
from karat.hunts.timelines.git_mirror import likelihood

SPEED, TEST = Metric(name="m", better="higher"), Metric(name="m", binary=True)


def runs(weights: list[float], at: int, strategy: str, metric: Metric = SPEED, seed: int = 0) -> int:
    """How many it takes to find the change at that point; it must be found."""
    count = len(weights)
    truth = [0.0] * at + [1.0] * (count - at) if metric.binary else stepped(count, (at, 0.95))
    world = Simulated(truth, spread=0.003, flakes=0.1, seed=seed)
    levels = {"m": (100.0, 95.0)} if strategy == "adaptive" else None
    settings = SearchSettings(strategy=strategy)  # type: ignore[arg-type]
    assert pairs(world.hunt(open_strategy(settings, count, [metric], levels=levels, weights=weights))) == [(at - 1, at)]
    return world.runs


@pytest.mark.slow
@pytest.mark.parametrize(("strategy", "metric"), [("adaptive", SPEED), ("bisect", SPEED), ("bisect", TEST)])
def test_what_is_likely_is_found_sooner_and_what_is_unlikely_is_found_all_the_same(
    strategy: str, metric: Metric
) -> None:
    right = wrong = plain = 0
    for seed in range(12):
        rng = random.Random(seed)
        at, likely = rng.randrange(1, 64), set(rng.sample(range(64), 8))
        weights = [8.0 if k in {*likely, at} else 0.01 for k in range(64)]
        misled = [0.0 if k == at else 1.0 + k % 5 for k in range(64)]
        right += runs(weights, at, strategy, metric, seed)
        wrong += runs(misled, at, strategy, metric, seed)
        plain += runs([1.0] * 64, at, strategy, metric, seed)
    assert right < plain
    assert wrong < 1.6 * plain


def test_the_files_of_a_commit_say_how_likely_it_is() -> None:
    docs = likelihood(["docs/a.md", "README.rst", "tests/test_x.py", ".github/workflows/ci.yml"])
    code, much = likelihood(["src/a.c"]), likelihood([f"src/{n}.c" for n in range(40)])
    lock = likelihood(["third_party/xla/workspace.bzl"])
    assert 0 < docs < code < much
    assert lock > code
    assert likelihood([]) == docs, "an empty commit"


@pytest.mark.slow
@pytest.mark.parametrize("stages", [["commits"], ["checkouts by hour", "commits"]], ids=["commits", "hours"])
def test_a_hunt_over_commits_looks_first_where_code_was_touched(tmp_path: Path, stages: list[str]) -> None:
    repository, commits = Repository(tmp_path / "source"), []
    for number in range(44):
        name = "code.c" if number % 11 == 5 else "docs/text.md"
        repository.write("speed", "95\n") if number == 27 else repository.write(name, f"{number}\n")
        if not number:
            repository.write("speed", "100\n")
        commits.append(commit_at(repository, BEGAN + number * timedelta(minutes=10), f"change {number}"))
    ends = f'[commits]\ngood = {{ r = "{commits[0]}" }}\nbad = {{ r = "{commits[-1]}" }}\n'
    hours = "[checkouts]\nstart = 2023-08-24T00:00:00Z\nend = 2023-08-24T08:00:00Z\n"
    found, taken = [], []
    for switch in ("--priors", "--no-priors"):
        folder = tmp_path / switch
        commits_hunt(folder, {"r": repository}, "echo speed: $(cat speed)", hours if len(stages) > 1 else ends, stages)
        result = karat_here("hunt", "run", switch, "--json", "-", cwd=folder)
        report = json.loads(result.out)
        found.append([(c["change"]["old"]["parts"]["r"], c["change"]["new"]["parts"]["r"]) for c in report["culprits"]])
        taken.append(report["runs"])
    assert found == [[(commits[26], commits[27])]] * 2
    assert taken[0] <= taken[1]


@pytest.mark.slow
def test_a_change_that_came_with_the_docs_is_found_as_surely(tmp_path: Path) -> None:
    repository, commits = Repository(tmp_path / "source"), []
    for number in range(20):
        repository.write("docs/speed.md", "95\n" if number >= 13 else "100\n")
        repository.write("docs/x.md" if number in range(12, 15) else "code.c", f"{number}\n")
        commits.append(commit_at(repository, BEGAN, f"change {number}"))
    ends = f'[commits]\ngood = {{ r = "{commits[0]}" }}\n'
    commits_hunt(tmp_path / "hunt", {"r": repository}, "echo speed: $(cat docs/speed.md)", ends, ["commits"])
    result = karat_here("hunt", "--json", "-", cwd=tmp_path / "hunt")
    (culprit,) = json.loads(result.out)["culprits"]
    assert (result.code, culprit["change"]["new"]["parts"]["r"]) == (1, commits[13])
