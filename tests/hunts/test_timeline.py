from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from karat.hunts.model import Point
from karat.hunts.timelines.timeline import SKIPPED, mark_skipped, notes_on
from karat.hunts.timelines.values import Values

BEGAN = datetime(2023, 7, 10, 6, tzinfo=UTC)
POINTS = tuple(
    Point(
        id=f"2023-07-{10 + i}",
        label=f"07-{10 + i}",
        when=BEGAN + timedelta(days=i),
        missing="no image" if i == 4 else "",
    )
    for i in range(8)
)


@pytest.mark.parametrize(
    ("skip", "left_out"),
    [
        ((), []),
        (("2023-07-12",), [2]),
        (("07-12", "07-10"), [0, 2]),
        (("2023-07-11..2023-07-13",), [1, 2, 3]),
        (("07-16 .. 07-17",), [6, 7]),
        (("2023-07-01..2023-07-11",), [0, 1]),
        (("2023-07-16T00:00:00Z..2023-09-01",), [6, 7]),
        (("2023-07-12..2023-07-12",), [2]),
        (("2023-07-13..2023-07-11",), []),
        (("2024-01-01..2024-02-01", "no such..thing", "other"), []),
    ],
)
def test_points_and_ranges(skip: tuple[str, ...], left_out: list[int]) -> None:
    points = mark_skipped(POINTS, skip)
    assert [i for i, p in enumerate(points) if p.missing == SKIPPED] == left_out
    assert points[4].missing == "no image", "its own reason stays"
    assert [p.id for p in points] == [p.id for p in POINTS]


def test_what_matches_nothing_is_told() -> None:
    timeline = Values([], Path())
    assert notes_on(timeline, POINTS, ("07-12", "2024-01-01..2024-02-01", "other")) == [
        "skip: no point is called '2024-01-01..2024-02-01'",
        "skip: no point is called 'other'",
    ]


def test_a_day_that_ends_a_range_is_in_it_to_its_last_moment() -> None:
    hours = [Point(id=f"h{i}", label=f"h{i}", when=BEGAN + timedelta(hours=6 * i)) for i in range(6)]
    left_out = [p.id for p in mark_skipped(hours, ("2023-07-10..2023-07-10",)) if p.missing]
    assert left_out == ["h0", "h1", "h2"]
