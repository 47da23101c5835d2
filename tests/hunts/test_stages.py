from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from hypothesis import given, strategies as st
from msgspec.structs import replace

from karat.hunts.driver import child_key, levels_of, sites
from karat.hunts.model import Span
from karat.hunts.report.assemble import dips, shown_in


def span(good: int, bad: int, before: float | None = 1.0, after: float | None = 2.0, metric: str = "m") -> Span:
    return Span(metric=metric, good=good, bad=bad, before=before, after=after, confidence=0.99, kind="shift")


SPANS = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, 9), st.sampled_from("ab")).map(
        lambda t: span(t[0], t[0] + t[1], metric=t[2])
    ),
    max_size=12,
)


@given(SPANS)
def test_every_change_is_looked_into_once_between_its_own_two_points(spans: list[Span]) -> None:
    found = sites(spans)
    numbers = [number for site in found for number in site.numbers]
    assert sorted(numbers) == list(range(len(spans)))
    for site in found:
        assert all((spans[n].good, spans[n].bad) == (site.good, site.bad) for n in site.numbers)
    for left, right in pairwise(found):
        assert (left.good, left.bad) < (right.good, right.bad)


def test_neighbours_are_two_places_and_metrics_at_one_are_one() -> None:
    spans = (span(3, 4), span(4, 5), span(3, 4, metric="other", before=7.0, after=8.0))
    first, second = sites(spans)
    assert (first.good, first.bad, first.numbers) == (3, 4, (0, 2))
    assert (second.good, second.bad, second.numbers) == (4, 5, (1,))
    assert levels_of(spans, first) == {"m": (1.0, 2.0), "other": (7.0, 8.0)}
    assert child_key("0", 2, 1) == "0.2/1"
    assert child_key("0.2/1", 0, 2) == "0.2/1.0/2"


def test_a_side_without_a_level_hands_none_down() -> None:
    spans = (span(3, 4, after=None),)
    assert levels_of(spans, sites(spans)[0]) == {}


def test_a_finer_stage_shows_a_change_of_the_same_metric_and_sides() -> None:
    begins, ends, moved = span(3, 4, after=None), span(7, 8, before=None), span(3, 8)
    for one in (begins, ends, moved):
        assert [shown_in([other], [one]) for other in (begins, ends, moved)] == [
            other is one for other in (begins, ends, moved)
        ]
    assert shown_in([begins, ends, moved], [span(0, 1)])
    assert not shown_in([moved], [span(3, 8, metric="other")])


def test_a_dip_leaves_its_level_and_comes_back() -> None:
    there, back = span(3, 4, 587.6, 570.2), span(6, 7, 570.2, 587.5)
    later = span(9, 10, 587.5, 577.2)
    assert dips((there, back, later), 12) == {0: 0, 1: 0}
    assert dips((later, back, there), 12) == {2: 0, 1: 0}, "whatever their order"
    assert dips((there, span(6, 7, 570.2, 580.0)), 12) == {}, "half the way is no dip"
    assert dips((there, span(6, 7, 570.2, 560.0)), 12) == {}
    broken = replace(span(3, 4, 1.0, None), kind="crash"), replace(span(5, 6, None, 1.0), kind="recovery")
    across = span(3, 6, 1.0, 0.5)
    assert dips((broken[0], across, broken[1]), 12) == {0: 0, 2: 0}, "crashes that ended, and a level beside them"
    assert dips(broken[::-1], 12) == {1: 0, 0: 0}
    assert dips((broken[0], across), 12) == {}
    other = [span(s.good, s.bad, s.before, s.after, "n") for s in (there, back)]
    assert dips((there, back, *other), 12) == {0: 0, 1: 0, 2: 1, 3: 1}


@given(st.lists(st.floats(1, 100), min_size=2, max_size=8))
def test_no_change_is_in_two_dips(levels: list[float]) -> None:
    spans = [span(i, i + 1, a, b) for i, (a, b) in enumerate(pairwise(levels))]
    paired = dips(spans, len(levels))
    for number in set(paired.values()):
        first, second = sorted(n for n, dip in paired.items() if dip == number)
        assert second == first + 1
        before, low, after = levels[first : first + 3]
        assert abs(after - before) <= 0.25 * abs(low - before)


def test_a_gain_that_lasted_and_was_lost_again_stands_as_a_loss() -> None:
    def told(gain: int, loss: int, kind: str = "improvement") -> Mapping[int, int]:
        there, back = span(gain - 1, gain, 100, 110), span(loss - 1, loss, 110, 100)
        return dips((replace(there, kind=kind), replace(back, kind="regression")), 256)

    assert told(78, 178) == {}
    assert told(100, 110) == {0: 0, 1: 0}, "a short one is a dip"
    assert told(78, 178, "shift") == {0: 0, 1: 0}, "nobody knows which is better"
