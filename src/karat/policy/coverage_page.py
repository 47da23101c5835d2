"""Coverage as one self-contained HTML page, for whoever has a browser and no network.

The table is markup, so that it can be read without scripts; the script only filters. Names of ops, tests and
inputs are hostile: they go through `html.escape` and nowhere into the script.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from importlib import resources
from itertools import groupby

from karat.findings import Severity
from karat.policy.coverage import ROW_STATES, STATES, Cell, Column, Coverage, Row
from karat.policy.coverage_text import MARKS
from karat.report.words import count, printable

_SLOT = re.compile(r"<!--karat:([a-z]+)-->|/\*karat:([a-z]+)\*/")
_ORDERS = {1: "", 2: "second order", 3: "third order"}


def page(found: Coverage, *, title: str = "Gradient coverage") -> str:
    """The page; the same matrix always gives the same bytes."""
    slots = {
        "title": _text(title),
        "totals": _totals(found),
        "findings": _findings(found),
        "chips": "".join(_chips(found)),
        "head": "".join(_head(found.columns)),
        "rows": "\n".join(_row(row, found.columns) for row in found.rows),
        "legend": "".join(_legend()),
        "css": _asset("coverage.css"),
        "js": _asset("coverage.js"),
    }
    # One pass, so that nothing that was put in is ever looked at again.
    return _SLOT.sub(lambda slot: slots[slot[1] or slot[2]], _asset("coverage.html"))


def _asset(name: str) -> str:
    return (resources.files("karat.policy") / "page" / name).read_text(encoding="utf-8")


def _text(words: str) -> str:
    return html.escape(printable(words))


def _totals(found: Coverage) -> str:
    states = found.states
    parts = ", ".join(f"{states[state]:,} {state}" for state in ROW_STATES if states[state])
    tail = f"{count(found.journals, 'journal')} of {count(found.sessions, 'session')}."
    return f"<strong>{count(len(found.rows), 'op')}</strong>{f': {parts}' if parts else ''}; {tail}"


def _findings(found: Coverage) -> str:
    loud = [one for one in found.findings if one.severity is not Severity.INFO]
    items = "".join(
        f'<li class="{one.severity.value}"><b>{_text(one.kind)}</b> {_text(one.message)}</li>'
        for one in loud
    )
    return f'<ul class="findings">{items}</ul>' if items else ""


def _chips(found: Coverage) -> Iterator[str]:
    states = found.states
    for state in ROW_STATES:
        if states[state]:
            yield f'<button type="button" aria-pressed="false" data-state="{state}">{state} {states[state]:,}</button>'


def _head(columns: Sequence[Column]) -> Iterator[str]:
    yield '<tr><th class="op" rowspan="2" scope="col">op</th>'
    for device, mine in groupby(columns, key=lambda column: column.device):
        yield f'<th class="device" scope="colgroup" colspan="{len(list(mine))}">{_text(device)}</th>'
    yield "</tr><tr>"
    yield from (
        f'<th scope="col">{_text(column.dtype)}<small>{_mode(column)}</small></th>'
        for column in columns
    )
    yield "</tr>"


def _mode(column: Column) -> str:
    order = _ORDERS.get(column.order, f"order {column.order}")
    return _text(", ".join(part for part in (column.mode, order) if part))


def _row(row: Row, columns: Sequence[Column]) -> str:
    cells = {cell.column: cell for cell in row.cells}
    name = _text(row.op)
    tests = _text(f"{row.op}: {', '.join(row.tests[:8]) or 'no test'}")
    last = ""
    parts = [f'<tr data-state="{row.state}"><th class="op" scope="row" title="{tests}">{name}</th>']
    for column in columns:
        parts.append(_cell(cells.get(column), first=column.device != last))
        last = column.device
    return "".join([*parts, "</tr>"])


def _cell(cell: Cell | None, *, first: bool) -> str:
    edge = " first" if first else ""
    if cell is None:
        return f'<td class="{edge.strip()}"><i>·</i></td>' if edge else "<td><i>·</i></td>"
    mark = MARKS[cell.state][0]
    return f'<td class="{cell.state}{edge}" title="{_told(cell)}"><b aria-label="{cell.state}">{mark}</b></td>'


def _told(cell: Cell) -> str:
    each = ", ".join(f"{name} {state}" for name, state in cell.inputs.items() if name != "*")
    seen = (
        f"; an error of {cell.smallest_error:.1e} of one element would have been seen"
        if cell.smallest_error is not None
        else ""
    )
    return _text(
        f"{cell.state}: {each or 'no test'} ({count(cell.comparisons, 'comparison')}){seen}"
    )


def _legend() -> Iterator[str]:
    for state in reversed(STATES):
        yield f'<span class="key {state}"><b>{MARKS[state][0]}</b>{state}</span>'
    yield '<span class="key"><b>·</b>not asked for</span>'
