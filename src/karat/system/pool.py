"""Daemon threads that work through a list of tasks.

The standard executors' threads are no daemons: a person who presses Ctrl-C would wait for a server that has fallen silent.
"""

from __future__ import annotations

import os
import queue
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import TypeVar

from karat.findings import UsageError

T = TypeVar("T")
_DEFAULT, _MOST = 16, 128


def available_cores() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def worker_count(env: Mapping[str, str]) -> int:
    """How many downloads run at once: KARAT_JOBS, or 16."""
    text = env.get("KARAT_JOBS") or str(_DEFAULT)
    if not (re.fullmatch("[0-9]{1,9}", text) and 1 <= int(text) <= _MOST):
        said = f"expected a number from 1 to {_MOST} in KARAT_JOBS, found {text[:40]!r}"
        raise UsageError(said, next_command="unset KARAT_JOBS")
    return int(text)


def in_parallel(
    tasks: Sequence[Callable[[], T]], workers: int, *, stop: Callable[[], None] | None = None
) -> Iterator[T]:
    """What the tasks return, in the order they finish; the first exception ends it all.

    `stop` is called when it ends badly, and tells running tasks to give up; without it they run to their end.
    """
    waiting: queue.SimpleQueue[Callable[[], T]] = queue.SimpleQueue()
    done: queue.SimpleQueue[Callable[[], T]] = queue.SimpleQueue()
    over = threading.Event()
    for task in tasks:
        waiting.put(task)
    threads = [
        threading.Thread(target=_work, args=(waiting, done, over), daemon=True, name="karat-fetch")
        for _ in range(min(workers, len(tasks)))
    ]
    try:
        for thread in threads:
            thread.start()
        for _ in tasks:
            yield done.get()()
    except GeneratorExit:
        raise  # whoever had enough may come again
    except BaseException:
        if stop is not None:
            stop()
        raise
    finally:
        over.set()
    for thread in threads:
        thread.join()


def _work(
    waiting: queue.SimpleQueue[Callable[[], T]], done: queue.SimpleQueue[Callable[[], T]], over: threading.Event
) -> None:
    while not over.is_set():
        try:
            task = waiting.get_nowait()
        except queue.Empty:
            return
        future: Future[T] = Future()
        try:
            future.set_result(task())
        except BaseException as error:  # noqa: BLE001 - it is raised where the results are read
            future.set_exception(error)
        done.put(future.result)
