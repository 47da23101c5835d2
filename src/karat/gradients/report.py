"""What a gradient check found: comparisons, properties, diagnoses, one verdict; as text and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from math import inf, isfinite
from typing import Any, Literal

import msgspec

from karat.report.result import Result

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
        from karat.gradients.text import text

        return text(self)

    def details(self) -> str:
        """All of it, for PASS, too: every comparison, the laws, the controls, the cost."""
        from karat.gradients.text import text

        return text(self, details=True)

    def to_json(self) -> bytes:
        """Schema karat.grad-report/1."""
        found = {
            "schema": SCHEMA,
            **msgspec.structs.asdict(self),
            "seed": str(self.seed),
            "vacuous": self.vacuous,
            "smallest_error": self.smallest_error,
            "seconds": round(self.seconds, 6),
            "comparisons": [{**msgspec.structs.asdict(one), "counts": one.counts} for one in self.comparisons],
        }
        return msgspec.json.format(msgspec.json.encode(_plain(found)), indent=2) + b"\n"

    def rows(self) -> list[dict[str, Any]]:
        """One row per input, output, dtype, mode and order."""
        names = ("input", "output", "dtype", "mode", "order", "verdict", "oracle")
        return [
            {name: _plain(getattr(one, name)) for name in names} | {"error": one.error, "tolerance": one.tolerance}
            for one in self.comparisons
        ]

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
        failed = next((one for one in comparisons if one.verdict is GradVerdict.FAIL), None)
        if failed is not None:
            return GradVerdict.FAIL, f"{gradient_name(failed)}: {failed.reason}"
        broken = next((one for one in properties if one.verdict is GradVerdict.FAIL), None)
        if broken is not None:
            return GradVerdict.FAIL, f"{broken.name}: {broken.detail}"
        strong = [one for one in comparisons if one.strength == "strong"]
        if not strong:
            return GradVerdict.INCONCLUSIVE, "nothing was compared"
        doubtful = next((one for one in strong if not one.counts), None)
        if doubtful is not None:
            return GradVerdict.INCONCLUSIVE, f"{gradient_name(doubtful)}: {doubtful.reason}"
        if found := [one for one in strong if one.verdict is GradVerdict.INACCURATE]:
            return GradVerdict.INACCURATE, f"{gradient_name(found[0])}: {found[0].reason}"
        if laws := [one for one in properties if one.verdict is GradVerdict.INACCURATE]:
            return GradVerdict.INACCURATE, f"{laws[0].name}: {laws[0].detail}"
        sees = max(one.smallest_error for one in strong)
        hold = f"{len(strong)} comparisons hold" if len(strong) > 1 else "the comparison holds"
        told = f"{hold}; an error of one element by {sees:.1g} of the typical size would have been seen"
        left_out = max(
            (one for one in strong if one.oracle != "float64"), key=lambda one: one.unjudged, default=strong[0]
        )
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


def _plain(value: Any) -> Any:
    """What JSON can say: NaN and infinities as text, complex numbers as two, lone surrogates escaped."""
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.asdict(value)
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, Mapping):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, complex):
        return {"real": _plain(value.real), "imag": _plain(value.imag)}
    if isinstance(value, float):
        # numpy's own float64 is a float, too; JSON is to have plain ones.
        return float(value) if isfinite(value) else str(float(value))
    return value
