"""Options: what to replay and how, as the command line says it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

Framework: TypeAlias = Literal["torch", "jax", "numpy"]
Progress: TypeAlias = Callable[[int, int], None]
DEFAULT_TIMEOUT = 600.0
"""Seconds; a program that hangs must not hold a CI job for hours."""


class Function(msgspec.Struct, frozen=True, kw_only=True, tag="function"):
    """A Python function that takes a program and inputs, and returns outputs."""

    module: str
    name: str
    """Dotted, for a method of a class."""

    def __str__(self) -> str:
        return f"{self.module}:{self.name}"


class Command(msgspec.Struct, frozen=True, kw_only=True, tag="command"):
    """A command that reads files and leaves files; arguments with placeholders, never a shell."""

    words: tuple[str, ...]
    text: str = ""
    """As it was typed."""

    def __str__(self) -> str:
        return self.text or " ".join(self.words)


Runner: TypeAlias = Function | Command


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """Which cases; without a word, all of them."""

    only: tuple[str, ...] = ()
    """Globs of case paths or test ids."""
    suites: tuple[str, ...] = ()
    flows: tuple[str, ...] = ()


class Judging(msgspec.Struct, frozen=True, kw_only=True):
    """How a case is loaded and its outputs are judged."""

    framework: Framework | None = None
    """What inputs become; None for what they were."""
    rtol: float | None = None
    atol: float | None = None
    """Given here, they overrule what the bundle says, and the report says so."""
    verify: bool = True
    """Whether digests are looked at before a case is run."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What to replay and how."""

    runner: Runner
    choice: Choice = Choice()
    judging: Judging = Judging()
    store: str | None = None
    timeout: float | None = DEFAULT_TIMEOUT
    jobs: int = 1
    isolated: bool = False
    """A fresh process for every case, not only after a crash."""
    keep: Path | None = None
    progress: Progress | None = None
