"""Limits that tests set themselves: a widened tolerance and an allowed non-determinism are exemptions, too. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from datetime import date

import msgspec

from karat.findings import Finding, Severity
from karat.policy.evidence import Known, Merged
from karat.policy.exemptions import ByOp, Exemption
from karat.policy.gate import needs

KEYS = {"tolerance": "max_relative_error", "determinism": "nondeterminism_bound"}
_WHAT = {
    "tolerance": "is allowed a relative error of {0:.3g}, more than the check needs",
    "determinism": "lets two runs of one backward differ by {0:.3g}",
}


class Widened(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a test lets go."""

    rule: str
    test: str
    op: str
    input: str | None = None
    dtype: str | None = None
    value: float
    needed: bool = True
    """Whether the check would not have passed without."""


def widened_in(known: Known) -> Iterator[Widened]:
    """Everything that one test lets go."""
    for one in known.evidence:
        if one.widened is not None:
            yield Widened(
                rule="tolerance",
                test=known.test,
                op=one.op,
                input=one.input,
                dtype=one.dtype,
                value=one.widened,
                needed=one.error is None or one.tolerance is None or one.error > one.tolerance,
            )
    for report in known.reports:
        if report.nondeterminism_bound > 0:
            yield Widened(
                rule="determinism",
                test=known.test,
                op=report.op,
                value=report.nondeterminism_bound,
            )


def allowed_by(entry: Exemption, one: Widened) -> bool:
    """Whether an entry allows that much."""
    limit = getattr(entry, KEYS[one.rule])
    about = entry.covers(one.rule, one.op) and entry.speaks_of(one.test, one.input, one.dtype)
    return about and limit is not None and one.value <= limit


def findings(merged: Merged, active: Sequence[Exemption], *, today: date) -> Iterator[Finding]:
    """What op tests let go without an entry; one finding per test, op and rule."""
    named = ByOp(active)
    for known in merged.tests.values():
        worst: dict[tuple[str, str], Widened] = {}
        for one in widened_in(known) if known.is_op_test else ():
            if not any(allowed_by(entry, one) for entry in named.about(one.op)):
                first = worst.setdefault((one.op, one.rule), one)
                worst[one.op, one.rule] = max(
                    first, one, key=lambda each: (each.needed, each.value)
                )
        yield from (_finding(one, named.about(one.op), today) for one in worst.values())


def _finding(one: Widened, active: Sequence[Exemption], today: date) -> Finding:
    near = [e for e in active if e.covers(one.rule, one.op) and e.speaks_of(one.test, one.input, one.dtype)]  # fmt: skip
    key = KEYS[one.rule]
    found = f"{near[0].path}:{near[0].line} allows {getattr(near[0], key):.3g}" if near else "no entry of exemptions.toml allows it"  # fmt: skip
    spare = "" if one.needed else "; it passes without: take it out"
    whom = f" of {one.input} in {one.dtype}" if one.input else ""
    entry = needs.exemption_entry(
        op=one.op, scope=one.test, rule=one.rule, limits={key: one.value}, today=today
    )
    return Finding(
        kind="tolerance-override",
        severity=Severity.FAIL,
        message=f"{needs.told(one.test, one.op)}: the check{whom} {_WHAT[one.rule].format(one.value)}; {found}{spare}",
        path=one.test.partition("::")[0],
        metric=one.op,
        where=one.test,
        numbers={"rule": one.rule, key: one.value, "entry": entry},
        next=f"edit {shlex.quote(near[0].path) if near else 'exemptions.toml'}",
    )
