"""Coverage: which gradients have evidence, op × dtype × device × mode × order; as text, JSON and an HTML page.

On the page the table is markup, so that it can be read without scripts; the script only filters. Names of ops, tests
and inputs are hostile: they go through `html.text` and nowhere into the script.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import chain, groupby
from typing import Literal, get_args

import msgspec
from msgspec import structs

from karat.findings import Finding, Severity
from karat.gradients.report import GradVerdict
from karat.policy.evidence import KnownTest, Merged
from karat.policy.exemptions import ByOp, Exemption
from karat.policy.gate.baseline import is_among
from karat.policy.gate.needs import DOUBLE, is_differentiable, same_device
from karat.policy.journal import Evidence
from karat.report import html
from karat.report.json import encode_report
from karat.report.terminal import Line
from karat.report.words import count, cut, elide, printable

CellState = Literal["failed", "missing", "inconclusive", "vacuous", "weak", "exempt", "strong"]  # Gravest first.
RowState = Literal[CellState, "no-float"]
STATES: tuple[CellState, ...] = get_args(CellState)
ROW_STATES: tuple[RowState, ...] = get_args(RowState)
SCHEMA = "karat.policy-coverage/1"
MARKS: dict[CellState, tuple[str, str]] = {
    "strong": ("●", "green"),
    "exempt": ("–", "dim"),
    "weak": ("○", "yellow"),
    "vacuous": ("∅", "yellow"),
    "inconclusive": ("?", "yellow"),
    "missing": ("!", "bold red"),
    "failed": ("✗", "bold red"),
}
_DTYPES = ("complex128", "float64", "complex64", "float32", "bfloat16", "float16")
_SHORT = dict(zip(_DTYPES, ("c128", "f64", "c64", "f32", "bf16", "f16"), strict=True))
_MANY = 60  # Ops up to which each gets a line; above, those without a problem are grouped.
_FINE = frozenset({"exempt", "strong", "no-float"})


class Column(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """One precision on one device, in one mode and order."""

    device: str
    dtype: str
    mode: str = "reverse"
    order: int = 1


class Cell(Column, frozen=True, kw_only=True):
    """What is known of one op in one column: the gravest of its inputs."""

    state: CellState
    inputs: dict[str, CellState]
    comparisons: int = 0
    smallest_error: float | None = None
    """The smallest error of one element that all of its comparisons could have seen."""

    @property
    def column(self) -> Column:
        return Column(device=self.device, dtype=self.dtype, mode=self.mode, order=self.order)


class Row(msgspec.Struct, frozen=True, kw_only=True):
    op: str
    state: RowState  # The gravest of its cells; an op without any has no input that could have a gradient.
    tests: tuple[str, ...]
    cells: tuple[Cell, ...]


class Coverage(msgspec.Struct, frozen=True, kw_only=True):
    journals: int  # Journals that were read.
    sessions: int  # Test sessions that they are of.
    states: dict[RowState, int]  # How many ops are in each state.
    columns: tuple[Column, ...]
    rows: tuple[Row, ...] = msgspec.field(name="ops")
    findings: tuple[Finding, ...] = ()

    @property
    def summary(self) -> tuple[str, str]:
        """`12 ops`, and the rest of the line: `: 10 strong, 2 weak; 3 journals of 1 session`."""
        parts = ", ".join(f"{number:,} {state}" for state, number in self.states.items() if number)
        journals = f"{count(self.journals, 'journal')} of {count(self.sessions, 'session')}"
        return count(len(self.rows), "op"), f"{f': {parts}' if parts else ''}; {journals}"


def coverage(
    merged: Merged,
    *,
    entries: Sequence[Exemption] = (),
    devices: Sequence[str] = (),
    ops: Mapping[str, tuple[str, ...]] | None = None,
    only: Sequence[str] = (),
) -> Coverage:
    """The matrix of all ops with evidence, with op tests, or of the registered namespaces."""
    tests: dict[str, dict[str, KnownTest]] = {}
    for known in merged.tests.values():
        for op in {e.op for e in known.evidence} | {one.op for one in known.declared}:
            tests.setdefault(op, {})[known.test] = known
    seen = frozenset(tests)
    bare = [op for op, others in (ops or {}).items() if not any(is_among(name, seen) for name in (op, *others))]
    wanted = [op for op in (*seen, *bare) if not only or any(fnmatchcase(op, glob) for glob in only)]
    named = ByOp(entries)
    rows = [_row(op, tests.get(op, {}), named.about(op), devices) for op in sorted(wanted)]
    columns = {cell.column for row in rows for cell in row.cells}
    states = Counter(row.state for row in rows)
    return Coverage(
        journals=merged.journals,
        sessions=merged.sessions,
        states={state: states[state] for state in ROW_STATES},
        columns=tuple(sorted(columns, key=_place)),
        rows=tuple(sorted(rows, key=lambda row: ROW_STATES.index(row.state))),
        findings=merged.findings,
    )


def _place(column: Column) -> tuple[object, ...]:
    rank = _DTYPES.index(column.dtype) if column.dtype in _DTYPES else len(_DTYPES)
    return (column.device != "cpu", column.device, rank, column.dtype, column.order, column.mode != "reverse")


def _row(op: str, known: Mapping[str, KnownTest], entries: Sequence[Exemption], devices: Sequence[str]) -> Row:
    tests = sorted(known)
    evidence = [e for one in known.values() for e in one.evidence if e.op == op]
    inputs = (d.inputs.items() for one in known.values() for d in one.declared if d.op == op)
    declared = {name.casefold(): name for name, dtype in chain(*inputs) if is_differentiable(dtype)}
    about = [entry for entry in entries if entry.covers("gradient", op)]

    def without(name: str, column: Column) -> CellState:
        given = None if name == "*" else name
        exempt = any(entry.speaks_of(test, given, column.dtype) for entry in about for test in tests or ("",))
        return "exempt" if exempt else "missing"

    by_column: dict[Column, list[Evidence]] = {}
    for e in evidence:
        column = Column(device=e.device, dtype=e.dtype, mode=e.mode, order=e.order)
        by_column.setdefault(column, []).append(e)
    # What the rule asks for: float64, backwards, on every device that was named, or on any.
    there = [c for c in by_column if c.dtype in DOUBLE and (c.mode, c.order) == ("reverse", 1)]
    asked = set() if devices else set(there[:1]) or {Column(device="cpu", dtype="float64")}
    for device in devices:
        here = {c for c in there if same_device(c.device, device)}
        asked |= here or {Column(device=device, dtype="float64")}
    for column in asked:
        by_column.setdefault(column, [])
    cells = []
    for column, mine in by_column.items():
        expected = declared if column in asked else {}
        names = {e.input.casefold(): e.input for e in mine} | expected
        # The best that is known of each input; a failure outdoes all.
        best: dict[str, CellState] = {}
        for e in mine:
            key, state = e.input.casefold(), _state(e)
            best[key] = max(best.get(key, state), state, key=lambda s: (s == "failed", STATES.index(s)))
        states = {name: best.get(key) or without(name, column) for key, name in sorted(names.items())}
        if not states and column in asked and (declared or not tests):
            states = {"*": without("*", column)}
        if not states:
            continue
        smallest = [e.smallest_error for e in mine if e.counts]
        told = [one for one in smallest if one is not None]
        cells.append(
            Cell(
                **structs.asdict(column),
                state=min(states.values(), key=STATES.index),
                inputs=states,
                comparisons=len(mine),
                smallest_error=max(told) if told and len(told) == len(smallest) else None,
            )
        )
    gravest: RowState = min((cell.state for cell in cells), key=STATES.index, default="no-float")
    return Row(op=op, state=gravest, tests=tuple(tests), cells=tuple(sorted(cells, key=_place)))


def _state(e: Evidence) -> CellState:
    if e.verdict is GradVerdict.FAIL:
        return "failed"
    if e.counts:
        return "strong"
    if e.vacuous:
        return "vacuous"
    return "inconclusive" if e.verdict is GradVerdict.INCONCLUSIVE else "weak"


def document(found: Coverage) -> bytes:
    return encode_report(SCHEMA, found)


def lines(found: Coverage, *, width: int = 100, every: bool = False) -> Iterator[Line]:
    """The matrix, the legend, the summary; `every`: a line per op, however many there are."""
    if found.rows:
        alone = every or len(found.rows) <= _MANY
        names = [printable(row.op) for row in found.rows if alone or row.state not in _FINE]
        room = min(40, max(map(len, names), default=12))
        for number, block in enumerate(_blocks(found.columns, max(8, width - room - 2))):
            if number:
                yield ()
            # A line of devices over a line of precisions.
            devices = ""
            for device, mine in groupby(block, key=lambda column: column.device):
                devices += f" {printable(device)}".ljust(sum(len(block[column]) + 1 for column in mine))
            yield ((" " * room + devices.rstrip(), "dim"),)
            yield (("op".ljust(room), "bold"), ("".join(f" {label}" for label in block.values()), "bold"))
            for rows in _grouped(found.rows, list(block), alone=alone):
                yield _line(rows, block, room=room, width=width)
        yield ()
        there = {cell.state for row in found.rows for cell in row.cells}
        keys = [(MARKS[state], (f" {state}   ", "dim")) for state in reversed(STATES) if state in there]
        yield (*chain(*keys), ("· not required   → forward mode   ² second order", "dim"))
    yield (("".join(found.summary), "bold"),)


def _blocks(columns: Sequence[Column], room: int) -> Iterator[dict[Column, str]]:
    """Columns that fit beside each other, with their labels: together at least as wide as their device's name."""
    labels: dict[Column, str] = {}
    for device, mine in groupby(columns, key=lambda column: column.device):
        each = {}
        for column in mine:  # `f64`, `f64→` forward, `f64²` of second order
            order = {1: "", 2: "²", 3: "³"}.get(column.order, f"^{column.order}")
            mode = "→" if column.mode == "forward" else ""
            each[column] = f"{printable(_SHORT.get(column.dtype, column.dtype))}{order}{mode}"
        lack = len(printable(device)) - len(" ".join(each.values()))
        each[list(each)[-1]] += " " * max(0, lack)
        labels |= each
    block: dict[Column, str] = {}
    for column, label in labels.items():
        if block and sum(len(each) + 1 for each in block.values()) + len(label) + 1 > room:
            yield block
            block = {}
        block[column] = label
    if block:
        yield block


def _grouped(rows: Sequence[Row], columns: Sequence[Column], *, alone: bool) -> Iterator[Sequence[Row]]:
    """Rows that look alike together, where there are many and nothing is wrong with them."""
    single = [row for row in rows if alone or row.state not in _FINE]
    yield from ([row] for row in single)
    groups: dict[tuple[CellState | None, ...], list[Row]] = {}
    for row in rows[len(single) :]:
        cells = {cell.column: cell.state for cell in row.cells}
        groups.setdefault(tuple(cells.get(column) for column in columns), []).append(row)
    yield from groups.values()


def _line(rows: Sequence[Row], block: Mapping[Column, str], *, room: int, width: int) -> Line:
    name = printable(rows[0].op) if len(rows) == 1 else count(len(rows), "op")
    pieces: list[tuple[str, str]] = [(elide(name, room).ljust(room), "")]
    cells = {cell.column: cell.state for cell in rows[0].cells}
    for column, label in block.items():
        cell = cells.get(column)
        mark, style = MARKS[cell] if cell else ("·", "dim")
        pieces.append((f" {mark.center(len(label.rstrip())).ljust(len(label))}", style))
    if len(rows) > 1:
        left = max(12, width - room - sum(len(label) + 1 for label in block.values()) - 2)
        names = ", ".join(printable(row.op) for row in rows)
        pieces.append((f"  {cut(names, left)}", "dim"))
    return tuple(pieces)


def page(found: Coverage, *, title: str = "Gradient coverage") -> str:
    """The page; the same matrix always gives the same bytes."""
    ops, rest = found.summary
    marks = "".join(f'<span class="key {state}"><b>{MARKS[state][0]}</b>{state}</span>' for state in reversed(STATES))
    items = "".join(
        f'<li class="{one.severity.value}"><b>{html.text(one.kind)}</b> {html.text(one.message)}</li>'
        for one in found.findings
        if one.severity is not Severity.INFO
    )
    body = html.fill(
        html.asset("karat.policy", "page/coverage.html"),
        {
            "title": html.text(title),
            "totals": f"<strong>{ops}</strong>{rest}.",
            "findings": f'<ul class="findings">{items}</ul>' if items else "",
            "chips": "".join(
                f'<button type="button" aria-pressed="false" data-state="{state}">{state} {number:,}</button>'
                for state, number in found.states.items()
                if number
            ),
            "head": "".join(_page_head(found.columns)),
            "rows": "\n".join(_page_row(row, found.columns) for row in found.rows),
            "legend": f'{marks}<span class="key"><b>·</b>not required</span>',
        },
    )
    style, script = (html.asset("karat.policy", f"page/coverage.{kind}") for kind in ("css", "js"))
    return html.page(title=title, body=body, style=style, script=script)


def _page_head(columns: Sequence[Column]) -> Iterator[str]:
    yield '<tr><th class="op" rowspan="2" scope="col">op</th>'
    for device, mine in groupby(columns, key=lambda column: column.device):
        yield f'<th class="device" scope="colgroup" colspan="{len(list(mine))}">{html.text(device)}</th>'
    yield "</tr><tr>"
    for column in columns:
        order = {1: "", 2: "second order", 3: "third order"}.get(column.order, f"order {column.order}")
        mode = html.text(", ".join(part for part in (column.mode, order) if part))
        yield f'<th scope="col">{html.text(column.dtype)}<small>{mode}</small></th>'
    yield "</tr>"


def _page_row(row: Row, columns: Sequence[Column]) -> str:
    cells = {cell.column: cell for cell in row.cells}
    tests = html.text(f"{row.op}: {', '.join(row.tests[:8]) or 'no test'}")
    parts = [f'<tr data-state="{row.state}"><th class="op" scope="row" title="{tests}">{html.text(row.op)}</th>']
    last = ""
    for column in columns:
        cell, edge = cells.get(column), " first" if column.device != last else ""
        last = column.device
        if cell is None:
            parts.append('<td class="first"><i>·</i></td>' if edge else "<td><i>·</i></td>")
            continue
        each = ", ".join(f"{name} {state}" for name, state in cell.inputs.items() if name != "*")
        hint = f"{cell.state}: {each or 'no test'} ({count(cell.comparisons, 'comparison')})"
        if cell.smallest_error is not None:
            hint += f"; an error of {cell.smallest_error:.1e} in one element would have been seen"
        mark = f'<b aria-label="{cell.state}">{MARKS[cell.state][0]}</b>'
        parts.append(f'<td class="{cell.state}{edge}" title="{html.text(hint)}">{mark}</td>')
    return "".join([*parts, "</tr>"])
