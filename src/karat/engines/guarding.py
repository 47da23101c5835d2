"""Guarding: a job's warden, seen from the runner; see `karat.engines.warden`."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, cast

import msgspec

import karat
from karat.engines.job import Command, Ran
from karat.engines.process_tree import MARK, end_marked
from karat.engines.slots import Slot

_BEGIN = "import sys; sys.path.append(sys.argv[1]); from karat.engines.warden import main; main()"
_LOOK_AGAIN = 50  # milliseconds
_PATIENCE = 120.0
_UNLESS_TIMEOUT = 60.0
_MEASURED = {"warmup", "measure"}


class WardenLost(Exception):  # noqa: N818 - what became of it
    """The warden is gone, killed by somebody; nothing is known of the command it ran."""


class Cancelled(Exception):  # noqa: N818 - what became of it
    """The job is not wanted any more; all its processes have been ended."""


class Header(msgspec.Struct, frozen=True):
    """How the warden says that a command ended."""

    status: int | None
    timed_out: bool
    killed: bool
    seconds: float
    error: str
    left: int
    sizes: tuple[int, ...]


class Guard:
    """Runs commands through a warden of their own; everything they start ends with it."""

    def __init__(self, slot: Slot, token: str, cancelled: Callable[[], bool]) -> None:
        self._token, self._cancelled = token, cancelled
        self.notes: list[str] = []
        self._process = subprocess.Popen(
            # Isolated: neither the folder it starts in nor PYTHONPATH may get between it and its work.
            [sys.executable, "-I", "-S", "-c", _BEGIN, str(Path(karat.__file__).parents[1])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            pass_fds=slot.held,
        )
        self._orders = cast("IO[bytes]", self._process.stdin)
        self._answers = cast("IO[bytes]", self._process.stdout)
        # Not select, which knows no descriptor above 1,023: a machine may have hundreds of slots.
        self._answered = select.poll()
        self._answered.register(self._answers, select.POLLIN)
        if slot.cores:
            # Before it has started anything; what it starts has the same cores.
            os.sched_setaffinity(self._process.pid, slot.cores)

    def run(self, command: Command, env: Mapping[str, str]) -> tuple[Ran, bytes]:
        """The command to its end; with what it printed on stdout alone if its role is to identify."""
        apart = command.role == "identify"
        header, outputs = self._ask(
            argv=command.argv,
            cwd=command.cwd,
            env={**env, MARK: self._token},
            timeout=command.timeout,
            when_killed=command.when_killed,
            apart=apart,
            sweep=command.role in _MEASURED,
        )
        status = header.status
        ran = Ran(
            role=command.role,
            name=command.name,
            exit_code=status
            if status is not None and status >= 0 and not header.timed_out
            else None,
            signal=-status if status is not None and status < 0 else None,
            timed_out=header.timed_out,
            seconds=header.seconds,
            output=b"".join(reversed(outputs)),
            error=header.error,
        )
        if header.left:
            self.notes.append(f"{header.left} processes of {named(command)} could not be ended")
        return ran, outputs[0]

    def succeeds(self, command: Command, env: Mapping[str, str]) -> bool:
        """Whether the command's `unless` says that it is not needed."""
        header, _ = self._ask(
            argv=command.unless,
            cwd=command.cwd,
            env={**env, MARK: self._token},
            timeout=min(command.timeout or _UNLESS_TIMEOUT, _UNLESS_TIMEOUT),
            when_killed=(),
            apart=False,
            sweep=False,
        )
        return header.status == 0 and not header.timed_out

    def _ask(self, **order: Any) -> tuple[Header, list[bytes]]:
        if self._cancelled():
            raise Cancelled
        self._send(order)
        asked = False
        while not self._answered.poll(_LOOK_AGAIN):
            if not asked and self._cancelled():
                asked = True
                self._send({"kill": True})
        line = self._answers.readline()
        if not line.endswith(b"\n"):
            raise WardenLost("the process that watches over the job's commands is gone")
        header = msgspec.json.decode(line, type=Header)
        outputs = [self._answers.read(size) for size in header.sizes]
        if asked:
            raise Cancelled
        return header, outputs

    def _send(self, order: dict[str, Any]) -> None:
        # json, not msgspec: paths may hold what is no text, and its escapes bring them over as they are.
        try:
            self._orders.write(json.dumps(order).encode() + b"\n")
            self._orders.flush()
        except BrokenPipeError:
            raise WardenLost("the process that watches over the job's commands is gone") from None

    def close(self) -> None:
        """End everything that carries the job's mark; returns when it has ended."""
        with contextlib.suppress(BrokenPipeError):
            self._orders.close()
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.returncode != 0:
            end_marked(self._token)
        self._answers.close()


def named(command: Command) -> str:
    """What a command is called, for a person."""
    return command.name or command.role
