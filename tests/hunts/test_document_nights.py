"""The document's own nights, 61 of them, from forty choices of start and end: everything is found, or said not to be looked for."""

from __future__ import annotations

import pytest

from factories.nightly_logs import MLUPS
from factories.simulated_hunts import METRIC, Simulated
from karat.hunts.model import HuntReport, Metric, StageReport
from karat.hunts.report.sentences import at_the_top
from karat.hunts.search.strategies import open_strategy
from karat.hunts.settings import SearchSettings

CRASHED = "08-25"
NIGHTS = sorted([*MLUPS, CRASHED])
DIP = [("07-10", "07-17"), ("07-19", "07-20")]
LASTING = [("07-21", "07-25"), ("08-24", "08-26")]
CHOICES = [(first, last) for first in range(10) for last in (60, 57, 53, 48)]


@pytest.mark.slow
@pytest.mark.parametrize("wish", [0, 3])
def test_forty_choices_of_start_and_end(wish: int) -> None:
    lost = 0
    for first, last in CHOICES:
        nights = NIGHTS[first : last + 1]
        truth = [MLUPS.get(night, 577.0) for night in nights]
        crashing = frozenset({nights.index(CRASHED)})
        world = Simulated(truth, spread=0.0003, crashing=crashing, seed=100 * first + last)
        search = open_strategy(SearchSettings(min_dip=wish), len(nights), [Metric(name=METRIC, better="higher")])
        answer = world.hunt(search)
        found = [(nights[span.good], nights[span.bad]) for span in answer.spans]
        assert found in (LASTING, [*DIP, *LASTING], [DIP[1], *LASTING]), nights[0]
        there = [pair for pair in (*DIP, *LASTING) if pair[0] in nights]
        if found != there:
            lost += 1
            stage = StageReport(key="0", title="", timeline="", state="done", points=(), missed=answer.missed)
            report = HuntReport(name="", file="", journal="", state="done", stages=(stage,))
            (said,) = at_the_top(report)
            assert answer.missed is not None
            assert answer.missed.longest_dip >= 3
            assert "could have been missed" in said
    if wish:
        assert not lost, "whatever lasts three nights is found where that is asked for"
