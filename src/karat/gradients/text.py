"""A gradient report as text, at most 100 columns wide.

Names come from test files and frameworks, so nothing is printed that could move a cursor.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

from karat.gradients.report import Diagnosis, GradComparison, GradReport, GradVerdict, Property
from karat.gradients.session import replay_command
from karat.report.terminal import aligned, widths
from karat.report.words import elide, printable

WIDTH = 100
_ROWS = 12
_PROPERTIES = 8
_NOTES = 6
_EXCLUDED = 6
_NAME = 30
_GRAVITY = {verdict: n for n, verdict in enumerate(("FAIL", "INCONCLUSIVE", "INACCURATE", "PASS"))}
# `sees`: the smallest error of one gradient element that the check could have seen.
_TITLES = ("verdict", "dtype", "mode", "oracle", "error", "allowed", "sees")


def text(report: GradReport, *, details: bool = False) -> str:
    """One line for PASS, unless details are asked for; else what is wrong, where, and how to see it again, then the rest."""
    verdict = report.verdict.value
    alone = report.verdict is GradVerdict.PASS and not details
    if report and (report.vacuous or not report.comparisons):
        # `require` refuses it, so the first line must not read as if all were well.
        verdict, alone = f"{verdict}, but no evidence", False
    level = "" if report.level == "default" else f"level {report.level}"
    where = ", ".join(word for word in (report.framework, report.device, level) if word)
    headline = f"{verdict}  {shortened(report.op, 60)} ({where}): "
    if alone:
        return headline + printable(report.reason)
    first, why = next(iter(report.diagnoses), None), printable(report.reason)
    facts = _found(first) if first else {}
    if not report and not facts.get("replay"):
        facts["replay"] = replay_command(seed=report.seed)
    if first and first.coordinate is not None and report.verdict is GradVerdict.FAIL:
        why = f"{_gradient(first)} is wrong at {list(first.coordinate)}"
    lines = chain(
        _wrapped(headline + why, indent="    "),
        _facts(facts, "  "),
        _table(report.comparisons),
        _properties(report.properties),
        _controls(report.comparisons),
        chain.from_iterable(
            ("", f"  {_gradient(one)}", *_facts(_found(one, alone=False), "    ")) for one in report.diagnoses[1:]
        ),
        _notes(report),
    )
    return "\n".join(line.rstrip() for line in lines)


def _table(comparisons: Sequence[GradComparison]) -> Iterator[str]:
    if not comparisons:
        return
    ranked = sorted(comparisons, key=lambda one: (_GRAVITY[one.verdict], not one.vacuous))
    shown, rest = ranked[:_ROWS], []
    for one in shown:
        mode = one.mode if one.order == 1 else f"{one.mode} {one.order}"
        numbers = (number(one.error), number(one.tolerance), number(one.smallest_error))
        rest.append((_word(one), printable(one.dtype)[:15], mode, one.oracle, *numbers))
    columns = widths([_TITLES, *rest])
    room = max(WIDTH - 2 - sum(columns) - 2 * len(columns), 15)
    rows = [(_pair(one.input, one.output, room), *cells) for one, cells in zip(shown, rest, strict=True)]
    head = ("input → output", *_TITLES)
    columns = widths([head, *rows])
    yield ""
    yield f"  {aligned(head, columns, left=5)}"
    remarks = [list(_remarks(one)) for one in shown]
    for row, below, next_below in zip(rows, remarks, [*remarks[1:], []], strict=True):
        yield f"  {aligned(row, columns, left=5)}"
        # Remarks shared by consecutive rows stand below the last of them.
        yield from below if below != next_below else ()
    if len(ranked) > len(shown):
        tally = Counter(_word(one) for one in ranked[_ROWS:])
        parts = ", ".join(f"{n:,} {word}" for word, n in tally.items())
        yield f"  and {len(ranked) - _ROWS:,} more ({parts})"


def _word(one: GradComparison) -> str:
    return "no evidence" if one.vacuous and one.verdict.holds else one.verdict.value


def _remarks(one: GradComparison) -> Iterator[str]:
    """What a row cannot say: the reason, and what weakens it."""
    passed = one.verdict is GradVerdict.PASS
    remarks = [f"at {one.at}"] if one.at else []
    remarks += [one.reason] if one.reason and (not passed or one.vacuous or one.kinks) else []
    if one.strength == "weak":
        remarks.append("weak: compared only with the author's own gradients")
    if one.unjudged and one.verdict.holds:
        remarks.append(f"{one.not_judged}: no slope is known there")
    if one.kinks and one.mode == "reverse":
        remarks.append(f"kinks: {one.kinks:,}, with the gradient between the one-sided slopes")
    if one.widened is not None:
        remarks.append(f"the test asked for a relative tolerance of {number(one.widened)}")
    for sentence in remarks:
        yield from _wrapped(printable(sentence), indent="      ", first="    - ")


def _properties(properties: Sequence[Property]) -> Iterator[str]:
    if not properties:
        return
    # A law that holds and has something to tell is worth knowing, no more.
    bad = [one for one in properties if one.verdict is not GradVerdict.PASS or one.detail]
    bad.sort(key=lambda one: _GRAVITY[one.verdict])
    yield ""
    yield f"  properties: {sum(one.verdict.holds for one in properties):,} of {len(properties):,} hold"
    for one in bad[:_PROPERTIES]:
        measured = "" if one.measured is None else f"; measured {number(one.measured)}"
        bound = "" if one.bound is None else f", at most {number(one.bound)} allowed"
        word = "info" if one.verdict is GradVerdict.PASS else one.verdict.value
        law = f"{word}  {shortened(one.name, 40)} ({printable(one.dtype)})"
        yield from _wrapped(f"{law}: {printable(one.detail)}{measured}{bound}", indent="      ", first="    ")
    if len(bad) > _PROPERTIES:
        yield f"    and {len(bad) - _PROPERTIES:,} more"


def _controls(comparisons: Sequence[GradComparison]) -> Iterator[str]:
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
        unseen = ", ".join(printable(name) for name, seen in one.controls.items() if not seen)
        where = f"{_pair(one.input, one.output)} in {printable(one.dtype)}"
        yield from _wrapped(f"unnoticed for {where}: {unseen}", indent="      ", first="    ")


def _tried(one: GradComparison) -> Mapping[str, bool]:
    """A gradient that is wrong by that very corruption is mended by it; of that there is nothing to tell."""
    if one.verdict is not GradVerdict.FAIL:
        return one.controls
    return {name: seen for name, seen in one.controls.items() if seen}


def _gradient(one: Diagnosis) -> str:
    return f"{_pair(one.input, one.output)} in {printable(one.dtype)}"


def _found(one: Diagnosis, *, alone: bool = True) -> dict[str, str | None]:
    """What a diagnosis says, in the order in which it is read; `alone`: beside a headline that says where."""
    return {
        "wrong at": None if alone or one.coordinate is None else str(list(one.coordinate)),
        "expected": None if one.expected is None else number(one.expected, digits=9),
        "found": None if one.found is None else number(one.found, digits=9),
        "hint": printable(one.hint),
        "replay": one.replay,
        "cost": None if alone or not one.forwards else f"{one.forwards:,} forwards",
    }


def _facts(facts: Mapping[str, str | None], indent: str) -> Iterator[str]:
    for name, value in facts.items():
        if value and name == "replay":  # never wrapped: it is to be pasted
            yield f"{indent}{name:<10}{printable(value)}"
        elif value:
            yield from _wrapped(value, indent=f"{indent}{'':10}", first=f"{indent}{name:<10}")


def _notes(report: GradReport) -> Iterator[str]:
    names = [f"{shortened(one.name, _NAME)} ({printable(one.why)})" for one in report.excluded]
    more = f"; and {len(names) - _EXCLUDED:,} more" if len(names) > _EXCLUDED else ""
    if names:
        yield from _wrapped(f"  excluded: {'; '.join(names[:_EXCLUDED])}{more}", indent="    ")
    for note in report.notes[:_NOTES]:
        yield from _wrapped(f"  note: {printable(note)}", indent="    ")
    if len(report.notes) > _NOTES:
        yield f"  and {len(report.notes) - _NOTES:,} more notes"
    yield ""
    if report.level != "default":
        yield from _wrapped(f"  level {report.level}: {'; '.join(map(printable, report.looked))}", indent="    ")
    cost = f"{report.forwards:,} forwards, {report.backwards:,} backwards, {report.seconds:.2f} s"
    # All of it is in the JSON; the seed is what replays.
    made_from = f" from {shortened(report.identity, 60)}" if report.identity else ""
    yield from _wrapped(f"  {cost}; seed {report.seed}{made_from}", indent="    ")


def _pair(source: str, output: str, room: int = 2 * _NAME) -> str:
    """`x → out`, each name with its share of the room."""
    out = shortened(output, max((room - 3) // 2, room - 3 - len(printable(source))))
    return f"{shortened(source, room - 3 - len(out))} → {out}"


def _wrapped(line: str, *, indent: str, first: str = "") -> Iterable[str]:
    return textwrap.wrap(
        line, WIDTH, initial_indent=first, subsequent_indent=indent, drop_whitespace=True, break_on_hyphens=False
    ) or [first]


def number(value: complex, *, digits: int = 3) -> str:
    """A number for a table: short, and never a long row of digits."""
    if not isinstance(value, int | float):
        real, imag = (number(float(part), digits=digits) for part in (value.real, abs(value.imag)))
        return f"{real} {'-' if value.imag < 0 else '+'} {imag}i"
    if value == 0:
        return "0"
    plain = 1e-2 <= abs(value) < 1e4
    return f"{value:.{digits}g}" if plain or digits > 3 else f"{value:.1e}"


def shortened(name: str, room: int) -> str:
    """A printable name with its middle left out where it is too long."""
    return elide(printable(name), room)
