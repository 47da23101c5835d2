"""Rules: which thresholds judge which metric, and where they came from.

A rule is partial: it names a metric pattern and only what it wants to change. For each metric, the
first matching rule that sets a field wins; the user's rules stand before the preset's, the preset's
before the defaults below. So a project overrides one threshold without repeating the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from math import inf
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta, structs

from karat.findings import Severity

_Size: TypeAlias = Annotated[float, Meta(ge=0)]
_Finite: TypeAlias = Annotated[float, Meta(ge=0, le=1e300)]
"""Of a tolerance without an end, everything would be inside."""
_Bound: TypeAlias = Annotated[float, Meta(ge=-1e300, le=1e300)]
_Step: TypeAlias = Annotated[int, Meta(ge=0)]
Check: TypeAlias = Literal["exact", "approx", "median", "at-most", "at-least", "range", "prefix", "info", "off"]
"""The ways of `karat check`; `at-most` and `at-least` object to one direction only, `info` to what is missing only."""


class Thresholds(msgspec.Struct, frozen=True, kw_only=True):
    """What a rule can say of a metric. Relative differences are (old − new) / old."""

    noise: _Size = 1e-4  # |avg| below this is run-to-run noise, if nothing else objects.
    drift_avg: _Size = 1e-3
    drift_mean: _Size = 1e-3
    drift_max: _Size = 1e-2  # At or above: drift. Signed mean, mean |·| and max |·|; the last two overrule the first.
    break_avg: _Size = 5e-2
    break_mean: _Size = 5e-2
    break_max: _Size = 1e-1  # At or above: break.
    rtol: _Finite | None = None
    atol: _Finite = 0.0  # The suite's own tolerance, |old − new| ≤ atol + rtol·|old|; reported as a ratio.
    steady: bool = False  # Judge the ratio of medians after warm-up instead of single steps (timings jitter).
    warm_up: Annotated[float, Meta(ge=0, lt=1)] = 0.3  # Share of the leading steps that `steady` leaves out.
    missing: _Finite = 0  # Samples of a curve that may be missing without an objection; they are still told.
    exact: bool = False  # Any difference is drift (counts, token ids): relative size says nothing about them.
    better: Literal["lower", "higher"] | None = None
    """If no value moved the other way, drift is one severity less grave."""
    worst: Severity = Severity.FAIL
    """Drift of this metric is never graver than this; what is missing is not a matter of taste."""
    family: str | None = None  # Metrics that move together; groups are made per family.
    margin_column: str | None = None  # Tables: the column that holds this column's own relative tolerance.
    tolerance: bool = False  # Tables: this column *is* a tolerance; a larger value is a widened one.
    check: Check | None = None  # How `karat check` judges it; None: by what the other fields say.
    outliers: _Finite = 0  # Values out of tolerance that `karat check` always allows.
    outlier_share: Annotated[float, Meta(ge=0, lt=0.5)] = 0.0
    """The share of all values that may be out of tolerance, where that is more."""
    outliers_max: _Size = inf  # Never more than so many of them, however long the run.
    required: bool = False  # Series: the golden must have this metric, whose name is no glob.
    closed: bool = False
    """A value where the golden has none (a step without a sample, an item behind a list's end) is out of tolerance."""
    improved_from: _Size | None = None
    """The relative size from which a move in the better direction is `improved`; None: from the tolerance on."""
    window: tuple[_Step, _Step] | None = None
    """First and last step of the median, in a list its positions; None: all steps after warm-up."""
    short_steps: _Size = 0
    short_window: tuple[_Step, _Step] | None = None
    """The window of a golden whose last sample is at most step `short_steps`."""
    unordered: bool = False  # Requests of a document: the order within the innermost lists does not matter.
    at: str | None = None
    """Requests of a document: the key beside it that says which items of the result's list the golden has."""
    min: _Bound | None = None
    max: _Bound | None = None  # `range`: values must lie between these, whatever the golden's values are.


class Rule(Thresholds, frozen=True, kw_only=True, dict=True):
    """The rule that judges a metric."""

    pattern: str = "*"  # The pattern of the gravest rule that shaped this one; printed with the verdict.
    origin: str = "default"

    @cached_property
    def mode(self) -> str:
        """How `karat check` judges the metric.

        Without `check`, what else the rule says decides: exact stays exact, a window means its median, and
        a timing is only shown unless the rule gives it a tolerance.
        """
        if self.check is not None:
            return self.check
        if self.exact:
            return "exact"
        if self.window is not None or self.short_window is not None:
            return "median"
        if self.steady:
            return "info" if self.rtol is None else "median"
        # A tolerance that nothing can exceed would pass everything and call it evidence.
        return "info" if self.rtol is None and self.drift_size == inf else "approx"

    @property
    def drift_size(self) -> float:
        """The size of a single difference from which `karat diff` speaks of drift."""
        return self.drift_avg if self.steady else min(self.drift_max, self.break_max)

    def for_single_values(self) -> Rule:
        """The same rule for numbers that are no curve: rows and leaves have no warm-up."""
        if not self.steady:
            return self
        limit = self.drift_avg
        return structs.replace(self, steady=False, drift_mean=limit, drift_max=limit)


FIELDS = frozenset(Thresholds.__struct_fields__)


class PartialRule(msgspec.Struct, frozen=True):
    """What one entry of a configuration says: a pattern, and the fields it sets."""

    pattern: str
    sets: Mapping[str, Any]
    origin: str = "default"
    path: str = "*"
    shape: str = "*"


_NO_BREAK = dict.fromkeys(("break_avg", "break_mean", "break_max"), inf)
_ONLY_AVG = {**dict.fromkeys(("drift_mean", "drift_max"), inf), **_NO_BREAK}
_JITTER = {"steady": True, "noise": 0.05, "drift_avg": 0.2, "worst": Severity.WARN, "family": "timing"}
_TIMING: Mapping[str, Any] = {**_JITTER, **_ONLY_AVG}
_EXPECTED = {"margin_column": "noise_margin", "noise": 1e-3, "better": "lower", "worst": Severity.WARN}
_COUNT = {"exact": True, "better": "lower", "worst": Severity.WARN}

DEFAULTS: tuple[PartialRule, ...] = (
    # The seed: "focus on lm loss and num-zeros rows with |avg| >= 1e-3"; single steps of num-zeros
    # jitter by several percent, so the mean and max have to say more before they object.
    PartialRule(
        "num-zeros", {"drift_mean": 5e-2, "drift_max": 5e-2, "break_avg": 0.5, "break_mean": inf, "break_max": inf}
    ),
    # The seed: mem-* rows sit at 0 or below 1e-6; flag what lands above [1e-4, 1e-3).
    PartialRule("mem-*", {"break_avg": 0.2, "break_mean": 0.2, "break_max": 0.5, "family": "memory"}),
    # The seed: warm-up and scheduler noise; never a correctness problem of its own.
    # Suites leave out the first step after a resume.
    PartialRule("iteration-time", {**_TIMING, "missing": 1}),
    PartialRule("iteration_timing_avg", _TIMING),
    PartialRule("*latency*", _TIMING),
    PartialRule("*throughput*", {**_TIMING, "family": "throughput"}),
    PartialRule("*speedup*", {**_TIMING, "family": "throughput"}),
    PartialRule("ttft", _TIMING),
    PartialRule("tpot", _TIMING),
    PartialRule("*loss*", {"family": "loss"}),
    PartialRule("*tokens*", {"exact": True, "worst": Severity.WARN, "family": "tokens"}),
    PartialRule("graph_breaks", _COUNT),
    PartialRule("*_count", _COUNT),
    PartialRule(
        "expected", {**_EXPECTED, **_NO_BREAK, **dict.fromkeys(("drift_avg", "drift_mean", "drift_max"), 1e-2)}
    ),
    PartialRule("noise_margin", {"tolerance": True, "worst": Severity.WARN}),
)


# fmt: off
STATUS_ORDER: tuple[str, ...] = (
    "pass", "pass_due_to_skip", "fail_accuracy", "infra_error", "model_fail_to_load", "eager_fail_to_run",
    "eager_two_runs_differ", "eager_1st_run_OOM", "eager_2nd_run_OOM", "OOM", "timeout", "fail_to_run",
    "fail_to_crash",
)
"""Outcomes of the dynamo suites, best first; a project's own order is `status` in karat.toml."""
# fmt: on


def how_changed(before: str, after: str, status: Sequence[str]) -> str:
    """Whether one outcome instead of another is `better`, `worse` or just `changed`; `*` stands for all not named."""
    order = {outcome: rank for rank, outcome in enumerate(status)}
    one, other = (order.get(outcome, order.get("*")) for outcome in (before, after))
    if not before or one is None or other is None or one == other:
        return "changed"
    return "worse" if other > one else "better"


@dataclass(frozen=True, slots=True)
class RuleBook:
    """All rules in force, most specific first."""

    rules: Sequence[PartialRule] = DEFAULTS
    local: Callable[[str], Mapping[str, Sequence[PartialRule]]] | None = None
    """Path of a golden → metric → what the golden's own suite says of it: more than the preset, less than the user."""
    by_path: bool = field(init=False, default=False)
    _cache: dict[tuple[object, ...], Rule] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        # Most books do not look at paths; theirs need one answer per metric, not one per file.
        object.__setattr__(self, "by_path", any(rule.path != "*" for rule in self.rules))

    @classmethod
    def of(cls, *layers: Iterable[PartialRule]) -> RuleBook:
        """A book of the given layers, the most specific first, with the defaults underneath."""
        return cls(tuple(rule for layer in (*layers, DEFAULTS) for rule in layer))

    def rule_for(self, metric: str, path: str = "", shape: str = "*") -> Rule:
        """The rule that judges this metric of this file; of a golden of any shape, the first that fits one."""
        return self._merged(metric, path, shape, ())

    def gate_rule_for(self, metric: str, path: str = "", shape: str = "*") -> Rule:
        """The same as the suite's own gate has it: with what the suite says of this very golden."""
        if self.local is None:
            return self.rule_for(metric, path, shape)
        said = self.local(path)
        named = said.get(metric) or said.get(metric.rsplit(".", 1)[-1]) or ()
        own = [rule for rule in named if "*" in {shape, rule.shape} or shape == rule.shape]
        rule = self._merged(metric, path, shape, own)
        # Files that say the same share a rule, but each has its own origin.
        at = int(rule.origin.removeprefix(_LOCAL)) if rule.origin.startswith(_LOCAL) else None
        return rule if at is None else structs.replace(rule, origin=own[at].origin)

    def _merged(self, metric: str, path: str, shape: str, local: Sequence[PartialRule]) -> Rule:
        key = (metric, path if self.by_path else "", shape, *(tuple(rule.sets.items()) for rule in local))
        if (found := self._cache.get(key)) is not None:
            return found
        # A document's metric is a path such as `0.logprobs`; rules may name its last element.
        names = {metric, metric.rsplit(".", 1)[-1]}
        fitting = [
            rule
            for rule in self.rules
            if ("*" in {shape, rule.shape} or shape == rule.shape)
            and fnmatchcase(path, rule.path)
            and any(fnmatchcase(name, rule.pattern) for name in names)
        ]
        users = [rule for rule in fitting if not rule.origin.startswith(("preset ", "default"))]
        marked = [structs.replace(rule, origin=f"{_LOCAL}{n}") for n, rule in enumerate(local)]
        merged: dict[str, Any] = {}
        for rule in (*users, *marked, *(rule for rule in fitting if rule not in users)):
            if not merged:
                merged = {"pattern": rule.pattern, "origin": rule.origin}
            # Whoever states a tolerance wants it judged, whatever a rule below says of metrics without one.
            judged = rule.sets.get("check") == "off" and not _TOLERANCES.isdisjoint(merged)
            merged = {**rule.sets, **({"check": None} if judged else {}), **merged}
        found = self._cache[key] = Rule(**merged)
        return found


class RuleTable(Thresholds, frozen=True, kw_only=True):
    """One entry of [[rules]]: a rule for each metric it names."""

    metric: str | Annotated[tuple[str, ...], Meta(min_length=1)]
    path: str = "*"
    shape: Literal["series", "table", "document", "*"] = "*"

    def __post_init__(self) -> None:
        """Refuse keys that only one way of checking reads: beside another they would be ignored in silence."""
        bounds = [bound for bound in (self.min, self.max) if bound is not None]
        if bounds and self.check != "range":
            raise ValueError('expected check = "range" beside min and max')
        if self.check == "range" and not bounds:
            raise ValueError('expected min or max beside check = "range"')
        if bounds != sorted(bounds):
            raise ValueError(f"expected min up to max, found {self.min:g} and {self.max:g}")
        for window in filter(None, (self.window, self.short_window)):
            if self.check not in {None, "median"}:
                raise ValueError('expected check = "median" beside a window')
            if window[0] > window[1]:
                raise ValueError(f"expected a window from its first step to its last, found {[*window]}")

    def partial_rules(self, given: Iterable[str], origin: str) -> list[PartialRule]:
        """A rule for each metric, of what was given."""
        sets = {key: getattr(self, key) for key in given if key in FIELDS}
        globs = (self.metric,) if isinstance(self.metric, str) else self.metric
        return [PartialRule(glob, sets, origin, self.path, self.shape) for glob in globs]


_LOCAL = "suite rule "  # Stands for the origin of a rule of the suite's, by its number.
_TOLERANCES = frozenset({"rtol", "atol", "exact", "window", "short_window", "margin_column"})
