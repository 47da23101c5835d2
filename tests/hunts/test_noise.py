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
    [{"builds": 0.005}, {"drift": -0.0005}, {"workers": (-0.012, 0.004, 0.01)}, {"night": 0.01}],
    ids=["builds", "drift", "workers", "night"],
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
def test_what_lasts_is_seen_through_day_and_night_and_through_workers_that_differ() -> None:
    """Both were taken for the whole difference where no two neighbours alone were likely to be the place of a change."""
    history = stepped(256, (50, 0.98), (66, 1.025), (150, 0.975))
    nights = [hunted(Simulated(history, spread=0.004, night=0.01, seed=seed)) for seed in (0, 4)]
    assert [pairs(night) for night in nights] == [[(49, 50), (65, 66), (149, 150)]] * 2
    assert all(night.noise[0].time > 0.003 for night in nights)
    history, workers = stepped(512, (52, 0.97), (330, 1.033)), (-0.015, -0.006, 0.008, 0.015)
    for seed in (0, 12, 14):
        world = Simulated(history, spread=0.006, workers=workers, seed=seed)
        assert [round(span.bad, -1) for span in hunted(world).spans] == [50, 330]


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


@pytest.mark.slow
def test_what_builds_of_one_level_hide_is_not_looked_for_and_that_is_said() -> None:
    found = hunted(Simulated(stepped(96, (40, 0.96)), spread=0.001, builds=0.005, seed=1))
    assert pairs(found) == [(39, 40)]
    (said,) = found.notes
    assert said.startswith("m: builds of one level differ by about 0.")
    assert "% (one standard deviation): changes smaller than " in said
    assert said.endswith("% were not looked for (rebuild = 3 finds them)")
    # Of a change that a coarser stage saw, the place is wanted all the same.
    world = Simulated(stepped(24, (12, 0.98)), spread=0.001, builds=0.004, seed=2)
    zoomed = open_strategy(SearchSettings(), 24, [SPEED], levels={"m": (100.0, 98.0)})
    assert (11, 12) in pairs(world.hunt(zoomed))
