"""Records: what a test run leaves about gradients, one JSON line each, one file per worker.

Written by `recording` as things happen, read and merged by `merging`; schema karat.evidence/1.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from karat.gradients.report import GradVerdict


class Evidence(msgspec.Struct, frozen=True, kw_only=True, tag="evidence", omit_defaults=True):
    """One completed comparison of one test."""

    op: str
    input: str
    output: str
    dtype: str
    device: str
    mode: str
    order: int
    test: str
    verdict: GradVerdict
    oracle: str
    strength: Literal["strong", "weak"]
    vacuous: bool
    error: float
    tolerance: float
    smallest_error: float
    widened: float | None = None
    reason: str = ""
    seed: int = 0


class OpTested(msgspec.Struct, frozen=True, kw_only=True, tag="op-test", omit_defaults=True):
    """An op test that was set up in this run."""

    op: str
    test: str
    file: str
    line: int = 0
    inputs: dict[str, str] = msgspec.field(default_factory=dict)
    no_grad: tuple[str, ...] = ()
    skip_reason: str | None = None


class NoGradAsked(msgspec.Struct, frozen=True, kw_only=True, tag="no-grad", omit_defaults=True):
    """An op that is said to have no gradient was asked for one."""

    op: str
    test: str
    outcome: Literal["raises", "zero", "gradient"]
    detail: str = ""


class Collected(msgspec.Struct, frozen=True, kw_only=True, tag="collected", omit_defaults=True):
    """An op test class or item that pytest found, and whether this run was to run all of it."""

    test: str
    op: str | None = None
    selected: int
    deselected: int = 0


class Outcome(msgspec.Struct, frozen=True, kw_only=True, tag="outcome", omit_defaults=True):
    """How one test item of an op test ended."""

    test: str
    item: str
    outcome: Literal["passed", "failed", "skipped"]
    reason: str = ""


class Began(msgspec.Struct, frozen=True, kw_only=True, tag="began", omit_defaults=True):
    """A worker's journal starts here."""

    schema: str = "karat.evidence/1"
    session: str
    worker: str
    karat: str
    python: str
    started: str
    commit: str | None = None
    shard: str | None = None


class Ended(msgspec.Struct, frozen=True, kw_only=True, tag="ended", omit_defaults=True):
    """A worker came to its end; a journal without this line was cut off."""

    exit_status: int
    records: int


Record = Began | Evidence | OpTested | NoGradAsked | Collected | Outcome | Ended
