"""Text: a gradient report for a person, plain and at most 100 columns wide.

Names come from test files and frameworks, so nothing is printed that could move a cursor.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

from karat.gradients.report import (
    Comparison,
    Diagnosis,
    Excluded,
    GradReport,
    GradVerdict,
    Property,
)
from karat.gradients.session import replay_command

WIDTH = 100
_ROWS = 12
_PROPERTIES = 8
_NOTES = 6
_EXCLUDED = 6
_NAME = 30
_IDENTITY = 60
_GRAVITY = {GradVerdict.FAIL: 0, GradVerdict.INCONCLUSIVE: 1, GradVerdict.PASS: 2}
_PAIR = "input → output"
_TITLES = ("verdict", "dtype", "mode", "oracle", "error", "allowed", "sees")
"""`sees`: the smallest error of one gradient element that the check could have seen."""


def text(report: GradReport) -> str:
    """The whole story of a gradient check."""
    return "\n".join(line.rstrip() for line in _lines(report))


def _lines(report: GradReport) -> Iterator[str]:
    yield from _headline(report)
    yield from _table(report.comparisons)
    yield from _properties(report.properties)
    yield from _controls(report.comparisons)
    yield from _diagnoses(report.diagnoses)
    yield from _excluded(report.excluded)
    yield from _notes(report.notes)
    yield ""
    yield from _last(report)


def _headline(report: GradReport) -> Iterator[str]:
    verdict = report.verdict.value
    if report.verdict is GradVerdict.PASS and (report.vacuous or not report.comparisons):
        # `require` refuses it, so the first line must not read as if all were well.
        verdict = "PASS, but no evidence"
    where = ", ".join(word for word in (report.framework, report.device) if word)
    op = shortened(report.op, 60)
    yield from _wrapped(f"{verdict}  {op} ({where}): {printable(report.reason)}", indent="    ")


def _table(comparisons: Sequence[Comparison]) -> Iterator[str]:
    ranked = sorted(comparisons, key=_gravity)
    shown = ranked[:_ROWS]
    if not shown:
        return
    rest = [_cells(one) for one in shown]
    widths = [max(map(len, column)) for column in zip(_TITLES, *rest, strict=True)]
    room = max(WIDTH - 2 - sum(widths) - 2 * len(widths), 15)
    names = [_pair(one.input, one.output, room) for one in shown]
    room = max(map(len, (_PAIR, *names)))
    yield ""
    yield _aligned((_PAIR, *_TITLES), (room, *widths))
    remarks = [list(_remarks(one)) for one in shown]
    for name, cells, said, next_said in zip(names, rest, remarks, [*remarks[1:], []], strict=True):
        yield _aligned((name, *cells), (room, *widths))
        # What is said of several rows in a row stands below the last of them.
        yield from said if said != next_said else ()
    if len(ranked) > len(shown):
        yield f"  and {_more(ranked[len(shown) :])}"


def _gravity(one: Comparison) -> tuple[int, bool]:
    return (_GRAVITY[one.verdict], not one.vacuous)


def _cells(one: Comparison) -> tuple[str, ...]:
    mode = one.mode if one.order == 1 else f"{one.mode} {one.order}"
    numbers = (number(one.error), number(one.tolerance), number(one.smallest_error))
    return _word(one), printable(one.dtype)[:15], mode, one.oracle, *numbers


def _word(one: Comparison) -> str:
    vacuous = one.vacuous and one.verdict is GradVerdict.PASS
    return "no evidence" if vacuous else one.verdict.value


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = (
        cell.rjust(width) if i >= len(row) - 3 else cell.ljust(width)
        for i, (cell, width) in enumerate(zip(row, widths, strict=True))
    )
    return "  " + "  ".join(cells)


def _remarks(one: Comparison) -> Iterator[str]:
    """What a row cannot say: the reason, and what weakens it."""
    said = [one.reason] if one.reason and one.verdict is not GradVerdict.PASS else []
    if one.verdict is GradVerdict.PASS and (one.vacuous or one.kinks) and one.reason:
        said.append(one.reason)
    if one.strength == "weak":
        said.append("weak: compared with the author's own gradients alone")
    if one.kinks:
        said.append(f"kinks: {one.kinks:,}, with the gradient between the one-sided slopes")
    if one.widened is not None:
        said.append(f"the test asked for a relative tolerance of {number(one.widened)}")
    for sentence in said:
        yield from _wrapped(printable(sentence), indent="      ", first="    - ")


def _more(rest: Sequence[Comparison]) -> str:
    tally = Counter(_word(one) for one in rest)
    parts = ", ".join(f"{n:,} {word}" for word, n in tally.items())
    return f"{len(rest):,} more ({parts})"


def _properties(properties: Sequence[Property]) -> Iterator[str]:
    bad = sorted(
        (one for one in properties if one.verdict is not GradVerdict.PASS),
        key=lambda one: _GRAVITY[one.verdict],
    )
    held = len(properties) - len(bad)
    if not properties:
        return
    yield ""
    yield f"  properties: {held:,} of {len(properties):,} hold"
    for one in bad[:_PROPERTIES]:
        yield from _wrapped(_property(one), indent="      ", first="    ")
    if len(bad) > _PROPERTIES:
        yield f"    and {len(bad) - _PROPERTIES:,} more"


def _property(one: Property) -> str:
    measured = "" if one.measured is None else f"; measured {number(one.measured)}"
    bound = "" if one.bound is None else f", at most {number(one.bound)} allowed"
    name = shortened(one.name, 40)
    return f"{one.verdict.value}  {name} ({printable(one.dtype)}): {printable(one.detail)}{measured}{bound}"


def _controls(comparisons: Sequence[Comparison]) -> Iterator[str]:
    """How the check did on gradients that were made wrong on purpose."""
    tried = [(name, seen) for one in comparisons for name, seen in _tried(one).items()]
    if not tried:
        return
    missed = sum(not seen for _, seen in tried)
    names = ", ".join(dict.fromkeys(printable(name) for name, _ in tried))
    yield ""
    head = f"  controls: {len(tried) - missed:,} of {len(tried):,} corrupted gradients were noticed"
    yield from _wrapped(f"{head} ({names})", indent="    ")
    for one in [one for one in comparisons if not all(_tried(one).values())][:_PROPERTIES]:
        yield from _wrapped(_missed(one), indent="      ", first="    ")


def _tried(one: Comparison) -> Mapping[str, bool]:
    """A gradient that is wrong by that very corruption is mended by it; of that there is nothing to tell."""
    if one.verdict is not GradVerdict.FAIL:
        return one.controls
    return {name: seen for name, seen in one.controls.items() if seen}


def _missed(one: Comparison) -> str:
    names = ", ".join(printable(name) for name, seen in one.controls.items() if not seen)
    return f"unnoticed for {_pair(one.input, one.output)} in {printable(one.dtype)}: {names}"


def _diagnoses(diagnoses: Sequence[Diagnosis]) -> Iterator[str]:
    for one in diagnoses:
        yield ""
        yield f"  {_pair(one.input, one.output)} in {printable(one.dtype)}"
        for name, value in _findings(one).items():
            yield from _wrapped(value, indent=" " * 14, first=f"    {name:<10}")
        if one.replay:
            # Never wrapped: it is to be pasted.
            yield f"    {'replay':<10}{printable(one.replay)}"


def _findings(one: Diagnosis) -> Mapping[str, str]:
    found: dict[str, str] = {}
    if one.coordinate is not None:
        found["wrong at"] = f"[{', '.join(map(str, one.coordinate))}]"
    if one.expected is not None:
        found["expected"] = number(one.expected, digits=9)
    if one.found is not None:
        found["found"] = number(one.found, digits=9)
    if one.hint:
        found["hint"] = printable(one.hint)
    if one.forwards:
        found["cost"] = f"{one.forwards:,} forwards"
    return found


def _excluded(excluded: Sequence[Excluded]) -> Iterator[str]:
    names = [f"{shortened(one.name, _NAME)} ({printable(one.why)})" for one in excluded]
    yield from _listed("excluded", names, _EXCLUDED)


def _notes(notes: Sequence[str]) -> Iterator[str]:
    yield from chain.from_iterable(_listed("note", [printable(n)], 1) for n in notes[:_NOTES])
    if len(notes) > _NOTES:
        yield f"  and {len(notes) - _NOTES:,} more notes"


def _listed(title: str, names: Sequence[str], most: int) -> Iterator[str]:
    if not names:
        return
    more = f"; and {len(names) - most:,} more" if len(names) > most else ""
    yield from _wrapped(f"  {title}: {'; '.join(names[:most])}{more}", indent="    ")


def _last(report: GradReport) -> Iterator[str]:
    cost = f"{report.forwards:,} forwards, {report.backwards:,} backwards, {report.seconds:.2f} s"
    # All of it is in the JSON; the seed is what replays.
    made_from = f" from {shortened(report.identity, _IDENTITY)}" if report.identity else ""
    yield from _wrapped(f"  {cost}; seed {report.seed}{made_from}", indent="    ")
    if not report and not any(one.replay for one in report.diagnoses):
        yield f"  replay: {printable(replay_command(seed=report.seed))}"


def _pair(source: str, output: str, room: int = 2 * _NAME) -> str:
    """`x → out`, each name with its share of the room."""
    out = shortened(output, max((room - 3) // 2, room - 3 - len(printable(source))))
    return f"{shortened(source, room - 3 - len(out))} → {out}"


def _wrapped(line: str, *, indent: str, first: str = "") -> Iterable[str]:
    return textwrap.wrap(
        line,
        WIDTH,
        initial_indent=first,
        subsequent_indent=indent,
        drop_whitespace=True,
        break_on_hyphens=False,
    ) or [first]


def number(value: complex, *, digits: int = 3) -> str:
    """A number for a table: short, and never a long row of digits."""
    if not isinstance(value, int | float):
        sign = "-" if value.imag < 0 else "+"
        return f"{_real(value.real, digits)} {sign} {_real(abs(value.imag), digits)}i"
    return _real(value, digits)


def _real(value: float, digits: int) -> str:
    if value == 0:
        return "0"
    plain = 1e-2 <= abs(value) < 1e4
    return f"{value:.{digits}g}" if plain or digits > 3 else f"{value:.1e}"


def printable(words: str) -> str:
    """Text without control characters or lone surrogates, and without what GitHub's log takes for a command."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in words)
    return shown.replace("##[", "## [")


def shortened(name: str, room: int) -> str:
    """A printable name with its middle left out where it is too long."""
    shown = printable(name)
    if len(shown) <= room:
        return shown
    tail = (room - 1) // 2
    return f"{shown[: room - 1 - tail]}…{shown[len(shown) - tail :]}"
