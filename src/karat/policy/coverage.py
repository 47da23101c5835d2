"""Coverage: which gradients have evidence, op × dtype × device × mode × order; as text, JSON and an HTML page.

On the page all is markup, so that it can be read without scripts; the script only filters. Names of ops, tests
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
from karat.policy.gate.needs import DOUBLE, is_differentiable, same_device
from karat.policy.journal import Evidence
from karat.report import html
from karat.report.terminal import Line
from karat.report.words import count, elide, printable

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
_MANY = 60  # Ops up to which each gets a line; above, those with a problem do.
_FINE = frozenset({"exempt", "strong", "no-float"})
_TONES = {
    **dict.fromkeys(("failed", "missing"), "grave"),
    **dict.fromkeys(("inconclusive", "vacuous", "weak"), "warn"),
    "exempt": "info",
    "strong": "good",
}


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
    merged: Merged, *, entries: Sequence[Exemption] = (), devices: Sequence[str] = (), only: Sequence[str] = ()
) -> Coverage:
    """The matrix of all ops with evidence or with op tests."""
    tests: dict[str, dict[str, KnownTest]] = {}
    for known in merged.tests.values():
        for op in {e.op for e in known.evidence} | {one.op for one in known.declared}:
            tests.setdefault(op, {})[known.test] = known
    wanted = [op for op in tests if not only or any(fnmatchcase(op, glob) for glob in only)]
    named = ByOp(entries)
    rows = [_row(op, tests[op], named.about(op), devices) for op in sorted(wanted)]
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
        states: dict[str, CellState] = {}
        for key, name in sorted(names.items()):
            exempt = any(entry.speaks_of(test, name, column.dtype) for entry in about for test in tests)
            states[name] = best.get(key, "exempt" if exempt else "missing")
        if not states:
            continue
        gravest = min(states.values(), key=STATES.index)
        cells.append(Cell(**structs.asdict(column), state=gravest, inputs=states, comparisons=len(mine)))
    gravest_cell: RowState = min((cell.state for cell in cells), key=STATES.index, default="no-float")
    return Row(op=op, state=gravest_cell, tests=tuple(tests), cells=tuple(sorted(cells, key=_place)))


def _state(e: Evidence) -> CellState:
    if e.verdict is GradVerdict.FAIL:
        return "failed"
    if e.counts:
        return "strong"
    if e.vacuous:
        return "vacuous"
    return "inconclusive" if e.verdict is GradVerdict.INCONCLUSIVE else "weak"


def lines(found: Coverage, *, every: bool = False) -> Iterator[Line]:
    """The matrix, the legend, the summary; `every`: a line per op, however many there are."""
    rows = [row for row in found.rows if every or len(found.rows) <= _MANY or row.state not in _FINE]
    if rows:
        room = min(40, max(len(printable(row.op)) for row in rows))
        labels: dict[Column, str] = {}
        devices = ""
        for device, mine in groupby(found.columns, key=lambda column: column.device):
            # `f64`, `f64→` forward, `f64²` of second order; together at least as wide as their device's name.
            each = {}
            for column in mine:
                order = {1: "", 2: "²", 3: "³"}.get(column.order, f"^{column.order}")
                mode = "→" if column.mode == "forward" else ""
                each[column] = f"{printable(_SHORT.get(column.dtype, column.dtype))}{order}{mode}"
            lack = len(printable(device)) - len(" ".join(each.values()))
            each[list(each)[-1]] += " " * max(0, lack)
            labels |= each
            devices += f" {printable(device)}".ljust(sum(len(label) + 1 for label in each.values()))
        yield ((" " * room + devices.rstrip(), "dim"),)
        yield (("op".ljust(room), "bold"), ("".join(f" {label}" for label in labels.values()), "bold"))
        for row in rows:
            pieces: list[tuple[str, str]] = [(elide(printable(row.op), room).ljust(room), "")]
            cells = {cell.column: cell.state for cell in row.cells}
            for column, label in labels.items():
                mark, style = MARKS[cells[column]] if column in cells else ("·", "dim")
                pieces.append((f" {mark.center(len(label.rstrip())).ljust(len(label))}", style))
            yield tuple(pieces)
        yield ()
        there = {cell.state for row in rows for cell in row.cells}
        keys = [(MARKS[state], (f" {state}   ", "dim")) for state in reversed(STATES) if state in there]
        yield (*chain(*keys), ("· not required   → forward mode   ² second order", "dim"))
    if left := len(found.rows) - len(rows):
        yield ((f"{count(left, 'op')} without a problem not shown (--all shows them)", "dim"),)
    yield (("".join(found.summary), "bold"),)


def page(found: Coverage, *, title: str = "Gradient coverage") -> str:
    """The page; the same matrix always gives the same bytes."""
    answer = "".join(found.summary)
    heads = ['<tr><th class="op" rowspan="2" scope="col">op</th>']
    for device, mine in groupby(found.columns, key=lambda column: column.device):
        heads.append(f'<th class="device" scope="colgroup" colspan="{len(list(mine))}">{html.text(device)}</th>')
    heads.append("</tr><tr>")
    for column in found.columns:
        order = {1: "", 2: "second order", 3: "third order"}.get(column.order, f"order {column.order}")
        mode = html.text(", ".join(part for part in (column.mode, order) if part))
        heads.append(f'<th scope="col">{html.text(column.dtype)}<small>{mode}</small></th>')
    marks = "".join(f'<span class="key {state}"><b>{MARKS[state][0]}</b>{state}</span>' for state in reversed(STATES))
    body = html.fill(
        html.asset("karat.policy", "page/coverage.html"),
        {
            "top": html.head(answer, about=title),
            "findings": html.findings([one for one in found.findings if one.severity is not Severity.INFO]),
            "bar": html.filter_bar("ops", html.states(found.states, _TONES)),
            "head": "".join([*heads, "</tr>"]),
            "rows": "\n".join(_page_row(row, found.columns) for row in found.rows),
            "legend": f'{marks}<span class="key"><b>·</b>not required</span>',
        },
    )
    return html.page(title=answer, body=body, style=html.asset("karat.policy", "page/coverage.css"))


def _page_row(row: Row, columns: Sequence[Column]) -> str:
    cells = {cell.column: cell for cell in row.cells}
    tests = html.text(f"{row.op}: {', '.join(row.tests[:8])}")
    name = html.text(row.op)
    parts = [f'<tr data-state="{row.state}" data-name="{name}"><th class="op" scope="row" title="{tests}">{name}</th>']
    last = ""
    for column in columns:
        cell, edge = cells.get(column), " first" if column.device != last else ""
        last = column.device
        if cell is None:
            parts.append('<td class="first"><i>·</i></td>' if edge else "<td><i>·</i></td>")
            continue
        each = ", ".join(f"{name} {state}" for name, state in cell.inputs.items())
        hint = f"{cell.state}: {each} ({count(cell.comparisons, 'comparison')})"
        mark = f'<b aria-label="{cell.state}">{MARKS[cell.state][0]}</b>'
        parts.append(f'<td class="{cell.state}{edge}" title="{html.text(hint)}">{mark}</td>')
    return "".join([*parts, "</tr>"])
