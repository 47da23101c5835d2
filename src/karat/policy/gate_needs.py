"""Needs: what the rule asks of one op test, and what stands against each point. Pure.

The rule: evidence in float64 for every differentiable input, on every device that was asked for, unless exempt.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import msgspec

from karat.gradients.report import GradVerdict
from karat.policy.exemptions import Exemption
from karat.policy.merging import Known
from karat.policy.records import Evidence

State = Literal[
    "evidence", "exempt", "not-selected", "failed", "no-grad", "float64", "weak", "vacuous", "inconclusive", "missing",
]  # fmt: skip
DOUBLE = frozenset({"float64", "complex128"})
_WHOLE_NUMBERS = ("int", "uint", "bool")
_SAME = {"gpu": "cuda", "rocm": "cuda"}
_BENDS: dict[str, tuple[str, ...]] = {
    "float64": ("gradient", "float64"),
    "weak": ("gradient", "weak"),
}
"""State → the rules an exemption from which covers it; only from gradient for the others."""


class Need(msgspec.Struct, frozen=True, kw_only=True):
    """One input that must have evidence."""

    input: str
    dtype: str
    """As the test gave it."""
    device: str | None = None
    """None: any will do."""
    state: State
    why: str = ""
    line: int | None = None
    """Of the exemption that covers it."""

    @property
    def is_met(self) -> bool:
        """By evidence, or by an exemption."""
        return self.state in {"evidence", "exempt"}


def is_differentiable(dtype: str) -> bool:
    """Integers and booleans have no gradient; whatever is not known to be one has."""
    return not dtype.startswith(_WHOLE_NUMBERS)


def is_of_backward(e: Evidence) -> bool:
    """Whether it is about the backward, of first order: forward mode runs other code, and proves nothing of it."""
    return e.mode == "reverse" and e.order == 1


def same_device(found: str, wanted: str) -> bool:
    """`cuda:0` is `cuda`, and so is what other frameworks call gpu."""
    kinds = [name.partition(":")[0].lower() for name in (found, wanted)]
    return len({_SAME.get(kind, kind) for kind in kinds}) == 1


def inputs_of(known: Known, op: str) -> dict[str, str]:
    """Every differentiable input that the test declared for an op, with a dtype it had."""
    found: dict[str, str] = {}
    for declared in known.declared:
        for name, dtype in declared.inputs.items():
            if declared.op == op and is_differentiable(dtype):
                found.setdefault(name, dtype)
    return found


def needs_of(
    known: Known, op: str, devices: Sequence[str], entries: Sequence[Exemption]
) -> tuple[Need, ...]:
    """What one test needs for one op, and what it has."""
    set_aside = {name for one in known.declared if one.op == op for name in one.no_grad}
    each = []
    for name, dtype in inputs_of(known, op).items():
        every = [e for e in known.evidence if (e.op, e.input) == (op, name)]
        mine = [e for e in every if is_of_backward(e)]
        beside = (
            "on other devices" if mine else "in forward mode or a higher order" if every else ""
        )
        for device in devices or (None,):
            here = [e for e in mine if device is None or same_device(e.device, device)]
            state, why = _state(here, set_aside=name in set_aside, beside=beside)
            need = Need(input=name, dtype=dtype, device=device, state=state, why=why)
            each.append(covered(need, known.test, op, entries))
    return tuple(each)


def covered(need: Need, test: str, op: str, entries: Iterable[Exemption]) -> Need:
    """The same, exempt if an entry covers it; a gradient that is wrong is never exempt."""
    if need.state in {"evidence", "failed"}:
        return need
    for entry in entries:
        if covers(entry, need, test, op):
            return msgspec.structs.replace(
                need, state="exempt", why=f"{entry.kind}: {entry.reason}", line=entry.line
            )
    return need


def covers(entry: Exemption, need: Need, test: str, op: str) -> bool:
    """Whether an entry says that this need not be met."""
    if entry.kind == "integer-only":
        return False  # such inputs need nothing, and this one is none of them
    rules = _BENDS.get(need.state, ("gradient",))
    return any(entry.covers(rule, op) for rule in rules) and entry.speaks_of(
        test, need.input, need.dtype
    )


def _state(here: Sequence[Evidence], *, set_aside: bool, beside: str) -> tuple[State, str]:
    if any(e.verdict is GradVerdict.FAIL for e in here):
        return "failed", next(e.reason for e in here if e.verdict is GradVerdict.FAIL)
    strong = [e for e in here if e.counts]
    if any(e.dtype in DOUBLE for e in strong):
        return "evidence", ""
    if strong:
        dtypes = ", ".join(sorted({e.dtype for e in strong}))
        return "float64", f"only in {dtypes}"
    lesser = next(_lesser(here), None)
    if lesser is not None:
        return lesser
    if set_aside:
        return "no-grad", "set aside by no_grad_set, and nobody says why"
    return "missing", f"compared {beside} alone" if beside else ""


def _lesser(here: Sequence[Evidence]) -> Iterator[tuple[State, str]]:
    """What was compared and does not count, the nearest to evidence first."""
    for e in here:
        if e.verdict is GradVerdict.PASS and e.strength == "weak" and not e.vacuous:
            yield "weak", "compared with the author's own gradients, and with nothing else"
    for e in here:
        if e.vacuous:
            yield "vacuous", e.reason or "corrupted gradients passed the same check"
    for e in here:
        if e.verdict is GradVerdict.INCONCLUSIVE:
            yield "inconclusive", e.reason or "the check could not decide"
