"""Pairs of readings → changes: the front door of this room.

In: pairs (`Pair`) and a rule book. Out: one `Change` per pair, in order. Callers hand over many
pairs at a time, because the curves of all of them are scored in one go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from karat.compare.change import Change, MetricChange, Verdict
from karat.compare.numbers import CurveNumbers, score
from karat.compare.rules import STATUS_ORDER, RuleBook
from karat.compare.series import judge_alone, judge_series, pairs_of
from karat.findings import UNVERIFIED, Finding, Severity, fail, info, warn
from karat.goldens.shapes import Golden, Reading, Series, Table
from karat.report.words import count


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenPair:
    """One golden's two readings; None where a side does not have it."""

    path: str
    old: Reading | None
    new: Reading | None
    identity: Mapping[str, str] = field(default_factory=dict)
    same_bytes: bool = False

    def change(self, verdict: Verdict, findings: Iterable[Finding], of: Reading | None = None, **more: Any) -> Change:
        """What became of it, gravest findings first; `of` is the reading whose shape it has."""
        placed = [f if f.path else replace(f, path=self.path) for f in findings]
        told, shape = (
            tuple(sorted(placed, key=lambda f: f.severity.rank)),
            of.golden.shape if of and of.golden else None,
        )
        return Change(path=self.path, verdict=verdict, shape=shape, findings=told, identity=self.identity, **more)


def compare(
    pair: GoldenPair, rules: RuleBook | None = None, *, status: Sequence[str] = STATUS_ORDER, keep_curves: bool = False
) -> Change:
    return compare_many([pair], rules, status=status, keep_curves=keep_curves)[0]


def compare_many(
    pairs: Sequence[GoldenPair],
    rules: RuleBook | None = None,
    *,
    status: Sequence[str] = STATUS_ORDER,
    keep_curves: bool = False,
) -> list[Change]:
    """The changes of many goldens, in order; with `keep_curves`, rows carry what a plot needs."""
    book = rules or RuleBook()
    curves = [list(pairs_of(*_both_series(pair), book, pair.path)) for pair in pairs]
    numbers = iter(score([triple for triples in curves for triple in triples], curves=True))
    changes = []
    for pair, triples in zip(pairs, curves, strict=True):
        scored = [next(numbers) for _ in triples]
        change = _change(pair, scored, book, status)
        if keep_curves:
            old, new = _both_series(pair)
            # Series lend their own curves; numbers that are no curve brought theirs along.
            before, after = old.metrics.get, new.metrics.get
            rows = (replace(r, old=before(r.metric, r.old), new=after(r.metric, r.new)) for r in change.metrics)
            change = replace(change, metrics=tuple(rows))
        elif any(row.old is not None for row in change.metrics):
            change = replace(change, metrics=tuple(replace(row, old=None, new=None) for row in change.metrics))
        if pair.old and (pair.old.golden is None or _is_empty(pair.old.golden)):
            change = replace(change, restorable=False)
        changes.append(change)
    return changes


_NOTHING = Series({})


def _both_series(pair: GoldenPair) -> tuple[Series, Series]:
    """The two series of a pair; two empty ones where a side is none."""
    old, new = (side.golden if side else None for side in (pair.old, pair.new))
    return (old, new) if isinstance(old, Series) and isinstance(new, Series) else (_NOTHING, _NOTHING)


def _change(pair: GoldenPair, numbers: list[CurveNumbers], rules: RuleBook, status: Sequence[str]) -> Change:
    old, new = pair.old, pair.new
    if new is None:
        return pair.change(Verdict.REMOVED, [fail("removed-golden", "the golden is gone from the new side")], old)
    if new.golden is None:
        return _unreadable(pair, new.findings, "new")
    nothing = old and old.golden and old.golden.shape != new.golden.shape and _is_empty(old.golden)
    if old is None or nothing:
        note = info("new-golden", "a new golden: there is no old side to compare with")
        if nothing:
            note = warn("no-baseline", "the old golden holds nothing; the new one is taken without a comparison")
        change = _without_comparison(pair, new, Verdict.NEW, note)
        failed = change.severity is Severity.FAIL
        return replace(change, verdict=Verdict.INCOMPLETE) if failed else change
    if any(f.kind in UNVERIFIED for f in old.findings):
        return _unreadable(pair, old.findings, "old")
    if old.golden is None:
        why = old.findings[0].message if old.findings else "it cannot be read"
        message = f"the old golden is unreadable ({why}); the new one is taken without a comparison"
        return _without_comparison(pair, new, Verdict.UNREADABLE, warn("no-baseline", message))
    rows, findings = _compare_goldens(old.golden, new.golden, numbers, rules, pair.path, status)
    # Defects that only the old side has are repaired now, so info; those of both are told once.
    still = {(f.kind, f.where) for f in new.findings}
    gone = (f for f in old.findings if (f.kind, f.where) not in still)
    repaired = [replace(f, severity=Severity.INFO, message=f"in the old golden only: {f.message}") for f in gone]
    findings = [*_became_text(old.findings, new.findings), *repaired, *findings]
    both = {old.golden.shape, new.golden.shape}
    if _is_empty(old.golden) and _is_empty(new.golden):
        if not any(f.kind == "empty" for f in findings):
            findings.append(fail("empty", "neither side holds a value, so nothing was compared"))
    # Two series always have evidence to show, though placeholders alone make no row.
    elif ((rows and new.golden.shape != "document") or both == {"series"}) and not any(
        r.n_steps or r.bit_equal or r.verdict is not Verdict.INCOMPLETE or r.steps_lost or r.nan_gained for r in rows
    ):
        findings.append(fail("nothing-compared", "no value is finite on both sides, so nothing was compared"))
    verdict = verdict_of(rows, findings)
    untold = {f.kind for f in findings} <= _AT_MOST_NOISE - {"format-only"}
    if verdict is Verdict.SAME and untold and not pair.same_bytes:
        findings.append(info("format-only", "the bytes changed (layout, key order or placeholders), no value did"))
    return pair.change(verdict, findings, new, metrics=tuple(rows), same_bytes=pair.same_bytes)


def _became_text(old: Sequence[Finding], new: Sequence[Finding]) -> Sequence[Finding]:
    """The new side's findings; that numbers became text is one, and nobody does it on purpose."""
    text = [f for f in new if f.kind == "number-as-text"]
    if not text or any(f.kind == "number-as-text" for f in old):
        return new
    n = sum(int(f.numbers.get("more") or 1) for f in text)
    message = f"{count(n, 'number')} became text; {text[0].message}"
    found = replace(text[0], severity=Severity.FAIL, message=message, numbers={"places": n})
    return [found, *(f for f in new if f.kind != "number-as-text")]


def _is_empty(golden: Golden) -> bool:
    if isinstance(golden, Series):
        return not (golden.metrics or golden.scalars or golden.others)
    if isinstance(golden, Table):
        return not golden.rows
    return golden.value in ({}, [], None, "")


def _compare_goldens(
    old: Golden, new: Golden, numbers: list[CurveNumbers], rules: RuleBook, path: str, status: Sequence[str]
) -> tuple[list[MetricChange], list[Finding]]:
    if isinstance(old, Series) and isinstance(new, Series):
        return judge_series(old, new, numbers, rules, path)
    if isinstance(old, Table) and isinstance(new, Table):
        from karat.compare.table import compare_table

        return compare_table(old, new, rules, path, status)
    if old.shape == new.shape == "document":
        from karat.compare.document import compare_structure

        return compare_structure(old.value, new.value, rules, path)  # type: ignore[union-attr]
    return [], [fail("type-changed", f"was a {old.shape}, is a {new.shape} now; the two cannot be compared")]


_AT_MOST_NOISE = frozenset(
    {"dropped-placeholders", "format-only", "moved-golden", "no-usable-steps", "non-finite-literal", "truncated"}
)
_DRIFTS = frozenset({"gained-rows", "gained-metric", "gained-steps", "structure-changed"})


def verdict_of(rows: Sequence[MetricChange], findings: Sequence[Finding]) -> Verdict:
    """The verdict on a golden: the gravest of its rows' and what its findings imply."""
    verdicts = [row.verdict for row in rows]
    for finding in findings:
        if finding.severity is Severity.FAIL:
            incomplete = finding.condemns == "incomplete"
            verdicts.append(Verdict.INCOMPLETE if incomplete else Verdict.BREAK)
        elif finding.kind in _DRIFTS or (finding.severity is Severity.WARN and finding.kind not in _AT_MOST_NOISE):
            verdicts.append(Verdict.DRIFT)
    # One added metric does not make the whole golden new.
    verdicts = [Verdict.DRIFT if v is Verdict.NEW else v for v in verdicts]
    return min(verdicts, key=lambda v: v.rank, default=Verdict.SAME)


def _unreadable(pair: GoldenPair, findings: Sequence[Finding], side: str) -> Change:
    found = findings or [fail("unreadable", f"the {side} side cannot be read")]
    return pair.change(Verdict.UNREADABLE, found, has_baseline=pair.old is not None)


def _without_comparison(pair: GoldenPair, new: Reading, verdict: Verdict, note: Finding) -> Change:
    """A golden that was compared with nothing; what can be said of it alone is said."""
    alone = judge_alone(new.golden) if isinstance(new.golden, Series) else []
    return pair.change(verdict, [*new.findings, *alone, note], new, has_baseline=False)
