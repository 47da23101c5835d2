"""Pulling ahead: images that come next are fetched while others are measured."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Sequence

Words = tuple[str, ...]
_PATIENCE = 5.0


class Puller:
    """Pulls the images that come next, one after the other, in the background."""

    def __init__(self, most: int, commands: Callable[[str], tuple[Words, Words]]) -> None:
        """`commands` gives what succeeds if an image is here, and what pulls it."""
        self._most, self._commands = most, commands
        self._wanted: list[str] = []
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False

    def ahead(self, images: Sequence[str]) -> None:
        """These come next; what was wanted before and has not begun is forgotten."""
        with self._changed:
            if self._closed or not self._most:
                return
            self._wanted = list(images[: self._most])
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, daemon=True, name="karat-pull")
                self._thread.start()
            self._changed.notify_all()

    def close(self) -> None:
        """Stops, also in the middle of a pull: engines keep what has come, or drop it."""
        with self._changed:
            self._closed = True
            self._wanted.clear()
            process = self._process
            self._changed.notify_all()
        if process is not None:
            process.terminate()
        if self._thread is not None:
            self._thread.join(_PATIENCE)
            if process is not None and self._thread.is_alive():
                process.kill()
            self._thread.join()

    def _work(self) -> None:
        while (image := self._next()) is not None:
            here, pull = self._commands(image)
            # A failure is not this thread's to tell: the job that needs the image pulls it again, and says why not.
            if self._run(here) != 0:
                self._run(pull)

    def _next(self) -> str | None:
        with self._changed:
            while not self._wanted and not self._closed:
                self._changed.wait()
            return None if self._closed else self._wanted.pop(0)

    def _run(self, argv: Words) -> int:
        with self._changed:
            if self._closed:
                return 0
            try:
                self._process = subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            except OSError:
                return 0
            process = self._process
        code = process.wait()
        with self._changed:
            self._process = None
        return code
