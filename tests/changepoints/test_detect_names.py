from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from karat.changepoints.detector.detect import name_changes
from karat.changepoints.series import Better, ChangeKind, Level, Observation, Outcome, Series, SeriesChange, Step

OUTCOMES = {
    ".": Outcome.OK,
    "c": Outcome.CRASH,
    "d": Outcome.CRASH,
    "h": Outcome.HANG,
    "b": Outcome.BROKEN,
    "m": Outcome.MISSING,
}


def named(*parts: tuple[float, int], better: Better | None = None, spread: float = 0.1) -> tuple[SeriesChange, ...]:
    """The changes of a series whose levels have these values and counts."""
    levels, first = [], 0
    for value, count in parts:
        reach = 3 * spread / count**0.5
        levels.append(
            Level(
                value=value,
                low=value - reach,
                high=value + reach,
                spread=spread,
                count=count,
                first=first,
                last=first + count - 1,
            )
        )
        first += count
    items = tuple(Observation(label=f"n{i}", values=(level.value,)) for level in levels for i in range(level.count))
    labelled = tuple(Observation(label=f"n{i}", values=item.values) for i, item in enumerate(items))
    steps = [
        Step(
            last_good=before.last,
            first_bad=after.first,
            earliest=before.last,
            latest=after.first,
            before=before,
            after=after,
            absolute=after.value - before.value,
            relative=(after.value - before.value) / before.value if before.value else None,
            p_value=0.001,
            confidence=0.999,
        )
        for before, after in pairwise(levels)
    ]
    return name_changes(Series(metric="speed", observations=labelled, better=better), steps, levels)


def outcomes(pattern: str) -> tuple[SeriesChange, ...]:
    """The changes of a series of these outcomes."""
    items = tuple(
        Observation(
            label=f"n{i}",
            outcome=OUTCOMES[letter],
            values=(1.0,) if letter == "." else (),
            signature={"c": "ImportError: x", "d": "KeyError: y"}.get(letter, ""),
        )
        for i, letter in enumerate(pattern)
    )
    return name_changes(Series(metric="m", observations=items), [], [])


@pytest.mark.parametrize(
    ("better", "after", "kind"),
    [
        ("higher", 90.0, ChangeKind.REGRESSION),
        ("higher", 110.0, ChangeKind.IMPROVEMENT),
        ("lower", 90.0, ChangeKind.IMPROVEMENT),
        ("lower", 110.0, ChangeKind.REGRESSION),
        ("equal", 90.0, ChangeKind.SHIFT),
        (None, 110.0, ChangeKind.SHIFT),
    ],
)
def test_what_is_better_decides_the_name(better: Better | None, after: float, kind: ChangeKind) -> None:
    (change,) = named((100.0, 10), (after, 10), better=better)
    assert change.kind is kind
    assert (change.first, change.last, change.steps) == (10, 19, (0,))
    assert "between n9 and n10" in change.message


def test_the_documents_dip_is_a_dip_although_little_comes_after_it() -> None:
    dip, *others = named((587.6, 5), (570.2, 3), (587.5, 2), (577.2, 28), (536.7, 22), better="higher")
    assert dip.kind is ChangeKind.DIP
    assert (dip.first, dip.last, dip.steps) == (5, 7, (0, 1))
    assert "came back to 587.5: n5 to n7" in dip.message
    assert [change.kind for change in others] == [ChangeKind.REGRESSION] * 2


@pytest.mark.parametrize(
    ("parts", "kinds"),
    [
        (((100, 20), (90, 20), (100, 20)), ["shift", "shift"]),
        (((100, 20), (90, 19), (100, 20)), ["dip"]),
        (((100, 20), (90, 5), (95, 20)), ["shift", "shift"]),
        (((100, 20), (110, 5), (100.5, 20)), ["dip"]),
        (((100, 20), (90, 3), (85, 3), (100, 20)), ["dip"]),
        (((100, 20), (90, 3), (110, 3), (100, 20)), ["shift", "shift", "shift"]),
        (((100, 20), (90, 4), (100, 20), (90, 4), (100, 20)), ["dip", "dip"]),
        (((100, 20), (99.9, 4), (99.82, 20)), ["shift", "shift"]),
    ],
    ids=["as long as its sides", "shorter", "half way", "a peak", "two deep", "both sides", "twice", "a stair"],
)
def test_a_dip_is_short_and_comes_back(parts: tuple[tuple[float, int], ...], kinds: list[str]) -> None:
    assert [change.kind.value for change in named(*parts, spread=0.05)] == kinds


def test_neighbours_that_failed_in_one_way_are_one_range() -> None:
    first, second, third = outcomes("..ccdd..h")
    assert (first.kind, first.first, first.last, first.signature) == (ChangeKind.CRASH, 2, 3, "ImportError: x")
    assert (second.first, second.last, second.signature) == (4, 5, "KeyError: y")
    assert (third.first, third.last) == (8, 8)
    assert third.message == "1 observation hung at n8"
    assert first.message == "2 observations crashed from n2 to n3: ImportError: x"


def test_what_could_not_be_tried_does_not_part_a_crash_range() -> None:
    crash, gap = outcomes("..cbc..")
    assert (crash.kind, crash.first, crash.last) == (ChangeKind.CRASH, 2, 4)
    assert crash.message.startswith("2 observations crashed")
    assert (gap.kind, gap.first, gap.last) == (ChangeKind.GAP, 3, 3)


def test_gaps_say_whether_points_are_missing_or_could_not_be_tried() -> None:
    assert [change.message for change in outcomes(".mm.b.m")] == [
        "2 observations are missing from n1 to n2",
        "1 observation could not be tried at n4",
        "1 observation is missing at n6",
    ]


@given(st.text(alphabet=".cdhbm", max_size=40))
def test_every_point_without_a_value_is_told_once(pattern: str) -> None:
    changes = outcomes(pattern)
    told = [0] * len(pattern)
    for change in changes:
        kinds = "cdh" if change.kind is ChangeKind.CRASH else "bm"
        for index in range(change.first, change.last + 1):
            told[index] += pattern[index] in kinds
    assert told == [int(letter != ".") for letter in pattern]
    assert [change.first for change in changes] == sorted(change.first for change in changes)


@pytest.mark.parametrize("parts", [(60, 40, 60), (78, 100, 78), (100, 40, 5)])
def test_a_gain_that_was_lost_again_is_a_regression_that_stands(parts: tuple[int, int, int]) -> None:
    found = named(*zip((100.0, 110.0, 100.0), parts, strict=True), better="higher")
    assert [change.kind for change in found] == [ChangeKind.IMPROVEMENT, ChangeKind.REGRESSION]


@pytest.mark.parametrize("away", [90.0, 110.0])
def test_a_short_loss_or_gain_is_a_dip(away: float) -> None:
    found = named((100.0, 60), (away, 8), (100.0, 60), better="higher")
    assert [change.kind for change in found] == [ChangeKind.DIP]
