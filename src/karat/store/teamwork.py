"""Teamwork: many calls to a backend at once, each of which ends by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from karat.sources.crew import in_parallel

T = TypeVar("T")


def together(tasks: Sequence[Callable[[], T]], workers: int) -> Iterator[T]:
    """What the tasks return, in the order they finish; the first exception ends it all."""
    return in_parallel(tasks, workers, stop=_nothing)


def _nothing() -> None:
    """A call that has begun ends by itself; the next one is not begun."""
