"""Tolerances from repeats: how far runs of one test lie apart, and what a check may allow.

The unit is the run, not the step: the steps of one run move together, so a thousand of them are no
thousand samples. A run's deviation from another is one number, that of its worst step. With N
exchangeable runs, one of them the golden, a fresh run deviates more than all N − 1 others with
probability at most 1/N, whatever the distribution; with 95% confidence the chance is at most
1 − 0.05^(1/(N − 1)). docs/tolerance.md says it at length.

Reported as a table, as rules for karat.toml, and as JSON of schema karat.tolerance/1.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
import numpy as np

from karat.compare.gate.result import window_of
from karat.compare.rules import RuleBook
from karat.findings import CannotVerify, Finding, UsageError, fail, info, warn
from karat.goldens import formats
from karat.goldens.shapes import Reading, Series, Steps, Values
from karat.report.json import encode_report
from karat.report.terminal import aligned, widths
from karat.report.words import count, few
from karat.runs.curves import names_in, settings_like
from karat.runs.read import read_run
from karat.runs.repeats import (
    Repeat,
    SampledRun,
    copies,
    disagreements,
    distinct,
    fingerprint,
    grid,
    names_of,
    read_samples,
    samples_path,
)
from karat.settings import RecordSettings
from karat.system.command import Command
from karat.system.files import expecting
from karat.system.foreign.limits import GOLDEN, read_plain

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Matrix: TypeAlias = NDArray[np.float64]
else:
    Matrix = np.ndarray

CONFIDENCE = 0.95
WIDEST = 3.0  # A tolerance is never more than so many times what was seen: beyond, more runs are the answer.
_SMALLEST_SPREAD = 0.1  # Of log deviations; a few runs that happen to agree in theirs do not prove that all would.
_NEAR_ZERO = 1e-2  # A curve with values below this share of its median size has no use for a relative tolerance.


class Recommendation(msgspec.Struct, frozen=True, kw_only=True):
    """A rule for one metric, and what is known of it."""

    metric: str
    check: str  # `exact`, `approx` or `median`.
    runs: int
    steps: int
    rtol: float = 0.0
    atol: float = 0.0
    observed: float = 0.0  # The largest deviation between any two of the runs, in the unit of the tolerance.
    rate_bound: float  # False alarms per run are at most this, with `confidence`; whatever the distribution.
    confidence: float = CONFIDENCE
    rate_expected: float  # At most this on average over all golden-and-repeats that might have been drawn: 1/N.
    smallest_shift: float = 0.0
    """A change of every step by this much is caught from every one of the runs; relative if rtol is."""


def runs_needed(rate: float) -> int:
    """How many runs show, with 95% confidence, that false alarms are no more frequent than `rate`."""
    return math.ceil(math.log(1 - CONFIDENCE) / math.log1p(-rate)) + 1


def recommend(
    series: Sequence[Series],
    reference: Series,
    *,
    rate: float,
    windows: Callable[[str, Steps], tuple[int, int] | None] = lambda _metric, _steps: None,
) -> list[Recommendation]:
    """A rule for every metric that all runs have.

    `reference` is the golden. If it is none of the runs, all of them are fresh to it. `windows`: metric and steps → the
    window of the median by which it is judged; None: step by step.
    """
    others = [one for one in series if one is not reference]
    inside = len(others) < len(series)
    names = [n for n in reference.metrics if all(n in one.metrics for one in others)]
    found = []
    for name in names:
        steps, values = grid([one.metrics[name] for one in (reference, *others)])
        usable = np.isfinite(values).all(axis=0)
        if not usable.any():
            continue
        # The golden's values are in the first row, a run's in each other.
        steps, values, check = steps[usable], values[:, usable], "approx"
        if (window := windows(name, steps)) is not None:
            within = (steps >= window[0]) & (steps <= window[1])
            chosen = values[:, within] if within.any() else values
            values, check = np.median(chosen, axis=1)[:, None], "median"
        # Relative deviations are for values on one side of zero, and far enough from it.
        size = np.abs(values)
        typical = float(np.median(size))
        one_side = bool((values > 0).all() or (values < 0).all())
        relative = one_side and typical > 0 and bool((size >= _NEAR_ZERO * typical).all())
        allowed = observed = shift = 0.0
        if check == "approx" and bool((values == values[0]).all()):
            check = "exact"
        else:
            # How far each run is from each of them as the golden, at its worst step.
            errors = [np.abs(values - golden) / (np.abs(golden) if relative else 1.0) for golden in values]
            apart = np.array([error.max(axis=1) for error in errors])
            observed = float(apart.max())
            allowed = _rounded_up(_widened(apart[0, 1:], observed, rate))
            shift = _smallest_shift(values, allowed, relative=relative)
        fresh = len(values) - 1
        found.append(
            Recommendation(
                metric=name,
                check=check,
                runs=len(others) + inside,
                steps=len(steps),
                rtol=allowed if relative else 0.0,
                atol=0.0 if relative else allowed,
                observed=observed,
                rate_bound=1 - (1 - CONFIDENCE) ** (1 / fresh),
                rate_expected=1 / (fresh + 1),
                smallest_shift=shift,
            )
        )
    return found


def _smallest_shift(values: Matrix, allowed: float, *, relative: bool) -> float:
    """The smallest change of all steps alike that would be caught from every run, up or down."""
    if not relative:
        error = values[1:] - values[0]
        return allowed + float(max(-error.max(axis=1).min(), error.min(axis=1).max()))
    ratio = values[1:] / values[0]
    with np.errstate(divide="ignore"):
        shifts = ((1 + allowed) / ratio.max(axis=1) - 1, 1 - (1 - allowed) / ratio.min(axis=1))
    return float(np.max(shifts))


def _widened(apart: Values, observed: float, rate: float) -> float:
    """What was seen, widened to what the asked rate needs if deviations are log-normal.

    Two runs have one deviation and no spread: it is doubled, which is a guess.
    """
    positive = apart[apart > 0]
    if len(positive) < 2:
        return 2 * observed
    logs = np.log(positive)
    middle, freedom = float(logs.mean()), len(logs) - 1
    spread = max(float(logs.std(ddof=1)), _SMALLEST_SPREAD) * math.sqrt(1 + 1 / len(logs))
    beyond = quantile(min(rate, 0.5), freedom) * spread
    wanted = math.exp(min(middle + beyond, math.log(observed) + math.log(WIDEST)))
    return max(observed, wanted)


def _rounded_up(value: float) -> float:
    """Two digits, never less than the value itself: rounding down would bring false alarms."""
    if value <= 0 or not math.isfinite(value):
        return value
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    rounded = math.ceil(value / unit - 1e-9) * unit
    tidy = float(f"{rounded:.2g}")
    return tidy if tidy >= value else float(f"{rounded + unit:.2g}")


def upper_tail(t: float, freedom: int) -> float:
    """P(T > t) for whole degrees of freedom: the finite sums of the textbooks."""
    if t < 0:
        return 1.0 - upper_tail(-t, freedom)
    theta = math.atan2(t, math.sqrt(freedom))
    sine, cosine = math.sin(theta), math.cos(theta)
    odd = freedom % 2
    term, total = cosine if odd else 1.0, 0.0
    for k in range(odd, freedom - 1, 2):
        total += term
        term *= (k + 1) / (k + 2) * cosine * cosine
    inside = 2 / math.pi * (theta + sine * total) if odd else sine * total
    return max(0.0, 0.5 * (1.0 - inside))


def quantile(tail: float, freedom: int) -> float:
    """The t with P(T > t) = tail, for a tail of at most one half."""
    low, high = 0.0, 1.0
    while upper_tail(high, freedom) > tail and high < 1e12:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        if upper_tail(middle, freedom) > tail:
            low = middle
        else:
            high = middle
    return high


class Tolerances(msgspec.Struct, frozen=True, kw_only=True):
    """What some repeats say about every metric."""

    runs: tuple[str, ...]
    golden: str | None
    golden_is_run: bool  # Whether the golden is one of the runs; otherwise the rates are estimates, no bounds.
    rate: float
    metrics: tuple[Recommendation, ...]
    findings: tuple[Finding, ...] = ()

    @property
    def shown(self) -> bool:
        """Whether the runs show the asked rate, with confidence."""
        return all(one.rate_bound <= self.rate for one in self.metrics)


def tolerances(
    runs: Sequence[str],
    golden: str | None = None,
    *,
    rate: float = 0.01,
    metrics: Sequence[str] = (),
    settings: RecordSettings | None = None,
    rules: RuleBook | None = None,
) -> Tolerances:
    """What repeats of one test recommend: the runs that are named, and the samples of a golden."""
    book = rules or RuleBook()
    against = None
    if golden is not None:
        with expecting(f"read the golden {golden}", golden):
            held = formats.read(read_plain(golden, GOLDEN)).golden
        if not isinstance(held, Series):
            said = f"expected a series in {golden}, found {f'a {held.shape}' if held else 'no golden'}"
            raise UsageError(said, next_command="karat tolerance --help")
        against = held
    repeats, findings = _read_repeats(runs, golden, settings_like(against, settings or RecordSettings()))
    findings += copies(repeats)
    series = [one for r in repeats if isinstance(one := r.reading.golden, Series)]
    if len(series) < 2:
        where = f"found {len(series)} (in {', '.join(runs) or 'no RUN'}"
        where += f" and the samples of {golden}" if golden is not None else ""
        said = f"expected at least 2 repeats of one test, {where})"
        raise UsageError(said, next_command="karat tolerance --help")
    # Where the golden's curves are those of a run, that run is the golden.
    same = [
        one
        for one in series
        if against is None
        or (
            one.metrics.keys() == against.metrics.keys()
            and all(
                np.array_equal(metric.steps, against.metrics[name].steps)
                and np.array_equal(metric.values, against.metrics[name].values, equal_nan=True)
                for name, metric in one.metrics.items()
            )
        )
    ]
    reference = same[0] if same else against
    assert reference is not None  # noqa: S101 - without a golden, the first run is it

    def window(metric: str, steps: Steps) -> tuple[int, int] | None:
        """The steps whose median `karat check` would take of a timing."""
        rule = book.rule_for(metric, golden or "")
        by_median = rule.mode == "median" or (rule.check is None and rule.steady)
        return window_of(steps, rule) if by_median else None

    def wanted(name: str) -> bool:
        return not metrics or any(fnmatchcase(name, glob) for glob in metrics)

    found = recommend(series, reference, rate=rate, windows=window)
    findings += disagreements([repeat.path for repeat in repeats], series)
    findings = [f for f in findings if not f.metric or wanted(f.metric)]
    known = {name for one in (reference, *series) for name in names_in(one)}
    left = sorted(filter(wanted, known - {one.metric for one in found}))
    chosen = tuple(one for one in found if wanted(one.metric))
    if not chosen:
        names = ", ".join(names_of(series)) or "none"
        message = f"expected a metric that all repeats have at a shared step, found none; metrics: {names}"
        findings.append(fail("nothing-compared", message))
    elif left:
        message = (
            f"no rule for {few(left, 8)}: expected curves with a finite value at a step that the golden and all repeats"
            " have, found none"
        )
        findings.append(warn("no-usable-steps", message, numbers={"metrics": len(left)}))
    return Tolerances(
        runs=tuple(repeat.path for repeat in repeats),
        golden=golden,
        golden_is_run=bool(same),
        rate=rate,
        metrics=chosen,
        findings=tuple(findings),
    )


def _read_repeats(
    runs: Sequence[str], golden: str | None, settings: RecordSettings
) -> tuple[list[Repeat], list[Finding]]:
    """The samples of a golden and the runs that are not among them, and what is odd about the runs."""
    repeats: list[Repeat] = []
    findings: list[Finding] = []
    kept = read_samples(samples_path(Path(golden))) if golden is not None else None
    for sampled, one in zip(kept.runs, kept.series, strict=True) if kept else ():
        repeats.append(Repeat(path=sampled.name, reading=Reading(one), sha256=sampled.sha256))
    for path in distinct(runs):
        name = str(path)
        reading = read_run(path, settings)
        if reading.golden is None:
            first = reading.findings[0]
            look = first.next or Command("ls", "-ld", name)
            raise CannotVerify(f"expected a run in {name}, but: {first.message}", next_command=look)
        if not isinstance(reading.golden, Series):
            said = f"expected a series in {name}, found a {reading.golden.shape}; repeats are of curves"
            raise UsageError(said, next_command="karat tolerance --help")
        findings += reading.findings
        sha256 = fingerprint(path)
        if kept and SampledRun(name=path.name, sha256=sha256) in kept.runs:
            message = f"{name} is among the golden's samples already, name and bytes; it was counted once"
            findings.append(info("claimed-twice", message))
        else:
            repeats.append(Repeat(path=name, reading=Reading(reading.golden), sha256=sha256))
    return repeats, findings


def snippet(found: Tolerances) -> str:
    """The rules as they would stand in karat.toml."""
    rules = ["# before all other [[rules]]: of those that match a metric, the first one counts\n"]
    for one in found.metrics:
        # All that decides, zeros too: what a rule leaves out, a preset or a rule behind it fills in.
        # JSON's escapes are TOML's, but for the one character that only TOML forbids.
        metric = json.dumps(escape(one.metric), ensure_ascii=False).replace("\x7f", "\\u007F")
        rules.append(f'[[rules]]\nmetric = {metric}\ncheck = "{one.check}"\n')
        if one.check != "exact":
            rules.append(f"rtol = {one.rtol!r}\natol = {one.atol!r}\n")
        if one.check == "approx":
            rules.append("outliers = 0\noutliers_max = 0\n")
        rules.append("\n" if one is not found.metrics[-1] else "")
    return "".join(rules) if found.metrics else ""


def lines(found: Tolerances) -> Iterator[str]:
    golden = f", golden {found.golden}" if found.golden else ", the first of them the golden"
    yield f"{count(len(found.runs), 'run')}{golden}"
    rows = [("metric", "check", "tolerance", "seen", "alarms", "expected", "catches")]
    for one in found.metrics:
        relative, scale = ("", 1.0) if one.atol else ("%", 100.0)
        exact = one.check == "exact"
        rows.append(
            (
                one.metric,
                one.check,
                "–" if exact else f"±{(one.atol or one.rtol) * scale:.3g}{relative}",
                f"{one.observed * scale:.3g}{relative}",
                f"≤ {one.rate_bound:.1%}",
                f"≤ {one.rate_expected:.1%}",
                "any change" if exact else f"{one.smallest_shift * scale:.3g}{relative}",
            )
        )
    columns = widths(rows)
    for row in rows:
        yield aligned(row, columns, left=len(columns)).rstrip()
    for finding in sorted(found.findings, key=lambda f: f.severity.rank):
        yield f"{finding.severity.value:4}  {finding.kind}: {finding.message}"
    yield ""
    if not found.golden_is_run:
        yield "The golden is none of these runs, but an older one: its rates are estimates, no bounds."
    yield "alarms: of a fresh run, with 95% confidence, whatever the distribution; expected: on average;"
    yield "catches: a change of all steps alike, from every run."
    total = sum(one.rate_expected for one in found.metrics)
    if total >= 1:
        yield "All metrics together may alarm in any run: these repeats are too few to promise less."
    elif total:
        yield f"All metrics together alarm at most once in {1 / total:.3g} runs, on average."
    if len(found.runs) == 2:
        yield "Two runs have one deviation and no spread: their tolerances are twice what was seen, which is a guess."
    if not found.shown:
        needed = runs_needed(found.rate)
        yield f"The asked rate, {found.rate:.2%}, is not shown: that takes {needed:,} runs; there are {len(found.runs)}."


def document(found: Tolerances) -> bytes:
    more: dict[str, Any] = {"rate_shown": found.shown, "runs_needed": runs_needed(found.rate), "toml": snippet(found)}
    return encode_report("karat.tolerance/1", found, **more)
