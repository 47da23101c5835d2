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
from pathlib import Path
from statistics import fmean

import pytest

from factories.hunts import stepped, values_hunt
from karat.changepoints.series import Outcome
from karat.engines.job import EngineSettings, open_engine
from karat.hunts import hunt_toml
from karat.hunts.driver import run_hunt
from karat.hunts.hunt import hunt_row
from karat.hunts.hunt_toml import journal_path, workspace_of
from karat.hunts.journal import Journal
from karat.hunts.model import Attempt, Decision, Point
from karat.hunts.report.assemble import build_report
from karat.hunts.report.terminal import LineListener, listener_for, status_lines


def attempt(point: str, speed: float) -> Attempt:
    return Attempt(
        stage="0", point=point, number=1, outcome=Outcome.OK, samples={"speed": (speed,)}, seconds=20.0, why="grid"
    )


def test_plain_lines_are_one_per_attempt() -> None:
    stream = io.StringIO()
    lines = LineListener({"speed": "MLUPS"}, stream)
    points = [Point(id="a", label="first"), Point(id="b", label="second", missing="gone")]
    lines.opened("0.1/1", "commits", points, 0)
    lines.decided(Decision(asks=(), expected_left=3))
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
    assert "\x1b[36m" in text, "in colour"
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
    lines.opened("0", "commits", [Point(id="a", label="first")], 0)
    lines.decided(Decision(asks=(), expected_left=1))
    lines.finished(attempt("a", 577.1))
    lines.decided(Decision(asks=(), expected_left=0))
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
        report = build_report(journal)
        took = [a.seconds for p in report.stages[0].points for a in p.attempts]
        left = report.stages[0].expected_left
        if left:
            assert report.seconds_left == pytest.approx(left * fmean(took[-20:]) / 3)
            asked.append(left)

    with (
        Journal.create(journal_path(file, settings), hunt_row(file, settings, place)) as journal,
        closing(open_engine(EngineSettings(slots=3), place.work)) as engine,
    ):
        listener = Watched(ask)
        run_hunt(settings, place, engine, journal, listener)
    assert asked
    # hunt.toml says nothing of slots.
    assert settings.engine.slots == 0
    with Journal(journal_path(file, settings)) as journal:
        assert journal.facts()["slots"] == "3"
        assert isinstance(listener_for(io.StringIO(), {}, {}, journal), LineListener)
        report = build_report(journal)
        lines = ["".join(text for text, _ in line) for line in status_lines(report, 60)]
    assert "  ·····|·······" in lines
    assert any("last good v004, first bad v005" in line for line in lines)
