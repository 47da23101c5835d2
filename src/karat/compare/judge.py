"""From numbers to a verdict: which threshold was crossed, and how grave that is.

Every verdict carries the sentence that names the number, the threshold and the rule, so that a person can disagree
with the threshold rather than with karat. Numbers that are no curve (cells of a column, leaves of a document, values
beside curves) all come here as samples, so that a NaN, a zero or a lost value means the same wherever it stands.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf, isfinite

import msgspec
import numpy as np

from karat.compare.change import Explanation, MetricChange, Numbers, Verdict
from karat.compare.numbers import CurveNumbers, score
from karat.compare.rules import Rule, RuleBook
from karat.findings import Finding, Severity, fail, info, warn
from karat.goldens.shapes import Metric
from karat.report.words import count


class MetricJudgement(msgspec.Struct, frozen=True, gc=False):
    """A verdict on one metric, why, and how grave it is (None: nothing to report)."""

    verdict: Verdict
    because: str
    severity: Severity | None = None


def capped(severity: Severity, rule: Rule) -> Severity:
    """The severity, but never graver than the rule's worst."""
    return max(severity, rule.worst, key=lambda s: s.rank)


def judge(n: CurveNumbers, rule: Rule) -> MetricJudgement:
    """The verdict on two curves that are complete; completeness is judged elsewhere, and first."""
    if n.n_shared == n.bit_equal + n.both_missing:
        if not n.bit_equal:
            return MetricJudgement(Verdict.INCOMPLETE, "no shared step has a finite value on both sides")
        return MetricJudgement(Verdict.SAME, f"all {n.bit_equal} shared values are bit-equal")
    if rule.exact:
        differ = n.n_shared - n.bit_equal - n.both_missing
        because = f"{differ} of {n.n_shared} differ; this metric is exact [rule {rule.pattern}, {rule.origin}]"
        return MetricJudgement(Verdict.DRIFT, because, capped(_kinder(Severity.WARN, n, rule), rule))
    judgement = _steady(n, rule) if rule.steady else _by_thresholds(n, rule)
    if n.odd_changed and judgement.verdict.rank > Verdict.DRIFT.rank:
        because = f"{count(n.odd_changed, 'value')} not finite on either side, and not alike"
        return MetricJudgement(Verdict.DRIFT, because, Severity.WARN)
    return judgement


def _reason(name: str, value: float, threshold: str, limit: float, rule: Rule, sign: str = "≥") -> str:
    return f"{name} {value:.3g} {sign} {threshold} {limit:.3g} [rule {rule.pattern}, {rule.origin}]"


def _by_thresholds(n: CurveNumbers, rule: Rule) -> MetricJudgement:
    if n.avg_rel_diff is None or n.mean_abs_rel_diff is None or n.max_abs_rel_diff is None:
        if n.from_zero:
            return _left_zero(n, rule)
        if n.zeros:
            return MetricJudgement(Verdict.NOISE, "every value is zero, or nearly, on both sides")
        return MetricJudgement(Verdict.INCOMPLETE, "no shared step has two usable values")
    for word, verdict, severity in (("break", Verdict.BREAK, Severity.FAIL), ("drift", Verdict.DRIFT, Severity.WARN)):
        for name, statistic, value in _sizes(n):
            limit = getattr(rule, f"{word}_{statistic}")
            # "Not below" rather than "above", so that a NaN could never pass as small.
            if not value < limit:
                because = _reason(name, value, f"{word}_{statistic}", limit, rule)
                return MetricJudgement(verdict, because, capped(_kinder(severity, n, rule), rule))
    avg = abs(n.avg_rel_diff)
    if n.from_zero:
        return _left_zero(n, rule)
    if not avg < rule.noise:
        return MetricJudgement(Verdict.DRIFT, _reason("|avg|", avg, "noise", rule.noise, rule), Severity.INFO)
    return MetricJudgement(Verdict.NOISE, _reason("|avg|", avg, "noise", rule.noise, rule, "<"))


def _sizes(n: CurveNumbers) -> Iterator[tuple[str, str, float]]:
    """What thresholds are about: the name, the field of a rule that limits it, and how large it is."""
    if n.steady_rel_diff is None:
        yield "mean |rel|", "mean", n.mean_abs_rel_diff or 0.0
    yield "|avg|", "avg", abs((n.avg_rel_diff if n.steady_rel_diff is None else n.steady_rel_diff) or 0.0)
    if n.steady_rel_diff is None:
        yield "max |rel|", "max", n.max_abs_rel_diff or 0.0


def _kinder(severity: Severity, n: CurveNumbers, rule: Rule) -> Severity:
    """One step less grave for a move in the direction the rule calls better; it is still reported."""
    if rule.better is None or (n.raised if rule.better == "lower" else n.lowered):
        return severity  # one value that moved the wrong way is enough
    return Severity.WARN if severity is Severity.FAIL else Severity.INFO


def _left_zero(n: CurveNumbers, rule: Rule) -> MetricJudgement:
    """Values that were zero have no relative difference, but they have a size."""
    because = f"{count(n.from_zero, 'value')} left zero, where no relative difference exists"
    if isfinite(rule.break_max) and not n.from_zero_size < rule.break_max:
        return MetricJudgement(Verdict.BREAK, because, capped(Severity.FAIL, rule))
    small = n.from_zero_size < rule.drift_max
    return MetricJudgement(Verdict.DRIFT, because, Severity.INFO if small else capped(Severity.WARN, rule))


def _steady(n: CurveNumbers, rule: Rule) -> MetricJudgement:
    if n.steady_rel_diff is None:
        return _by_thresholds(n, rule)
    value = abs(n.steady_rel_diff)
    tail = f"; mean change {'–' if n.change is None else f'{n.change:+.3g}'}"
    moved = "median after warm-up moved"
    if not value < rule.drift_avg:
        because = _reason(moved, value, "drift_avg", rule.drift_avg, rule)
        return MetricJudgement(Verdict.DRIFT, because + tail, capped(Severity.WARN, rule))
    if not value < rule.noise:
        return MetricJudgement(Verdict.DRIFT, _reason(moved, value, "noise", rule.noise, rule) + tail, Severity.INFO)
    return MetricJudgement(Verdict.NOISE, _reason(moved, value, "noise", rule.noise, rule, "<") + tail)


def explained(judgement: MetricJudgement, explanation: Explanation, rule: Rule) -> MetricJudgement:
    """The judgement with what is to say of how the curve moved; what no run does is a break, however small it is."""
    if not explanation.wrong:
        return MetricJudgement(judgement.verdict, f"{judgement.because}; {explanation}", judgement.severity)
    # How far a metric may drift is a matter of rules; what became of its digits is not.
    severity = capped(Severity.FAIL, rule) if explanation.kind == "late-drift" else Severity.FAIL
    verdict = Verdict.BREAK if severity is Severity.FAIL else judgement.verdict
    return MetricJudgement(verdict, f"{explanation}; {judgement.because}", severity)


def drift_finding(m: MetricChange, judgement: MetricJudgement) -> Finding | None:
    """The finding that a judged metric moved, if it deserves one: `value-drift`, or of the kind that explains it."""
    if judgement.severity is None:
        return None
    which = {"up": " (new is larger)", "down": " (new is smaller)"}.get(m.direction, "")
    name = "avg" if m.steady_rel_diff is None else "median after warm-up"
    value = m.movement
    moved = f"moved{which}"
    if value is not None and isfinite(value):
        moved = f"{name} {value:+.2e}{which}" if value else f"{name} 0{which}"
    at = ""
    if m.max_step is not None and m.max_abs_rel_diff:
        at = f", max |rel| {m.max_abs_rel_diff:.3g} at {m.max_step} ({m.max_old:.6g} → {m.max_new:.6g})"
    tolerance = ""
    if m.tolerance_ratio is not None and m.tolerance_ratio > 1:
        tolerance = f", {m.tolerance_ratio:.1f}× the suite's own tolerance"
    parts, kind = [f"{moved}{at}{tolerance}", judgement.because], "value-drift"
    if m.explanation is not None and m.explanation.wrong:
        parts, kind = parts[::-1], m.explanation.kind
    message = f"{m.metric}: {'; '.join(parts)}"
    numbers = {"avg_rel_diff": m.avg_rel_diff, "max_abs_rel_diff": m.max_abs_rel_diff}
    return Finding(kind=kind, severity=judgement.severity, metric=m.metric, message=message, numbers=numbers)


def metric_change(
    name: str, n: CurveNumbers, rule: Rule, judgement: MetricJudgement, *, curve: bool = False
) -> MetricChange:
    """Numbers and judgement as one row of the report; `curve` for a row of the seed's CSV."""
    ratio = None
    if judgement.verdict is not Verdict.SAME and n.n_shared:
        # The largest number as a multiple of its threshold: of break where it broke, else of drift.
        word, ratio = "break" if judgement.verdict is Verdict.BREAK else "drift", 0.0
        for _, statistic, value in _sizes(n):
            limit = getattr(rule, f"{word}_{statistic}")
            size = max(value, n.from_zero_size) if statistic == "max" else value
            if size > ratio * limit:
                ratio = size / limit if limit else inf
    return MetricChange(
        in_csv=curve and n.n_steps > 0,
        metric=name,
        verdict=judgement.verdict,
        because=judgement.because,
        threshold_ratio=ratio,
        rule=rule.pattern,
        **{field: getattr(n, field) for field in Numbers.__struct_fields__},
    )


def truly(  # noqa: PLR0913 - what a rule is found by
    n: CurveNumbers, old: Metric, new: Metric, rules: RuleBook, name: str, path: str, *, shape: str
) -> CurveNumbers:
    """The numbers; what is said to be beyond the suite's own tolerance is so by the very rule of its gate, or not at all."""
    if n.tolerance_ratio is None or not n.tolerance_ratio > 1:
        return n
    from karat.compare.gate.result import times_tolerance  # few are beyond

    rule = rules.gate_rule_for(name, path, shape)
    return msgspec.structs.replace(n, tolerance_ratio=times_tolerance(old, new, rule))


class ValueSample(msgspec.Struct):
    """Pairs of numbers that belong together, and where each pair stands."""

    name: str
    old: list[float] = msgspec.field(default_factory=list)
    new: list[float] = msgspec.field(default_factory=list)
    where: list[str] = msgspec.field(default_factory=list)

    def add(self, old: float, new: float, where: str) -> None:
        self.old.append(old)
        self.new.append(new)
        self.where.append(where)


def judge_values(
    samples: Sequence[ValueSample], rules: RuleBook, path: str, shape: str = "document"
) -> list[tuple[MetricChange, list[Finding]]]:
    """The row and findings of every sample, in order."""
    chosen = [rules.rule_for(sample.name, path, shape).for_single_values() for sample in samples]
    steps = [np.arange(len(sample.old), dtype=np.int64) for sample in samples]
    curves = [
        (Metric(index, np.array(sample.old, float)), Metric(index, np.array(sample.new, float)))
        for sample, index in zip(samples, steps, strict=True)
    ]
    scored = score([(*pair, rule) for pair, rule in zip(curves, chosen, strict=True)])
    judged = []
    for sample, (old, new), rule, plain in zip(samples, curves, chosen, scored, strict=True):
        n = truly(plain, old, new, rules, sample.name, path, shape=shape)
        if n is not plain and len({place.rpartition("[")[0] for place in sample.where}) > 1 and rule.window:
            n = msgspec.structs.replace(n, tolerance_ratio=None)  # a median of each list, which is not known here
        judgement = judge(n, rule)
        explanation = None
        if judgement.verdict is not Verdict.SAME and n.decimals_new is not None:
            from karat.compare.explain import exactly  # few have moved

            explanation = exactly(old.steps, old.values, new.values, (n.decimals_old, n.decimals_new), noun="place")
        if explanation is not None:
            judgement = explained(judgement, explanation, rule)
        shown = judgement
        if n.nan_gained:
            shown = MetricJudgement(Verdict.INCOMPLETE, f"{count(n.nan_gained, 'number')} became NaN or infinite")
        row = metric_change(sample.name, n, rule, shown)
        row = msgspec.structs.replace(
            row,
            explanation=explanation,
            max_step=None if n.max_step is None else sample.where[int(n.max_step)],
            first_diff_step=None if n.first_diff_step is None else sample.where[int(n.first_diff_step)],
            old=old,
            new=new,
        )
        name, found = sample.name, []
        if n.nan_gained and n.first_nan_step is not None:
            at = sample.where[n.first_nan_step]
            more = f" and {n.nan_gained - 1} more" if n.nan_gained > 1 else ""
            message = f"{name}: {count(n.nan_gained, 'number')} became NaN or infinite: {at}{more}"
            found.append(fail("new-nan", message, metric=name, where=at))
        if n.nan_lost:
            found.append(info("gained-steps", f"{name}: {count(n.nan_lost, 'number')} became finite", metric=name))
        if not n.n_steps and not n.zeros:
            message = f"{name}: no number is finite on both sides, so nothing was compared"
            found.append(warn("no-usable-steps", message, metric=name))
        if (moved := drift_finding(row, judgement)) is not None:
            found.append(moved)
        judged.append((row, found))
    return judged
