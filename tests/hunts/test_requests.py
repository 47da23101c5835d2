from __future__ import annotations

from itertools import pairwise

from hypothesis import given, strategies as st

from karat.hunts.search.requests import (
    count_untried,
    grid_points,
    grid_requests,
    grid_width,
    is_broken_range,
    nearest_runnable,
)

PLACES = st.sets(st.integers(0, 60), max_size=40)


@given(st.integers(1, 5000), st.integers(0, 300))
def test_between_two_places_of_the_grid_no_dip_as_long_as_the_grid_fits(count: int, wanted: int) -> None:
    grid = grid_width(count, wanted)
    places = sorted(grid_points(count, grid))
    assert places[0] == 0
    assert places[-1] == count - 1
    assert all(b - a <= grid for a, b in pairwise(places))


@given(st.integers(0, 60), PLACES, PLACES)
def test_a_point_that_stands_in_is_free_and_there_is_one_if_any_is(
    wanted: int, dead: set[int], taken: set[int]
) -> None:
    found = nearest_runnable(wanted, 0, 60, sorted(dead), taken)
    free = set(range(61)) - dead - taken
    assert found in free or found is None
    if not is_broken_range(sorted(dead)):
        assert (found is None) == (not free)


@given(PLACES)
def test_what_is_worth_a_try_can_be_had(dead: set[int]) -> None:
    inside = sorted(dead - {0, 60})
    assert (count_untried(0, 60, inside) > 0) == (nearest_runnable(30, 1, 59, inside) is not None)


def test_the_next_try_keeps_its_distance_from_broken_ones() -> None:
    assert nearest_runnable(50, 0, 100, []) == 50
    assert nearest_runnable(50, 0, 100, [50]) == 51
    assert nearest_runnable(50, 0, 100, [50, 51]) == 48
    assert nearest_runnable(50, 0, 100, [48, 50, 51]) == 55
    # Six broken ones are a range: what touches points that run comes next.
    assert nearest_runnable(50, 0, 100, [30, 40, 48, 50, 51, 65]) == 83


def test_a_broken_place_of_the_grid_is_replaced_beside_it() -> None:
    places = grid_points(101, 15)
    broken = places[4]
    there = set(places) - {broken}
    wishes = grid_requests(101, 15, there, [broken], [])
    assert len(wishes) == 1
    after = sorted({*there, wishes[0].at})
    assert all(b - a <= 15 for a, b in pairwise(after))
