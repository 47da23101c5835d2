"""Golden × result, any JSON: leaves by path; numbers under one generic name are one metric.

List positions and numeric keys are left out of the generic name, so that `[0].logprobs[17]` and
`[1].logprobs[3]` are both `logprobs`. A leaf that the golden has and the result has not is missing,
whether a key is gone or a list is shorter.
"""

from __future__ import annotations

import json
from typing import Any

from karat.compare.gate_cells import Cell, gate_cells
from karat.compare.gate_judging import Judging
from karat.compare.gate_result import MetricResult, Value, unknown

_LITERALS = frozenset({"null", "true", "false", "{}", "[]"})
Leaves = dict[str, tuple[str, Value]]
"""Path → generic name and value."""


def gate_document(golden: Any, actual: Any, judging: Judging) -> list[MetricResult]:
    """Results of every leaf of the golden, by generic name, and of what only the result has."""
    results = gate_leaves(golden, actual, judging)
    got = leaves(actual)
    names = sorted({got[path][0] for path in got.keys() - leaves(golden).keys()})
    if names:
        results.append(unknown("metric", names))
    return results


def gate_leaves(golden: Any, actual: Any, judging: Judging) -> list[MetricResult]:
    """Results of every leaf of the golden, by generic name."""
    expected, got = leaves(golden), leaves(actual)
    columns: dict[str, list[Cell]] = {}
    for path, (name, value) in expected.items():
        columns.setdefault(name, []).append(Cell(path, value, got.get(path, (name, None))[1]))
    return [
        result
        for name, cells in columns.items()
        for result in gate_cells(name, cells, judging, noun="place")
    ]


def leaves(value: Any) -> Leaves:
    """Every leaf of a JSON value by its path; an empty list or object is a leaf, too."""
    found: Leaves = {}
    stack: list[tuple[Any, str, str]] = [(value, "$", "")]
    while stack:
        item, path, name = stack.pop()
        if isinstance(item, dict) and item:
            stack.extend(
                (child, path + _step(key), _generic(name, key))
                for key, child in reversed(item.items())
            )
        elif isinstance(item, list) and item:
            last = len(item) - 1
            stack.extend((item[i], f"{path}[{i}]", name) for i in range(last, -1, -1))
        else:
            found[path] = (name or "value", _leaf(item))
    return found


def _step(key: str) -> str:
    # Escaped, so that no key can look like the path of two others.
    return f".{key}" if key.isidentifier() else f"[{json.dumps(key, ensure_ascii=False)}]"


def _generic(name: str, key: str) -> str:
    # Request ids and steps are positions that happen to be written as keys.
    if key.isdecimal():
        return name
    return f"{name}.{key}" if name else key


def _text(value: str) -> str:
    """A text as it is; in quotes where it would read like a value that is none."""
    return f'"{value}"' if value in _LITERALS else value


def _leaf(value: Any) -> Value:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict | list):
        return "{}" if isinstance(value, dict) else "[]"
    if isinstance(value, str):
        # The field writes "nan" for "no sample"; as a leaf it stands where a number does.
        return float("nan") if value == "nan" else _text(value)
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
