"""The supervisor: a small process that runs the commands of one job, and outlives its runner just long enough.

Every process of a job descends from it, daemons included (it is a "subreaper" in Linux's words), so it can end them all.
Its stdin is its tie to the runner: when that closes, because the runner ended or was killed, the supervisor ends what
runs, does what `when_killed` says, and exits.

In: one JSON document a line, an order each, or `{"kill": true}` while one is being carried out. Out: a line of JSON, then
the bytes of the outputs. Only the standard library is imported: it must start quickly, many times.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from typing import Any, NamedTuple

from karat.system.processes import MARK, Table, descendants, end_all, end_group, marked, overwritten, processes

GRACE = 5.0  # Seconds between asking to end and ending.
_AFTERWARDS = 60.0  # For each `when_killed` command.
_A_DAY = 86400.0  # As long as one look may take: the kernel counts no more than 24 days, and a command may have more.
_SUBREAPER, _PARENT_DEATH_SIGNAL = 36, 1


class RecentOutput:
    """The first MiB and the last four of what was printed; memory does not grow beyond twice that."""

    def __init__(self, first: int = 1 << 20, last: int = 4 << 20) -> None:
        self._first, self._last = first, last
        self._head, self._tail = bytearray(), bytearray()
        self._printed = 0

    def add(self, came: bytes) -> None:
        self._printed += len(came)
        room = self._first - len(self._head)
        self._head += came[:room]
        self._tail += came[room:]
        if len(self._tail) > 2 * self._last:
            del self._tail[: -self._last]

    def text(self) -> bytes:
        """What is kept, with a line that says how much was left out between the two parts."""
        tail = self._tail[-self._last :]
        left_out = self._printed - len(self._head) - len(tail)
        said = f"\n[karat left out {left_out:,} bytes here]\n".encode() if left_out else b""
        return bytes(self._head) + said + tail


class CommandEnded(NamedTuple):
    status: int | None = None  # As subprocess has it; None: it was never started.
    timed_out: bool = False
    seconds: float = 0.0
    """From just before it was started, so with the fork and the loading of its program, until it was known to have ended."""
    error: str = ""
    left: int = 0  # Processes that could not be ended.


class Supervisor:
    """Runs one command after the other."""

    def __init__(self, orders: int, answers: int) -> None:
        self._orders, self._answers = orders, answers
        self._pending = b""
        self._cut = False  # Whether the runner is gone.
        self._selector = selectors.DefaultSelector()
        self._selector.register(orders, selectors.EVENT_READ)
        # Of the command that runs.
        self._token = ""
        self._current: subprocess.Popen[bytes] | None = None
        self._outputs: dict[int, RecentOutput] = {}
        self._before: set[int] = set()
        linux = sys.platform.startswith("linux")
        self._prctl: Any = ctypes.CDLL(None).prctl if linux else lambda *_: 0
        self._prctl(_SUBREAPER, 1)
        receiver, sender = os.pipe()
        os.set_blocking(receiver, False)
        os.set_blocking(sender, False)
        signal.set_wakeup_fd(sender, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, self._stop)
        self._selector.register(receiver, selectors.EVENT_READ)
        self._wakeups = receiver

    def _stop(self, *_: object) -> None:
        self._cut = True

    def serve(self) -> None:
        while (order := self._next()) is not None:
            self._token = order["env"].get(MARK, "")
            ended, outputs = self._run(order)
            if self._cut:
                break
            texts = [output.text() for output in outputs]
            header = {**ended._asdict(), "sizes": [len(text) for text in texts]}
            with contextlib.suppress(BrokenPipeError), os.fdopen(os.dup(self._answers), "wb") as file:
                file.write(json.dumps(header).encode() + b"\n" + b"".join(texts))
        self._end(lambda table: self._marked(set(table), table))

    def _next(self) -> dict[str, Any] | None:
        while not self._cut:
            order = self._order()
            if order is not None and "argv" in order:
                return order
            if order is None:
                self._look(None)
        return None

    def _order(self) -> dict[str, Any] | None:
        line, newline, rest = self._pending.partition(b"\n")
        if not newline:
            return None
        self._pending = rest
        return dict(json.loads(line))

    def _look(self, seconds: float | None) -> None:
        """Wait for something to happen, and take in what came."""
        for key, _ in self._selector.select(None if seconds is None else min(seconds, _A_DAY)):
            if key.fd == self._orders:
                came = os.read(key.fd, 1 << 20)
                self._pending += came
                self._cut |= not came
            elif key.fd == self._wakeups:
                os.read(key.fd, 4096)
            else:
                self._take(key.fd)
        if self._cut and self._orders in self._selector.get_map():
            self._selector.unregister(self._orders)

    def _take(self, pipe: int) -> bool:
        """Some of a pipe; what nobody wants any more is dropped, so that a daemon may go on printing."""
        try:
            came = os.read(pipe, 1 << 18)
        except BlockingIOError:
            return False
        if pipe in self._outputs:
            self._outputs[pipe].add(came)
        if not came:
            self._selector.unregister(pipe)
            os.close(pipe)
        return bool(came)

    def _run(self, order: dict[str, Any]) -> tuple[CommandEnded, list[RecentOutput]]:
        self._before = descendants(os.getpid(), processes())
        pipes = [os.pipe() for _ in range(2 if order["apart"] else 1)]
        self._outputs = outputs = {ours: RecentOutput() for ours, _ in pipes}
        for ours in outputs:
            os.set_blocking(ours, False)
            self._selector.register(ours, selectors.EVENT_READ)
        # Before the start: a short command may be over by the time that Popen returns.
        began = time.monotonic()
        try:
            self._current = self._started(order, pipes[0][1], pipes[-1][1])
        except (OSError, ValueError) as error:
            name, said = order["argv"][0], str(error)
            if isinstance(error, OSError):
                name, said = error.filename or name, error.strerror or said
            ended = CommandEnded(error=f"{name}: {said}")
        finally:
            for _, theirs in pipes:
                os.close(theirs)
        if self._current is not None:
            ended = self._attend(self._current, order, began)
            self._current = None
        for pipe in outputs:
            # No more than a pipe holds: a daemon that was left may never stop printing.
            for _ in range(8):
                if pipe not in self._selector.get_map() or not self._take(pipe):
                    break
        self._outputs = {}
        return ended, list(outputs.values())

    def _started(self, order: dict[str, Any], out: int, errors: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            order["argv"],
            cwd=order["cwd"],
            env=order["env"],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=errors,
            start_new_session=True,
            # One thread, so that code between fork and exec is safe. It dies with the supervisor.
            preexec_fn=lambda: self._prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL),  # noqa: PLW1509
        )

    def _attend(self, process: subprocess.Popen[bytes], order: dict[str, Any], began: float) -> CommandEnded:
        """Wait until it ends, is to be killed, or has run out of time."""
        timeout = order["timeout"]
        until = None if timeout is None else began + timeout
        while process.returncode is None:
            late = until is not None and time.monotonic() >= until
            if late or self._cut or (self._order() or {}).get("kill"):
                left = self._kill(process, order)
                seconds = time.monotonic() - began
                return CommandEnded(process.returncode, timed_out=late, seconds=seconds, left=left)
            self._look(None if until is None else max(0.0, until - time.monotonic()))
            self._reap()
        seconds, left = time.monotonic() - began, 0
        if order["sweep"]:
            left = self._end(lambda table: self._of(process, table) | self._marked(self._new(table), table))
        return CommandEnded(process.returncode, seconds=seconds, left=left)

    def _kill(self, process: subprocess.Popen[bytes], order: dict[str, Any]) -> int:
        """Ask the group, then end it; then what was started elsewhere; then whatever is left of it."""
        end_group(process, signal.SIGTERM)
        until = time.monotonic() + GRACE
        while process.returncode is None and (left := until - time.monotonic()) > 0:
            self._look(left)
            self._reap()
        end_group(process, signal.SIGKILL)
        self._end(lambda table: self._of(process, table))
        until = time.monotonic() + GRACE
        while process.returncode is None and time.monotonic() < until:
            self._look(0.1)
            self._reap()
        # Those commands may start something that is to stay, a container anew; so what is to go is settled before them.
        table = processes()
        strays = {pid: table[pid] for pid in self._new(table)}
        env, null = {name: value for name, value in order["env"].items() if name != MARK}, subprocess.DEVNULL
        for words in order["when_killed"]:
            with contextlib.suppress(OSError, ValueError, subprocess.TimeoutExpired):
                subprocess.run(words, env=env, stdin=null, stdout=null, stderr=null, timeout=_AFTERWARDS, check=False)

        def left_over(table: Table) -> set[int]:
            """The same processes, with another parent perhaps, and all that descends from them."""
            started = {pid: table[pid].started for pid in strays if pid in table}
            there = {pid for pid, when in started.items() if when == strays[pid].started}
            return self._of(process, table).union(there, *(descendants(pid, table) for pid in there))

        return self._end(left_over)

    def _reap(self) -> None:
        """Whoever has ended, orphans of the job among them; the command's own status is kept."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if self._current is not None and pid == self._current.pid:
                    self._current.returncode = os.waitstatus_to_exitcode(status)

    def _end(self, targets: Any) -> int:
        return end_all(targets, idle=self._reap)

    def _of(self, process: subprocess.Popen[bytes], table: Table) -> set[int]:
        return {pid for pid, found in table.items() if found.session == process.pid}

    def _new(self, table: Table) -> set[int]:
        """What the command has started; an earlier one's server may go on, and start what it likes."""
        return descendants(os.getpid(), table, without=self._before)

    def _marked(self, among: set[int], table: Table) -> set[int]:
        if not self._token:
            return set()
        below = descendants(os.getpid(), table)
        return marked(self._token, among) | overwritten(among & below)


def main() -> None:
    """Serve the runner whose pipes are stdin and stdout."""
    orders, answers = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    Supervisor(orders, answers).serve()
