"""Namespaces: the operators of Python modules, found by importing them in a process of their own.

A module may print, hang, crash or leave; that costs its own answer and nothing else.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from karat.findings import Finding, Severity

SECONDS = 300.0
"""How long importing all namespaces may take."""


class Walked(msgspec.Struct, frozen=True, kw_only=True):
    """What importing the namespaces gave."""

    ops: tuple[str, ...] = ()
    aliases: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """Operator → its other names."""
    findings: tuple[Finding, ...] = ()


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What the other process writes down."""

    ops: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """Operator, by its shortest name → its other names."""
    errors: dict[str, str] = msgspec.field(default_factory=dict)
    """Module → why it could not be imported."""


def walk(
    modules: Sequence[str], *, folder: Path, exclude: Sequence[str] = (), seconds: float = SECONDS
) -> Walked:
    """The public callables of modules, by qualified name; `folder` is where Python is started."""
    if not modules:
        return Walked()
    with tempfile.TemporaryDirectory(prefix="karat-") as room:
        answer, log = Path(room) / "answer.json", Path(room) / "log.txt"
        words = [sys.executable, "-m", "karat.policy.gate.namespace_walk", str(answer), *modules]
        status = _run(words, folder, log, seconds)
        said = _tail(log)
        try:
            found = msgspec.json.decode(answer.read_bytes(), type=Answer)
        except (OSError, msgspec.DecodeError):
            return Walked(findings=(_unanswered(modules, status, said),))
    ops = [op for op in found.ops if not any(fnmatchcase(op, glob) for glob in exclude)]
    errors = tuple(_broken(module, why) for module, why in sorted(found.errors.items()))
    return Walked(
        ops=tuple(sorted(ops)),
        aliases={op: found.ops[op] for op in ops if found.ops[op]},
        findings=errors or tuple(_empty(modules, ops)),
    )


def _run(words: Sequence[str], folder: Path, log: Path, seconds: float) -> str:
    """How the other process ended, in words."""
    with log.open("wb") as out:
        child = subprocess.Popen(
            words,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = child.wait(seconds)
        except BaseException as error:
            # Not reaped yet, so the number is still its own; whatever it started ends with it.
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                return f"it was not done after {seconds:g} s"
            raise
    return f"it ended with {code}" if code >= 0 else f"it was ended by signal {-code}"


def _tail(log: Path) -> str:
    with contextlib.suppress(OSError):
        lines = log.read_bytes()[-2000:].decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else ""
    return ""


def _unanswered(modules: Sequence[str], status: str, said: str) -> Finding:
    return _cannot(", ".join(modules), f"{status}{f': {said}' if said else ''}", modules[0])


def _broken(module: str, why: str) -> Finding:
    return _cannot(module, why, module)


def _empty(modules: Sequence[str], ops: Sequence[str]) -> list[Finding]:
    bare = [one for one in modules if not any(op.startswith(f"{one}.") for op in ops)]
    return [_cannot(one, "it has no public callables, or all are excluded", one) for one in bare]


def _cannot(modules: str, why: str, one: str) -> Finding:
    return Finding(
        kind="cannot-read",
        severity=Severity.FAIL,
        message=f"expected operators in the namespace {modules}, but: {why}",
        metric=one,
        next=f"python -c {shlex.quote(f'import {one}')}",
    )
