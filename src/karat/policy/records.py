"""Records: what a test run leaves about gradients, one JSON line each, one file per worker.

Written by `recording` as things happen, read and merged by `merging`; schema karat.evidence/1.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from karat.gradients.report import GradVerdict

SCHEMA = "karat.evidence/1"


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
    error: float | None = None
    tolerance: float | None = None
    smallest_error: float | None = None
    """None: not a finite number."""
    widened: float | None = None
    reason: str = ""
    seed: int = 0

    @property
    def counts(self) -> bool:
        """Whether it is evidence: it passed, could have failed, and did not rest on its author alone."""
        return self.verdict is GradVerdict.PASS and not self.vacuous and self.strength == "strong"


class Reported(msgspec.Struct, frozen=True, kw_only=True, tag="report", omit_defaults=True):
    """A whole gradient check: its verdict also speaks of laws, which no single comparison does."""

    op: str
    test: str
    device: str
    framework: str
    verdict: GradVerdict
    reason: str = ""
    seed: int = 0
    comparisons: int = 0
    nondeterminism_bound: float = 0.0
    """How much two runs of one backward were allowed to differ."""


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
    """An op that did not prove a gradient of an input was asked for it."""

    op: str
    input: str
    test: str
    outcome: Literal["raises", "zero", "gradient"]
    detail: str = ""


class Collected(msgspec.Struct, frozen=True, kw_only=True, tag="collected", omit_defaults=True):
    """A test class or function that pytest found, and whether this run was to run all of it."""

    test: str
    op: str | None = None
    selected: int
    deselected: int = 0
    op_test: bool = True
    """Known to be an op test by its class; else only what it declares makes it one."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True, tag="outcome", omit_defaults=True):
    """How one test item of an op test ended."""

    test: str
    item: str
    outcome: Literal["passed", "failed", "skipped"]
    reason: str = ""


class Began(msgspec.Struct, frozen=True, kw_only=True, tag="began", omit_defaults=True):
    """A worker's journal starts here."""

    schema: str = SCHEMA
    session: str
    worker: str
    karat: str
    python: str
    started: str
    commit: str | None = None
    shard: str | None = None
    run: str | None = None
    """The CI run, or what KARAT_SESSION says: sessions of one run belong together."""
    root: str = ""
    """Where pytest's root lies in its repository: two suites of one repository may have tests of the same name."""
    forked: bool = False
    """In a process that a test forked, which may end without a word."""


class Ended(msgspec.Struct, frozen=True, kw_only=True, tag="ended", omit_defaults=True):
    """A worker came to its end; a journal without this line was cut off."""

    exit_status: int
    records: int
    ran: int = 0
    """Tests of any kind that were run."""
    uncollected: tuple[str, ...] = ()
    """Files that could not be collected, so that nobody knows which tests they hold; `.` is the whole session."""
    whole: bool = False
    """Nothing narrowed what was collected: no paths, no -k, no -m, no --lf, and nothing stopped it."""


Record = Began | Evidence | Reported | OpTested | NoGradAsked | Collected | Outcome | Ended
