"""Stations: where cases are replayed, several at once; each station does one case after the other."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from karat.bundles.cases import Case
from karat.replay.options import Progress
from karat.replay.outcome import Replayed

_PATIENCE = 30.0


class Station(Protocol):
    """Replays cases, one at a time; whatever a program does, the station answers."""

    def replay(self, case: Case) -> Replayed:
        """What became of the case."""

    def stop(self) -> None:
        """Ends whatever runs, from any thread; whoever waits for it is told that it failed."""

    def close(self) -> None:
        """Lets go of everything, once nobody replays here any more."""


def replay_all(
    cases: Sequence[Case], stations: Sequence[Station], progress: Progress | None = None
) -> list[Replayed]:
    """What became of each case, in order. Nothing runs any more afterwards, also after Ctrl-C."""
    todo: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in range(len(cases)):
        todo.put(number)
    done: queue.SimpleQueue[tuple[int, Replayed] | BaseException] = queue.SimpleQueue()
    threads = [
        threading.Thread(target=_work, args=(station, cases, todo, done.put), daemon=True)
        for station in stations
    ]
    results: dict[int, Replayed] = {}
    try:
        for thread in threads:
            thread.start()
        while len(results) < len(cases):
            answer = done.get()
            if isinstance(answer, BaseException):
                raise answer
            results[answer[0]] = answer[1]
            if progress is not None:
                progress(len(results), len(cases))
    finally:
        with contextlib.suppress(queue.Empty):
            while True:
                todo.get_nowait()
        for station in stations:
            station.stop()
        for thread in threads:
            thread.join(_PATIENCE)
    return [results[number] for number in range(len(cases))]


def _work(
    station: Station,
    cases: Sequence[Case],
    todo: queue.SimpleQueue[int],
    tell: Callable[[tuple[int, Replayed] | BaseException], None],
) -> None:
    while True:
        try:
            number = todo.get_nowait()
        except queue.Empty:
            return
        try:
            tell((number, station.replay(cases[number])))
        except BaseException as error:  # noqa: BLE001 - the main thread is the one to raise it
            tell(error)
            return
