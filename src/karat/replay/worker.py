"""A worker: `python -m karat.replay.worker`, a process that calls the user's function, case after case.

It is a process of its own, so that a program that crashes or hangs costs one case and nothing else. It
talks through what were its stdin and stdout; what the function prints goes to a file in the case's folder.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from karat.replay.importing import CannotImport, load_function
from karat.replay.wire import Hello, Job, Ready, receive, send

LOG = "log.txt"


def main() -> int:
    """Serve until the master closes the pipe."""
    orders, answers = _take_over_pipes()
    hello = receive(orders, Hello)
    if hello is None:
        return 0
    try:
        function = load_function(hello.function)
    except CannotImport as error:
        send(answers, Ready(problem=str(error)))
        return 0
    send(answers, Ready())
    # After the user's module: it may have to be the first to import its framework.
    from karat.replay.calling import Caller  # noqa: PLC0415

    caller, own = Caller(hello, function), os.getpid()
    while (job := receive(orders, Job)) is not None:
        with _logging_to(Path(job.work) / LOG):
            replayed = caller.replay(job)
        if os.getpid() != own:
            os._exit(
                0
            )  # a fork of the function's that came back; the answer is its parent's to give
        send(answers, replayed)
    return 0


def _take_over_pipes() -> tuple[IO[bytes], IO[bytes]]:
    """Stdin and stdout under other numbers; whoever prints or reads must not disturb the conversation."""
    orders = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(2, 1)
    os.close(nowhere)
    return orders, answers


@contextmanager
def _logging_to(path: Path) -> Iterator[None]:
    """Everything printed, by Python or by a library beneath it, goes to a file meanwhile."""
    kept = os.dup(1), os.dup(2)
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.dup2(log, 1)
        os.dup2(log, 2)
        yield
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        for number, old in enumerate(kept, start=1):
            os.dup2(old, number)
            os.close(old)
        os.close(log)


if __name__ == "__main__":
    sys.exit(main())
