"""What a gate says about one metric, as frozen data, and what decides how the metrics of a golden are judged."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import TypeAlias

import msgspec
from msgspec import structs

from karat.compare.gate.tolerance import Medians, absolute_tolerance, direction_of, relative_tolerance
from karat.compare.history import EarlierMoves
from karat.compare.rules import STATUS_ORDER, Rule, RuleBook

Place: TypeAlias = int | str
Value: TypeAlias = float | str | None

ROWS = "(rows)"
UNKNOWN = {what: f"(unknown {what}s)" for what in ("metric", "column", "row", "step")}
"""Names of what is judged beside metrics: whether all rows are there, and what has no golden."""


class CheckOutcome(StrEnum):
    """What became of a check, gravest first; a whole is as grave as its gravest part."""

    FAIL = "fail"
    MISSING_ACTUAL = "missing-actual"
    NOTHING_COMPARED = "nothing-compared"
    CANNOT_VERIFY = "cannot-verify"
    MISSING_GOLDEN = "missing-golden"
    IMPROVED = "improved"
    EXEMPTED = "exempted"
    PASS = "pass"  # noqa: S105 - a word, not a secret
    INFO = "info"

    @property
    def rank(self) -> int:
        """0 for the gravest, so that sorting puts it first."""
        return _RANKS[self]


_RANKS = {outcome: rank for rank, outcome in enumerate(CheckOutcome)}
SHUT = frozenset({CheckOutcome.FAIL, CheckOutcome.MISSING_ACTUAL, CheckOutcome.NOTHING_COMPARED})
"""Outcomes that fail whatever the options say."""


class Deviation(msgspec.Struct, frozen=True, kw_only=True):
    """One value that is not as its golden expects."""

    place: Place  # A step, a row, a path in a document, or the window of a median.
    how: str  # `missing`, `not-finite`, `changed`, `unexpected`, `worse` or `better`.
    expected: Value = None
    got: Value = None
    error: float | None = None  # got − expected.
    relative: float | None = None
    tolerance: float | None = None  # How large |error| may be.


class MetricResult(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one metric or column, with all that a person needs to believe it."""

    metric: str
    outcome: CheckOutcome
    kind: str = ""  # The kind of its finding; empty if there is nothing to say.
    check: str = ""  # How it was judged: one of CHECKS, or `rows`.
    tolerance: str = ""
    rule: str = "*"
    origin: str = "default"
    noun: str = "step"
    total: int = 0  # Values that the golden demands.
    compared: int = 0
    failed: int = 0  # Values that are missing, not finite, changed or worse.
    missing: int = 0
    broken: int = 0
    better: int = 0
    allowed: int = 0
    first: Deviation | None = None
    worst: Deviation | None = None
    deviations: tuple[Deviation, ...] = ()  # Of a table or document all, of a curve the first few.
    likely: str | None = None
    medians: Medians | None = None
    used: float | None = None  # The largest |error| as a share of its tolerance.
    exemption: int | None = None  # Index of the exemption that applies.
    exempted: CheckOutcome | None = None  # What it would have been without the exemption.
    because: str | None = None  # Why it is exempted, by whom, and until when.
    history: EarlierMoves | None = None  # How far earlier refreshes moved it, where the repository's history was asked.


Exempting: TypeAlias = Callable[[str, str | None], int | None]
"""(metric, row) → the index of the exemption that covers it; row None: the whole metric."""


def unknown(what: str, names: list[str]) -> MetricResult:
    """The result for metrics, columns or rows that the golden does not have."""
    return MetricResult(
        metric=UNKNOWN[what],
        outcome=CheckOutcome.MISSING_GOLDEN,
        kind="missing-golden",
        noun=what,
        total=len(names),
        deviations=tuple(Deviation(place=name, how="unknown") for name in names),
    )


def tolerance_text(rule: Rule) -> str:
    """How the rule judges, as people write it."""
    mode = rule.mode
    words = [mode]
    if mode == "range":
        words += [f"at least {rule.min:g}"] if rule.min is not None else []
        words += [f"at most {rule.max:g}"] if rule.max is not None else []
    elif mode not in {"exact", "prefix"}:
        margin = f"the row's {rule.margin_column}, else " if rule.margin_column else ""
        words.append(f"{margin}rtol {relative_tolerance(rule):g}")
        if absolute_tolerance(rule):
            words.append(f"atol {rule.atol:g}")
        if rule.improved_from is not None:
            words.append(f"improved from {rule.improved_from:g} on")
    if (direction := direction_of(rule)) is not None:
        words.append(f"{direction} is better")
    return ", ".join(words)


def names(glob: str, metric: str) -> bool:
    """Whether a glob names a metric; of a document's path, the last element will do, as in rules."""
    return fnmatchcase(metric, glob) or fnmatchcase(metric.rsplit(".", 1)[-1], glob)


class Judging(msgspec.Struct, frozen=True, kw_only=True):
    """The rules for one golden: the book, the golden's path, and what holds for this check only."""

    book: RuleBook = msgspec.field(default_factory=RuleBook)
    path: str = ""
    shape: str = "*"
    exact: tuple[str, ...] = ()  # Globs of metrics that must be exact this time: those of a deterministic test.
    status: tuple[str, ...] = STATUS_ORDER
    requests: str = ""  # A glob of the keys of a document that are requests.
    exempt: Exempting = lambda _metric, _row: None

    def rule(self, metric: str) -> Rule:
        """The rule of a metric; `exact` only tightens what would be approximate."""
        rule = self.book.gate_rule_for(metric, self.path, self.shape)
        if rule.mode == "approx" and any(names(glob, metric) for glob in self.exact):
            return structs.replace(rule, check="exact", origin=f"--exact over {rule.origin}")
        return rule
