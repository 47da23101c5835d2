from __future__ import annotations

import pytest

from karat.changepoints.series import Outcome
from karat.hunts.model import Metric, Observed
from karat.hunts.search.observations import read_metric

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
