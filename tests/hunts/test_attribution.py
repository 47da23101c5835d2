from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain, combinations

import pytest
from hypothesis import given, settings, strategies as st

from karat.changepoints.series import Outcome
from karat.hunts.attribution import attribute
from karat.hunts.model import Metric, Observed, Point, Verdict
from karat.hunts.search.inference import judge

SPEED = Metric(name="speed", better="higher")
CRASH = Metric(name="crash", binary=True)
Level = Callable[[frozenset[str]], float | None]


class Parts:
    """A timeline of which only mixing is used."""

    def mixed(self, old: Point, new: Point, taken: frozenset[str]) -> Point | None:
        parts = {name: (new if name in taken else old).parts[name] for name in old.parts}
        return Point(id=repr(parts), label="", parts=parts)


class Bench:
    """Runs points of a planted world: which parts are new says how quick it is; None: it does not build."""

    def __init__(self, level: Level, *, noise: float = 0.0, seed: int = 0) -> None:
        self.level, self.noise, self.random = level, noise, random.Random(seed)
        self.runs = 0

    def measure(self, points: Sequence[Point]) -> list[Observed]:
        return [self._seen(frozenset(n for n, v in p.parts.items() if v == "new")) for p in points]

    def _seen(self, taken: frozenset[str]) -> Observed:
        self.runs += 1
        level = self.level(taken)
        if level is None:
            return Observed(outcomes=(Outcome.BROKEN,), signatures=("undefined symbol: x",))
        value = level * (1 + self.random.gauss(0, self.noise))
        return Observed(values={"speed": (value,)}, outcomes=(Outcome.OK,), signatures=("",))


def blame(bench: Bench, names: str, metric: Metric = SPEED) -> Verdict:
    old = Point(id="old", label="", parts={**dict.fromkeys(names, "old"), "image": "same"})
    new = Point(id="new", label="", parts={**dict.fromkeys(names, "new"), "image": "same"})
    judged = partial(judge, metric=metric, smallest=0.01)
    return attribute(Parts(), old, new, metric, bench.measure, judged)  # type: ignore[arg-type]


def subsets(names: str) -> list[frozenset[str]]:
    sizes = range(len(names) + 1)
    return [frozenset(s) for s in chain.from_iterable(combinations(names, n) for n in sizes)]


@pytest.mark.slow
@given(st.integers(2, 5), st.data(), st.sampled_from([0.0, 0.003]), st.floats(0.03, 0.3))
@settings(max_examples=30)
def test_one_guilty_part_is_named(count: int, data: st.DataObject, noise: float, drop: float) -> None:
    names = "abcde"[:count]
    guilty = data.draw(st.sampled_from(names))
    bench = Bench(lambda taken: 100 * (1 - drop * (guilty in taken)), noise=noise)
    verdict = blame(bench, names)
    assert verdict.part == guilty
    assert verdict.parts == (guilty,)
    assert not verdict.interaction
    assert verdict.message == f"{guilty} alone causes it"
    assert verdict.confidence > 0.8


@pytest.mark.parametrize("metric", [SPEED, Metric(name="speed", binary=True)])
@pytest.mark.parametrize("broken", [frozenset(), frozenset("ab")])
def test_an_end_that_cannot_be_run_again_blames_nobody(metric: Metric, broken: frozenset[str]) -> None:
    verdict = blame(Bench(lambda taken: None if taken == broken else 1.0), "ab", metric)
    assert (verdict.message, verdict.part) == ("the two points could not be run again", "")
    assert "new a with old b: 1 (unclear)" in verdict.tried


@pytest.mark.slow
@given(st.integers(2, 5), st.data())
@settings(max_examples=30)
def test_what_takes_several_is_an_interaction_of_just_those(count: int, data: st.DataObject) -> None:
    names = "abcde"[:count]
    pairs = [s for s in subsets(names) if len(s) >= 2]
    needed = data.draw(st.sampled_from(pairs))
    verdict = blame(Bench(lambda taken: 90.0 if needed <= taken else 100.0), names)
    assert verdict.interaction
    assert verdict.part == ""
    assert set(verdict.parts) == needed
    assert "together" in verdict.message


@given(st.floats(0.3, 0.7))
@settings(max_examples=30)
def test_two_that_make_a_part_each_are_both_named_with_sizes(share: float) -> None:
    bench = Bench(lambda taken: 100 - 20 * (share * ("a" in taken) + (1 - share) * ("b" in taken)))
    verdict = blame(bench, "ab")
    assert verdict.parts == ("a", "b")
    assert not verdict.interaction
    assert verdict.shares["a"] == pytest.approx(share, abs=0.01)
    assert verdict.shares["b"] == pytest.approx(1 - share, abs=0.01)


def test_two_of_which_each_is_enough() -> None:
    verdict = blame(Bench(lambda taken: 90.0 if taken else 100.0), "ab")
    assert (verdict.part, verdict.parts) == ("", ("a", "b"))
    assert verdict.message == "a and b each cause it alone"


def test_more_than_the_sum_is_an_interaction() -> None:
    levels = {"": 100.0, "a": 98.0, "b": 97.0, "ab": 80.0}
    verdict = blame(Bench(lambda taken: levels["".join(sorted(taken))]), "ab")
    assert verdict.interaction
    assert verdict.shares == pytest.approx({"a": 0.1, "b": 0.15})


def test_a_pair_that_does_not_build_is_said_and_not_guessed() -> None:
    broken = blame(Bench(lambda taken: {"": 100.0, "ab": 90.0}.get("".join(sorted(taken)))), "ab")
    assert (broken.part, broken.confidence, broken.interaction) == ("", 0.0, False)
    assert "cannot be run: undefined symbol: x" in broken.message
    # The other way round builds, and tells that b alone does nothing; that is all that is known.
    levels = {"": 100.0, "b": 100.0, "ab": 90.0}
    half = blame(Bench(lambda taken: levels.get("".join(sorted(taken)))), "ab")
    assert (half.part, half.parts, half.confidence) == ("", ("a",), 0.0)
    assert half.message.startswith("it takes a; whether that is enough is unknown")
    # And here it tells that b alone does it.
    levels = {"": 100.0, "b": 90.0, "ab": 90.0}
    known = blame(Bench(lambda taken: levels.get("".join(sorted(taken)))), "ab")
    assert known.part == "b"
    assert "what the rest does without it is unknown" in known.message


def test_leaving_out_tells_where_a_part_alone_does_not_build() -> None:
    def level(taken: frozenset[str]) -> float | None:
        return None if taken == {"a"} else 90.0 if "a" in taken else 100.0

    verdict = blame(Bench(level), "abc")
    assert verdict.part == "a"
    assert verdict.message.startswith("without a it disappears, without any other it stays")


def test_points_that_do_not_differ_any_more_blame_nobody() -> None:
    verdict = blame(Bench(lambda _: 100.0, noise=0.001), "ab")
    assert verdict.part == ""
    assert verdict.parts == ()
    assert verdict.message == "the two points do not differ when they are run again"


@pytest.mark.slow
def test_noise_that_hides_everything_blames_nobody() -> None:
    wrong = [
        seed
        for seed in range(20)
        if blame(Bench(lambda taken: 100 - 1.5 * ("a" in taken), noise=0.05, seed=seed), "ab").part == "b"
    ]
    assert wrong == []


def test_only_what_moved_is_run() -> None:
    bench = Bench(lambda _: 100.0)
    old = Point(id="o", label="", parts={"a": "1", "b": "1", "image": "i"})
    new = Point(id="n", label="", parts={"a": "2", "b": "1", "image": "i"})
    judged = partial(judge, metric=SPEED)
    verdict = attribute(Parts(), old, new, SPEED, bench.measure, judged)  # type: ignore[arg-type]
    assert (verdict.part, verdict.message, bench.runs) == ("a", "only a moved", 0)


def test_sentences_tell_what_was_tried() -> None:
    verdict = blame(Bench(lambda taken: 537.0 if "x" in taken else 577.2), "xj")
    assert verdict.tried == (
        "old: 577.2",
        "new x with old j: 537 (as new)",
        "new j with old x: 577.2 (as old)",
        "new: 537",
    )


def test_a_hunted_crash_is_blamed_as_a_number_is() -> None:
    def measure(points: Sequence[Point]) -> list[Observed]:
        bad = [p.parts["a"] == "new" for p in points]
        return [
            Observed(
                values={"crash": (float(b),)},
                outcomes=(Outcome.CRASH if b else Outcome.OK,),
                signatures=("SIGSEGV" if b else "",),
            )
            for b in bad
        ]

    old = Point(id="o", label="", parts={"a": "old", "b": "old"})
    new = Point(id="n", label="", parts={"a": "new", "b": "new"})
    judged = partial(judge, metric=CRASH)
    verdict = attribute(Parts(), old, new, CRASH, measure, judged)  # type: ignore[arg-type]
    assert verdict.part == "a"


def test_runs_for_two_parts_without_noise_are_few() -> None:
    bench = Bench(lambda taken: 90.0 if "a" in taken else 100.0)
    blame(bench, "ab")
    assert bench.runs <= 12


@pytest.mark.slow
@pytest.mark.parametrize(
    ("noise", "change", "shares"),
    [(0.005, 0.03, {"a": 1.0}), (0.005, 0.06, {"a": 0.7, "b": 0.3}), (0.002, 0.02, {"a": 0.5, "b": 0.5})],
)
def test_noise_is_not_taken_for_an_interaction(noise: float, change: float, shares: dict[str, float]) -> None:
    """What each makes, however little by itself, adds up to the whole."""
    verdicts = []
    for seed in range(30):
        bench = Bench(
            lambda taken: 100 * (1 - change * sum(shares.get(name, 0) for name in taken)), noise=noise, seed=seed
        )
        verdicts.append(blame(bench, "ab"))
    assert [v.message for v in verdicts if v.interaction] == []
    right = [v for v in verdicts if set(v.parts) == set(shares) and v.confidence > 0]
    assert len(right) >= 27


def test_a_rest_that_may_be_noise_is_not_explained() -> None:
    """Alone they make 65% of it, give or take: whether the others are an interaction is not said."""
    levels = {frozenset("a"): 98.7, frozenset("b"): 99.35, frozenset("ab"): 97.0}
    bench = Bench(lambda taken: levels.get(taken, 100.0), noise=0.004, seed=3)
    verdict = blame(bench, "ab")
    assert not verdict.interaction
    assert verdict.confidence == 0
    assert "is unclear" in verdict.message


def test_one_that_is_enough_and_others_that_are_so_together() -> None:
    verdict = blame(Bench(lambda taken: 90.0 if "a" in taken or {"b", "c"} <= taken else 100.0), "abc")
    assert (verdict.part, verdict.parts) == ("", ("a",))
    assert verdict.message == "a alone causes it, and so do b and c together"
    # Where the rest is one part, it cannot be enough as well: that is two, each alone.
    alone = blame(Bench(lambda taken: 90.0 if "a" in taken else None if taken else 100.0), "ab")
    assert alone.part == "a"
    assert alone.message.startswith("a alone causes it; what the rest does without it is unknown")


MANY = "abcdefghijklmnopqrstuvwxyzABCDEF"
FAILS = Metric(name="speed", binary=True)


@given(st.sampled_from(MANY), st.sampled_from([SPEED, FAILS]))
@settings(max_examples=10)
def test_one_of_many_parts_is_found_by_halves(guilty: str, metric: Metric) -> None:
    bench = Bench(lambda taken: 100.0 + 20 * (guilty in taken) if metric is SPEED else float(guilty in taken))
    verdict = blame(bench, MANY, metric)
    assert (verdict.part, verdict.message) == (guilty, f"{guilty} alone causes it")
    assert verdict.confidence > 0.9
    assert bench.runs < 80  # each of the 32 alone, and all without it, would be 128 mixes


def test_two_of_many_parts_that_it_takes_together() -> None:
    verdict = blame(Bench(lambda taken: float({"c", "k"} <= taken)), MANY, FAILS)
    assert (verdict.parts, verdict.interaction) == (("c", "k"), True)


def test_a_part_of_many_that_fits_only_with_others_is_named_and_they_are_beside_it() -> None:
    """The new c needs the new k; the old c goes with either k."""
    verdict = blame(
        Bench(lambda taken: None if "c" in taken and "k" not in taken else float("c" in taken)), MANY, FAILS
    )
    assert (verdict.parts, verdict.beside) == (("c",), ("k",))
    assert "new c alone: cannot be run: undefined symbol: x" in verdict.message


def test_others_of_many_that_do_it_as_well_are_told() -> None:
    verdict = blame(Bench(lambda taken: float(bool({"c", "k"} & taken))), MANY, FAILS)
    assert verdict.message.endswith("alone causes it, and so do others without it")


def test_another_error_than_that_of_the_new_side_is_not_the_change() -> None:
    """New a fails by itself as the new side does not: what fails there is that a and b do not fit together."""

    class Errors(Bench):
        def _seen(self, taken: frozenset[str]) -> Observed:
            self.runs += 1
            said = {"ab": "AssertionError: shape", "b": "AssertionError: shape", "a": "ImportError: no x"}
            here = said.get("".join(sorted(taken)), "")
            outcome = Outcome.CRASH if here else Outcome.OK
            return Observed(values={"crash": (float(bool(here)),)}, outcomes=(outcome,), signatures=(here,))

    verdict = blame(Errors(lambda _: 0.0), "ab", CRASH)
    assert verdict.part == "b"
    assert "new a with old b: 1 (like neither)" in verdict.tried
