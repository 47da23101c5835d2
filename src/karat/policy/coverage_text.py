"""Coverage in a terminal: a line per op while that can be read, else a line per pattern with its ops."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from karat.policy.coverage import ROW_STATES, STATES, CellState, Column, Coverage, Row
from karat.report.words import count, elide, printable

Piece = tuple[str, str]
"""Text and style."""
MARKS: dict[CellState, tuple[str, str]] = {
    "strong": ("●", "green"),
    "exempt": ("–", "dim"),
    "weak": ("○", "yellow"),
    "vacuous": ("∅", "yellow"),
    "inconclusive": ("?", "yellow"),
    "missing": ("!", "bold red"),
    "failed": ("✗", "bold red"),
}
_SHORT = {"float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16", "complex128": "c128", "complex64": "c64"}  # fmt: skip
_NAME = 40
_MANY = 60
"""Ops up to which each gets a line; above, those with nothing to object to are put together."""
_CALM = frozenset({"exempt", "strong", "no-float"})


def lines(found: Coverage, *, width: int = 100, every: bool = False) -> Iterator[tuple[Piece, ...]]:
    """The matrix, the legend, the summary; `every`: a line per op, however many there are."""
    if found.rows:
        alone = every or len(found.rows) <= _MANY
        yield from _matrix(found, alone=alone, width=width)
        yield ()
        yield _legend(found)
    yield _summary(found)


def _matrix(found: Coverage, *, alone: bool, width: int) -> Iterator[tuple[Piece, ...]]:
    names = [printable(row.op) for row in found.rows if alone or row.state not in _CALM]
    room = min(_NAME, max(map(len, names), default=12))
    cells = _labels(found.columns)
    for number, block in enumerate(_blocks(cells, max(8, width - room - 2))):
        if number:
            yield ()
        columns = [found.columns[i] for i in block]
        labels = [cells[i] for i in block]
        yield from _head(columns, labels, room)
        for first, rows in _grouped(found.rows, columns, alone=alone):
            yield _line(first, rows, columns, labels, room=room, width=width)


def _blocks(labels: Sequence[str], room: int) -> Iterator[list[int]]:
    """Columns that fit beside each other."""
    block: list[int] = []
    used = 0
    for index, label in enumerate(labels):
        if block and used + len(label) + 1 > room:
            yield block
            block, used = [], 0
        block.append(index)
        used += len(label) + 1
    if block:
        yield block


def _head(columns: Sequence[Column], labels: Sequence[str], room: int) -> Iterator[tuple[Piece, ...]]:  # fmt: skip
    """A line of devices over a line of precisions."""
    devices, last = "", ""
    for column, label in zip(columns, labels, strict=True):
        place = len(devices)
        devices += " " * (len(label) + 1)
        if column.device != last:
            devices = f"{devices[:place]} {printable(column.device)}".ljust(len(devices))
            last = column.device
    yield ((" " * room + devices.rstrip(), "dim"),)
    yield (("op".ljust(room), "bold"), ("".join(f" {label}" for label in labels), "bold"))


def _labels(columns: Sequence[Column]) -> list[str]:
    """Of all columns; together those of a device are at least as wide as its name."""
    found: list[str] = []
    for device, mine in groupby(columns, key=lambda column: column.device):
        labels = [_label(column) for column in mine]
        lack = len(printable(device)) - len(" ".join(labels))
        found += [*labels[:-1], labels[-1] + " " * max(0, lack)]
    return found


def _label(column: Column) -> str:
    """`f64`, `f64→` forwards, `f64²` of second order."""
    powers = {1: "", 2: "²", 3: "³"}
    mode = "→" if column.mode == "forward" else ""
    order = powers.get(column.order, f"^{column.order}")
    return f"{printable(_SHORT.get(column.dtype, column.dtype))}{order}{mode}"


def _grouped(
    rows: Sequence[Row], columns: Sequence[Column], *, alone: bool
) -> Iterator[tuple[Row, list[Row]]]:
    """Rows that look alike together, where there are many and nothing is wrong with them."""
    loud = [row for row in rows if alone or row.state not in _CALM]
    yield from ((row, [row]) for row in loud)
    groups: dict[tuple[CellState | None, ...], list[Row]] = {}
    for row in rows[len(loud) :]:
        cells = {cell.column: cell.state for cell in row.cells}
        groups.setdefault(tuple(cells.get(column) for column in columns), []).append(row)
    yield from ((members[0], members) for members in groups.values())


def _line(
    first: Row, rows: Sequence[Row], columns: Sequence[Column], labels: Sequence[str], *, room: int, width: int,
) -> tuple[Piece, ...]:  # fmt: skip
    name = printable(first.op) if len(rows) == 1 else count(len(rows), "op")
    pieces: list[Piece] = [(elide(name, room).ljust(room), "")]
    for column, label in zip(columns, labels, strict=True):
        cell = first.cell(column)
        mark, style = MARKS[cell.state] if cell else ("·", "dim")
        pieces.append((f" {mark.center(len(label.rstrip())).ljust(len(label))}", style))
    if len(rows) > 1:
        used = room + sum(len(label) + 1 for label in labels) + 2
        pieces.append((f"  {_some(rows, max(12, width - used))}", "dim"))
    return tuple(pieces)


def _some(rows: Sequence[Row], room: int) -> str:
    names = ", ".join(printable(row.op) for row in rows)
    return names if len(names) <= room else f"{names[: room - 1]}…"


def _legend(found: Coverage) -> tuple[Piece, ...]:
    there = {cell.state for row in found.rows for cell in row.cells}
    pieces: list[Piece] = []
    for state in reversed(STATES):
        if state in there:
            pieces += [(MARKS[state][0], MARKS[state][1]), (f" {state}   ", "dim")]
    return (*pieces, ("· not asked for   → forward mode   ² second order", "dim"))


def _summary(found: Coverage) -> tuple[Piece, ...]:
    states = found.states
    parts = ", ".join(f"{states[state]:,} {state}" for state in ROW_STATES if states[state])
    journals = f"{count(found.journals, 'journal')} of {count(found.sessions, 'session')}"
    ops = count(len(found.rows), "op")
    return ((f"{ops}{f': {parts}' if parts else ''}; {journals}", "bold"),)
