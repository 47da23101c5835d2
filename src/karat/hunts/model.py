"""The data of a hunt: points, attempts, what a search knows, and the report. Frozen, and free of I/O.

The report is made from the journal alone, so that it can be had at any moment, also of a hunt that was killed; schema
karat.hunt/1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

import msgspec

from karat.changepoints.series import Better, Outcome
from karat.engines.job import CommandEnd
from karat.report.result import Result

CRASH = "crash"  # The metric of a crash that is hunted: 1 where it happened.
SEARCH = "search"  # The purpose of attempts that a strategy asked for.


class Point(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that can be put under test."""

    id: str
    """Unique in its stage, and the same in every run of a hunt: `2023-08-24`, `xla@1a2b3c4 jax@5d6e7f8`, `1.26.0`."""
    label: str  # For a person; short.
    title: str = ""  # Of a commit: the first line of its message.
    when: datetime | None = None  # Time zone aware.
    parts: Mapping[str, str] = msgspec.field(default_factory=dict)
    """What it is made of: repository → commit id, `image` → reference, package → version, `value` → text."""
    missing: str = ""  # Why it is not available; empty: it is.
    weight: float = 1.0
    """How likely a change came with it, compared with others: by the files and dependencies that it touches, and how many."""


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """Between two points of a coarser stage: where a finer one looks."""

    old: Point
    new: Point
    old_identity: Mapping[str, str] = msgspec.field(default_factory=dict)
    new_identity: Mapping[str, str] = msgspec.field(default_factory=dict)
    """What was really under test there; `commit.NAME` is the commit of repository NAME."""


class Suspect(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A commit, release or image that may have made the change."""

    part: str  # The repository or package.
    id: str
    title: str = ""
    author: str = ""
    when: datetime | None = None
    link: str = ""
    compare: str = ""  # A page with all that lies between the two points, where a forge has one.


class Attempt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One run of the probe at one point."""

    stage: str  # The stage's key: `0`, or of a zoom `0.2/1` (change 2 of stage 0, zoomed into at stage 1).
    point: str
    number: int  # Of this point: 1, 2, …
    outcome: Outcome
    samples: Mapping[str, tuple[float, ...]] = msgspec.field(default_factory=dict)  # Metric → one value per repeat.
    signature: str = ""
    hunted: bool | None = None
    """Where a crash is hunted: whether this is it. A crash of another kind is broken, not good and not bad."""
    identity: Mapping[str, str] = msgspec.field(default_factory=dict)
    identity_key: str = ""
    shared_with: str = ""  # The point whose results these are, because the same thing was under test.
    seconds: float = 0.0
    cost: float = 0.0  # By the prices of [cost].
    started: float = 0.0
    where: str = ""
    why: str = ""  # What it was run for, in a few words: `grid`, `midpoint of 12 and 24`, `old jax with new xla`.
    note: str = ""  # One sentence: what went wrong, or what is odd.
    purpose: str = SEARCH  # Others: `swap 2`, `confirm 2` (of change 2), `alone 2`.
    lost: bool = False  # Whether the machine was lost: nothing is known of the point then.


class Observed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All that was observed at one point, over all its attempts."""

    values: Mapping[str, tuple[float, ...]] = msgspec.field(default_factory=dict)
    """Metric → samples of the attempts that were ok."""
    outcomes: tuple[Outcome, ...] = ()  # One per attempt.
    signatures: tuple[str, ...] = ()  # One per attempt; empty for those that did not crash.
    started: tuple[float, ...] = ()
    where: tuple[str, ...] = ()
    builds: tuple[str, ...] = ()  # One per attempt each, or none where nobody knows.


Seen = Mapping[int, Observed]  # A point's place → what was observed there.
Runs = Mapping[int, int]  # A point's place → how many runs.


class Metric(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the search looks at."""

    name: str
    better: Better | None = None
    threshold: float | None = None  # For bisect: worse than this is bad.
    lowest: bool = False
    """Of the repeats of one attempt the lowest counts, not the median: noise only makes a time longer."""
    binary: bool = False  # Good or bad, 0 or 1: a test, a crash; may be flaky.
    unit: str = ""


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """A change as a search found it: after `good`, at or before `bad`."""

    metric: str
    good: int
    bad: int  # Neighbours, or with nothing between them that can be run.
    before: float | None
    after: float | None
    confidence: float
    kind: str  # regression, improvement, shift, crash, recovery (the end of crashes or hangs).
    between: tuple[int, ...] = ()  # Points between them that are broken or missing: the change may be any of them.
    sure: bool = False  # Whether it needs no more runs; else it may still be narrowed down, moved or withdrawn.


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """One run that is wanted next."""

    index: int
    why: str  # In a few words: `grid`, `end point`, `midpoint of {} and {}`, `again: unsure`.
    ends: tuple[int, ...] = ()  # The points that it names.

    def text(self, points: Sequence[Point]) -> str:
        """Why, with the points' labels: a person does not count."""
        return self.why.format(*(points[index].label for index in self.ends))


class Missed(msgspec.Struct, frozen=True, kw_only=True):
    """What could not have been seen, and what ruling it out would cost."""

    longest_dip: int  # Dips of up to this many points, between two tested ones, could have been missed.
    runs_to_rule_out: int
    length: int = 0
    chance: float = 0.0  # That a dip of this length, anywhere, has no tested point in it.
    message: str


class Noise(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What moves a metric besides changes: standard deviations, relative to its level."""

    metric: str
    run: float  # From run to run of one build.
    build: float = 0.0  # From build to build of one level: a claim is made only beyond that.
    worker: float = 0.0
    time: float = 0.0
    """From worker to worker, and over time (drift, day and night): both were taken out of every number."""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What to run next, and what is known."""

    asks: tuple[Ask, ...]
    """Best first; at most as many as were asked for. None, and nothing in flight: the search is over."""
    likely_next: tuple[int, ...] = ()  # For fetching ahead.
    expected_left: int | None = None  # Runs still to come, as far as can be said.
    spans: tuple[Span, ...] = ()
    flake_rate: float | None = None
    missed: Missed | None = None
    noise: tuple[Noise, ...] = ()
    notes: tuple[str, ...] = ()  # Sentences: an end point that does not hold, a flake that explains everything.
    unsettled: tuple[str, ...] = ()  # Metrics that would take more runs than they may have.


class Strategy(Protocol):
    """A way to search."""

    def decide(self, seen: Seen, in_flight: Runs, room: int) -> Decision:
        """What to run next: `in_flight` is point → runs under way, `room` how many more may start."""


class PointReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One point of a stage."""

    point: Point
    outcome: Outcome | None = None  # None: not tried.
    values: Mapping[str, tuple[float, ...]] = msgspec.field(default_factory=dict)
    attempts: tuple[Attempt, ...] = ()
    log: str = ""  # The end of the last log, of a point that did not succeed.
    flags: tuple[str, ...] = ()  # `shared with …`, `flaky: 1 of 4 failed`.


class Verdict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What swapping and confirming said of a change."""

    part: str = ""  # The repository that made it; empty: not known.
    interaction: bool = False  # It takes both: neither alone makes the change.
    tried: tuple[str, ...] = ()  # Sentences: `new xla with old jax: 537 (as new)`.
    parts: tuple[str, ...] = ()  # Every repository that has a share in it, or that it takes: one, where `part` says so.
    beside: tuple[str, ...] = ()  # Parts that must be new for `parts` to be tried; without `parts` they are as old.
    shares: Mapping[str, float] = msgspec.field(default_factory=dict)
    """Of those that make a part of it each: how much of it, alone."""
    message: str = ""  # One sentence: `xla alone causes it`.
    confirmed: bool | None = None  # Whether the culprit and its parent, run again, still differ; None: not tried.
    confidence: float = 0.0


class HuntRow(msgspec.Struct, frozen=True, kw_only=True):
    """The hunt itself, as it was begun."""

    name: str
    file: str
    root: str
    hunt: str  # The short id that names of containers carry.
    settings: str  # As JSON, without secrets.
    command: tuple[str, ...]
    metrics: tuple[Metric, ...]


class StageRow(msgspec.Struct, frozen=True, kw_only=True):
    """One stage: a timeline, searched once."""

    key: str
    title: str
    timeline: str
    state: str = "running"  # running, done; whether a running one is at work is asked of the lock.
    parent: str = ""  # `0.2`: change 2 of stage 0 is what it looks into; empty for the first.
    levels: Mapping[str, tuple[float, float]] = msgspec.field(default_factory=dict)
    window: Window | None = None
    decision: Decision | None = None
    notes: tuple[str, ...] = ()


class CommandRow(CommandEnd, frozen=True, kw_only=True, omit_defaults=True):
    """One command of an attempt, for whoever wants to run it by hand; no value of the environment is kept."""

    argv: tuple[str, ...]
    cwd: str = ""
    env: tuple[str, ...] = ()


class ChangeRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of a change after the search: by swapping, by confirming, by zooming."""

    verdict: Verdict = Verdict()
    suspects: tuple[Suspect, ...] = ()
    zoom: str = ""  # The key of the stage that looked into it.
    swapped: bool = False  # Whether swapping is over; a verdict without a part is one, too.
    confirmed: bool = False
    since: str = ""
    towards: str = ""
    """The mixed points between which one part alone moves, and the change shows: a finer stage looks no further. Without
    `towards`: the one that has the change's commit, and nothing that others did before it, which it takes as well."""


class ChangeReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One change of one stage, with what finer stages made of it."""

    span: Span
    old: Point
    new: Point
    kind: str  # regression, improvement, shift, dip, crash, hang, recovery.
    dip: int | None = None  # Changes with the same number are the two ends of one dip, or of crashes that ended.
    verdict: Verdict = Verdict()
    suspects: tuple[Suspect, ...] = ()
    zoom: str = ""  # The key of the stage that looked into it.
    message: str = ""
    reproduce: str = ""  # One command.


class StageReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One stage: a timeline, searched once."""

    key: str
    title: str
    timeline: str
    state: str  # done, running, stopped.
    points: tuple[PointReport, ...]
    changes: tuple[ChangeReport, ...] = ()
    missed: Missed | None = None
    runs: int = 0
    seconds: float = 0.0
    flake_rate: float | None = None
    noise: tuple[Noise, ...] = ()
    notes: tuple[str, ...] = ()
    unsettled: tuple[str, ...] = ()  # Metrics that would take more runs than they may have.
    expected_left: int | None = None  # Runs still to come, as far as can be said.
    likely_next: tuple[str, ...] = ()  # Labels of points that come next, most likely.


class Culprit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The end of one line of stages: as close as the hunt came."""

    change: ChangeReport
    stage: str
    path: tuple[str, ...]  # Stage keys, coarse to fine.
    metric: str
    better: Better | None = None
    suspects: tuple[Suspect, ...] = ()
    message: str = ""


class SplitCell(msgspec.Struct, frozen=True, kw_only=True):
    """What one code came to in one environment."""

    id: str
    code: str  # old, new; of several repositories also mixed.
    environment: str  # old, new.
    runs: int
    failed: int
    values: Mapping[str, tuple[float, ...]]
    error: str


class SplitReport(msgspec.Struct, frozen=True, kw_only=True):
    """The 2×2 of `karat hunt split`."""

    verdicts: Mapping[str, str]  # Metric → code, environment, both, interaction, neither, unclear.
    cells: tuple[SplitCell, ...]


class RunNow(msgspec.Struct, frozen=True, kw_only=True):
    """A run under way."""

    stage: str
    point: str
    why: str
    seconds: float


class HuntEvent(msgspec.Struct, frozen=True, kw_only=True):
    """What became known while a hunt went on: that a change is sure, or no longer is; why it stopped."""

    when: float  # Seconds since 1970.
    stage: str
    message: str


class HuntReport(Result, msgspec.Struct, frozen=True, kw_only=True):
    """Everything a hunt found."""

    schema: str = "karat.hunt/1"
    karat: str = ""
    name: str
    file: str
    journal: str
    command: tuple[str, ...] = ()  # The probe's.
    state: str  # done, running, stopped: by the budget, by a person, by a kill.
    units: Mapping[str, str] = msgspec.field(default_factory=dict)  # Metric → unit, of those that have one.
    split: SplitReport | None = None
    stages: tuple[StageReport, ...]
    culprits: tuple[Culprit, ...] = ()
    runs: int = 0
    seconds: float = 0.0
    cost: float = 0.0
    events: tuple[HuntEvent, ...] = ()
    never_rebuilt: Mapping[str, int] = msgspec.field(default_factory=dict)
    """Repository → through how many commits it moved without a build of its own; those that were rebuilt are not here."""
    notes: tuple[str, ...] = ()
    resume: str = ""  # The command that goes on with it, where it is stopped.
    process: int | None = None  # Who is writing the journal.
    running: tuple[RunNow, ...] = ()
    seconds_left: float | None = None  # Of the stage at work, as far as can be said; finer ones come after it.

    def to_json(self) -> bytes:
        return json_text(self)

    def rows(self) -> list[dict[str, Any]]:
        return [
            {
                "metric": culprit.metric,
                "kind": culprit.change.kind,
                "last_good": culprit.change.old.label,
                "first_bad": culprit.change.new.label,
                "before": culprit.change.span.before,
                "after": culprit.change.span.after,
                "confidence": culprit.change.span.confidence,
                "suspects": ", ".join(suspect.title or suspect.id for suspect in culprit.suspects),
            }
            for culprit in self.culprits
        ]

    def headline(self) -> str:
        return f"{self.name}: {len(self.culprits):,} changes in {self.runs:,} runs ({self.state})"


def json_text(document: msgspec.Struct) -> bytes:
    """What a hunt writes for a program; ends with a newline."""
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"
