"""A real Slurm of two nodes on this machine: arrays, lost nodes, orphans, and what is said where something is missing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from factories.ends import ends
from factories.engines_elsewhere import EngineElsewhere
from factories.jobs import job, shell
from factories.processes import gone, started
from factories.slurm_clusters import SlurmCluster
from karat.engines.job import Engine, EngineSettings, Job, JobResult, Resources, open_engine
from karat.engines.slurm_engine import DriverWatch
from karat.findings import CannotVerify, UsageError

# One process has the cluster.
pytestmark = pytest.mark.xdist_group("slurm")


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def engine(slurm: SlurmCluster, tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    monkeypatch.setenv("SLURM_CONF", slurm.env["SLURM_CONF"])
    monkeypatch.setenv("KARAT_AREAS", str(tmp_path / "areas"))
    made = open_engine(EngineSettings(kind="slurm", slots=0, gpus=1, cores=1), tmp_path / "work", notice=said.append)
    yield made
    made.close()
    assert slurm.jobs() == []


def answers(engine: Engine, jobs: list[Job]) -> dict[str, JobResult]:
    for each in jobs:
        engine.submit(each)
    found: dict[str, JobResult] = {}
    with ends():
        while len(found) < len(jobs):
            found |= {result.key: result for result in engine.wait()}
    return found


@pytest.mark.slow
def test_jobs_that_start_together_are_one_array_on_both_nodes(engine: Engine, said: list[str]) -> None:
    assert engine.slots == 4
    wanted = Resources(cores=1, gpus=1)
    square = "sleep 0.3; echo $SLURM_ARRAY_JOB_ID >&2; echo $((N * N)) > $KARAT_OUT/square.txt"
    jobs = [job(shell(square, env={"N": str(n)}), key=str(n), collect=("*.txt",), resources=wanted) for n in range(6)]
    found = answers(engine, jobs)
    assert {key: result.files["square.txt"] for key, result in found.items()} == {
        str(n): f"{n * n}\n".encode() for n in range(6)
    }
    assert {result.where.split("node ")[1].split(",")[0] for result in found.values()} == {"first", "second"}
    arrays = {result.ran[0].output for result in found.values()}
    assert len(arrays) == 1
    assert arrays != {b"\n"}
    engine.close()
    assert said[-1].startswith("Slurm: 6 jobs held ")
    assert said[-1].endswith(" GPU seconds, by the times of the queue")


@pytest.mark.slow
def test_a_node_that_is_drained_in_the_middle_changes_no_answer(
    engine: Engine, slurm: SlurmCluster, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    # On the second node they never end.
    stay = f"test $SLURMD_NODENAME = first || {{ echo $$ >> {pids}; sleep 1000; }}; echo $N"
    jobs = [job(shell(stay, env={"N": str(n)}), key=str(n)) for n in range(4)]
    for each in jobs:
        engine.submit(each)
    assert list(engine.wait(0.1)) == []
    running = started(pids, 2)
    found: dict[str, JobResult] = {}
    try:
        slurm.drain("second")
        with ends():
            while len(found) < len(jobs):
                found |= {result.key: result for result in engine.wait()}
    finally:
        slurm.resume("second")
    assert gone(running)
    assert {key: result.ran[0].output for key, result in found.items()} == {str(n): f"{n}\n".encode() for n in range(4)}
    notes = [note for result in found.values() for note in result.notes]
    assert len(notes) == 2
    assert all("lost and tried again: Slurm job " in note and "NODE_FAIL on second" in note for note in notes)


@pytest.mark.slow
def test_a_job_that_is_lost_again_and_again_gives_a_result_that_says_so(
    slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", slurm.env["SLURM_CONF"])
    monkeypatch.setenv("KARAT_AREAS", str(tmp_path / "areas"))
    engine = open_engine(EngineSettings(kind="slurm", slots=0, retries=1), tmp_path / "work")
    try:
        (well,) = answers(engine, [job("echo 1", key="well")]).values()
        assert well.lost == ""
        (result,) = answers(engine, [job("scancel $SLURM_JOB_ID; sleep 100", key="murder")]).values()
    finally:
        engine.close()
    assert "CANCELLED on " in result.lost
    assert len([note for note in result.notes if "lost and tried again" in note]) == 2


@pytest.mark.slow
def test_cancelling_and_closing_end_the_processes(engine: Engine, slurm: SlurmCluster, tmp_path: Path) -> None:
    mark = tmp_path / "pids"
    sleeper = f"setsid sh -c 'echo $$ >> {mark}; sleep 1000' & echo $$ >> {mark}; sleep 1000"
    engine.submit(job(sleeper, key="one"))
    engine.submit(job(sleeper, key="two"))
    assert list(engine.wait(0.1)) == []
    pids = started(mark, 4)
    engine.cancel("one")
    engine.close()
    assert gone(pids)
    assert slurm.jobs() == []


@pytest.mark.slow
def test_jobs_of_a_killed_driver_are_cancelled_by_the_next_start(slurm: SlurmCluster, tmp_path: Path) -> None:
    mark, work = tmp_path / "pids", str(tmp_path / "work")
    env = {**slurm.env, "KARAT_AREAS": str(tmp_path / "areas")}
    killed = EngineElsewhere(env, "slurm", slots=8, work=work)
    other = EngineElsewhere(env, "slurm", slots=1, work=work)
    other.submit(job(f"echo $$ >> {mark}; sleep 1000", key="other"))
    assert other.wait(0.1) == []
    (kept,) = started(mark, 1)
    for n in range(6):
        killed.submit(job(f"echo $$ >> {mark}; sleep 1000", key=str(n)))
    assert killed.wait(0.1) == []
    pids = [pid for pid in started(mark, 4) if pid != kept]
    killed.process.send_signal(signal.SIGKILL)
    killed.process.wait()
    assert len(slurm.jobs()) == 7
    after = EngineElsewhere(env, "slurm", slots=1, work=work)
    assert gone(pids)
    # What a driver that lives has started goes on.
    assert [state for line in slurm.jobs() if (state := line.split()[1]) != "COMPLETING"] == ["RUNNING"]
    other.close()
    after.close()
    killed.close()
    assert gone([kept])


def test_a_job_ends_when_nobody_wants_it_any_more(tmp_path: Path) -> None:
    heartbeat = tmp_path / "alive"
    watch = DriverWatch(heartbeat, silence=0.2)
    for beat in range(10):
        heartbeat.write_text(str(beat))
        assert not watch()
        time.sleep(0.02)
    with ends():
        while not watch():
            time.sleep(0.02)
    asked = DriverWatch(heartbeat)
    assert not asked()
    asked.stop()
    assert asked()


@pytest.mark.slow
def test_nodes_that_cannot_see_the_folder_are_no_evidence_of_a_point(
    slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", slurm.env["SLURM_CONF"])
    # As another user, a job sees as little of a test's folder as a node without the shared disk.
    engine = open_engine(EngineSettings(kind="slurm", slots=1, retries=1, options=("--uid=nobody",)), tmp_path)
    engine.submit(job("true"))
    with ends(), pytest.raises(CannotVerify, match=r"cannot run karat: expected .* on a disk that all share; found"):
        engine.wait()
    engine.close()


@pytest.mark.slow
def test_what_no_node_has_and_what_slurm_refuses_is_said(
    slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", slurm.env["SLURM_CONF"])

    def opened(**asked: Any) -> Engine:
        return open_engine(EngineSettings(kind="slurm", slots=0, **asked), tmp_path)

    with pytest.raises(CannotVerify, match=r"expected a node .* with 1 CPU, 3 GPU for each probe, found 2 CPU") as no:
        opened(gpus=3)
    assert no.value.next_command.startswith("sinfo")
    with pytest.raises(UsageError, match="whole number for Slurm"):
        opened(cores=0.5)
    engine = opened(options=("--account=nobody", "--nodelist=third"))
    engine.submit(job("true"))
    with pytest.raises(CannotVerify, match=r"sbatch failed: .*[Ii]nvalid node name"):
        engine.wait()
    engine.close()
    assert list((tmp_path / "slurm").iterdir()) == []


def test_without_slurm_the_error_says_what_is_missing(tmp_path: Path) -> None:
    code = "import sys, pathlib; from karat.engines.job import *; open_engine(EngineSettings(kind='slurm'), pathlib.Path('.'))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "needs the commands of Slurm (sbatch, squeue, scancel), which are not on the PATH" in done.stderr


@pytest.mark.slow
def test_secrets_do_not_go_to_slurm_unless_they_are_passed(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NIGHTLY_TOKEN", "ghost-of-a-token")
    monkeypatch.setenv("SLURM_OF_ANOTHER_JOB", "1")
    show = "echo ${NIGHTLY_TOKEN:-none} ${SLURM_OF_ANOTHER_JOB:-none}"
    (none,) = answers(engine, [job(show, key="none")]).values()
    assert none.ran[0].output == b"none none\n"
    (passed,) = answers(engine, [job(show, key="passed", passed=("NIGHTLY_TOKEN",))]).values()
    assert passed.ran[0].output == b"*** none\n"
