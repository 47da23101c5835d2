from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from factories.jobs import job, shell
from factories.processes import gone, started
from karat.engines.job import Engine, EngineSettings, open_engine
from karat.engines.local import LocalEngine


@pytest.fixture(autouse=True)
def _own_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run").mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    made = open_engine(EngineSettings(slots=2), tmp_path / "work")
    yield made
    made.close()


def test_results_come_as_they_end_and_not_as_they_began(engine: Engine, tmp_path: Path) -> None:
    go = tmp_path / "go"
    engine.submit(job(f"while [ ! -e {go} ]; do sleep 0.01; done; echo slow", key="slow"))
    engine.submit(job("echo quick", key="quick"))
    assert [result.key for result in engine.wait()] == ["quick"]
    go.touch()
    assert [result.key for result in engine.wait()] == ["slow"]
    assert list(engine.wait()) == []


def test_jobs_that_belong_together_run_in_one_slot_one_after_the_other(engine: Engine) -> None:
    pairs = [f"pair {n // 2}" for n in range(8)]
    for number, pair in enumerate(pairs):
        engine.submit(job(f"echo {number}", key=str(number), beside=pair))
    found: dict[str, str] = {}
    while len(found) < 8:
        found |= {result.key: result.where for result in engine.wait()}
    assert all(found[str(n)] == found[str(n + 1)] for n in range(0, 8, 2))
    for first in range(0, 8, 2):
        keys = [key for key in found if key in {str(first), str(first + 1)}]
        assert keys == [str(first), str(first + 1)], "in the order in which they came"


def test_waiting_has_an_end(engine: Engine) -> None:
    engine.submit(job("sleep 1000"))
    assert list(engine.wait(0.05)) == []
    assert list(engine.wait(0)) == []


def test_all_that_has_come_is_given_at_once(engine: Engine) -> None:
    for number in range(4):
        engine.submit(job("true", key=str(number)))
    found: set[str] = set()
    while len(found) < 4:
        found |= {result.key for result in engine.wait()}
    assert found == {"0", "1", "2", "3"}


@pytest.mark.slow
def test_no_more_run_at_once_than_there_are_slots_and_none_shares_one(engine: Engine) -> None:
    assert isinstance(engine, LocalEngine)
    assert engine.slots == 2
    busy = "mkdir busy || exit 1; sleep 0.05; rmdir busy; pwd"
    for number in range(8):
        engine.submit(job(busy, key=str(number)))
    outputs: list[bytes] = []
    while len(outputs) < 8:
        for result in engine.wait():
            assert result.ran[0].exit_code == 0
            outputs.append(result.ran[0].output)
    assert len(set(outputs)) == 2


def test_cancelled_jobs_give_no_result_and_free_their_slot(engine: Engine, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    for number in range(2):
        engine.submit(job(f"echo $$ >> {pids}; sleep 1000", key=f"long {number}"))
    running = started(pids, 2)
    engine.submit(job("echo never", key="queued"))
    for key in ("long 0", "long 1", "queued", "nobody's"):
        engine.cancel(key)
    assert list(engine.wait()) == []
    engine.submit(job("echo next", key="next"))
    (result,) = engine.wait()
    assert result.ran[0].output == b"next\n"
    assert gone(running)


def test_a_key_may_be_used_again_after_its_job_was_cancelled(engine: Engine) -> None:
    engine.submit(job("sleep 1000", key="a"))
    engine.cancel("a")
    engine.submit(job("echo 2", key="a"))
    (result,) = engine.wait()
    assert result.ran[0].output == b"2\n"


def test_closing_ends_what_runs_before_it_returns(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    engine = open_engine(EngineSettings(slots=1), tmp_path / "work")
    engine.submit(job(f"setsid sleep 1000 & echo $! >> {pids}; echo $$ >> {pids}; wait", key="a"))
    engine.submit(job("true", key="b"))
    running = started(pids, 2)
    engine.close()
    assert not any(Path(f"/proc/{pid}").exists() for pid in running)


def test_an_area_that_cannot_be_written_loses_the_job_and_says_why(tmp_path: Path) -> None:
    work = tmp_path / "work"
    engine = open_engine(EngineSettings(slots=1), work)
    (work / "slot-0").write_text("a file where the folder should be")
    try:
        engine.submit(job("true"))
        (result,) = engine.wait()
    finally:
        engine.close()
    assert "slot-0" in result.lost
    assert result.ran == ()


_HUNT = """
import sys
from pathlib import Path
from karat.engines.job import JobCommand, Job
from karat.engines.job import EngineSettings, open_engine
engine = open_engine(EngineSettings(slots=1), Path(sys.argv[1]))
try:
    engine.submit(Job(key="k", commands=(JobCommand(role="measure", argv=("sh", "-c", sys.argv[2])),)))
    engine.wait()
finally:
    engine.close()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_neither_ctrl_c_nor_a_kill_leaves_anything_behind(tmp_path: Path, number: signal.Signals) -> None:
    pids = tmp_path / "pids"
    script = f"setsid sleep 1000 & echo $! >> {pids}; echo $$ >> {pids}; wait"
    words = [sys.executable, "-c", _HUNT, str(tmp_path / "work"), script]
    with subprocess.Popen(words, stderr=subprocess.DEVNULL) as hunt:
        running = started(pids, 2)
        hunt.send_signal(number)
        hunt.wait()
    assert gone(running)


def test_a_second_hunt_in_the_same_folder_gets_areas_of_its_own(engine: Engine, tmp_path: Path) -> None:
    second = open_engine(EngineSettings(slots=1), tmp_path / "work")
    try:
        second.submit(job("pwd"))
        (result,) = second.wait()
    finally:
        second.close()
    assert result.ran[0].output.decode().strip() == str(tmp_path / "work" / "slot-2")
    assert engine.slots == 2


def test_time_in_a_slot_is_one_jobs_at_a_time(engine: Engine) -> None:
    before = time.time()
    for number in range(4):
        engine.submit(job(shell("sleep 0.05"), key=str(number)))
    spans: dict[str, list[tuple[float, float]]] = {}
    while sum(map(len, spans.values())) < 4:
        for result in engine.wait():
            span = (result.started, result.started + result.seconds)
            spans.setdefault(result.where, []).append(span)
    for where in spans.values():
        ordered = sorted(where)
        assert all(end <= begin + 0.001 for (_, end), (begin, _) in pairwise(ordered))
    assert all(begin >= before for where in spans.values() for begin, _ in where)
    assert os.uname().nodename in next(iter(spans))
