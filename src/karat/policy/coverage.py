"""Coverage: which gradients have evidence, op × dtype × device × mode × order. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Literal

import msgspec

from karat.findings import Finding
from karat.gradients.report import GradVerdict
from karat.policy.exemptions import ByOp, Exemption
from karat.policy.gate_needs import is_differentiable, same_device
from karat.policy.merging import Merged
from karat.policy.ratchet import is_among
from karat.policy.records import Evidence

CellState = Literal["failed", "missing", "inconclusive", "vacuous", "weak", "exempt", "strong"]
RowState = CellState | Literal["no-float"]
STATES: tuple[CellState, ...] = (
    "failed", "missing", "inconclusive", "vacuous", "weak", "exempt", "strong",
)  # fmt: skip
"""Gravest first."""
ROW_STATES: tuple[RowState, ...] = (*STATES, "no-float")
_DTYPES = ("complex128", "float64", "complex64", "float32", "bfloat16", "float16")


class Column(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """One precision on one device, in one mode and order."""

    device: str
    dtype: str
    mode: str = "reverse"
    order: int = 1


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one op in one column: the gravest of its inputs."""

    column: Column
    state: CellState
    inputs: dict[str, CellState]
    comparisons: int = 0
    smallest_error: float | None = None
    """The smallest error of one element that all of its comparisons could have seen."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One op."""

    op: str
    tests: tuple[str, ...]
    cells: tuple[Cell, ...]

    @property
    def state(self) -> RowState:
        """The gravest of its cells; an op without any has no input that could have a gradient."""
        return min((cell.state for cell in self.cells), key=STATES.index, default="no-float")

    def cell(self, column: Column) -> Cell | None:
        """Its cell in a column; None where nobody asked and nothing was compared."""
        return next((cell for cell in self.cells if cell.column == column), None)


class Coverage(msgspec.Struct, frozen=True, kw_only=True):
    """The matrix."""

    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    journals: int
    sessions: int
    findings: tuple[Finding, ...] = ()

    @property
    def states(self) -> Counter[str]:
        """How many ops are in each state."""
        return Counter(row.state for row in self.rows)


def coverage(
    merged: Merged,
    *,
    entries: Sequence[Exemption] = (),
    devices: Sequence[str] = (),
    ops: Iterable[str] = (),
    aliases: Mapping[str, tuple[str, ...]] | None = None,
    only: Sequence[str] = (),
) -> Coverage:
    """The matrix of all ops with evidence, with op tests, or of the registered namespaces."""
    evidence: dict[str, list[Evidence]] = {}
    inputs: dict[str, dict[str, str]] = {}
    tests: dict[str, set[str]] = {}
    for known in merged.tests.values():
        for e in known.evidence:
            evidence.setdefault(e.op, []).append(e)
            tests.setdefault(e.op, set()).add(known.test)
        for declared in known.declared:
            tests.setdefault(declared.op, set()).add(known.test)
            floats = inputs.setdefault(declared.op, {})
            floats |= {n.casefold(): n for n, d in declared.inputs.items() if is_differentiable(d)}
    seen = frozenset(tests)
    also = aliases or {}
    bare = [op for op in ops if not any(is_among(name, seen) for name in (op, *also.get(op, ())))]
    names = [*seen, *bare]
    wanted = [op for op in names if not only or any(fnmatchcase(op, glob) for glob in only)]
    named = ByOp(entries)
    rows = [
        _row(op, evidence.get(op, []), inputs.get(op, {}), sorted(tests.get(op, ())), named.about(op), devices)
        for op in sorted(wanted)
    ]  # fmt: skip
    columns = {cell.column for row in rows for cell in row.cells}
    return Coverage(
        rows=tuple(sorted(rows, key=lambda row: ROW_STATES.index(row.state))),
        columns=tuple(sorted(columns, key=_place)),
        journals=merged.journals,
        sessions=merged.sessions,
        findings=merged.findings,
    )


def _place(column: Column) -> tuple[object, ...]:
    rank = _DTYPES.index(column.dtype) if column.dtype in _DTYPES else len(_DTYPES)
    return (column.device != "cpu", column.device, rank, column.dtype, column.order, column.mode != "reverse")  # fmt: skip


def _row(
    op: str, evidence: Sequence[Evidence], declared: dict[str, str], tests: Sequence[str],
    entries: Sequence[Exemption], devices: Sequence[str],
) -> Row:  # fmt: skip
    by_column: dict[Column, list[Evidence]] = {}
    for e in evidence:
        column = Column(device=e.device, dtype=e.dtype, mode=e.mode, order=e.order)
        by_column.setdefault(column, []).append(e)
    asked = _asked(by_column, devices)
    for column in asked:
        by_column.setdefault(column, [])
    cells = []
    for column, mine in by_column.items():
        expected = declared if column in asked else {}
        states = dict(_inputs(op, column, mine, expected, tests, entries))
        if not states and column in asked and (declared or not tests):
            states = {"*": _without(op, "*", column, tests, entries)}
        if states:
            cells.append(_cell(column, states, mine))
    return Row(
        op=op, tests=tuple(tests), cells=tuple(sorted(cells, key=lambda c: _place(c.column)))
    )


def _asked(by_column: Iterable[Column], devices: Sequence[str]) -> set[Column]:
    """The columns that the rule asks for: float64, backwards, on every device that was named, or on any."""
    there = [c for c in by_column if c.dtype in {"float64", "complex128"} and (c.mode, c.order) == ("reverse", 1)]  # fmt: skip
    found = set()
    for device in devices:
        mine = [c for c in there if same_device(c.device, device)]
        found |= set(mine) or {Column(device=device, dtype="float64")}
    if not devices:
        found |= set(there[:1]) or {Column(device="cpu", dtype="float64")}
    return found


def _inputs(
    op: str, column: Column, mine: Sequence[Evidence], expected: dict[str, str],
    tests: Sequence[str], entries: Sequence[Exemption],
) -> Iterator[tuple[str, CellState]]:  # fmt: skip
    """Every input of a cell, with the best that is known of it; a failure outdoes all."""
    by_input: dict[str, list[Evidence]] = {}
    names = {e.input.casefold(): e.input for e in mine} | expected
    for e in mine:
        by_input.setdefault(e.input.casefold(), []).append(e)
    for key, name in sorted(names.items()):
        found = [_state(e) for e in by_input.get(key, ())]
        if "failed" in found:
            yield name, "failed"
        elif found:
            yield name, max(found, key=STATES.index)
        else:
            yield name, _without(op, name, column, tests, entries)


def _state(e: Evidence) -> CellState:
    if e.verdict is GradVerdict.FAIL:
        return "failed"
    if e.counts:
        return "strong"
    if e.vacuous:
        return "vacuous"
    return "inconclusive" if e.verdict is GradVerdict.INCONCLUSIVE else "weak"


def _without(
    op: str, name: str, column: Column, tests: Sequence[str], entries: Sequence[Exemption]
) -> CellState:
    for entry in entries:
        about = entry.covers("gradient", op) and any(
            entry.speaks_of(test, None if name == "*" else name, column.dtype) for test in tests or ("",)
        )  # fmt: skip
        if about:
            return "exempt"
    return "missing"


def _cell(column: Column, states: dict[str, CellState], mine: Sequence[Evidence]) -> Cell:
    smallest = [e.smallest_error for e in mine if e.counts]
    known = [one for one in smallest if one is not None]
    return Cell(
        column=column,
        state=min(states.values(), key=STATES.index),
        inputs=states,
        comparisons=len(mine),
        smallest_error=max(known) if known and len(known) == len(smallest) else None,
    )
