"""Old × new JSON values → rows and findings, by structure; numbers with tolerance.

Numbers under one generic path (`logprobs`; list positions and numeric keys left out) make one metric,
scored by the same arithmetic as a curve. Everything else is compared exactly. The walk keeps its own stack,
so that nesting costs no recursion, and findings of one kind at one generic path are one finding.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec

from karat.compare.change import MOVES, MetricChange
from karat.compare.judge import ValueSample, judge_values
from karat.compare.rules import RuleBook
from karat.findings import Finding, Severity
from karat.report.words import count, few

_KEYS_SHOWN = 5
_BEGINNING = 0.1  # Share of a request's tokens: one that differs within them answers something else.


class _Differences(msgspec.Struct):
    """The numbers of both sides by generic path, and all other differences, each kind once per generic path."""

    samples: dict[str, ValueSample] = {}
    notes: dict[tuple[str, Severity, str, str], tuple[str, str, int]] = {}
    """Kind, severity, generic path and what is different → the first place, what is to say of it, and how many there are."""
    sequences: set[str] = set()  # Generic paths of token ids that differ.

    def note(self, kind: str, severity: Severity, at: tuple[str, str], what: str, details: str = "") -> None:
        """Remember a difference; the first of its kind at a generic path lends its details."""
        key = (kind, severity, at[1], what)
        first, message, places = self.notes.get(key, (at[0], f"{at[0]}: {what}{details}", 0))
        self.notes[key] = first, message, places + 1

    def noted(self) -> Iterator[Finding]:
        for (kind, severity, name, _), (first, message, places) in self.notes.items():
            more = f" (and {count(places - 1, 'more place')})" if places > 1 else ""
            told, numbers = message + more, {"places": places}
            yield Finding(kind=kind, severity=severity, metric=name or None, where=first, message=told, numbers=numbers)


def under_key(at: tuple[str, str], key: str) -> tuple[str, str]:
    """The exact path of what stands under a key, and its generic name, in which positions do not count."""
    path, name = at
    # Escaped, so that no key can look like the path of two others.
    path += f".{key}" if key.isidentifier() else f"[{json.dumps(key, ensure_ascii=False)}]"
    # Request ids and steps are positions that happen to be written as keys.
    if key.isdecimal():
        return path, name
    return path, f"{name}.{key}" if name else key


def as_float(value: Any) -> float:
    """A number as a float; one that is too large for it is infinite."""
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


_TYPES = {type(None): "null", bool: "true/false", int: "number", float: "number", str: "text", list: "list"}


def _type(value: Any) -> str:
    # The field writes "nan" for "no sample"; as a leaf it stands where a number does.
    return "number" if value == "nan" else _TYPES.get(type(value), "object")


def compare_structure(old: Any, new: Any, rules: RuleBook, path: str) -> tuple[list[MetricChange], list[Finding]]:
    """Rows and findings of two JSON values."""
    found = _Differences()
    stack = [(old, new, ("$", ""))]
    while stack:
        a, b, at = stack.pop()
        kind, other = _type(a), _type(b)
        if kind != other:
            severity = Severity.WARN if kind == "null" else Severity.FAIL
            found.note("type-changed", severity, at, f"was {kind}, is {other}")
        elif kind == "object":
            if lost := sorted(a.keys() - b.keys()):
                found.note("structure-changed", Severity.FAIL, at, "keys are gone: ", few(lost, _KEYS_SHOWN))
            if gained := sorted(b.keys() - a.keys()):
                found.note("structure-changed", Severity.INFO, at, "keys are new: ", few(gained, _KEYS_SHOWN))
            stack += [(a[key], b[key], under_key(at, key)) for key in reversed([*a]) if key in b]
        elif kind == "list":
            if at[1] and rules.rule_for(at[1], path).exact and (changed := _tokens(a, b)) is not None:
                found.note("tokens-changed", changed[0], at, "tokens differ", changed[1])
                found.sequences.add(at[1])
            if len(a) != len(b):
                severity, word = (Severity.FAIL, "shorter") if len(b) < len(a) else (Severity.WARN, "longer")
                found.note("structure-changed", severity, at, f"list {word}", f": {len(a)} → {len(b)} items")
            last = min(len(a), len(b)) - 1
            stack += [(a[i], b[i], (f"{at[0]}[{i}]", at[1])) for i in range(last, -1, -1)]
        elif kind == "number":
            name, before, after = at[1] or "value", as_float(a), as_float(b)
            found.samples.setdefault(name, ValueSample(name)).add(before, after, at[0])
            if before == after and a != b and isinstance(a, int) and isinstance(b, int):
                details = f" beyond a float's precision: {a} → {b}"
                found.note("value-drift", Severity.WARN, at, "integers differ", details)
        elif kind == "text" and a != b:
            same = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
            details = f" from character {same} on ({_cut(a, same)} → {_cut(b, same)})"
            found.note("text-changed", Severity.WARN, at, "text changed", details)
        elif a != b:
            found.note("value-drift", Severity.WARN, at, f"was {str(a).lower()}, is {str(b).lower()}")
    rows, findings = [], [*found.noted()]
    for row, more in judge_values(list(found.samples.values()), rules, path):
        rows.append(row)
        # How far the numbers of tokens moved means nothing; which is the first to differ is said.
        findings += [f for f in more if f.kind not in MOVES or row.metric not in found.sequences]
    return rows, findings


def _tokens(old: list[Any], new: list[Any]) -> tuple[Severity, str] | None:
    """How grave it is that two lists of token ids differ, and where they do; None if they do not, or are none."""
    if old == new or not all(type(token) is int for token in (*old, *new)):
        return None
    shorter = min(len(old), len(new))
    same = [a == b for a, b in zip(old, new, strict=False)]
    prefix = same.index(False) if False in same else shorter
    details = f" from token {prefix} on: {prefix} of {len(old)} are the common prefix"
    if prefix < shorter:
        details += f", then {old[prefix]} → {new[prefix]}; {sum(same)} of {len(old)} are where they were"
    # Numerics may tip one choice, and all that follows with it; not the first one, and all others.
    rewritten = prefix < _BEGINNING * shorter and sum(same) < shorter / 2
    return Severity.FAIL if rewritten else Severity.WARN, details


def _cut(text: str, at: int) -> str:
    piece = text[at : at + 24]
    return repr(piece + ("…" if len(text) > at + 24 else ""))
