"""Process trees: which processes descend from which, which carry a job's mark, and ending them reliably.

Read from /proc, so Linux only; elsewhere every list is empty, and process groups are all there is. The supervisor imports this
module with only the standard library available.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

MARK = "KARAT_JOB"  # The environment variable by which a job's processes are known, wherever they went.
_PROC = "/proc"
_PATIENCE = 10.0
_LOOK_AGAIN = 0.01


def available_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Process(NamedTuple):
    """One process; its number alone may be somebody else's a moment later."""

    pid: int
    parent: int
    session: int
    started: int


Table = Mapping[int, Process]


def processes() -> Table:
    """Every process that has not ended."""
    try:
        names = os.listdir(_PROC)  # noqa: PTH208 - called often, of hundreds
    except OSError:
        return {}
    found = (process_of(int(name)) for name in names if name.isdigit())
    return {process.pid: process for process in found if process is not None}


def process_of(pid: int) -> Process | None:
    """A process by its number; None if it has ended, a zombie included."""
    try:
        with open(f"{_PROC}/{pid}/stat", "rb") as file:  # noqa: PTH123 - called for every process there is
            text = file.read()
    except OSError:
        return None
    # The name in the middle may hold anything, brackets and spaces included; what follows its end does not.
    state, parent, _, session, *rest = text.rpartition(b")")[2].split()
    if state in {b"Z", b"X"}:
        return None
    return Process(pid, int(parent), int(session), int(rest[15]))


def descendants(root: int, table: Table, without: Collection[int] = ()) -> set[int]:
    """All that come from a process, itself not among them; without some, and without what comes from those."""
    children: dict[int, list[int]] = {}
    for process in table.values():
        children.setdefault(process.parent, []).append(process.pid)
    found: set[int] = set()
    open_ends = [root]
    while open_ends:
        for child in children.get(open_ends.pop(), ()):
            if child not in found and child not in without:
                found.add(child)
                open_ends.append(child)
    return found


def marked(token: str, among: Iterable[int]) -> set[int]:
    """Those of the processes that were started with the job's mark in their environment."""
    wanted = f"{MARK}={token}".encode()
    return {pid for pid in among if wanted in _environment(pid).split(b"\0")}


def overwritten(among: Iterable[int]) -> set[int]:
    """Those whose environment holds no variable any more: who changes its title writes over it, and so over the mark.

    An empty one is another matter: it was made so. And what runs in a container, where process numbers are others, has no
    mark to lose.
    """
    here = _numbers(os.getpid())
    return {pid for pid in among if (text := _environment(pid)) and b"=" not in text and _numbers(pid) == here}


def _environment(pid: int) -> bytes:
    try:
        with open(f"{_PROC}/{pid}/environ", "rb") as file:  # noqa: PTH123 - as above
            return file.read()
    except OSError:  # it has ended, or is another user's
        return b""


def _numbers(pid: int) -> str:
    """The namespace of process numbers that a process lives in."""
    try:
        return os.readlink(f"{_PROC}/{pid}/ns/pid")  # noqa: PTH115 - as above
    except OSError:
        return ""


def send_signal(process: Process, number: int) -> None:
    """A signal for just that process, not for whoever has its number by now."""
    with contextlib.suppress(OSError):
        handle = os.pidfd_open(process.pid)
        try:
            now = process_of(process.pid)
            if now is not None and now.started == process.started:
                signal.pidfd_send_signal(handle, number)
        finally:
            os.close(handle)


def end_group(process: subprocess.Popen[bytes], number: int | None = None) -> None:
    """Kill a process that leads its own session, and everything in it, unless it has been reaped; or send it another signal."""
    # Once it has been waited for, its number may be another process's.
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if hasattr(os, "killpg"):
                os.killpg(process.pid, signal.SIGKILL if number is None else number)
            else:
                process.kill()


def end_all(targets: Callable[[Table], set[int]], *, idle: Callable[[], None] | None = None) -> int:
    """End what `targets` picks, repeatedly until it picks nothing; returns how many would not end."""
    until = time.monotonic() + _PATIENCE
    while True:
        table = processes()
        left = targets(table) - {os.getpid()}
        if not left or time.monotonic() > until:
            return len(left)
        for pid in left:
            send_signal(table[pid], signal.SIGKILL)
        time.sleep(_LOOK_AGAIN)
        if idle is not None:
            idle()


def end_marked(token: str) -> int:
    """End every process that carries a job's mark; returns how many would not end."""
    return end_all(lambda table: marked(token, table))
