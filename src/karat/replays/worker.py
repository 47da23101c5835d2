"""A worker: `python -m karat.replays.worker`, a process that calls the user's function, case after case.

It is a process of its own, so that a program that crashes or hangs costs one case and nothing else. It
talks through what were its stdin and stdout; what the function prints goes to a file in the case's folder.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from karat.findings import UsageError
from karat.replays.options import FunctionSpec
from karat.replays.processes import LOG, CaseJob, WorkerSetup, receive, send


def main() -> int:
    """Serve until the parent closes the pipe."""
    # Stdin and stdout under other numbers, so that code that prints or reads does not disturb the conversation.
    orders, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(2, 1)
    os.close(nowhere)
    setup = receive(orders, WorkerSetup)
    if setup is None:
        return 0
    try:
        function = load_function(setup.function)
    except UsageError as error:
        send(answers, str(error))
        return 0
    send(answers, "")
    # After the user's module: it may have to be the first to import its framework.
    from karat.replays.calls import Caller

    caller, own = Caller(setup, function), os.getpid()
    while (job := receive(orders, CaseJob)) is not None:
        with _logging_to(Path(job.work) / LOG):
            replayed = caller.replay(job)
        if os.getpid() != own:
            os._exit(0)  # the function forked, and this is the fork: its parent answers
        send(answers, replayed)
    return 0


@contextmanager
def _logging_to(path: Path) -> Iterator[None]:
    """Redirect everything printed, by Python or by a library beneath it, to a file."""
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


def load_function(function: FunctionSpec) -> Callable[..., Any]:
    """The function, or UsageError; its module may do whatever modules do when they are imported."""
    try:
        found: Any = pkgutil.resolve_name(str(function))
    except (Exception, SystemExit) as error:
        # The last frame is where the user's module went wrong; what led there is the import machinery.
        own = {__file__, pkgutil.__file__, importlib.__file__}
        frames = [
            f for f in traceback.extract_tb(error.__traceback__) if f.filename not in own and f.filename[0] != "<"
        ]
        where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
        raise UsageError(f"expected to import {function}, but: {type(error).__name__}: {error}{where}") from error
    if not callable(found):
        raise UsageError(f"expected {function} to be a function, found {type(found).__name__}: it cannot be called")
    return found  # type: ignore[no-any-return]


if __name__ == "__main__":
    sys.exit(main())
