from __future__ import annotations

import socket
import sys
import threading

import pytest
from hypothesis import given, strategies as st

from karat.engines.job import EngineSettings, Resources, jobs_per_node, node_needs
from karat.engines.ray_engine import ClusterHead, QuietStdout, answer_within, task_options
from karat.findings import CannotVerify


@given(st.integers(1, 64), st.sampled_from([0.1, 0.25, 0.3, 0.5, 1, 2, 3]))
def test_a_node_has_room_for_as_many_as_it_was_made_for(jobs: int, each: float) -> None:
    assert jobs_per_node({"CPU": jobs * each}, {"CPU": each}) == jobs


def test_the_scarcest_decides() -> None:
    wanted = node_needs(Resources(cores=2, gpus=1, memory=10, custom={"h200": 0.5}))
    assert wanted == {"CPU": 2, "GPU": 1, "memory": 10, "h200": 0.5}
    assert jobs_per_node({"CPU": 64, "GPU": 8, "memory": 100, "h200": 1}, wanted) == 2
    assert jobs_per_node({"CPU": 64, "GPU": 8, "memory": 100}, wanted) == 0


def test_ray_is_asked_for_what_a_job_says_and_never_for_nothing() -> None:
    assert task_options(EngineSettings().of_each)["num_cpus"] == 1
    assert task_options(EngineSettings(gpus=0.5).of_each)["num_gpus"] == 0.5
    assert task_options(Resources(memory=5, custom={"a": 1})) == {
        "num_cpus": 1,
        "num_gpus": 0,
        "memory": 5,
        "resources": {"a": 1},
        "max_retries": 0,
        "scheduling_strategy": "SPREAD",
    }


def test_what_is_not_answered_in_time_is_left_behind() -> None:
    never = threading.Event()
    assert answer_within(0.01, never.wait) is None
    never.set()


def test_an_answer_comes_back_and_so_does_an_error() -> None:
    assert answer_within(30, lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        answer_within(30, lambda: 1 // 0)


def test_a_head_that_is_gone_is_not_asked() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        head = ClusterHead(f"127.0.0.1:{server.getsockname()[1]}")
        head.check()
        assert not head.is_gone
    with pytest.raises(CannotVerify, match="no longer answers"):
        head.check()
    assert head.is_gone


def test_somebody_elses_head_is_not_looked_at() -> None:
    ClusterHead("").check()


def test_only_threads_of_ray_are_not_heard(capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.stdout
    silence = QuietStdout()
    for name in ("ray_listen_error_messages", "mine"):
        thread = threading.Thread(target=print, args=(f"of {name}",), name=name)
        thread.start()
        thread.join()
    print("mine")
    sys.stdout.flush()
    silence.end()
    assert sys.stdout is before
    assert capsys.readouterr().out == "of mine\nmine\n"
