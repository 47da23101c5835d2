from __future__ import annotations

import random

import pytest

from karat.changepoints.series import Outcome
from karat.hunts.model import Metric, Observed
from karat.hunts.search.observations import read_metric, samples
from karat.hunts.search.strategies import open_strategy
from karat.hunts.settings import SearchSettings

SPEED = Metric(name="speed", better="higher")
OK, CRASH, HANG, BROKEN = Outcome.OK, Outcome.CRASH, Outcome.HANG, Outcome.BROKEN


@pytest.mark.parametrize(
    ("outcomes", "group"),
    [
        ((CRASH,), "again"),
        ((CRASH, CRASH), "again"),
        ((CRASH, CRASH, CRASH), "failed"),
        ((HANG,), "again"),
        # A hang costs its whole time limit, and counts as two crashes.
        ((HANG, HANG), "failed"),
        ((HANG, CRASH), "failed"),
        ((BROKEN,), "dead"),
        ((HANG, BROKEN), "dead"),
        ((CRASH, CRASH, CRASH, BROKEN), "failed"),
        ((OK,), "dead"),
    ],
)
def test_a_point_without_a_value_is_run_again_until_it_is_not_a_flake(
    outcomes: tuple[Outcome, ...], group: str
) -> None:
    found = read_metric(SPEED, {4: Observed(outcomes=outcomes)})
    there = {"again": 4 in found.again, "failed": 4 in found.failed, "dead": 4 in found.dead and 4 not in found.failed}
    assert [name for name, is_in in there.items() if is_in] == [group]
    assert found.failed <= found.dead
    assert found.values == {}


def test_of_repeats_that_only_noise_makes_longer_the_shortest_counts() -> None:
    seen = Observed(values={"s": (1.3, 1.0, 1.9, 1.1, 1.02, 1.8)}, outcomes=(Outcome.OK,) * 2)
    assert samples(Metric(name="s", better="lower", lowest=True), seen) == (1.0, 1.02)
    assert samples(Metric(name="s", better="lower"), seen) == (1.3, 1.1)


def one_sided(seed: int, *, lowest: bool) -> list[tuple[int, int]]:
    """A hunt over 20 releases, slower by 18% from the 12th on; other work on the machine makes most runs longer, by half of it and more."""
    noise = random.Random(seed)
    seen: dict[int, Observed] = {}
    strategy = open_strategy(SearchSettings(), 20, [Metric(name="s", better="lower", lowest=lowest)])
    while asks := (decision := strategy.decide(seen, {}, 1)).asks:
        at = asks[0].index
        before = seen.get(at, Observed())
        level = 1.18 if at >= 12 else 1.0
        # Quiet moments come two runs in five.
        late = [0.0 if noise.random() < 0.4 else noise.expovariate(2) for _ in range(5)]
        times = tuple(level * (1 + each + noise.random() * 0.01) for each in late)
        seen[at] = Observed(
            values={"s": (*before.values.get("s", ()), *times)}, outcomes=(*before.outcomes, Outcome.OK)
        )
    return [(span.good, span.bad) for span in decision.spans]


@pytest.mark.slow
def test_a_slower_release_is_found_through_noise_that_only_adds() -> None:
    right = {low: sum(one_sided(seed, lowest=low) == [(11, 12)] for seed in range(12)) for low in (True, False)}
    assert right[True] >= 11
    assert right[True] > right[False]
