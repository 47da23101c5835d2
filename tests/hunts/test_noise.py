from __future__ import annotations

import pytest
from msgspec import structs

from factories.simulated_hunts import Simulated, pairs, stepped
from karat.hunts.model import Decision, Metric
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
