"""Old × new JSON values → rows and findings, by structure; numbers with tolerance.

Numbers under one generic path (`logprobs`; list positions and numeric keys left out) make one metric,
scored by the same arithmetic as a curve. Everything else is compared exactly. The walk keeps its own stack,
so that nesting costs no recursion, and findings of one kind at one generic path are one finding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from karat.compare.change import MetricChange
from karat.compare.judge import ValueSample, judge_values
from karat.compare.rules import RuleBook
from karat.findings import Finding, Severity
from karat.report.words import count, few

_KEYS_SHOWN = 5


@dataclass(slots=True)
class _Notes:
    """Occurrences of one kind of difference at one generic path."""

    first: str
    message: str
    count: int = 1


@dataclass(slots=True)
class _Walk:
    samples: dict[str, ValueSample] = field(default_factory=dict)
    notes: dict[tuple[str, Severity, str, str], _Notes] = field(default_factory=dict)

    def note(self, kind: str, severity: Severity, at: _At, what: str, details: str = "") -> None:
        """Remember a difference; the first of its kind at a generic path lends its details."""
        key = (kind, severity, at.name, what)
        if key in self.notes:
            self.notes[key].count += 1
        else:
            self.notes[key] = _Notes(at.path, f"{what}{details}")


@dataclass(frozen=True, slots=True)
class _At:
    """A place: its exact path, and its generic name, in which positions do not count."""

    path: str = "$"
    name: str = ""

    def key(self, key: str) -> _At:
        step = f".{key}" if key.isidentifier() else f'["{key}"]'
        # Request ids and steps are positions that happen to be written as keys.
        if key.isdecimal():
            return _At(self.path + step, self.name)
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


def compare_structure(old: Any, new: Any, rules: RuleBook, path: str) -> tuple[list[MetricChange], list[Finding]]:
    """Rows and findings of two JSON values."""
    walk = _Walk()
    stack = [(old, new, _At())]
    while stack:
        a, b, at = stack.pop()
        kind, other = _type(a), _type(b)
        if kind != other:
            severity = Severity.WARN if kind == "null" else Severity.FAIL
            walk.note("type-changed", severity, at, f"was {kind}, is {other}")
        elif kind == "object":
            _objects(walk, a, b, at, stack)
        elif kind == "list":
            _lists(walk, a, b, at, stack)
        elif kind == "number":
            _number(walk, a, b, at)
        elif a != b:
            if kind == "text":
                same = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
                details = f" from character {same} on ({_cut(a, same)} → {_cut(b, same)})"
                walk.note("text-changed", Severity.WARN, at, "text changed", details)
            else:
                walk.note("value-drift", Severity.WARN, at, f"was {str(a).lower()}, is {str(b).lower()}")
    rows: list[MetricChange] = []
    findings = [_finding(*key[:3], notes) for key, notes in walk.notes.items()]
    for row, found in judge_values(list(walk.samples.values()), rules, path):
        rows.append(row)
        findings.extend(found)
    return rows, findings


def _objects(walk: _Walk, a: Mapping[str, Any], b: Mapping[str, Any], at: _At, stack: list[Any]) -> None:
    lost, gained = sorted(a.keys() - b.keys()), sorted(b.keys() - a.keys())
    if lost:
        walk.note("structure-changed", Severity.FAIL, at, "keys are gone: ", few(lost, _KEYS_SHOWN))
    if gained:
        walk.note("structure-changed", Severity.INFO, at, "keys are new: ", few(gained, _KEYS_SHOWN))
    stack.extend((a[key], b[key], at.key(key)) for key in reversed([*a]) if key in b)


def _lists(walk: _Walk, a: list[Any], b: list[Any], at: _At, stack: list[Any]) -> None:
    if len(a) != len(b):
        severity = Severity.FAIL if len(b) < len(a) else Severity.WARN
        word = "list shorter" if len(b) < len(a) else "list longer"
        walk.note("structure-changed", severity, at, word, f": {len(a)} → {len(b)} items")
    last = min(len(a), len(b)) - 1
    stack.extend((a[i], b[i], at.item(i)) for i in range(last, -1, -1))


def _number(walk: _Walk, a: Any, b: Any, at: _At) -> None:
    name = at.name or "value"
    old, new = _float(a), _float(b)
    walk.samples.setdefault(name, ValueSample(name)).add(old, new, at.path)
    if old == new and a != b and isinstance(a, int) and isinstance(b, int):
        walk.note("value-drift", Severity.WARN, at, "integers differ", f" beyond a float's precision: {a} → {b}")


def _float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _cut(text: str, at: int) -> str:
    piece = text[at : at + 24]
    return repr(piece + ("…" if len(text) > at + 24 else ""))


def _finding(kind: str, severity: Severity, name: str, notes: _Notes) -> Finding:
    more = f" (and {count(notes.count - 1, 'more place')})" if notes.count > 1 else ""
    return Finding(
        kind=kind,
        severity=severity,
        metric=name or None,
        where=notes.first,
        message=f"{notes.first}: {notes.message}{more}",
        numbers={"places": notes.count},
    )
