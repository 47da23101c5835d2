"""How many runs a search takes, whose they are, and how soon it has an answer."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings, strategies as st

from karat.changepoints.series import Outcome
from karat.hunts.model import Decision, Metric, Observed, Span, Strategy
from karat.hunts.search.requests import most_runs
from karat.hunts.search.strategies import open_strategy
from karat.hunts.settings import SearchSettings

Noise = Callable[[random.Random], float]
CLEAN, NOISY = Metric(name="clean", better="lower"), Metric(name="noisy", better="lower")
STEP = 11
HOPELESS: Mapping[str, Noise] = {
    "a tenth": lambda rng: 1 + rng.gauss(0, 0.1),
    "half": lambda rng: math.exp(rng.gauss(0, 0.5)),
    "heavy tails": lambda rng: math.exp(abs(rng.gauss(0, 0.1)) * (10 if rng.random() < 0.2 else 1)),
    "no mean": lambda rng: math.exp(max(-3, min(3, 0.1 * math.tan(math.pi * (rng.random() - 0.5))))),
}


@dataclass
class Several:
    """A timeline with several metrics: each has true values, and noise of its own."""

    truth: Mapping[str, Sequence[float | None]]
    noise: Mapping[str, Noise]
    seed: int = 0
    seen: dict[int, Observed] = field(default_factory=dict)
    runs: int = 0

    def __post_init__(self) -> None:
        self._rng = random.Random(self.seed)

    def run(self, at: int) -> None:
        self.runs += 1
        before = self.seen.get(at, Observed())
        broken = any(values[at] is None for values in self.truth.values())
        values = (
            {}
            if broken
            else {
                name: (*before.values.get(name, ()), (levels[at] or 0.0) * self.noise[name](self._rng))
                for name, levels in self.truth.items()
            }
        )
        outcome = Outcome.BROKEN if broken else Outcome.OK
        self.seen[at] = Observed(values=values, outcomes=(*before.outcomes, outcome))

    def rounds(self, strategy: Strategy, slots: int = 1) -> tuple[list[Decision], Decision]:
        """What it said before each round of runs that end together, and its answer."""
        said = []
        while (decision := strategy.decide(dict(self.seen), {}, slots)).asks:
            said.append(decision)
            assert len(decision.asks) <= slots
            for ask in decision.asks:
                self.run(ask.index)
        return said, decision


def releases(noise: Noise, seed: int, step: int = STEP) -> Several:
    """Twenty releases: one metric becomes thirty times slower, the other is nothing but noise."""
    truth = {"clean": [5.6 if at < step else 161.0 for at in range(20)], "noisy": [1.0] * 20}
    return Several(truth, {"clean": lambda rng: math.exp(abs(rng.gauss(0, 0.03))), "noisy": noise}, seed)


def is_the_step(span: Span, step: int = STEP) -> bool:
    return (span.metric, span.good, span.bad, span.sure) == ("clean", step - 1, step, True)


@pytest.mark.slow
@pytest.mark.parametrize("kind", HOPELESS)
@pytest.mark.parametrize("order", [(CLEAN, NOISY), (NOISY, CLEAN), (CLEAN,)], ids=["first", "last", "alone"])
def test_a_large_step_is_sure_within_a_dozen_runs_beside_a_metric_that_is_all_noise(
    kind: str, order: tuple[Metric, ...]
) -> None:
    for seed in range(3):
        step = 3 + 5 * seed
        world = releases(HOPELESS[kind], seed, step)
        said, answer = world.rounds(open_strategy(SearchSettings(), 20, order))
        first = next(
            n for n, decision in enumerate([*said, answer]) if any(is_the_step(s, step) for s in decision.spans)
        )
        assert first <= 14, "one run each, before it was said"
        assert any(is_the_step(span, step) for span in answer.spans)
        assert world.runs <= 60


@pytest.mark.slow
@settings(max_examples=12)
@given(
    st.integers(0, 999), st.integers(1, 40), st.sampled_from(sorted(HOPELESS)), st.sampled_from([1, 4]),
    st.sampled_from(["adaptive", "bisect"]),
)  # fmt: skip
def test_no_search_takes_more_runs_than_a_sweep_of_its_precision(
    seed: int, count: int, kind: str, slots: int, strategy: str
) -> None:
    rng = random.Random(seed)
    truth = {name: [rng.choice([1.0, 1.02, 1.3, None]) for _ in range(count)] for name in ("clean", "noisy")}
    search = SearchSettings(strategy=strategy, runs_per_point=rng.choice([1, 3]))  # type: ignore[arg-type]
    world = Several(truth, {"clean": HOPELESS[kind], "noisy": HOPELESS[kind]}, seed)
    world.rounds(open_strategy(search, count, [CLEAN, NOISY]), slots)
    assert world.runs <= most_runs(search, count)


def test_what_a_sweep_of_the_same_precision_takes() -> None:
    assert most_runs(SearchSettings(), 20) == 60
    assert most_runs(SearchSettings(runs_per_point=1), 256) == 256
    # Of two points nothing is learned with three runs each.
    assert most_runs(SearchSettings(), 2) == 24


def test_a_metric_that_cannot_be_settled_is_said_to_be_and_not_waited_for() -> None:
    truth = {"clean": [1.0] * 30, "noisy": [1.0 + 0.3 * (at // 5 % 2) for at in range(30)]}
    noise = {"clean": lambda _: 1.0, "noisy": lambda rng: 1 + rng.gauss(0, 0.05)}
    world = Several(truth, noise)
    _, answer = world.rounds(open_strategy(SearchSettings(runs_per_point=1), 30, [CLEAN, NOISY]))
    assert answer.unsettled == ("noisy",)
    assert world.runs == 20, "the other is settled: two thirds of the sweep's 30"
    (said,) = [note for note in answer.notes if "not settled" in note]
    assert said.startswith("noisy is not settled after ")
    _, quiet = Several(truth, {**noise, "noisy": lambda _: 1.0}).rounds(
        open_strategy(SearchSettings(), 30, [CLEAN, NOISY])
    )
    assert quiet.unsettled == ()


def test_what_the_noise_of_one_run_hides_is_not_looked_for_and_that_is_said() -> None:
    levels = {"noisy": [1.0] * 64}
    world = Several(levels, {"noisy": lambda rng: 1 + rng.gauss(0, 0.05)})
    _, answer = world.rounds(open_strategy(SearchSettings(), 64, [NOISY]))
    assert answer.spans == ()
    assert world.runs < 64
    (said,) = answer.notes
    assert said.startswith("noisy: runs of one level differ by about ")
    assert "smaller changes were not looked for" in said
    # What is larger is found as ever.
    levels = {"noisy": [1.0 if at < 40 else 1.3 for at in range(64)]}
    _, answer = Several(levels, {"noisy": lambda rng: 1 + rng.gauss(0, 0.05)}).rounds(
        open_strategy(SearchSettings(), 64, [NOISY])
    )
    assert [(span.good, span.bad) for span in answer.spans] == [(39, 40)]


@pytest.mark.slow
def test_with_many_slots_a_hunt_takes_no_more_rounds_than_a_sweep() -> None:
    taken, found, true = [], 0, 0
    for seed in range(20):
        rng = random.Random(seed)
        places = [rng.randrange(10, 80), rng.randrange(90, 160), rng.randrange(170, 246)]
        level, levels = 100.0, list[float | None]()
        for at in range(256):
            level *= 1 + rng.choice([-1, 1]) * rng.uniform(0.02, 0.06) if at in places else 1
            levels.append(None if rng.random() < 0.1 else level)
        world = Several({"clean": levels}, {"clean": lambda rng: 1 + rng.gauss(0, 0.005)}, seed)
        said, answer = world.rounds(open_strategy(SearchSettings(), 256, [CLEAN]), 64)
        able = [at for at, one in enumerate(levels) if one is not None]
        expected = {(max(k for k in able if k < at), min(k for k in able if k >= at)) for at in places}
        taken.append(len(said))
        found, true = found + len(expected & {(s.good, s.bad) for s in answer.spans}), true + len(expected)
        assert world.runs <= 256
    assert sum(taken) <= 20 * 3.5
    assert sorted(taken)[-2] <= 4, "a last few runs again, in one of them"
    assert found >= 0.98 * true


def test_a_budget_of_runs_or_money_is_not_spent_on_guesses() -> None:
    world = Several({"clean": [1.0] * 64}, {"clean": lambda _: 1.0})
    idle = open_strategy(SearchSettings(), 64, [CLEAN]).decide(world.seen, {}, 40)
    thrifty = open_strategy(SearchSettings(max_runs=1000), 64, [CLEAN]).decide(world.seen, {}, 40)
    assert len(idle.asks) == 40
    assert {ask.why for ask in idle.asks} == {"end point", "grid", "a slot was free"}
    assert {ask.why for ask in thrifty.asks} == {"end point", "grid"}
