"""The crew: all tasks once, errors at once, and no waiting for the stuck."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given, settings, strategies as st

from karat.findings import UsageError
from karat.system.pool import in_parallel, worker_count


def ignore() -> None:
    pass


@settings(max_examples=30)
@given(st.lists(st.integers(), max_size=50), st.integers(1, 8))
def test_every_task_is_done_once(values: list[int], workers: int) -> None:
    tasks = [lambda value=value: value for value in values]
    assert sorted(in_parallel(tasks, workers, stop=ignore)) == sorted(values)


def test_the_first_error_is_raised_and_the_rest_is_told_to_stop() -> None:
    stopped = threading.Event()

    def fail() -> int:
        raise LookupError("planted")

    def wait() -> int:
        stopped.wait(30)
        return 1

    with pytest.raises(LookupError, match="planted"):
        list(in_parallel([wait, fail], 2, stop=stopped.set))
    assert stopped.is_set()


def test_an_interrupt_does_not_wait_for_a_task_that_hangs() -> None:
    hanging = threading.Event()
    results = in_parallel([lambda: hanging.wait(60), lambda: True], 2, stop=ignore)
    next(results)
    with pytest.raises(KeyboardInterrupt):
        results.throw(KeyboardInterrupt)  # type: ignore[attr-defined]
    assert not hanging.is_set()
    hanging.set()


def test_whoever_has_seen_enough_starts_no_more_tasks() -> None:
    started: list[int] = []
    gate = threading.Semaphore(1)

    def task(number: int) -> int:
        gate.acquire()
        started.append(number)
        return number

    results = in_parallel([lambda n=n: task(n) for n in range(50)], 2, stop=ignore)  # type: ignore[misc]
    next(results)
    results.close()  # type: ignore[attr-defined]
    gate.release(50)
    for thread in threading.enumerate():
        if thread.name == "karat-fetch":
            thread.join(10)
    assert len(started) <= 3


@pytest.mark.parametrize("text", ["0", "-1", "x", "1000", "1e3", "0" * 5000])
def test_an_odd_number_of_jobs_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="KARAT_JOBS"):
        worker_count({"KARAT_JOBS": text})


def test_jobs_by_default_and_by_choice() -> None:
    assert (worker_count({}), worker_count({"KARAT_JOBS": "3"})) == (16, 3)
