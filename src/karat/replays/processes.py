"""Worker processes that call a function: their messages, their folders, and how they end.

A worker that dies or takes too long costs the case it was at. It talks msgpack, each message after its length. What
its stderr says before the first case (a failing import) is kept for the message.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, TypeVar, cast

import msgspec

from karat.findings import CannotVerify, UsageError
from karat.replays.judge import ReplayedCase
from karat.replays.options import CaseOptions, FunctionSpec
from karat.report.words import elide
from karat.system.command import Command
from karat.system.processes import end_group
from karat.system.secrets import scrub, secrets_in

_LENGTH = struct.Struct("<I")
_LONGEST = 1 << 28
_IMPORT_TIMEOUT = 600.0
_TAIL = 1 << 16
_BLOCK = 1 << 22
_GARBLED = "what came through karat's own pipe is no answer; it wrote to a file that it had not opened"
LOG = "log.txt"  # What a program printed, in the folder of its case.

T = TypeVar("T")


class Garbled(Exception):  # noqa: N818 - a state of the pipe
    """What came is no message."""


class WorkerSetup(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker must know before its first case."""

    bundle: str
    store: str | None
    function: FunctionSpec
    options: CaseOptions


class CaseJob(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    work: str
    keep: bool = False


def send(stream: IO[bytes], message: Any) -> None:
    """Write one message, whole, now."""
    data = msgspec.msgpack.encode(message)
    stream.write(_LENGTH.pack(len(data)) + data)
    stream.flush()


def receive(stream: IO[bytes], kind: type[T]) -> T | None:
    """The next message; None once the other side is gone, also if it went in the middle of one.

    `Garbled` for what is no message: somebody else has written into the pipe.
    """
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    if length > _LONGEST:
        raise Garbled
    data = stream.read(length)
    try:
        return msgspec.msgpack.decode(data, type=kind) if len(data) == length else None
    except msgspec.MsgspecError:
        raise Garbled from None


class WorkerLost(Exception):  # noqa: N818 - what became of a worker
    """A worker is gone; the message says how."""


class WorkerProcess:
    """`python OPTION... -m MODULE`, and the way to talk to it; used by one thread."""

    def __init__(self, module: str, environment: Mapping[str, str], *options: str) -> None:
        self.log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the worker
        self._process = subprocess.Popen(
            [sys.executable, *options, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            start_new_session=True,
            env=environment,
        )
        self.orders = cast("IO[bytes]", self._process.stdin)
        self.answers = cast("IO[bytes]", self._process.stdout)
        self._late = threading.Event()

    def ask(self, message: Any, kind: type[T], timeout: float | None) -> T | None:
        """The answer; None if the process ended first."""
        try:
            with self.deadline(timeout):
                send(self.orders, message)
                return receive(self.answers, kind)
        except BrokenPipeError:
            return None

    @contextlib.contextmanager
    def deadline(self, seconds: float | None) -> Iterator[None]:
        """Kill it if what is done within takes longer."""

        def too_late() -> None:
            self._late.set()
            self.kill()

        if not seconds:
            yield
            return
        timer = threading.Timer(seconds, too_late)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def how_it_ended(self, timeout: float | None) -> str:
        """The worker has closed its pipes, so it is about to end."""
        if self._late.is_set():
            return f"it took longer than {timeout:g} s"
        return describe_exit(wait_for_end(self._process, timeout=10))

    def kill(self) -> None:
        """Kill it and everything it started; from any thread."""
        end_group(self._process)

    def close(self) -> None:
        self.kill()
        wait_for_end(self._process)
        for stream in (self.orders, self.answers, self.log):
            with contextlib.suppress(BrokenPipeError):
                stream.close()


class Worker(WorkerProcess):
    """One that replays cases."""

    def __init__(self, setup: WorkerSetup, environment: Mapping[str, str]) -> None:
        super().__init__("karat.replays.worker", environment)
        module, problem = setup.function.module, None
        with contextlib.suppress(Garbled):
            problem = self.ask(setup, str, _IMPORT_TIMEOUT)  # Why it does not have the function; empty if it has.
        if problem == "":
            return
        if problem is None:
            how = self.how_it_ended(_IMPORT_TIMEOUT)
            problem = f"expected to import {module}, but {how}{printed_last(self.log)}"
        self.close()
        problem = scrub(problem, secrets_in(os.environ))
        raise UsageError(problem, next_command=Command("python", "-c", f"import {module}"))

    def replay(self, job: CaseJob, timeout: float | None) -> ReplayedCase:
        """Replay one case; `WorkerLost` if the process died first."""
        try:
            replayed = self.ask(job, ReplayedCase, timeout)
        except Garbled:
            raise WorkerLost(_GARBLED) from None
        if replayed is None:
            raise WorkerLost(self.how_it_ended(timeout))
        if replayed.path != job.path:
            raise WorkerLost(_GARBLED)
        return replayed


def wait_for_end(process: subprocess.Popen[bytes], timeout: float | None = None) -> int:
    """The exit status, once what the process left running has been killed as well.

    After the timeout, the process itself is killed.
    """
    until = None if timeout is None else time.monotonic() + timeout
    while process.returncode is None and not _has_ended(process):
        if until is not None and time.monotonic() > until:
            break
        time.sleep(0.005)
    end_group(process)
    return process.wait()


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether it is over; if possible it is left unreaped, so that its number stays its own."""
    if not hasattr(os, "waitid"):  # macOS before Python 3.13
        return process.poll() is not None
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None


def describe_exit(status: int) -> str:
    if status >= 0:
        return f"the process ended with exit status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = "an unknown signal"
    return f"the process was ended by {name} (signal {-status})"


def printed_last(log: IO[bytes] | Path) -> str:
    """The end of what was printed, as `; it printed last: …`."""
    try:
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(log.open("rb")) if isinstance(log, Path) else log
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL))
            text = file.read(_TAIL).decode("utf-8", "replace").strip()
    except OSError:
        return ""
    # Before anything is cut: of half a secret nobody would know what it is.
    text = scrub(text, secrets_in(os.environ))[-2000:]
    lines = [elide(line, 300) for line in text.splitlines() if line.strip()]
    return f"; it printed last: {' | '.join(lines[-4:])}" if lines else ""


class WorkFolders:
    """A folder for each case to be replayed in, kept if asked for, else removed afterwards."""

    def __init__(self, keep: Path | None) -> None:
        self.kept = keep is not None
        if keep is None:
            self._root = Path(tempfile.mkdtemp(prefix="karat-replay-"))
            return
        try:
            keep.mkdir(parents=True, exist_ok=True)
            taken = next(keep.iterdir(), None)
        except OSError as error:
            said = f"expected to make the folder {keep}, but: {error.strerror or error}"
            raise CannotVerify(said, next_command=Command("ls", "-ld", str(keep.parent))) from error
        if taken is not None:
            said = f"expected --keep to name a new or empty folder, found {taken.name} in {keep}"
            raise UsageError(said, next_command=Command("ls", str(keep)))
        self._root = keep.absolute()

    def folder(self, path: str) -> Path:
        made = self._root / path
        made.mkdir(parents=True)
        return made

    def done(self, folder: Path) -> str | None:
        """Where to look at it, if it is kept."""
        if self.kept:
            log, clean, secrets = folder / LOG, folder / f"{LOG}.clean", secrets_in(os.environ)
            if secrets:
                # What a program printed of them is hidden, block by block, since a log may be long.
                with contextlib.suppress(FileNotFoundError), log.open("rb") as old, clean.open("wb") as new:
                    while block := old.read(_BLOCK):
                        new.write(scrub(block + old.readline(_BLOCK), secrets))
                    clean.replace(log)
            return str(folder)
        shutil.rmtree(folder, ignore_errors=True)
        return None

    def close(self) -> None:
        if not self.kept:
            shutil.rmtree(self._root, ignore_errors=True)
