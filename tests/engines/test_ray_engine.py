"""A real cluster of two nodes on this machine: jobs run on both, one is killed in the middle, and nothing is missing."""

from __future__ import annotations

import importlib.util
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from conftest import missing
from factories.engines_elsewhere import ElsewhereError, EngineElsewhere
from factories.jobs import job, shell
from factories.processes import gone, started
from factories.ray_clusters import RayCluster
from karat.engines.job import Engine, EngineSettings, Job, JobResult, Resources, open_engine

if importlib.util.find_spec("ray") is None:
    missing("ray (pip install 'karat[ray]')")
if not Path("/proc/self/stat").exists():
    missing("Linux, for its /proc")

# One process has the cluster; two at a time would have no cores left.
pytestmark = pytest.mark.xdist_group("ray")


@pytest.fixture(scope="module")
def engine(cluster: RayCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineElsewhere]:
    """For all tests that leave it as it was: a driver and its workers take seconds to start."""
    env = cluster.env | {"OF_THE_DRIVER": "1", "RAY_ADDRESS": cluster.address}
    made = EngineElsewhere(env, "ray", slots=0, work=str(tmp_path_factory.mktemp("work")))
    yield made
    made.close()


def answers(engine: Engine, jobs: list[Job]) -> dict[str, JobResult]:
    for each in jobs:
        engine.submit(each)
    found: dict[str, JobResult] = {}
    while len(found) < len(jobs):
        found |= {result.key: result for result in engine.wait()}
    return found


def nodes(results: dict[str, JobResult]) -> set[str]:
    return {result.where.split("node ")[1] for result in results.values()}


@pytest.mark.slow
def test_jobs_run_on_both_nodes_and_the_loss_of_one_changes_no_answer(
    cluster: RayCluster, engine: EngineElsewhere, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = cluster.add("second")
    # On the second node they never end: it is hit in the middle of two of them.
    pids = tmp_path / "pids"
    stay = f"test $OF_NODE = head || {{ echo $$ >> {pids}; exec sleep 1000; }}"
    square = f"{stay}; echo $((N * N)) | tee $KARAT_OUT/square.txt"
    jobs = [job(shell(square, env={"N": str(n)}), key=str(n), collect=("*.txt",)) for n in range(8)]
    assert engine.slots == 4
    # A custom resource says where a job may run.
    wanted = Resources(cores=1, custom={"second": 1})
    there = answers(engine, [job("echo $OF_NODE", key=str(n), resources=wanted) for n in range(3)])
    assert {result.ran[0].output for result in there.values()} == {b"second\n"}
    for each in jobs:
        engine.submit(each)
    running = started(pids, 2)
    second.kill()
    found: dict[str, JobResult] = {}
    while len(found) < len(jobs):
        found |= {result.key: result for result in engine.wait()}
    assert gone(running)
    assert nodes(found) & nodes(there) == set()
    assert [result.lost for result in found.values()] == [""] * len(jobs)
    notes = [note for result in found.values() for note in result.notes]
    assert len([note for note in notes if "lost and tried again" in note]) >= 2
    # A lost node is noticed by its silence, and who has room is asked once a second.
    until = time.monotonic() + 30
    while engine.slots != 2:
        assert time.monotonic() < until, "the lost node is still counted"
        time.sleep(0.1)
    monkeypatch.setenv("OF_NODE", "head")
    local = open_engine(EngineSettings(slots=2), tmp_path)
    try:
        expected = answers(local, jobs)
    finally:
        local.close()
    told = {key: (result.ran[0].output, result.files) for key, result in found.items()}
    assert told == {key: (result.ran[0].output, result.files) for key, result in expected.items()}


@pytest.mark.slow
def test_a_worker_that_is_lost_again_and_again_gives_a_result_that_says_so(engine: EngineElsewhere) -> None:
    # The supervisor's parent is the worker; it takes the worker along each time.
    murder = "kill -9 $(awk '{print $4}' /proc/$(awk '{print $4}' /proc/$$/stat)/stat); sleep 100"
    engine.submit(job(murder, key="murder"))
    (result,) = engine.wait()
    assert "WorkerCrashedError" in result.lost
    assert len([note for note in result.notes if "lost and tried again" in note]) == 4


@pytest.mark.slow
def test_a_job_sees_its_nodes_environment_and_nothing_of_the_drivers_or_the_workers(engine: EngineElsewhere) -> None:
    (result,) = answers(engine, [job(shell("env", env={"ASKED": "1"}))]).values()
    names = {line.split(b"=")[0] for line in result.ran[0].output.splitlines()}
    assert b"ASKED" in names
    assert b"KARAT_OUT" in names
    assert not names & {b"OF_THE_DRIVER", b"OMP_NUM_THREADS", b"PYTHONPATH", b"RAY_JOB_ID"}


@pytest.mark.slow
def test_secrets_of_a_node_are_withheld_unless_they_are_passed(engine: EngineElsewhere) -> None:
    show = "env | grep RAY_AUTH; true"  # the node has RAY_AUTH_TOKEN_PATH
    told = answers(engine, [job(show, key="none"), job(show, key="passed", passed=("RAY_AUTH_TOKEN_PATH",))])
    assert b"TOKEN" not in told["none"].ran[0].output
    assert b"RAY_AUTH_TOKEN_PATH=***" in told["passed"].ran[0].output


@pytest.mark.slow
def test_cancelling_ends_the_processes_and_frees_the_node(engine: EngineElsewhere, tmp_path: Path) -> None:
    mark = tmp_path / "pids"
    sleeper = f"setsid sh -c 'echo $$ >> {mark}; sleep 1000' & echo $$ >> {mark}; sleep 1000"
    engine.submit(job(sleeper, key="long"))
    pids = started(mark, 2)
    engine.cancel("long")
    assert gone(pids)
    assert set(answers(engine, [job("echo 1", key=str(n)) for n in range(2)])) == {"0", "1"}


@pytest.mark.slow
def test_closing_ends_the_processes(cluster: RayCluster, tmp_path: Path) -> None:
    mark = tmp_path / "pids"
    engine = EngineElsewhere(cluster.env, "ray", slots=1, work=str(tmp_path), address=cluster.address)
    engine.submit(job(f"echo $$ >> {mark}; sleep 1000", key="long"))
    pids = started(mark, 1)
    engine.close()
    assert gone(pids)


@pytest.mark.slow
def test_a_killed_driver_leaves_nothing_running(cluster: RayCluster, tmp_path: Path) -> None:
    mark = tmp_path / "pids"
    engine = EngineElsewhere(cluster.env, "ray", slots=1, work=str(tmp_path), address=cluster.address)
    engine.submit(job(f"echo $$ >> {mark}; sleep 1000", key="long"))
    pids = started(mark, 1)
    engine.process.kill()
    engine.process.wait()
    assert gone(pids)
    engine.close()


@pytest.mark.slow
def test_more_than_any_node_has_cannot_be_had(cluster: RayCluster, tmp_path: Path) -> None:
    with pytest.raises(ElsewhereError, match=r"expected a node .* with 1 CPU, 3 GPU") as caught:
        EngineElsewhere(cluster.env, "ray", slots=1, work=str(tmp_path), address=cluster.address, gpus=3)
    assert caught.value.next_command.startswith("ray status")


@pytest.mark.slow
@pytest.mark.parametrize("asked", [{"cores": 1e-5}, {"resources": {"CPU": 1}}])
def test_what_ray_cannot_be_asked_for_is_said_before_anything_runs(
    cluster: RayCluster, tmp_path: Path, asked: dict[str, Any]
) -> None:
    with pytest.raises(ElsewhereError, match="asks for what Ray cannot give") as caught:
        EngineElsewhere(cluster.env, "ray", slots=1, work=str(tmp_path), address=cluster.address, **asked)
    assert caught.value.next_command == "edit [engine] in hunt.toml"


@pytest.mark.slow
def test_while_no_node_has_room_it_is_said_and_waited_for_one(cluster: RayCluster, tmp_path: Path) -> None:
    third, wanted = cluster.add("third"), {"third": 1.0}
    said = tmp_path / "said"
    with said.open("wb") as errors:
        engine = EngineElsewhere(
            cluster.env, "ray", errors=errors, slots=1, work=str(tmp_path), address=cluster.address, resources=wanted
        )
        assert engine.slots == 1  # though the node has room for two
        third.kill()
        engine.submit(job("echo $OF_NODE", resources=Resources(cores=1, custom=wanted)))
        # As a hunt waits, half a second at a time.
        while b"waiting: no node of the Ray cluster has 1 CPU, 1 third" not in said.read_bytes():
            assert list(engine.wait(0.1)) == []
        third = cluster.add("third")
        (result,) = engine.wait()
        engine.close()
    third.kill()
    assert result.ran[0].output == b"third\n"
    assert said.read_bytes().count(b"waiting:") == 1


@pytest.mark.slow
def test_areas_are_kept_and_no_two_jobs_share_one(engine: EngineElsewhere) -> None:
    busy = "mkdir busy || exit 1; sleep 0.2; rmdir busy; echo x >> count; echo $PWD"
    found = answers(engine, [job(busy, key=str(n)) for n in range(6)])
    assert [result.ran[0].exit_code for result in found.values()] == [0] * 6
    assert len({result.ran[0].output for result in found.values()}) <= 2


@pytest.mark.slow
@pytest.mark.parametrize("address", ["http://127.0.0.1:8265", "nonsense", "127.0.0.1"])
def test_an_address_that_is_none(tmp_path: Path, address: str) -> None:
    with pytest.raises(ElsewhereError, match="HOST:PORT or ray://HOST:PORT, found") as caught:
        EngineElsewhere({}, "ray", slots=1, work=str(tmp_path), address=address)
    # An address of hunt.toml goes before RAY_ADDRESS.
    assert caught.value.next_command.startswith("edit [engine] address in hunt.toml")


@pytest.mark.slow
def test_somebody_else_there(tmp_path: Path) -> None:
    # As the dashboard's port: Ray would wait for minutes, and then end the whole process.
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"127.0.0.1:{server.server_port}"
        with pytest.raises(ElsewhereError, match="found something else there"):
            EngineElsewhere({}, "ray", slots=1, work=str(tmp_path), address=address)
        server.shutdown()


@pytest.mark.slow
def test_no_cluster_is_started_by_accident(tmp_path: Path) -> None:
    with pytest.raises(ElsewhereError, match="would start one"):
        EngineElsewhere({"RAY_ADDRESS": "local"}, "ray", slots=1, work=str(tmp_path))
