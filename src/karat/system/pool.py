"""Daemon threads that work through a list of tasks.

The standard executors' threads are no daemons: a person who presses Ctrl-C would wait for a server that has fallen silent.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import TypeVar

from karat.system.foreign.limits import Limit

T = TypeVar("T")
_JOBS = Limit("KARAT_JOBS", 16, most=128)


def worker_count(env: Mapping[str, str]) -> int:
    """How many downloads run at once: KARAT_JOBS, or 16."""
    return _JOBS.value(env)


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
            yield _next(done)()
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


def _next(done: queue.SimpleQueue[Callable[[], T]]) -> Callable[[], T]:
    while True:
        # A Ctrl-C in the instant before the wait does not end it; looking up now and then does.
        with contextlib.suppress(queue.Empty):
            return done.get(timeout=0.5)


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
