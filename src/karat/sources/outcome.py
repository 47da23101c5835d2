"""The outcome of fetching one artifact: its files, or one finding; and whoever watches meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from karat.sources.listing import Artifact, Fetched, Progress
from karat.sources.unusable import Unusable, no_room

Wanted = Callable[[str], bool]
Obtained = tuple[tuple[str, ...], dict[str, Path]]
"""All names of an artifact, and its wanted files."""


class Watch:
    """Counts what comes, and tells whoever watches; several threads may bring one artifact."""

    def __init__(self, artifact: Artifact, progress: Progress | None) -> None:
        self._artifact = artifact
        self._progress = progress
        self._lock = threading.Lock()
        self._begun = False
        self.received = 0

    def begin(self, total: int | None) -> None:
        """It starts, and so many bytes will come; later calls are ignored."""
        if self._progress and not self._begun:
            self._progress.begin(self._artifact, total)
            self._progress.advance(self._artifact, self.received)
        self._begun = True

    def advance(self, count: int) -> None:
        """So many more bytes came."""
        with self._lock:
            self.received += count
        if self._progress and self._begun:
            self._progress.advance(self._artifact, count)

    def end(self) -> None:
        """It is over, if it began."""
        if self._progress and self._begun:
            self._progress.end(self._artifact)


def outcome(
    artifact: Artifact,
    progress: Progress | None,
    obtain: Callable[[Watch], Obtained],
    then: Callable[[Unusable], str],
) -> Fetched:
    """What `obtain` brings, or why it cannot; `then` gives the next command for what is unusable."""
    watch = Watch(artifact, progress)
    try:
        names, members = obtain(watch)
    except Unusable as error:
        problem = error
    except OSError as error:
        problem = no_room(error)
    else:
        return Fetched(artifact=artifact, names=names, members=members, received=watch.received)
    finally:
        watch.end()
    finding = problem.finding(artifact.name, then(problem))
    return Fetched(artifact=artifact, findings=(finding,), received=watch.received)
