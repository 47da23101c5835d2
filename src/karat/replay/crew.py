"""The crew: worker processes that call a function, each watched by a thread of this process.

A worker that dies or takes too long costs the case it was at; a new one takes over. What the worker's
own stderr says before the first case (a failing import) is kept for the message.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from karat.findings import UsageError
from karat.replay.outcome import Replayed
from karat.replay.wire import Garbled, Hello, Job, Ready, receive, send
from karat.report.words import elide

_IMPORT_TIMEOUT = 600.0
_TAIL = 2000
_DYING = 10.0
_LOOK_AGAIN = 0.005
_LONGEST_LINE = 300
_GARBLED = (
    "what came through karat's own pipe is no answer; it wrote to a file that it had not opened"
)


class Lost(Exception):  # noqa: N818 - what became of a worker
    """A worker is gone; the message says how, and what it was doing is not done."""


class Worker:
    """One process, and the way to talk to it; used by one thread."""

    def __init__(self, hello: Hello) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the worker
        self._process = subprocess.Popen(
            [sys.executable, "-m", "karat.replay.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,
        )
        self._orders = cast("IO[bytes]", self._process.stdin)
        self._answers = cast("IO[bytes]", self._process.stdout)
        self._late = threading.Event()
        self._hello(hello)

    def _hello(self, hello: Hello) -> None:
        try:
            with self._deadline(_IMPORT_TIMEOUT):
                send(self._orders, hello)
                ready = receive(self._answers, Ready)
        except (BrokenPipeError, Garbled):
            ready = None
        if ready is not None and ready.problem is None:
            return
        problem = ready.problem if ready else self._cannot_even_import(hello)
        self.close()
        raise UsageError(problem or "", next_command=f"python -c 'import {hello.function.module}'")

    def _cannot_even_import(self, hello: Hello) -> str:
        how = f"it took longer than {_IMPORT_TIMEOUT:.0f} s" if self._late.is_set() else self._end()
        return f"expected to import {hello.function.module}, but {how}{tail(self._log)}"

    def replay(self, job: Job, timeout: float | None) -> Replayed:
        """One case; `Lost` if the process did not live to tell."""
        try:
            with self._deadline(timeout):
                send(self._orders, job)
                replayed = receive(self._answers, Replayed)
        except BrokenPipeError:
            replayed = None
        except Garbled:
            raise Lost(_GARBLED) from None
        if replayed is None:
            raise Lost(f"it took longer than {timeout:g} s" if self._late.is_set() else self._end())
        if replayed.path != job.path:
            raise Lost(_GARBLED)
        return replayed

    @contextlib.contextmanager
    def _deadline(self, seconds: float | None) -> Iterator[None]:
        timer = threading.Timer(seconds, self._too_late) if seconds else None
        if timer is not None:
            timer.daemon = True
            timer.start()
        try:
            yield
        finally:
            if timer is not None:
                timer.cancel()

    def _too_late(self) -> None:
        self._late.set()
        self.kill()

    def _end(self) -> str:
        """How it ended; it has let go of its pipes, so it is about to."""
        return ending(end_of(self._process, patience=_DYING))

    def kill(self) -> None:
        """End it and everything it started; from any thread."""
        kill_group(self._process)

    def close(self) -> None:
        """End it, and let go of its files."""
        self.kill()
        end_of(self._process)
        for stream in (self._orders, self._answers, self._log):
            with contextlib.suppress(BrokenPipeError):
                stream.close()


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """End a process that leads its own session, and everything in it, unless its end has been seen."""
    # Once it has been waited for, its number may be somebody else's.
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


def end_of(process: subprocess.Popen[bytes], patience: float | None = None) -> int:
    """The exit status, once what the process left running has been ended as well.

    With patience, it is ended itself if it has not ended on its own by then.
    """
    until = None if patience is None else time.monotonic() + patience
    while process.returncode is None and not _has_ended(process):
        if until is not None and time.monotonic() > until:
            break
        time.sleep(_LOOK_AGAIN)
    kill_group(process)
    return process.wait()


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether it is over; where that can be, it is left to be waited for, so that its number stays its own."""
    if not hasattr(os, "waitid"):  # macOS before Python 3.13
        return process.poll() is not None
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None


def ending(status: int) -> str:
    """How a process ended, in words."""
    if status >= 0:
        return f"the process ended with exit status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = "an unknown signal"
    return f"the process was ended by {name} (signal {-status})"


def tail(log: IO[bytes] | Path) -> str:
    """The end of what was printed, as `; it printed last: …`; nothing if nothing was."""
    try:
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(log.open("rb")) if isinstance(log, Path) else log
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL))
            text = file.read(_TAIL).decode("utf-8", "replace").strip()
    except OSError:
        return ""
    lines = [elide(line, _LONGEST_LINE) for line in text.splitlines() if line.strip()]
    return f"; it printed last: {' | '.join(lines[-4:])}" if lines else ""
