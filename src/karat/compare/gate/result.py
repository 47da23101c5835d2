"""The gate's arithmetic, and what it says about one metric.

In: what a golden expects and what a run gave, side by side, and a rule. Out: a `Gate`, which values are out of tolerance,
which way, and how many may be; and a `MetricResult` of it. An expectation of NaN is the field's word for "no sample" and
demands nothing. Whatever else is expected must be there and finite, or the gate is shut; no allowance covers that. Every
comparison asks "is it inside?", never "is it outside?", so that a NaN can not slip through.
"""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from math import floor, inf
from typing import Any, TypeAlias

import msgspec
import numpy as np
from msgspec import structs

from karat.compare.history import EarlierMoves
from karat.compare.numbers import median_of
from karat.compare.rules import STATUS_ORDER, Rule, RuleBook
from karat.findings import Ranked
from karat.goldens.shapes import Flags, Metric, Steps, Values

SHOWN = frozenset({"info", "off"})  # Ways that never object to a value.
_ONE_SIDED = {"at-most": "lower", "at-least": "higher"}
_WELL_INSIDE = 1 - 1e-9  # A quotient this far from 1 is on the same side of it as what was divided.
_NEXT = 4  # Samples of a median whose window has none.
_STRICT = frozenset({"exact", "range", "prefix"})  # Ways that know no tolerance.
Place: TypeAlias = int | str
Value: TypeAlias = float | str | None

ROWS = "(rows)"
UNKNOWN = {what: f"(unknown {what}s)" for what in ("metric", "column", "row", "step")}
"""Names of what is judged beside metrics: whether all rows are there, and what has no golden."""


class CheckOutcome(Ranked):
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


class Medians(msgspec.Struct, frozen=True, kw_only=True):
    """What a median check compared: the medians of both sides over one window of steps."""

    first: int
    last: int
    steps: int  # Steps of the window with a value on both sides.
    expected: float
    got: float
    tolerance: float
    worse: bool
    better: bool


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


def outcome_of(
    mode: str, absent: str, kind: str, *, compared: bool, fails: bool, improves: bool
) -> tuple[CheckOutcome, str]:
    """The outcome and the kind of its finding: what is `absent` first, then what objects, of a `kind`."""
    if absent:
        return CheckOutcome.INFO if mode == "off" else CheckOutcome.FAIL, absent
    if mode in SHOWN:
        return CheckOutcome.INFO, "out-of-tolerance" if fails else ""
    if not compared:
        return CheckOutcome.NOTHING_COMPARED, "nothing-compared"
    if fails:
        return CheckOutcome.FAIL, kind
    return (CheckOutcome.IMPROVED, "improved") if improves else (CheckOutcome.PASS, "")


def result_of(metric: str, rule: Rule, outcome: CheckOutcome, kind: str = "", /, **found: Any) -> MetricResult:
    """The result of a metric, with what its rule is to say of itself."""
    return MetricResult(
        metric=metric,
        outcome=outcome,
        kind=kind,
        check=rule.mode,
        tolerance=tolerance_text(rule),
        rule=rule.pattern,
        origin=rule.origin,
        **found,
    )


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
    exempt: Callable[[str, str | None], int | None] = lambda _metric, _row: None
    """(metric, row) → the index of the exemption that covers it; row None: the whole metric."""

    def rule(self, metric: str) -> Rule:
        """The rule of a metric; `exact` only tightens what would be approximate."""
        rule = self.book.gate_rule_for(metric, self.path, self.shape)
        if rule.mode == "approx" and any(names(glob, metric) for glob in self.exact):
            return structs.replace(rule, check="exact", origin=f"--exact over {rule.origin}")
        return rule


class Gate(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What the arithmetic says about paired values; one flag per value."""

    demanded: Flags
    missing: Flags  # Demanded and not there.
    broken: Flags  # There, but not finite; or the golden itself expects an infinity, which nothing can meet.
    worse: Flags
    better: Flags  # Out of tolerance: in the direction that is objected to, and in the one that is welcome.
    target: Values  # What each value is held against: what the golden expects, or the bound that is nearest.
    error: Values  # got − target; NaN where there is none.
    tolerance: Values
    allowed: int = 0
    medians: Medians | None = None

    @property
    def compared(self) -> int:
        """Values that were compared and could have failed."""
        if self.medians is not None:
            return self.medians.steps
        return int(np.count_nonzero(self.demanded & ~self.missing & ~self.broken))

    @property
    def complete(self) -> bool:
        """Whether all that is demanded is there, and finite."""
        return not (self.missing.any() or self.broken.any())

    @property
    def fails(self) -> bool:
        """Whether values object: more of them are worse than the rule allows."""
        if self.medians is not None:
            return self.medians.worse
        return int(np.count_nonzero(self.worse)) > self.allowed

    @property
    def improves(self) -> bool:
        """Whether values are better than the golden by more than the tolerance, beyond chance."""
        if self.medians is not None:
            return self.medians.better
        return int(np.count_nonzero(self.better)) > self.allowed

    @property
    def passes(self) -> bool:
        """Complete, compared, and not worse."""
        return self.complete and self.compared > 0 and not self.fails


def direction_of(rule: Rule) -> str | None:
    """`lower`, `higher` or None: which way a value may move without an objection."""
    mode = rule.mode
    # A bound objects by itself; the golden's values, which could be bettered, are not asked.
    return None if mode == "range" else _ONE_SIDED.get(mode, rule.better)


def relative_tolerance(rule: Rule) -> float:
    """The rule's rtol; without one, the size from which `karat diff` speaks of drift."""
    if rule.mode in _STRICT:
        return 0.0
    return rule.drift_size if rule.rtol is None else rule.rtol


def absolute_tolerance(rule: Rule) -> float:
    """The rule's atol, which exact metrics and bounds do not have."""
    return 0.0 if rule.mode in _STRICT else rule.atol


def allowance(total: int, rule: Rule) -> int:
    """How many of so many values may be out of tolerance; of exact ones, none.

    Outliers are never more than the others, or they are no outliers: a lone value that is off would pass.
    """
    if rule.mode == "exact":
        return 0
    # A share such as 0.01 is no exact binary number; 1% of 300 is 3 all the same.
    by_share = floor(min(rule.outlier_share, 1.0) * total + 1e-9)
    return int(min(max(by_share, rule.outliers), rule.outliers_max, total // 2))


def _tolerances(target: Values, rule: Rule, margins: Values | None = None) -> Values:
    relative: Values | float = relative_tolerance(rule)
    if margins is not None and rule.mode not in _STRICT:
        relative = np.where(np.isfinite(margins), margins, relative)
    size = np.abs(target)
    with np.errstate(over="ignore", invalid="ignore"):
        # 0 × inf is NaN, which would turn "no tolerance at all" into a failure of everything.
        scaled = np.where(size == 0, 0.0, relative * size)
        return np.asarray(absolute_tolerance(rule) + scaled, dtype=float)


def gate(expected: Values, got: Values, present: Flags, rule: Rule, margins: Values | None = None) -> Gate:
    """Value by value; `margins` are relative tolerances of single values, where they are finite."""
    demanded = ~np.isnan(expected)
    missing = demanded & ~present
    broken = demanded & present & ~(np.isfinite(expected) & np.isfinite(got))
    usable = demanded & ~missing & ~broken
    target = expected
    if rule.mode == "range":
        low, high = -inf if rule.min is None else rule.min, inf if rule.max is None else rule.max
        # The nearest bound, or the value itself where it is inside.
        target = np.where(usable, np.clip(got, low, high), expected)
    with np.errstate(over="ignore", invalid="ignore"):
        error = np.where(usable, got - target, np.nan)
        tolerance = _tolerances(target, rule, margins)
        # An error too large for a float is out of any tolerance, also of an infinite one.
        out = usable & ~((np.abs(error) <= tolerance) & np.isfinite(error))
        worse, better = out, np.zeros_like(out)
        if (direction := direction_of(rule)) is not None:
            welcome = error < 0 if direction == "lower" else error > 0
            worse, better = out & ~welcome, out & welcome
            if rule.improved_from is not None:
                better = usable & welcome & ~(np.abs(error) < rule.improved_from * np.abs(target))
    if rule.closed:  # where the golden has no value, only one that has none, too, is like it
        worse = worse | (~demanded & present & ~np.isnan(got))
    return Gate(
        demanded=demanded,
        missing=missing,
        broken=broken,
        worse=worse,
        better=better,
        target=target,
        error=error,
        tolerance=tolerance,
        allowed=allowance(len(expected) if rule.closed else int(np.count_nonzero(demanded)), rule),
    )


def share_inside(expected: Values, got: Values, rule: Rule) -> float | None:
    """The share of its tolerance that the worst value uses, where all are there and well inside.

    None means: ask `gate`, which takes five times as long.
    """
    if rule.mode == "range" or rule.improved_from is not None:
        return None
    with np.errstate(all="ignore"):
        tolerance = absolute_tolerance(rule) + relative_tolerance(rule) * np.abs(expected)
        # A NaN anywhere makes the largest one NaN, and so does a tolerance that is no number.
        worst = (np.abs(got - expected) / tolerance + 0 * tolerance).max(initial=-inf)
    return float(worst) if 0 <= worst < _WELL_INSIDE else None


def window_of(steps: Steps, rule: Rule) -> tuple[int, int]:
    """First and last step of the median, both inside, for a golden with samples at these steps."""
    if not len(steps):
        return 0, 0
    window = rule.window
    if rule.short_window is not None and steps[-1] <= rule.short_steps:
        window = rule.short_window
    if window is None:
        skipped = min(int(len(steps) * rule.warm_up), len(steps) - 1)
        return int(steps[skipped]), int(steps[-1])
    first, last = window
    later = steps[steps >= first]
    if len(later) and later[0] > last:  # nothing there: the next few will do
        return int(later[0]), int(later[:_NEXT][-1])
    return first, last


def gate_median(steps: Steps, expected: Values, got: Values, present: Flags, rule: Rule) -> Gate:
    """The medians of both sides at the golden's samples in one window.

    Medians bear with gaps: a sample that the run lacks counts as infinitely bad. But what ends before its golden does,
    by more than may be missing, was cut off, whatever the window says.
    """
    sampled = np.isfinite(expected)
    first, last = window_of(steps[sampled], rule)
    inside = sampled & (steps >= first) & (steps <= last)
    there = present & np.isfinite(got)
    usable = inside & there
    bad = -inf if direction_of(rule) == "higher" else inf
    middle, found = median(expected[inside]), median(np.where(usable, got, bad)[inside])
    nothing = np.zeros_like(inside)
    one, other = np.array([middle]), np.array([found])
    worse = better = False
    if share_inside(one, other, rule) is None:
        pair = gate(one, other, np.array([True]), rule)
        worse, better = bool(pair.worse[0] or pair.broken[0]), bool(pair.better[0])
    window = {"first": first, "last": last, "steps": int(np.count_nonzero(usable))}
    allowed = float(_tolerances(one, rule)[0])
    medians = Medians(**window, expected=middle, got=found, tolerance=allowed, worse=worse, better=better)
    missing = broken = nothing
    demanded = inside
    if lacking := np.count_nonzero(sampled & ~there):
        end = np.zeros_like(inside)
        end[np.flatnonzero(sampled)[-1:]] = lacking > rule.missing
        demanded = inside | end
        kept = end if np.isfinite(found) else demanded
        missing, broken = kept & ~present, kept & present & ~there
    return Gate(
        demanded=demanded,
        missing=missing,
        broken=broken,
        worse=nothing,
        better=nothing,
        target=expected,
        error=np.where(demanded & there, got, np.nan) - expected,
        tolerance=_tolerances(expected, rule),
        medians=medians,
    )


def median(values: Values) -> float:
    """The median of numbers; NaN of none."""
    return median_of(values) if len(values) else np.nan


def at_steps(golden: Metric, actual: Metric) -> tuple[Values, Flags]:
    """The run's values at the golden's steps, and whether it has the step at all."""
    got, present = np.full(len(golden.steps), np.nan), np.zeros(len(golden.steps), dtype=bool)
    if actual.steps is golden.steps:  # one array for files of one suite
        got, present = actual.values, ~present
    elif len(actual.steps):
        at = np.minimum(np.searchsorted(actual.steps, golden.steps), len(actual.steps) - 1)
        present = actual.steps[at] == golden.steps
        got[present] = actual.values[at[present]]
    return got, present


def times_tolerance(old: Metric, new: Metric, rule: Rule) -> float | None:
    """How many times its tolerance the value is off that decides the rule's gate; None if the rule gates by none.

    Of values that may be out, the next one decides; of a median, the median.
    """
    mode = rule.mode
    if mode in SHOWN | _STRICT or (rule.rtol is None and not rule.atol):
        return None
    judge = gate_median if mode == "median" else lambda _steps, *rest: gate(*rest)
    verdict: Gate = judge(old.steps, old.values, *at_steps(old, new), rule)
    error, tolerance = np.where(verdict.better, np.nan, verdict.error), verdict.tolerance
    if (pair := verdict.medians) is not None:
        error, tolerance = np.array([0.0 if pair.better else pair.got - pair.expected]), np.array([pair.tolerance])
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        sizes = np.sort((np.abs(error) / tolerance)[np.isfinite(error)])
    return float(sizes[-1 - verdict.allowed]) if len(sizes) > verdict.allowed else None


def relative_error(error: float, expected: float) -> float | None:
    """|error| / |expected|; None where the golden expects zero."""
    if expected == 0 or error != error:  # noqa: PLR0124 - NaN has no size
        return None
    size = abs(error / expected)
    return size if size < inf else None


def share_used(error: Values, tolerance: Values) -> float | None:
    """The largest |error| as a share of its tolerance; None where no tolerance is a plain number."""
    with np.errstate(over="ignore", invalid="ignore"):
        known = np.isfinite(error) & np.isfinite(tolerance) & (tolerance > 0)
        return float(np.max(np.abs(error[known]) / tolerance[known])) if known.any() else None
