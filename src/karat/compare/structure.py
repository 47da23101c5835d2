"""Old × new JSON values → rows and findings, by structure; numbers with tolerance.

Numbers under one generic path (`0.logprobs`, list positions left out) make one metric, scored by
the same arithmetic as a curve. Everything else is compared exactly. The walk keeps its own stack,
so that nesting costs no recursion, and findings of one kind at one generic path are one finding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from msgspec.structs import replace

from karat.compare.change import MetricChange, Verdict
from karat.compare.judge import capped, drift_finding, judge, metric_change
from karat.compare.numbers import score
from karat.compare.rules import RuleBook
from karat.findings import Finding, Severity
from karat.goldens.shapes import Metric


@dataclass(slots=True)
class _Numbers:
    """The number pairs at one generic path, and where each stands."""

    old: list[float] = field(default_factory=list)
    new: list[float] = field(default_factory=list)
    where: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Notes:
    """Occurrences of one kind of difference at one generic path."""

    severity: Severity
    first: str
    message: str
    count: int = 1


@dataclass(slots=True)
class _Walk:
    numbers: dict[str, _Numbers] = field(default_factory=dict)
    notes: dict[tuple[str, str, str], _Notes] = field(default_factory=dict)

    def note(self, kind: str, severity: Severity, at: _At, message: str) -> None:
        key = (kind, at.name, message.split(":", 1)[0])
        if key in self.notes:
            self.notes[key].count += 1
        else:
            self.notes[key] = _Notes(severity, at.path, message)


@dataclass(frozen=True, slots=True)
class _At:
    path: str = "$"
    name: str = ""

    def key(self, key: str) -> _At:
        step = f".{key}" if key.isidentifier() else f'["{key}"]'
        return _At(self.path + step, f"{self.name}.{key}" if self.name else key)

    def item(self, index: int) -> _At:
        return _At(f"{self.path}[{index}]", self.name)


def _type(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true/false"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        # The field writes "nan" for "no sample"; as a leaf it stands where a number does.
        return "number" if value == "nan" else "text"
    return "list" if isinstance(value, list) else "object"


def compare_structure(
    old: Any, new: Any, rules: RuleBook, path: str
) -> tuple[list[MetricChange], list[Finding]]:
    """Rows and findings of two JSON values."""
    walk = _Walk()
    stack = [(old, new, _At())]
    while stack:
        a, b, at = stack.pop()
        kind, other = _type(a), _type(b)
        if kind != other:
            _type_changed(walk, kind, other, at)
        elif kind == "object":
            _objects(walk, a, b, at, stack)
        elif kind == "list":
            _lists(walk, a, b, at, stack)
        elif kind == "number":
            _number(walk, a, b, at)
        elif a != b:
            _leaf(walk, kind, a, b, at)
    findings = [_finding(kind, name, notes) for (kind, name, _), notes in walk.notes.items()]
    rows, drifts = _rows(walk, rules, path)
    return rows, [*findings, *drifts]


def _type_changed(walk: _Walk, kind: str, other: str, at: _At) -> None:
    severity = Severity.WARN if kind == "null" else Severity.FAIL
    walk.note("type-changed", severity, at, f"type changed: was {kind}, is {other}")


def _objects(
    walk: _Walk, a: Mapping[str, Any], b: Mapping[str, Any], at: _At, stack: list[Any]
) -> None:
    for key in sorted(a.keys() - b.keys()):
        walk.note(
            "structure-changed",
            Severity.FAIL,
            at.key(key),
            "key lost: it stood in the old document",
        )
    for key in sorted(b.keys() - a.keys()):
        walk.note(
            "structure-changed", Severity.INFO, at.key(key), "key gained: the old document has none"
        )
    stack.extend((a[key], b[key], at.key(key)) for key in reversed([*a]) if key in b)


def _lists(walk: _Walk, a: list[Any], b: list[Any], at: _At, stack: list[Any]) -> None:
    if len(a) != len(b):
        severity = Severity.FAIL if len(b) < len(a) else Severity.WARN
        word = "list shorter" if len(b) < len(a) else "list longer"
        walk.note("structure-changed", severity, at, f"{word}: {len(a)} → {len(b)} items")
    last = min(len(a), len(b)) - 1
    stack.extend((a[i], b[i], at.item(i)) for i in range(last, -1, -1))


def _number(walk: _Walk, a: Any, b: Any, at: _At) -> None:
    pairs = walk.numbers.setdefault(at.name or "value", _Numbers())
    pairs.old.append(_float(a))
    pairs.new.append(_float(b))
    pairs.where.append(at.path)


def _float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _leaf(walk: _Walk, kind: str, a: Any, b: Any, at: _At) -> None:
    if kind == "text":
        same = next(
            (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
        )
        walk.note(
            "text-changed",
            Severity.WARN,
            at,
            f"text changed: from character {same} on ({_cut(a, same)} → {_cut(b, same)})",
        )
    else:
        walk.note("value-drift", Severity.WARN, at, f"value changed: {a} → {b}")


def _cut(text: str, at: int) -> str:
    piece = text[at : at + 24]
    return repr(piece + ("…" if len(text) > at + 24 else ""))


def _finding(kind: str, name: str, notes: _Notes) -> Finding:
    more = f" (and {notes.count - 1} more places)" if notes.count > 1 else ""
    return Finding(
        kind=kind,
        severity=notes.severity,
        metric=name or None,
        where=notes.first,
        message=f"{notes.first}: {notes.message}{more}",
        numbers={"places": notes.count},
    )


def _rows(walk: _Walk, rules: RuleBook, path: str) -> tuple[list[MetricChange], list[Finding]]:
    rows: list[MetricChange] = []
    findings: list[Finding] = []
    names = list(walk.numbers)
    chosen = [rules.rule_for(name, path) for name in names]
    curves = [_curves(walk.numbers[name]) for name in names]
    scored = score([(old, new, rule) for (old, new), rule in zip(curves, chosen, strict=True)])
    for name, rule, n in zip(names, chosen, scored, strict=True):
        judgement = judge(n, rule)
        row = metric_change(name, n, rule, judgement)
        where = walk.numbers[name].where
        row = replace(
            row,
            max_step=None if row.max_step is None else where[int(row.max_step)],
            first_diff_step=None
            if row.first_diff_step is None
            else where[int(row.first_diff_step)],
        )
        if n.nan_gained and n.first_nan_step is not None:
            row = replace(row, verdict=Verdict.INCOMPLETE, because=f"{n.nan_gained} new NaN")
            at = where[n.first_nan_step]
            findings.append(
                Finding(
                    kind="new-nan",
                    severity=capped(Severity.FAIL, rule),
                    metric=name,
                    where=at,
                    message=f"{name}: {n.nan_gained} number(s) are not finite any more, first at {at}",
                )
            )
        if row.verdict is Verdict.INCOMPLETE and not n.nan_gained:
            findings.append(
                Finding(
                    kind="no-usable-steps",
                    severity=Severity.WARN,
                    metric=name,
                    message=f"{name}: no number could be compared (NaN on both sides, or zero)",
                )
            )
        drift = drift_finding(row, judgement)
        rows.append(row)
        findings.extend([drift] if drift else [])
    return rows, findings


def _curves(pairs: _Numbers) -> tuple[Metric, Metric]:
    steps = np.arange(len(pairs.old), dtype=np.int64)
    return Metric(steps, np.array(pairs.old)), Metric(steps, np.array(pairs.new))
