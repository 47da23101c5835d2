"""The head of a Ray cluster: while it is gone, nobody may be asked anything.

Ray ends the whole process, with exit code 1, a minute after it has lost its head; whoever looked at that code would
take it for an answer.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TypeVar

from karat.findings import CannotVerify

Answer = TypeVar("Answer")

_REACH = 5.0
_PATIENCE = 20.0


class Head:
    """The head of a cluster, by its address; empty: somebody else keeps an eye on it."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._address = address
        self._place = (host.strip("[]"), int(port)) if port.isdigit() else None
        self._missing: float | None = None
        """Since when it does not answer."""

    @property
    def is_gone(self) -> bool:
        """Whether it did not answer when it was last looked at."""
        return self._missing is not None

    def answers(self) -> bool:
        """Whether it is there now; CannotVerify once it has been away for too long."""
        if self._place is None:
            return True
        try:
            socket.create_connection(self._place, _REACH).close()
        except OSError as error:
            now = time.monotonic()
            self._missing = now if self._missing is None else self._missing
            if now - self._missing < _PATIENCE:
                return False
            raise CannotVerify(
                f"expected the head of the Ray cluster at {self._address} to stay, "
                f"found nobody there any more: {error.strerror or error}",
                next_command="karat hunt resume  # when there is a cluster again",
            ) from error
        self._missing = None
        return True


def within(seconds: float, ask: Callable[[], Answer]) -> Answer | None:
    """What Ray says; None if it does not within the time, as when its head is lost while it is being asked.

    The question is left behind on a thread: there is no way to take it back, and waiting for it would end with the process.
    """
    said: SimpleQueue[Answer | Exception] = SimpleQueue()

    def asking() -> None:
        try:
            said.put(ask())
        except Exception as error:  # noqa: BLE001 - raised again where it was asked
            said.put(error)

    Thread(target=asking, daemon=True).start()
    try:
        answer = said.get(timeout=seconds)
    except Empty:
        return None
    if isinstance(answer, Exception):
        raise answer
    return answer
