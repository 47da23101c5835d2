"""A snapshot against its golden: is everything there, then the values; and what a failed test says.

The rules are those of `karat check`: what the call says, then karat.toml, then the golden's repeats, then karat's own.
A snapshot is stricter in two things. What its golden does not know fails it, and so does what is better than before:
whoever looks at a test that passed sees neither.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from glob import escape
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from karat.checks import text
from karat.checks.check import CheckExemptions
from karat.checks.report import Checked, CheckReport, absent
from karat.compare.gate.result import CheckOutcome, Judging, MetricResult
from karat.compare.gate.series import gate_series
from karat.compare.gate.table import gate_table
from karat.compare.gate.values import gate_document
from karat.compare.rules import DEFAULTS, PartialRule, RuleBook
from karat.config import Config
from karat.findings import Finding, Severity, UsageError, fail
from karat.goldens.shapes import Document, Golden, Reading, Series, Table
from karat.report.plot import overlay
from karat.report.words import count, few
from karat.runs.repeats import samples_path
from karat.runs.tolerance import tolerances

RTOL = 1e-4
"""What a number may differ by, where nobody says anything else: what `karat diff` calls noise."""
_GOOD = frozenset({CheckOutcome.PASS, CheckOutcome.EXEMPTED})
_PLOTS, _WIDTH, _HEIGHT = 2, 60, 8


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one snapshot."""

    results: tuple[MetricResult, ...]
    findings: tuple[Finding, ...] = ()

    @property
    def passed(self) -> bool:
        """Something was compared, and nothing objects."""
        good = all(r.outcome in _GOOD or r.outcome is CheckOutcome.INFO for r in self.results)
        evidence = any(r.outcome in _GOOD and r.metric != "(rows)" for r in self.results)
        return good and evidence and not self.failing

    @property
    def failing(self) -> list[Finding]:
        """The findings that fail it by themselves."""
        return [f for f in self.findings if f.severity is Severity.FAIL]

    @property
    def incomplete(self) -> bool:
        """Whether something that the golden has is not there any more."""
        return any(absent(r) and r.outcome not in _GOOD for r in self.results)


def tolerance_of(rtol: float | None, atol: float | None, call: str) -> dict[str, Any]:
    """What a call says about its tolerance, as the fields of a rule; nothing if it says nothing."""
    for name, value in (("rtol", rtol), ("atol", atol)):
        if value is not None and not 0 <= value < np.inf:
            said = f"{call}: {name} must be a number of at least 0, found {value!r}"
            raise UsageError(said, next_command="see docs/snapshots.md")
    if rtol is None and atol is None:
        return {}
    return {"rtol": float(rtol or 0.0), "atol": float(atol or 0.0), "exact": False}


def rules_for(
    config: Config, golden: Path, path: str, said: tuple[dict[str, Any], str], metrics: Sequence[str]
) -> RuleBook:
    """All rules that hold for a snapshot, the most specific first; `said` is what which call says."""
    says, call = said
    own = [PartialRule("*", says, call)] if says else []
    base = RuleBook((*own, *config.rules, *DEFAULTS), config.rule_book().local)
    layers: list[PartialRule] = []
    if not says and samples_path(golden).exists():
        for one in tolerances([], str(golden), rules=base).metrics:
            if one.check != "exact":  # repeats that are equal say nothing of the next machine
                sets = {"rtol": one.rtol, "atol": one.atol}
                layers.append(PartialRule(escape(one.metric), sets, samples_path(golden).name))
    known = {rule.pattern for rule in layers}
    for metric in metrics:
        rule = base.rule_for(metric, path)
        if escape(metric) not in known and rule.mode == "approx" and rule.rtol is None and not rule.atol:
            layers.append(PartialRule(escape(metric), {"rtol": RTOL}, "snapshots"))
    return RuleBook((*own, *config.rules, *layers, *DEFAULTS), base.local)


def names_of(golden: Golden) -> list[str]:
    """What rules may be about in a golden."""
    if isinstance(golden, Series):
        return list(golden.metrics)
    return list(golden.columns) if isinstance(golden, Table) else ["*"]


def judge(golden: Reading, actual: Golden, book: RuleBook, path: str, config: Config) -> Judged:
    """The snapshot held against its golden."""
    expected = golden.golden
    exemptions = CheckExemptions(config.exempt, path, date.today())  # noqa: DTZ011 - the day where the test runs
    judging = Judging(
        book=book,
        path=path,
        shape=actual.shape,
        status=tuple(config.status),
        requests=config.check.requests,
        exempt=exemptions.covering,
    )
    results: list[MetricResult] = []
    findings: list[Finding] = [f for f in golden.findings if f.severity is Severity.FAIL]
    if isinstance(expected, Series) and isinstance(actual, Series):
        results, told = gate_series(expected, actual, judging)
        findings += told
        # Steps that the golden does not have before its last; those behind it are told by the gate.
        for name, metric in expected.metrics.items():
            got = actual.metrics.get(name)
            new = np.setdiff1d(got.steps, metric.steps) if got is not None and len(metric.steps) else metric.steps[:0]
            new = new[new < metric.steps[-1]] if len(new) else new
            if len(new):
                more = f"{count(len(new), 'step')} more: {few(new.tolist(), 5)}"
                findings.append(
                    fail("missing-golden", f"{name}: expected the golden's steps, found {more}", metric=name)
                )
    elif isinstance(expected, Table) and isinstance(actual, Table):
        results, told = gate_table(expected, actual, judging)
        findings += told
    elif isinstance(expected, Document) and isinstance(actual, Document):
        results, told = gate_document(expected.value, actual.value, judging)
        findings += told
    elif expected is not None:
        findings.append(fail("type-changed", f"expected a {expected.shape}, as the golden is, found a {actual.shape}"))
    results = exemptions.apply(results)
    findings += exemptions.findings(results)
    ordered = sorted(results, key=lambda r: (r.outcome in _GOOD, not absent(r), r.outcome.rank, r.metric))
    return Judged(results=tuple(ordered), findings=tuple(findings))


def lines(judged: Judged, golden: str, actual: Golden, expected: Golden | None) -> Iterator[str]:
    """What is wrong, in words and as curves; what is missing stands first."""
    outcome = min((r.outcome for r in judged.results), key=lambda o: o.rank, default=CheckOutcome.FAIL)
    checked = Checked(actual=actual.shape, golden=golden, outcome=outcome, results=judged.results)
    report = CheckReport(checks=(checked,))
    for finding in judged.failing:
        yield f"  {finding.kind}: {finding.message}"
    shown = ["".join(piece for piece, _ in line) for line in text.lines(report)]
    yield from shown[3:]  # without the totals and the name, which the caller has told
    if judged.results and all(r.outcome is CheckOutcome.INFO for r in judged.results):
        yield "  nothing was compared that could have failed: give it an rtol, or a rule in karat.toml"
    if isinstance(expected, Series) and isinstance(actual, Series):
        moved = [r.metric for r in judged.results if r.outcome not in _GOOD and r.outcome is not CheckOutcome.INFO]
        both = [name for name in dict.fromkeys(moved) if name in expected.metrics and name in actual.metrics]
        for name in both[:_PLOTS]:
            drawn, note = overlay(expected.metrics[name], actual.metrics[name], width=_WIDTH, height=_HEIGHT)
            if drawn:
                yield ""
                yield f"  {name}: o golden, x now, * both{note}"
                yield from (f"  {line}" for line in drawn)
