"""The command line: as a user runs it, in a fresh process, or here, where the process is not what is tested."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from karat.cli import run

_OF_THIS_PROCESS = ("CI", "COLUMNS", "FORCE_COLOR", "GITHUB_RUN_ID", "NO_COLOR")


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


def karat(*words: str, cwd: Path, stdin: str | None = None, **environment: str) -> Outcome:
    """Run karat with warnings as errors and without this process's terminal or CI settings."""
    clean = {k: v for k, v in os.environ.items() if k not in {"FORCE_COLOR", "NO_COLOR", "CI", "COLUMNS"}}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "karat", *words],
        cwd=cwd,
        env={**clean, **environment},
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        errors="surrogateescape",
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


def karat_here(*words: str, cwd: Path, stdin: str = "", **environment: str) -> Outcome:
    """The whole command line without the start of a process, which takes longest."""
    given = io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8")
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    with pytest.MonkeyPatch.context() as patch, _signals_as_they_were():
        patch.chdir(cwd)
        patch.setattr(sys, "stdin", given)
        for name in _OF_THIS_PROCESS:
            patch.delenv(name, raising=False)
        for name, value in environment.items():
            patch.setenv(name, value)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run(list(words))
    return Outcome(code, _text(out), _text(err))


@contextlib.contextmanager
def _signals_as_they_were() -> Iterator[None]:
    """A hunt ends whole, whatever ends it; pytest has other wishes."""
    before = {sent: signal.getsignal(sent) for sent in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for sent, handler in before.items():
            signal.signal(sent, handler)


def _text(stream: io.TextIOWrapper[io.BytesIO]) -> str:
    stream.flush()
    return stream.buffer.getvalue().decode(errors="surrogateescape")
