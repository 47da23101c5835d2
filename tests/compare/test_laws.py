"""Laws of the arithmetic, on generated curves."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from factories.curves import change_of
from karat.compare.change import Verdict
from karat.compare.numbers import CurveNumbers, score
from karat.compare.rules import Rule
from karat.goldens.shapes import Metric, Series

values = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True),
    st.floats(-1e6, 1e6),
    st.sampled_from([0.0, -0.0, 1.0, math.nan, 1e-13]),
)
curves = st.dictionaries(st.integers(0, 40), values, max_size=30)


def metric(samples: dict[int, float]) -> Metric:
    steps = sorted(samples)
    return Metric(np.array(steps, dtype=np.int64), np.array([samples[s] for s in steps], dtype=float))


def numbers(old: dict[int, float], new: dict[int, float]) -> CurveNumbers:
    return score([(metric(old), metric(new), Rule())])[0]


def direct(old: dict[int, float], new: dict[int, float]) -> list[float]:
    """The seed's formula, in so many words."""
    usable = [
        s
        for s in sorted(old.keys() & new.keys())
        if math.isfinite(old[s]) and math.isfinite(new[s]) and abs(old[s]) >= 1e-12
    ]
    return [(old[s] - new[s]) / old[s] for s in usable]


@given(curves, curves)
def test_numbers_are_the_seeds_formula(old: dict[int, float], new: dict[int, float]) -> None:
    rel, n = direct(old, new), numbers(old, new)
    assert n.n_steps == len(rel)
    if rel and all(map(math.isfinite, rel)):
        scale = max(map(abs, rel))
        assert n.avg_rel_diff == pytest.approx(sum(rel) / len(rel), abs=1e-12 * max(scale, 1))
        assert n.mean_abs_rel_diff == pytest.approx(sum(map(abs, rel)) / len(rel), rel=1e-12)
        assert n.max_abs_rel_diff == scale
        assert (n.max_step is None) == (scale == 0)
        if n.max_step is not None:
            step = int(n.max_step)
            assert abs((old[step] - new[step]) / old[step]) == scale


@given(curves, curves)
def test_swapping_sides_swaps_losses_and_keeps_what_is_shared(old: dict[int, float], new: dict[int, float]) -> None:
    there, back = numbers(old, new), numbers(new, old)
    assert (there.n_shared, there.bit_equal, there.both_missing) == (back.n_shared, back.bit_equal, back.both_missing)
    assert there.first_diff_step == back.first_diff_step
    assert (there.steps_lost, there.nan_gained) == (back.steps_gained, back.nan_lost)
    if (
        there.avg_rel_diff
        and back.avg_rel_diff
        and there.n_steps == 1
        and max(abs(there.avg_rel_diff), abs(back.avg_rel_diff)) < 1
    ):
        assert math.copysign(1, there.avg_rel_diff) == -math.copysign(1, back.avg_rel_diff)


@given(curves)
def test_a_curve_against_itself_is_never_drift(samples: dict[int, float]) -> None:
    n = numbers(samples, samples)
    assert n.bit_equal + n.both_missing == n.n_shared == len(samples)
    assert n.first_diff_step is None
    assert not n.avg_rel_diff
    assert not n.max_abs_rel_diff


@pytest.mark.slow
@given(st.lists(st.tuples(curves, curves), max_size=6))
def test_many_at_once_are_as_one_by_one(pairs: list[tuple[dict[int, float], dict[int, float]]]) -> None:
    together = score([(metric(old), metric(new), Rule()) for old, new in pairs])
    alone = [numbers(old, new) for old, new in pairs]
    # repr, because a NaN (from an overflow) is not equal to itself.
    assert list(map(repr, together)) == list(map(repr, alone))


@given(curves, curves)
def test_same_means_every_finite_value_is_there_and_equal(old: dict[int, float], new: dict[int, float]) -> None:
    change = change_of(Series({"x": metric(old)}), Series({"x": metric(new)}))
    if change.verdict is Verdict.SAME:
        finite = {s: v for s, v in old.items() if math.isfinite(v)}
        assert finite
        assert all(new[s] == v for s, v in finite.items())


@given(curves, curves)
def test_nan_gained_or_steps_lost_are_never_excused(old: dict[int, float], new: dict[int, float]) -> None:
    change = change_of(Series({"x": metric(old)}), Series({"x": metric(new)}))
    gone = [s for s, v in old.items() if math.isfinite(v) and not math.isfinite(new.get(s, math.nan))]
    if gone:
        assert change.verdict is Verdict.INCOMPLETE
        assert any(f.severity == "fail" for f in change.findings)


@given(curves, curves)
def test_every_judgement_names_its_reason(old: dict[int, float], new: dict[int, float]) -> None:
    change = change_of(Series({"x": metric(old)}), Series({"x": metric(new)}))
    assert all(row.because for row in change.metrics)
    assert all(f.message and f.path for f in change.findings)


names = st.sampled_from(["lm loss", "num-zeros", "iteration-time", "generated_tokens", "mem-bytes"])


@pytest.mark.slow
@given(st.dictionaries(names, st.tuples(curves, curves), min_size=1, max_size=3))
def test_verdicts_and_findings_agree(pairs: dict[str, tuple[dict[int, float], dict[int, float]]]) -> None:
    change = change_of(
        Series({name: metric(old) for name, (old, _) in pairs.items()}),
        Series({name: metric(new) for name, (_, new) in pairs.items()}),
    )
    grave = [f for f in change.findings if f.severity != "info"]
    if change.verdict in {Verdict.INCOMPLETE, Verdict.BREAK}:
        assert grave, change
    if change.verdict in {Verdict.SAME, Verdict.NOISE}:
        assert {f.kind for f in grave} <= {"no-usable-steps"}, change
    if any(f.severity == "fail" for f in change.findings):
        assert change.verdict in {Verdict.INCOMPLETE, Verdict.BREAK}
