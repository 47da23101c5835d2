"""The live view: what is drawn, and a real terminal that is resized meanwhile."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import pytest
from hypothesis import given, strategies as st

from factories.hunts import stepped, values_hunt
from karat.changepoints.series import Outcome
from karat.engines.job import open_engine
from karat.hunts import hunt_toml
from karat.hunts.driver import run_hunt
from karat.hunts.hunt import hunt_row
from karat.hunts.hunt_toml import journal_path, workspace_of
from karat.hunts.journal.journal import Journal
from karat.hunts.model import Attempt, Decision, Point, Span
from karat.hunts.report.live import HuntProgress, LineListener, listener_for
from karat.hunts.report.live_view import cells, render
from karat.hunts.report.terminal import status_of


def watched(count: int = 12) -> HuntProgress:
    """Five of `count` nights are tried: a level, a worse one, a crash; one runs, one is missing."""
    points = [Point(id=f"n{i}", label=f"night {i}", missing="no image" if i == 1 else "") for i in range(count)]
    progress = HuntProgress({"speed": "MLUPS"})
    progress.room(2)
    progress.opened("0", "containers by day", points)
    for index, speed in ((0, 100.0), (3, 100.0), (7, 90.0), (11, 90.0)):
        progress.finished(attempt(f"n{index}", speed))
    crash = "ImportError: \x1b[31mno module"
    progress.finished(Attempt(stage="0", point="n9", number=1, outcome=Outcome.CRASH, signature=crash))
    progress.running["n5"] = points[5], "midpoint of night 3 and night 7", 100.0
    span = Span(metric="speed", good=3, bad=7, before=100.0, after=90.0, confidence=0.99, kind="regression")
    progress.decided("0", Decision(asks=(), expected_left=6, likely_next=(4, 6), spans=(span,)))
    return progress


def attempt(point: str, speed: float) -> Attempt:
    return Attempt(
        stage="0", point=point, number=1, outcome=Outcome.OK, samples={"speed": (speed,)}, seconds=20.0, why="grid"
    )


def test_the_view_says_what_is_known_what_runs_and_how_long_it_takes() -> None:
    text = render(watched(), 100, 30, 130.0)
    lines = text.plain.split("\n")
    assert lines[0] == ("containers by day  5 of 12 points tried · 5 runs · ≈6 to go · about 48.0 s left")
    assert lines[1] == "█ ·█·◌·▁·✗·▁"
    assert lines[2] == "night 0 … night 11"
    assert "regression  speed 100 → 90 MLUPS (−10.0%), last good night 3, first bad night 7, 99%" in lines
    assert "now   night 5  30.0 s  midpoint of night 3 and night 7" in lines
    assert "next  night 4, night 6" in lines
    assert any(r"crash: ImportError: \x1b[31mno module" in line for line in lines)
    styles = {str(s.style) for s in text.spans}
    assert {"green", "red", "bold red", "bold cyan"} <= styles, "levels and failures are told apart"


@pytest.mark.parametrize(("width", "height"), [(20, 6), (40, 10), (200, 60), (1, 3)])
def test_it_fits_the_terminal(width: int, height: int) -> None:
    text = render(watched(), width, height, 130.0)
    assert all(line.cell_len <= width for line in text.split("\n"))
    assert len(text.split("\n")) <= height


def test_where_points_share_a_cell_the_gravest_is_shown() -> None:
    progress = watched(120)
    strip = render(progress, 30, 30, 130.0).plain.split("\n")[1]
    assert len(strip) == 30
    assert strip.startswith("█◌✗")


@given(st.integers(1, 3000), st.integers(1, 300))
def test_cells_are_all_points_in_order(points: int, room: int) -> None:
    found = list(cells(points, room))
    assert len(found) == min(points, room)
    assert found[0][0] == 0
    assert found[-1][1] == points
    assert all(a[1] == b[0] for a, b in pairwise(found))
    assert all(0 < end - start <= -(-points // len(found)) for start, end in found)


def test_after_a_dip_the_level_is_as_before() -> None:
    progress = watched()
    down = Span(metric="speed", good=3, bad=5, before=100.0, after=90.0, confidence=0.99, kind="regression")
    up = Span(metric="speed", good=8, bad=9, before=90.0, after=100.0, confidence=0.99, kind="improvement")
    progress.decided("0", Decision(asks=(), spans=(down, up)))
    assert progress.states()[7] == "dip"
    assert progress.states()[11] == "good"
    assert progress.left is None


def test_plain_lines_are_one_per_attempt() -> None:
    stream = io.StringIO()
    lines = LineListener({"speed": "MLUPS"}, stream)
    points = [Point(id="a", label="first"), Point(id="b", label="second", missing="gone")]
    lines.opened("0.1/1", "commits", points)
    lines.decided("0.1/1", Decision(asks=(), expected_left=3))
    lines.started("0.1/1", points[0], "grid")
    lines.finished(attempt("a", 577.1))
    lines.said("something\nodd \x1b[2J")
    assert stream.getvalue().splitlines() == [
        "stage 0.1/1, commits: 2 points (first … second), 1 of them not available",
        "[1/≈3] first 577.1 MLUPS (20.0 s) grid",
        r"something\nodd \x1b[2J",
    ]


def on_a_terminal(folder: Path, columns: int, rows: int, **environment: str) -> tuple[bytes, int]:
    """A hunt in a pseudo-terminal that is made narrower in the middle; what it wrote, and its exit code."""
    handle, theirs = pty.openpty()
    sized(handle, columns, rows)
    plain = {k: v for k, v in os.environ.items() if k not in {"NO_COLOR", "FORCE_COLOR", "COLUMNS"}}
    words = [sys.executable, "-m", "karat", "hunt", "run"]
    with subprocess.Popen(
        words,
        cwd=folder,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**plain, "TERM": "xterm-256color", **environment},
    ) as at_work:
        os.close(theirs)
        written, narrowed = b"", False
        while select.select([handle], [], [], 60)[0]:
            try:
                written += os.read(handle, 65536)
            except OSError:  # that is how a terminal ends
                break
            if not narrowed and b"now " in written:
                narrowed = True
                sized(handle, columns // 2, rows)
                at_work.send_signal(signal.SIGWINCH)
    os.close(handle)
    return written, at_work.returncode


def sized(terminal: int, columns: int, rows: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


@pytest.mark.slow
def test_on_a_real_terminal_the_view_comes_and_goes(tmp_path: Path) -> None:
    values_hunt(tmp_path, stepped(30, (12, 90.0)))
    written, code = on_a_terminal(tmp_path, 120, 30)
    text = written.decode()
    assert code == 1
    assert "\x1b[?25l" in text, "the cursor is hidden while it is drawn"
    assert "\x1b[?25h" in text, "and comes back"
    assert "\x1b[31m" in text, "in colour"
    view, _, report = text.rpartition("\x1b[?25h")
    assert "now   v" in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", view)
    assert "hunt: 1 regression" in report
    assert "points tried · " not in report, "the view is gone when the report comes"


@pytest.mark.slow
def test_no_color_is_respected(tmp_path: Path) -> None:
    values_hunt(tmp_path, stepped(4))
    written, code = on_a_terminal(tmp_path, 80, 24, NO_COLOR="1")
    assert code == 0
    colours = re.findall(rb"\x1b\[(?:\d+;)*(?:3[0-7]|9[0-7])m", written)
    assert colours == []


def test_once_the_search_is_over_no_total_is_guessed() -> None:
    stream = io.StringIO()
    lines = LineListener({"speed": "MLUPS"}, stream)
    lines.opened("0", "commits", [Point(id="a", label="first")])
    lines.decided("0", Decision(asks=(), expected_left=1))
    lines.finished(attempt("a", 577.1))
    lines.decided("0", Decision(asks=(), expected_left=0))
    lines.finished(attempt("a", 577.1))
    assert [line.split()[0] for line in stream.getvalue().splitlines()[1:]] == ["[1/≈1]", "[2]"]


class Watched(LineListener):
    """Asks for the status whenever a run has ended."""

    def __init__(self, ask: Callable[[], None]) -> None:
        super().__init__({}, io.StringIO())
        self._ask = ask

    def finished(self, attempt: Attempt) -> None:
        super().finished(attempt)
        self._ask()


@pytest.mark.slow
def test_the_time_left_counts_on_the_slots_that_the_engine_has(tmp_path: Path) -> None:
    file = values_hunt(tmp_path, stepped(12, (5, 90.0)), "[search]\nstrategy = 'sweep'\n")
    settings = hunt_toml.read(file)
    place = workspace_of(file, settings)
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
        listener = Watched(ask)
        run_hunt(settings, place, engine, journal, listener)
    assert asked
    # hunt.toml says nothing of slots.
    assert (settings.engine.slots, listener.slots) == (0, 3)
    assert isinstance(listener_for(io.StringIO(), {}, settings), LineListener)
