"""Numbers and outcomes that are no curve, judged together: the cells of a column, or the leaves of a document.

A column may hold numbers, outcomes, or both (an accuracy, or the reason why there is none), so each cell is judged for
what its golden expects there. Leaves of a document go by a generic name without list positions and numeric keys, so
that `[0].logprobs[17]` and `[1].logprobs[3]` are both `logprobs`. A leaf that the golden has and the result has not is
missing, whether a key is gone or a list is shorter.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from math import isnan
from typing import Any

import msgspec
import numpy as np
from msgspec import structs

from karat.compare.document import as_float, under_key
from karat.compare.gate.result import (
    SHOWN,
    CheckOutcome,
    Deviation,
    Gate,
    Judging,
    MetricResult,
    Value,
    gate,
    median,
    outcome_of,
    relative_error,
    result_of,
    share_used,
    unknown,
    window_of,
)
from karat.compare.rules import Rule, how_changed
from karat.findings import Finding, fail, warn
from karat.goldens.shapes import Values
from karat.report.words import count, few

_LITERALS = frozenset({"null", "true", "false", "{}", "[]"})


class GateCell(msgspec.Struct, frozen=True):
    """What a golden expects at one place, and what is there."""

    place: str
    expected: Value
    got: Value
    margin: float | None = None  # The cell's own relative tolerance.

    @property
    def demanded(self) -> bool:
        """Whether the golden expects something here; empty and NaN expect nothing."""
        if isinstance(self.expected, float):
            return not isnan(self.expected)
        return self.expected is not None


def gate_cells(name: str, cells: Sequence[GateCell], judging: Judging, *, noun: str = "row") -> list[MetricResult]:
    """The results of one column: one for the cells that no exemption covers, one per exemption."""
    rule = judging.rule(name)
    whole = judging.exempt(name, None)
    parts: dict[int | None, list[GateCell]] = {} if cells else {whole: []}
    for cell in cells:
        mine = judging.exempt(name, cell.place)
        parts.setdefault(whole if mine is None else mine, []).append(cell)
    return [_part(name, part, rule, judging.status, noun, exemption) for exemption, part in parts.items()]


def missing_result(
    name: str, rule: Rule, total: int, exemption: int | None, *, noun: str = "step", likely: str | None = None
) -> MetricResult:
    outcome = CheckOutcome.INFO if rule.mode == "off" else CheckOutcome.MISSING_ACTUAL
    found = {"total": total, "failed": total, "missing": total, "likely": likely, "exemption": exemption}
    return result_of(name, rule, outcome, "missing-actual", noun=noun, **found)


def _part(
    name: str, cells: Sequence[GateCell], rule: Rule, status: Sequence[str], noun: str, exemption: int | None
) -> MetricResult:
    if rule.mode == "median":  # rows have no order that a window could mean
        rule = structs.replace(rule, check="approx")
    demanded = [cell for cell in cells if cell.demanded]
    # All cells at once; what is no number on both sides demands nothing there.
    expected, got = _floats(cell.expected for cell in demanded), _floats(cell.got for cell in demanded)
    there = np.array([isinstance(cell.got, float) for cell in demanded], dtype=bool)
    numbers = gate(expected, got, there, rule, _floats(cell.margin for cell in demanded))
    deviations = _deviations(demanded, numbers, status, prefix=rule.mode == "prefix")
    if rule.closed:
        extra = (c for c in cells if not c.demanded and c.got is not None and c.got == c.got)
        deviations += [Deviation(place=cell.place, how="unexpected", got=cell.got) for cell in extra]
    better = [d for d in deviations if d.how == "better"]
    worse = [d for d in deviations if d.how == "worse" and not _is_outcome(d)]
    soft = {id(d) for d in (*better, *worse)}
    hard = [d for d in deviations if id(d) not in soft]  # No allowance covers them.
    lost = [d for d in hard if d.how in {"missing", "not-finite"}]
    missing = sum(d.how == "missing" for d in hard)
    kind = "out-of-tolerance"
    if any(d.how == "worse" for d in hard):
        kind = "status-regressed"
    elif any(isinstance(d.expected, float) for d in hard):
        kind = "type-changed"
    elif hard:
        kind = "status-changed" if noun == "row" else "text-changed"
    absent = "missing-actual" if missing else "new-nan" if lost else ""
    fails = bool(hard) or len(worse) > numbers.allowed
    # An outcome that is better counts at once; a number may be better by chance.
    improves = len(better) > numbers.allowed or any(map(_is_outcome, better))
    outcome, kind = outcome_of(rule.mode, absent, kind, compared=bool(demanded), fails=fails, improves=improves)
    if not demanded and all(cell.expected is None for cell in cells):
        outcome, kind = CheckOutcome.INFO, ""  # an empty column expects nothing; one of NaN was meant to
    objecting = [d for d in deviations if d.how != "better"]
    shown = objecting or better
    return result_of(
        name,
        rule,
        outcome,
        kind,
        noun=noun,
        total=len(demanded),
        compared=len(demanded) - len(lost),
        failed=len(objecting),
        missing=missing,
        broken=sum(d.how == "not-finite" for d in deviations),
        better=len(better),
        allowed=numbers.allowed,
        first=shown[0] if shown else None,
        worst=max(shown, key=_size) if shown else None,
        deviations=(*objecting, *better),
        likely=_likely(hard, missing, len(lost)) if kind else None,
        used=share_used(numbers.error, numbers.tolerance),
        exemption=exemption,
    )


def _is_outcome(deviation: Deviation) -> bool:
    return isinstance(deviation.expected, str)


def _floats(values: Iterable[Value]) -> Values:
    return np.array([value if isinstance(value, float) else np.nan for value in values], dtype=float)


def _deviations(cells: Sequence[GateCell], numbers: Gate, status: Sequence[str], *, prefix: bool) -> list[Deviation]:
    found = []
    for index, cell in enumerate(cells):
        how = _how(cell, numbers, index, status)
        if prefix and isinstance(cell.expected, str) and isinstance(cell.got, str):
            shorter, longer = sorted((cell.expected, cell.got), key=len)
            if shorter and longer.startswith(shorter):  # equal as far as both go, and both go somewhere
                continue
        if how is None:
            continue
        error, target = float(numbers.error[index]), float(numbers.target[index])
        measured = how in {"worse", "better"} and isinstance(cell.expected, float)
        found.append(
            Deviation(
                place=cell.place,
                how=how,
                expected=target if measured else cell.expected,
                got=cell.got,
                error=error if measured else None,
                relative=relative_error(error, target) if measured else None,
                tolerance=float(numbers.tolerance[index]) if measured else None,
            )
        )
    return found


def _how(cell: GateCell, numbers: Gate, index: int, status: Sequence[str]) -> str | None:
    """How the cell deviates; None if it does not."""
    if isinstance(cell.expected, float):
        if numbers.missing[index]:
            return "changed" if isinstance(cell.got, str) else "missing"
        flags = {"not-finite": numbers.broken, "worse": numbers.worse, "better": numbers.better}
        return next((how for how, flag in flags.items() if flag[index]), None)
    if cell.got == cell.expected:
        return None
    if cell.got is None:
        return "missing"
    return "changed" if isinstance(cell.got, float) else how_changed(str(cell.expected), cell.got, status)


def _size(deviation: Deviation) -> float:
    """How far out, for ranking: what has no size is further than all that has."""
    if deviation.error is None:
        return float("inf")
    return abs(deviation.error) / max(deviation.tolerance or 0.0, 1e-300)


def _likely(hard: Sequence[Deviation], missing: int, lost: int) -> str | None:
    """What a person would say of the column, or None; so many of the deviations are of missing values, or none that are finite."""
    if missing:
        return "the test ran and left no value: it crashed half-way, or the column was not filled"
    if lost:
        return "not finite: it diverged, or divided by zero"
    outcomes = Counter(f"{d.got:g}" if isinstance(d.got, float) else str(d.got) for d in hard)
    if outcomes and max(map(len, outcomes)) <= 40:
        word, count = outcomes.most_common(1)[0]
        return f"{count} now {word}" if len(outcomes) == 1 else f"most often now {word} ({count})"
    return None


Leaves = dict[str, tuple[str, Value]]  # Path → generic name and value.


def gate_document(golden: Any, actual: Any, judging: Judging) -> tuple[list[MetricResult], list[Finding]]:
    """Results of every leaf of the golden, by generic name, and of what only the result has."""
    findings: list[Finding] = []
    if judging.requests and isinstance(golden, dict) and isinstance(actual, dict):
        golden, actual, findings = _requests(golden, actual, judging)
    results = gate_leaves(golden, actual, judging)
    got = leaves(actual)
    names = {got[path][0] for path in got.keys() - leaves(golden).keys()}
    if others := sorted(name for name in names if not judging.rule(name).closed):
        results.append(unknown("metric", others))
    return results, findings


def _requests(golden: Any, actual: Any, judging: Judging) -> tuple[Any, Any, list[Finding]]:
    """Both documents with the requests that both have, items side by side; and what there is to say of the others."""
    asked, given = ([key for key in side if fnmatchcase(key, judging.requests)] for side in (golden, actual))
    lost, new = [key for key in asked if key not in actual], [key for key in given if key not in golden]
    findings = []
    if lost:
        what = f"{len(lost)} of {count(len(asked), 'request')} not in the result, only the others were checked: "
        findings.append(warn("missing-actual", what + few(lost, 5), where=lost[0]))
    if new:
        what = f"expected requests that the golden has, found {count(len(new), 'other')}: {few(new, 5)}"
        findings.append(fail("structure-changed", what, where=new[0]))
    gone, added = set(lost), set(new)
    golden = {key: value for key, value in golden.items() if key not in gone}
    actual = {key: value for key, value in actual.items() if key not in added}
    for key in (key for key in asked if key in actual):
        ours, theirs = golden[key], actual[key]
        judged = [n for n in ours if judging.rule(n).mode not in SHOWN] if isinstance(ours, dict) else []
        if not judged:
            what = f"request {key}: expected something to compare, found nothing that a rule judges"
            findings.append(fail("nothing-compared", what, where=key))
        elif isinstance(theirs, dict):
            pairs = {name: _side_by_side(ours, theirs, name, judging.rule(name)) for name in judged if name in theirs}
            golden[key] = {**ours, **{name: pair[0] for name, pair in pairs.items()}}
            actual[key] = {**theirs, **{name: pair[1] for name, pair in pairs.items()}}
    return golden, actual, findings


def _side_by_side(golden: Any, actual: Any, name: str, rule: Rule) -> tuple[Any, Any]:
    """The values of one key of a request, as the rule compares them; what cannot be had so is empty."""
    ours, theirs = golden[name], actual[name]
    if rule.at is not None:
        places = golden.get(rule.at)
        found = isinstance(places, list) and isinstance(theirs, list)
        found = found and all(type(place) is int and 0 <= place < len(theirs) for place in places)
        theirs = [theirs[place] for place in places] if found else None
    return (_in_order(ours), _in_order(theirs)) if rule.unordered else (ours, theirs)


def _in_order(value: Any, depth: int = 8) -> Any:
    """The same lists with the innermost ones sorted, down to a depth that no tensor has."""
    if not isinstance(value, list) or not depth:
        return value
    if all(isinstance(item, int | float) for item in value):
        return sorted(value)
    return [_in_order(item, depth - 1) for item in value]


def gate_leaves(golden: Any, actual: Any, judging: Judging) -> list[MetricResult]:
    """Results of every leaf of the golden, by generic name."""
    expected, got = leaves(golden), leaves(actual)
    columns: dict[str, list[GateCell]] = {}
    for path, (name, value) in expected.items():
        columns.setdefault(name, []).append(GateCell(path, value, got.get(path, (name, None))[1]))
    for path, (name, value) in got.items():
        if path not in expected and name in columns:
            columns[name].append(GateCell(path, None, value))
    results = []
    for name, cells in columns.items():
        rule = judging.rule(name)
        chosen = list(_medians(cells, rule)) if rule.mode == "median" else cells
        results += gate_cells(name, chosen, judging, noun="place")
    return results


def _medians(cells: Sequence[GateCell], rule: Rule) -> Iterator[GateCell]:
    """Of each list one cell with the medians of both sides over the rule's window; what is in no list, as it is."""
    lists: dict[str, list[GateCell]] = {}
    for cell in cells:
        if cell.place[-2:-1].isdecimal():  # a position; a key in brackets stands in quotes
            lists.setdefault(cell.place.rpartition("[")[0], []).append(cell)
        else:
            yield cell
    for place, items in lists.items():
        middles = []
        for side in ([i.expected for i in items if i.demanded], [i.got for i in items if i.got is not None]):
            first, last = window_of(np.arange(len(side)), rule)
            middles.append(median(_floats(side)[first : last + 1]))
        yield GateCell(f"median of {place}", *middles)


def leaves(value: Any) -> Leaves:
    """Every leaf of a JSON value by its path; an empty list or object is a leaf, too."""
    found: Leaves = {}
    stack: list[tuple[Any, tuple[str, str]]] = [(value, ("$", ""))]
    while stack:
        item, at = stack.pop()
        path, name = at
        if isinstance(item, dict) and item:
            stack.extend((child, under_key(at, key)) for key, child in reversed(item.items()))
        elif isinstance(item, list) and item:
            stack.extend((item[i], (f"{path}[{i}]", name)) for i in range(len(item) - 1, -1, -1))
        else:
            value = json.dumps(item) if item is None or isinstance(item, bool | dict | list) else item
            if isinstance(item, str):
                # The field writes "nan" for "no sample"; as a leaf it stands where a number does.
                value = float("nan") if item == "nan" else (f'"{item}"' if item in _LITERALS else item)
            found[path] = (name or "value", value if isinstance(value, str) else as_float(value))
    return found
