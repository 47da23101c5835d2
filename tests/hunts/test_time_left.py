from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from statistics import fmean

import pytest

from factories.hunts import stepped, values_hunt
from karat.engines.open import open_engine
from karat.hunts import hunt_toml
from karat.hunts.driver import run_hunt
from karat.hunts.hunt import hunt_row
from karat.hunts.hunt_toml import journal_path, workspace_of
from karat.hunts.journal.journal import Journal
from karat.hunts.model import Attempt
from karat.hunts.report.live import LineListener, Progress, listener_for
from karat.hunts.report.terminal import status_of


class Watched(LineListener):
    """Asks for the status whenever a run has ended."""

    def __init__(self, progress: Progress, ask: Callable[[], None]) -> None:
        super().__init__(io.StringIO(), progress)
        self._ask = ask

    def finished(self, attempt: Attempt) -> None:
        super().finished(attempt)
        self._ask()


def test_the_time_left_counts_on_the_slots_that_the_engine_has(tmp_path: Path) -> None:
    file = values_hunt(tmp_path, stepped(12, (5, 90.0)), "[search]\nstrategy = 'sweep'\n")
    settings = hunt_toml.read(file)
    place, progress = workspace_of(file, settings), Progress({})
    asked: list[int] = []

    def ask() -> None:
        status, report = status_of(journal)
        took = [a.seconds for p in report.stages[0].points for a in p.attempts]
        left = status.stages[0].expected_left
        if left:
            assert status.seconds_left == pytest.approx(left * fmean(took[-20:]) / 3)
            asked.append(left)

    with (
        Journal.create(journal_path(file, settings), hunt_row(file, settings, place)) as journal,
        closing(open_engine("local", slots=3, work=place.work)) as engine,
    ):
        run_hunt(settings, place, engine, journal, Watched(progress, ask))
    assert asked
    # hunt.toml says nothing of slots.
    assert (settings.engine.slots, progress.slots) == (0, 3)
    assert isinstance(listener_for(io.StringIO(), {}, settings), LineListener)
