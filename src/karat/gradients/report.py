"""What a gradient check found: comparisons, properties, diagnoses, one verdict; as text and as JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import chain
from math import inf
from typing import Any, Literal

import msgspec

from karat.report.json import encode
from karat.report.result import Result
from karat.report.terminal import aligned, widths
from karat.report.words import elide, few, printable

__unittest = True  # unittest leaves these frames out of failures, and so does pytest for its classes

SCHEMA = "karat.grad-report/1"


class GradVerdict(StrEnum):
    PASS = "PASS"  # noqa: S105 - no password
    FAIL = "FAIL"
    INACCURATE = "INACCURATE"  # right to about nine digits, but not to round-off
    INCONCLUSIVE = "INCONCLUSIVE"

    @property
    def holds(self) -> bool:
        return self in {GradVerdict.PASS, GradVerdict.INACCURATE}


Oracle = Literal["complex-step", "differences", "reference", "float64", "user"]
"""Where the expected derivative came from, best first; `float64` is the verified run that low precision meets."""
Mode = Literal["reverse", "forward", "forward-over-reverse", "reverse-over-forward", "forward-over-forward"]
"""The mode, and for a second order that of the derivative it is the derivative of, if one of the two is forward."""
Level = Literal["quick", "default", "deep"]


class GradComparison(msgspec.Struct, frozen=True, kw_only=True):
    """One input against one output, in one dtype, mode and order: the unit of evidence."""

    input: str
    output: str
    dtype: str  # the precision the gradient was computed in
    mode: Mode = "reverse"
    order: int = 1
    at: str = ""  # the point, if it is one that the check chose itself: `zeros`, `ties`; else the given one
    verdict: GradVerdict
    reason: str = ""
    oracle: Oracle
    strength: Literal["strong", "weak"] = "strong"  # weak: only the author's own gradients were there to compare with
    error: float = inf  # the worst deviation over all probes, in the unit of `tolerance`
    tolerance: float = 0.0  # the oracle's own error estimate plus the round-off floor, capped per dtype
    scale: float = 0.0  # the size of the derivative that was compared
    smallest_error: float = inf  # the smallest error of a single gradient element that this check could have seen
    probes: int = 0
    controls: Mapping[str, bool] = msgspec.field(default_factory=dict)
    """Corruption → whether the same check failed on it, as it must."""
    vacuous: bool = False  # a corruption went unnoticed: the check could not have failed, and is no evidence
    # Output elements of the given point: with a slope that was compared; where only one-sided slopes exist, and the
    # gradient lay between them; and where no slope is known. Input elements that cannot be moved are not judged, either.
    checked: int = 0
    kinks: int = 0
    unjudged: int = 0
    widened: float | None = None  # the relative tolerance that the test asked for, where wider than the derived one

    @property
    def not_judged(self) -> str:
        return f"{self.unjudged:,} of {self.checked + self.kinks + self.unjudged:,} elements not judged"

    @property
    def counts(self) -> bool:
        """Whether this is evidence: it passed, could have failed, and did not rest on its author alone."""
        return self.verdict.holds and not self.vacuous and self.strength == "strong"


class Property(msgspec.Struct, frozen=True, kw_only=True):
    """One law that every backward obeys, tried."""

    name: str
    verdict: GradVerdict
    detail: str = ""
    measured: float | None = None
    bound: float | None = None
    dtype: str = "float64"


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """Where a wrong gradient is wrong, and what it looks like."""

    input: str
    output: str
    dtype: str
    coordinate: tuple[int, ...] | None = None
    expected: float | complex | None = None
    found: float | complex | None = None
    hint: str = ""  # the pattern: `twice the expected gradient`, `transposed`, …
    forwards: int = 0
    replay: str = ""  # one line that runs this check again with the same probes


class Excluded(msgspec.Struct, frozen=True, kw_only=True):
    """An input or output that has no gradient to check, and why."""

    name: str
    why: str


class GradReport(Result, msgspec.Struct, frozen=True, kw_only=True):
    """All that a gradient check found."""

    op: str
    framework: str
    device: str
    seed: int
    identity: str  # what the seed was made from
    verdict: GradVerdict
    reason: str
    comparisons: tuple[GradComparison, ...] = ()
    properties: tuple[Property, ...] = ()
    diagnoses: tuple[Diagnosis, ...] = ()
    excluded: tuple[Excluded, ...] = ()
    notes: tuple[str, ...] = ()
    level: Level = "default"
    looked: tuple[str, ...] = ()  # what the check looked at: modes, orders, precisions, laws, points of its own choice
    forwards: int = 0
    backwards: int = 0
    seconds: float = 0.0

    def __bool__(self) -> bool:
        """`assert karat.gradcheck(…)`: true for PASS and INACCURATE."""
        return self.verdict.holds

    def __repr__(self) -> str:
        """For debuggers and assertions; under pytest the plugin adds the rest."""
        return f"<GradReport {self.verdict} {self.op}: {self.reason}>"

    def __str__(self) -> str:
        """One line for PASS; else what is wrong, where, a hint, how to see it again, and then the details."""
        return text(self)

    def details(self) -> str:
        """All of it, for PASS, too: every comparison, the laws, the controls, the cost."""
        return text(self, details=True)

    def to_json(self) -> bytes:
        """Schema karat.grad-report/1."""
        found = {
            "schema": SCHEMA,
            **msgspec.to_builtins(self, enc_hook=_number),
            "seed": str(self.seed),
            "vacuous": self.vacuous,
            "smallest_error": self.smallest_error,
            "seconds": round(self.seconds, 6),
        }
        for plain, one in zip(found["comparisons"], self.comparisons, strict=True):
            plain["counts"] = one.counts
        return encode(found, odd_numbers_as_text=True)

    def rows(self) -> list[dict[str, Any]]:
        """One row per input, output, dtype, mode and order."""
        names = ("input", "output", "dtype", "mode", "order", "verdict", "oracle", "error", "tolerance")
        rows = [msgspec.to_builtins(one, enc_hook=_number) for one in self.comparisons]
        return [{name: row[name] for name in names} for row in rows]

    def headline(self) -> str:
        return f"{self.verdict.value} {self.op}: {self.reason}"

    @property
    def smallest_error(self) -> float:
        """The smallest error of one element that every comparison could have seen."""
        return max((one.smallest_error for one in self.comparisons), default=inf)

    @property
    def vacuous(self) -> bool:
        """Whether a comparison could not have failed."""
        return any(one.vacuous for one in self.comparisons)

    @staticmethod
    def verdict_of(comparisons: Sequence[GradComparison], properties: Sequence[Property]) -> tuple[GradVerdict, str]:
        """FAIL if anything failed; PASS only if every comparison is evidence, weak ones aside."""
        if failed := [one for one in comparisons if one.verdict is GradVerdict.FAIL]:
            return GradVerdict.FAIL, f"{gradient_name(failed[0])}: {failed[0].reason}"
        if broken := [one for one in properties if one.verdict is GradVerdict.FAIL]:
            return GradVerdict.FAIL, f"{broken[0].name}: {broken[0].detail}"
        strong = [one for one in comparisons if one.strength == "strong"]
        if not strong:
            return GradVerdict.INCONCLUSIVE, "nothing was compared"
        if doubtful := [one for one in strong if not one.counts]:
            return GradVerdict.INCONCLUSIVE, f"{gradient_name(doubtful[0])}: {doubtful[0].reason}"
        if found := [one for one in strong if one.verdict is GradVerdict.INACCURATE]:
            return GradVerdict.INACCURATE, f"{gradient_name(found[0])}: {found[0].reason}"
        if laws := [one for one in properties if one.verdict is GradVerdict.INACCURATE]:
            return GradVerdict.INACCURATE, f"{laws[0].name}: {laws[0].detail}"
        sees = max(one.smallest_error for one in strong)
        hold = f"{len(strong)} comparisons hold" if len(strong) > 1 else "the comparison holds"
        told = f"{hold}; an error of one element by {sees:.1g} of the typical size would have been seen"
        double = [one for one in strong if one.oracle != "float64"]
        left_out = max(double, key=lambda one: one.unjudged, default=strong[0])
        return GradVerdict.PASS, f"{told}; {left_out.not_judged}" if left_out.unjudged else told

    def require(self) -> GradReport:
        """Itself if it passed and could have failed; else AssertionError with the whole report."""
        __tracebackhide__ = True  # a failure is of the line that asked
        if not self or self.vacuous or not self.comparisons:
            raise AssertionError(str(self))
        return self


def ordinal(order: int) -> str:
    return ("first", "second", "third", "fourth")[order - 1]


def gradient_name(one: GradComparison) -> str:
    order = "" if one.order == 1 else f", {ordinal(one.order)} order"
    mode = "" if one.mode == "reverse" else f", {one.mode.replace('-', ' ')} mode"
    at = f", at {one.at}" if one.at else ""
    return f"{one.input} → {one.output} in {one.dtype}{order}{mode}{at}"


def _number(value: Any) -> Any:
    """Complex numbers as two; numpy's own float64 as Python's."""
    return {"real": value.real, "imag": value.imag} if isinstance(value, complex) else float(value)


# As text, at most 100 columns wide. Names come from test files and frameworks, so nothing is printed that could move a cursor.

WIDTH = 100
_ROWS = 12
_NAME = 30
_GRAVITY = ("FAIL", "INCONCLUSIVE", "INACCURATE", "PASS")
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
    facts = _facts(first, "  ") if first else ()
    if not report and not (first and first.replay):
        from karat.gradients.session import replay_command

        facts = (*facts, f"  replay    {replay_command(seed=report.seed)}")
    if first and first.coordinate is not None and report.verdict is GradVerdict.FAIL:
        why = f"{_gradient(first)} is wrong at {list(first.coordinate)}"
    lines = chain(
        _wrapped(headline + why, indent="    "),
        facts,
        _table(report.comparisons),
        _laws(report.properties),
        _controls(report.comparisons),
    )
    for one in report.diagnoses[1:]:
        at = "" if one.coordinate is None else f" at {list(one.coordinate)}"
        lines = chain(lines, ("", f"  {_gradient(one)}{at}"), _facts(one, "    "))
    return "\n".join(line.rstrip() for line in chain(lines, _notes(report)))


def _table(comparisons: Sequence[GradComparison]) -> Iterator[str]:
    if not comparisons:
        return
    ranked = sorted(comparisons, key=lambda one: (_GRAVITY.index(one.verdict), not one.vacuous))
    shown, rest = ranked[:_ROWS], []
    for one in shown:
        word = "no evidence" if one.vacuous and one.verdict.holds else one.verdict.value
        mode = one.mode if one.order == 1 else f"{one.mode} {one.order}"
        numbers = (number(one.error), number(one.tolerance), number(one.smallest_error))
        rest.append((word, printable(one.dtype)[:15], mode, one.oracle, *numbers))
    room = max(WIDTH - 2 - sum(widths([_TITLES, *rest])) - 2 * len(_TITLES), 15)
    rows = [(_pair(one.input, one.output, room), *cells) for one, cells in zip(shown, rest, strict=True)]
    head = ("input → output", *_TITLES)
    columns = widths([head, *rows])
    yield ""
    yield f"  {aligned(head, columns, left=5)}"
    for row, one in zip(rows, shown, strict=True):
        yield f"  {aligned(row, columns, left=5)}"
        for sentence in _remarks(one):
            yield from _wrapped(printable(sentence), indent="      ", first="    - ")
    if len(ranked) > len(shown):
        yield f"  and {len(ranked) - _ROWS:,} more"


def _remarks(one: GradComparison) -> Iterator[str]:
    """What a row cannot say: the reason, and what weakens it."""
    if one.at:
        yield f"at {one.at}"
    if one.reason and (one.verdict is not GradVerdict.PASS or one.vacuous or one.kinks):
        yield one.reason
    if one.strength == "weak":
        yield "weak: compared only with the author's own gradients"
    if one.unjudged and one.verdict.holds:
        yield f"{one.not_judged}: no slope is known there"
    if one.kinks and one.mode == "reverse":
        yield f"kinks: {one.kinks:,}, with the gradient between the one-sided slopes"
    if one.widened is not None:
        yield f"the test asked for a relative tolerance of {number(one.widened)}"


def _laws(properties: Sequence[Property]) -> Iterator[str]:
    if not properties:
        return
    yield ""
    yield f"  properties: {sum(one.verdict.holds for one in properties):,} of {len(properties):,} hold"
    for one in sorted(properties, key=lambda one: _GRAVITY.index(one.verdict)):
        # A law that holds and has something to tell is worth knowing, no more.
        word = "info" if one.verdict is GradVerdict.PASS else one.verdict.value
        measured = "" if one.measured is None else f"; measured {number(one.measured)}"
        bound = "" if one.bound is None else f", at most {number(one.bound)} allowed"
        if one.verdict is not GradVerdict.PASS or one.detail:
            law = f"{word}  {shortened(one.name, 40)} ({printable(one.dtype)})"
            yield from _wrapped(f"{law}: {printable(one.detail)}{measured}{bound}", indent="      ", first="    ")


def _controls(comparisons: Sequence[GradComparison]) -> Iterator[str]:
    """How the check did on gradients that were made wrong on purpose."""
    # A gradient that is wrong by that very corruption is mended by it; of that there is nothing to tell.
    tried = [
        (one, name, seen)
        for one in comparisons
        for name, seen in one.controls.items()
        if seen or one.verdict is not GradVerdict.FAIL
    ]
    missed = [f"{printable(name)} for {_pair(one.input, one.output)}" for one, name, seen in tried if not seen]
    if tried:
        names = ", ".join(dict.fromkeys(printable(name) for _, name, _ in tried))
        yield ""
        head = f"  controls: {len(tried) - len(missed):,} of {len(tried):,} corrupted gradients were noticed ({names})"
        yield from _wrapped(f"{head}{f'; unnoticed: {few(missed, 4)}' if missed else ''}", indent="    ")


def _gradient(one: Diagnosis) -> str:
    return f"{_pair(one.input, one.output)} in {printable(one.dtype)}"


def _facts(one: Diagnosis, indent: str) -> Iterator[str]:
    """What a diagnosis says, in the order in which it is read."""
    expected, found = ("" if value is None else f"{value:.9g}" for value in (one.expected, one.found))
    for name, value in (("expected", expected), ("found", found), ("hint", printable(one.hint))):
        if value:
            yield from _wrapped(value, indent=f"{indent}{'':10}", first=f"{indent}{name:<10}")
    if one.replay:  # never wrapped: it is to be pasted
        yield f"{indent}{'replay':<10}{printable(one.replay)}"


def _notes(report: GradReport) -> Iterator[str]:
    names = [f"{shortened(one.name, _NAME)} ({printable(one.why)})" for one in report.excluded]
    if names:
        yield from _wrapped(f"  excluded: {few(names, 6, '; ')}", indent="    ")
    for note in report.notes:
        yield from _wrapped(f"  note: {printable(note)}", indent="    ")
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


def number(value: float) -> str:
    """A number for a table: short, and never a long row of digits."""
    if value == 0:
        return "0"
    return f"{value:.3g}" if 1e-2 <= abs(value) < 1e4 else f"{value:.1e}"


def shortened(name: str, room: int) -> str:
    """A printable name with its middle left out where it is too long."""
    return elide(printable(name), room)
