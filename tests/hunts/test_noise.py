from __future__ import annotations

import random
from pathlib import Path

import pytest
from msgspec import structs

from factories.hunts import commits_hunt, dated_commits, hunted as hunt
from factories.repositories import Repository
from factories.simulated_hunts import Simulated, pairs, stepped
from karat.hunts.model import Decision, Metric
from karat.hunts.search.inference import level_map
from karat.hunts.search.noise import Circumstance
from karat.hunts.search.strategies import open_strategy
from karat.hunts.settings import SearchSettings

SPEED = Metric(name="m", better="higher")
STEP = stepped(128, (50, 0.96))


def hunted(world: Simulated, strategy: str = "adaptive") -> Decision:
    settings = SearchSettings(strategy=strategy)  # type: ignore[arg-type]
    return world.hunt(open_strategy(settings, len(world.truth), [SPEED]))


@pytest.mark.slow
@pytest.mark.parametrize(
    "noise",
    [{"builds": 0.005}, {"drift": -0.0005}, {"workers": (-0.012, 0.004, 0.01)}],
    ids=["builds", "drift", "workers"],
)
@pytest.mark.parametrize("spread", [0.001, 0.004])
def test_what_is_no_change_is_not_called_one(noise: dict[str, float], spread: float) -> None:
    """Measured on thousands by benchmarks/hunt_search.py; six false changes per flat history before builds were modelled."""
    flat = [Simulated(stepped(128), spread=spread, seed=seed, **noise) for seed in range(4)]  # type: ignore[arg-type]
    assert [pairs(hunted(world)) for world in flat] == [[]] * 4
    moved = [Simulated(STEP, spread=spread, seed=seed, **noise) for seed in range(4)]  # type: ignore[arg-type]
    assert [pairs(hunted(world)) for world in moved] == [[(49, 50)]] * 4
    assert all(world.runs < 128 for world in (*flat, *moved))


@pytest.mark.slow
def test_the_parts_of_the_noise_are_told_apart() -> None:
    builds = hunted(Simulated(STEP, spread=0.001, builds=0.005, seed=3)).noise[0]
    assert builds.metric == "m"
    assert builds.run == pytest.approx(0.001, rel=0.7)
    assert builds.build == pytest.approx(0.005, rel=0.4)
    workers = hunted(Simulated(STEP, spread=0.002, workers=(-0.012, 0.004, 0.01), seed=3)).noise[0]
    assert workers.worker == pytest.approx(0.01, rel=0.6)
    assert workers.run + workers.build < 0.005
    drift = hunted(Simulated(STEP, spread=0.002, drift=-0.001, seed=3)).noise[0]
    assert drift.time > 0.003
    plain = hunted(Simulated(STEP, spread=0.004, seed=3)).noise[0]
    assert (plain.worker, plain.time) == (0, 0)
    assert plain.run == pytest.approx(0.004, rel=0.4)


@pytest.mark.slow
def test_the_levels_of_a_change_are_those_without_the_drift() -> None:
    (span,) = hunted(Simulated(STEP, spread=0.002, drift=-0.002, seed=1)).spans
    assert span.before is not None
    assert span.after is not None
    assert span.after / span.before == pytest.approx(0.96, abs=0.005)


@pytest.mark.slow
def test_bisect_sees_through_builds_and_drift() -> None:
    for seed in range(4):
        assert pairs(hunted(Simulated(STEP, spread=0.002, drift=-0.001, seed=seed), "bisect")) == [(49, 50)]
        found = hunted(Simulated(STEP, spread=0.001, builds=0.004, seed=seed), "bisect")
        assert pairs(found) == [(49, 50)]
        assert found.noise[0].build > 0


def test_what_is_measured_under_unknown_circumstances_is_taken_as_it_is() -> None:
    world = Simulated(stepped(40), spread=0.003, drift=-0.001)
    hunted(world)
    bare = {at: structs.replace(seen, started=(), where=()) for at, seen in world.seen.items()}
    (noise,) = open_strategy(SearchSettings(), 40, [SPEED]).decide(bare, {}, 1).noise
    assert (noise.worker, noise.time) == (0, 0)


def test_builds_of_one_point_say_what_its_level_is_and_runs_of_one_build_do_not() -> None:
    """The point in the middle is 1.5% off: in three runs of one build, or in three builds."""
    rng = random.Random(5)
    flat: dict[int, tuple[float, ...]]
    flat = {at: (100 * (1 + rng.gauss(0, 0.004)), 100 * (1 + rng.gauss(0, 0.004))) for at in range(0, 60, 3)}
    flat[30] = (98.5, 98.5, 98.5)
    under = {at: [Circumstance(float(at), "w", str(k)) for k in range(len(x))] for at, x in flat.items()}
    rebuilt = level_map(flat, 60, smallest=0.01, under=under)
    one = {at: [each._replace(build="") for each in those] for at, those in under.items()}
    once = level_map(flat, 60, smallest=0.01, under=one)
    assert rebuilt.chance.max() > 2 * once.chance.max()


@pytest.mark.slow
def test_points_are_built_in_several_ways(tmp_path: Path) -> None:
    lib = Repository(tmp_path / "lib")
    commits = dated_commits(lib, [100] * 5 + [90] * 5)
    more = f"""
[commits]
good = {{ lib = "{commits[0]}" }}
bad = {{ lib = "{commits[-1]}" }}
build = ["sh", "-c", "[ ! -e built ] && echo $KARAT_REBUILD > built"]
rebuild = 2
"""
    file = commits_hunt(tmp_path / "hunt", {"lib": lib}, "echo speed: $(cat speed).$(cat built)", more, ["commits"])
    report = hunt(file)
    assert [culprit.change.new.parts["lib"] for culprit in report.culprits] == [commits[5]]
    tried = [[a.identity["rebuild"] for a in point.attempts] for point in report.stages[0].points if point.attempts]
    assert [builds == [str(k % 2) for k in range(len(builds))] for builds in tried] == [True] * len(tried)
    assert ["0", "1"] in [builds[:2] for builds in tried]
    (again,) = {
        a.samples["speed"]
        for p in report.stages[0].points
        for a in p.attempts
        if a.number == 2 and p.point.parts["lib"] == commits[5]
    }
    assert again == (90.1,)
