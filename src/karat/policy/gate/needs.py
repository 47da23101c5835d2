"""Needs: what the rule asks of one op test, and what stands against each point. Pure.

The rule: evidence in float64 for every differentiable input, on every device that was asked for, unless exempt.
"""

from __future__ import annotations

import json
import shlex
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from typing import TYPE_CHECKING, Literal

import msgspec

from karat.findings import Finding, Severity
from karat.gradients.report import GradVerdict
from karat.gradients.session import Focus
from karat.policy.evidence import Known
from karat.policy.exemptions import TOO_SLOW, Exemption, is_slow
from karat.policy.journal import Evidence, Reported

if TYPE_CHECKING:
    from karat.policy.gate.decision import Judged

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


# DOC-HERE messages: Messages: what a test lacks, and the three ways to set it right.

RULE = "Every op test has gradient evidence in float64 for every differentiable input, or an exemption."

_QUARTER = timedelta(days=90)
"""How long an exemption that karat writes down may hold."""


def lacks(
    test: str, op: str, inputs: Iterable[str], *, why: str = "", devices: Iterable[str] = ()
) -> str:
    """One line: `test_x.py::TestX (op relu): no gradient evidence in float64 for X, Y; why`."""
    named = listed(inputs) or "any input"
    where = f" on {listed(devices)}" if list(devices) else ""
    because = f"; {why}" if why else ""
    return f"{told(test, op)}: no gradient evidence in float64 for {named}{where}{because}"


def run_again(test: str) -> str:
    """The command that runs a test; `file.py::TestOps[relu]` is one op of a class made from specs."""
    class_, bracket, op = test.partition("[")
    if "::" in class_ and bracket and op.endswith("]"):
        return f"pytest {shlex.quote(class_)} -k {shlex.quote(op[:-1])}"
    return f"pytest {shlex.quote(test)}"


def told(test: str, op: str) -> str:
    """A test and its op, for the beginning of a sentence."""
    return f"{test} (op {op})" if op else test


def listed(names: Iterable[str], *, most: int = 6) -> str:
    """`X, Y and 3 more`."""
    every = sorted(set(names))
    more = len(every) - most
    return ", ".join(every[:most]) + (f" and {more:,} more" if more > 0 else "")


def ways(
    test: str, op: str, inputs: Sequence[str] = (), *, reason: str = "", today: date | None = None
) -> list[str]:
    """The three ways to set it right, as lines."""
    names = json.dumps(list(inputs) or ["X"], ensure_ascii=False)
    name = test.rpartition("::")[2]
    entry = exemption_entry(op=op or "OP", scope=test, reason=reason, today=today)
    return [
        f"1. {name} tests an operator: check its gradients,",
        f'     def test_check_grad(self): self.check_grad({names}, "Out")',
        "   and let it run: an empty, skipped or inherited test, or a flag set by hand, is no evidence.",
        f"2. {name} tests a Python API or anything else: let it inherit from unittest.TestCase, not from OpTest.",
        "3. there is a special reason not to check: decorate the class with",
        f"     @skip_check_grad_ci(reason={json.dumps(reason or 'why', ensure_ascii=False)})",
        "   and add this entry to exemptions.toml; it needs an approving review (karat policy approvals):",
        *textwrap.indent(entry, "     ").splitlines(),
    ]


def whole(test: str, op: str, inputs: Sequence[str], *, why: str = "", reason: str = "") -> str:
    """The whole message for an AssertionError: what is missing, and the three ways."""
    return "\n".join(
        [f"{lacks(test, op, inputs, why=why)}.", RULE, *ways(test, op, inputs, reason=reason)]
    )


def exemption_entry(
    *,
    op: str,
    scope: str = "*",
    rule: str = "gradient",
    reason: str = "",
    limits: Mapping[str, float] | None = None,
    today: date | None = None,
) -> str:
    """An entry of exemptions.toml, ready but for who and why."""
    return "\n".join(_entry(op, scope, rule, reason, limits or {}, today))


def _entry(
    op: str, scope: str, rule: str, reason: str, limits: Mapping[str, float], today: date | None
) -> Iterator[str]:
    first = today or date.today()  # noqa: DTZ011 - the day where the person is
    day = min(first, date.max - _QUARTER) + _QUARTER
    yield "[[exemption]]"
    yield f"op = {_text(op)}"
    if scope != "*":
        yield f"scope = {_text(scope)}"
    if rule != "gradient":
        yield f"rule = {_text(rule)}"
    if rule == "gradient":
        yield 'kind = "special"  # or "no-grad-op", if it has no gradient at all, which is verified'
        yield f"reason = {_text(reason or 'why this cannot be checked')}"
    else:
        yield 'kind = "special"'
        yield f"reason = {_text(reason or 'why it is needed')}"
    yield 'owner = "@you"'
    yield 'issue = "https://…"'
    yield f"expires = {day.isoformat()}"
    yield from (f"{key} = {value!r}" for key, value in limits.items())


def _text(words: str) -> str:
    """A text as TOML writes it; what a terminal must not see is escaped."""
    plain = words.encode("utf-8", "backslashreplace").decode()
    return f'"{"".join(map(_spelt, plain))}"'


def _spelt(char: str) -> str:
    if char in {'"', "\\"}:
        return f"\\{char}"
    if char.isprintable():
        return char
    code = ord(char)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


# DOC-HERE gate_sentences: Sentences of the gate: one finding per test and cause, with the ways out of it.

_KINDS: dict[State, str] = {
    "missing": "evidence-missing",
    "no-grad": "evidence-missing",
    "float64": "evidence-missing",
    "weak": "evidence-weak",
    "vacuous": "evidence-vacuous",
    "inconclusive": "evidence-inconclusive",
}


def of_test(judged: Judged, known: Known) -> Iterator[Finding]:
    """Everything the gate has to say of one test and op."""
    wrong = _failed(judged, known)
    if wrong is not None:
        yield wrong
    lacking = [need for need in judged.needs if need.state in _KINDS]
    if judged.skip_reason is not None and lacking:
        yield _skips(judged, lacking)
        return
    kinds = dict.fromkeys(_KINDS[need.state] for need in lacking)
    for kind in kinds:
        mine = [need for need in lacking if _KINDS[need.state] == kind]
        # A check that failed is the reason why there is no evidence, and has been told.
        if not (wrong and kind == "evidence-missing"):
            yield _lacks(kind, judged, known, mine)
    met = bool(judged.needs) and all(need.state == "evidence" for need in judged.needs)
    if judged.skip_reason is not None and met:
        yield _needless_skip(judged)


def _lacks(kind: str, judged: Judged, known: Known, needs: Sequence[Need]) -> Finding:
    why = _because(judged, known, needs)
    devices = sorted({need.device for need in needs if need.device})
    names = [need.input for need in needs if need.input != "*"]
    message = lacks(judged.test, judged.op, names, why=why, devices=devices)
    return Finding(
        kind=kind,
        severity=Severity.FAIL,
        message=message,
        path=judged.file,
        metric=judged.op or None,
        where=judged.test,
        numbers={
            "inputs": ", ".join(names),
            "ran": judged.ran,
            "total": judged.total,
            "line": judged.line,
        },
        next=f"{run_again(judged.test)} --karat-policy",
    )


def _because(judged: Judged, known: Known, needs: Sequence[Need]) -> str:
    said = dict.fromkeys(need.why for need in needs if need.why)
    if said:
        return "; ".join(said)
    if judged.ran < judged.total:
        return f"{judged.total - judged.ran} of its {judged.total} tests were not run"
    for outcome, verb in (("failed", "failed"), ("skipped", "was skipped")):
        for one in known.outcomes:
            if one.outcome == outcome:
                name = one.item.rpartition("::")[2]
                return f"{name} {verb}{f': {one.reason}' if one.reason else ''}"
    if not known.reports:
        return "no gradient check came to its end in it"
    return "its gradient checks compared other inputs"


def _skips(judged: Judged, lacking: Sequence[Need]) -> Finding:
    reason = judged.skip_reason or ""
    names = [need.input for need in lacking if need.input != "*"]
    slow = f"; {TOO_SLOW}" if is_slow(reason) else ""
    return Finding(
        kind="skip-without-exemption",
        severity=Severity.FAIL,
        message=(
            f"{told(judged.test, judged.op)}: skips its gradient check of {listed(names) or 'all inputs'}"
            f" ({reason!r}), and no entry of exemptions.toml covers it{slow}"
        ),
        path=judged.file,
        metric=judged.op or None,
        where=judged.test,
        numbers={"inputs": ", ".join(names), "reason": reason, "line": judged.line},
        next="edit exemptions.toml",
    )


def _needless_skip(judged: Judged) -> Finding:
    return Finding(
        kind="exemption-stale",
        severity=Severity.WARN,
        message=f"{told(judged.test, judged.op)}: is said to skip its gradient check, and has evidence for every input; remove skip_check_grad_ci",
        path=judged.file,
        where=judged.test,
        numbers={"line": judged.line},
        next=f"edit {shlex.quote(judged.file)}",
    )


def _failed(judged: Judged, known: Known) -> Finding | None:
    evidence = [e for e in known.evidence if e.op == judged.op and e.verdict is GradVerdict.FAIL]
    reports = [r for r in known.reports if r.op == judged.op and r.verdict is GradVerdict.FAIL]
    if not evidence and not reports:
        return None
    return Finding(
        kind="grad-failed",
        severity=Severity.FAIL,
        message=f"{told(judged.test, judged.op)}: {_what_failed(evidence, reports)}",
        path=judged.file,
        metric=judged.op or None,
        where=judged.test,
        numbers={"seed": (evidence or reports)[0].seed, "line": judged.line},
        next=_replayed(judged.test, evidence, reports),
    )


def _replayed(test: str, evidence: Sequence[Evidence], reports: Sequence[Reported]) -> str:
    """The command that makes the same probes again; put together here, because a journal may say anything."""
    again = run_again(test)
    if evidence:
        one = evidence[0]
        aim = Focus(input=one.input, output=one.output, dtype=one.dtype)
        return f"{again} --karat-grad-seed {one.seed} --karat-grad-focus {shlex.quote(str(aim))}"
    return f"{again} --karat-grad-seed {reports[0].seed}"


def _what_failed(evidence: Sequence[Evidence], reports: Sequence[Reported]) -> str:
    if not evidence:
        return reports[0].reason or "a gradient check failed"
    first = evidence[0]
    others = len(evidence) - 1
    more = f" and {others:,} more comparison{'s' if others > 1 else ''}" if others else ""
    why = f": {first.reason}" if first.reason else ""
    return (
        f"the gradient of {first.input} by {first.output} is wrong in {first.dtype} on {first.device}"
        f" ({first.mode}, order {first.order}){more}{why}"
    )


def ignored(test: str, report: Reported) -> Finding:
    """A check failed, and its test passed: perhaps it meant to."""
    return Finding(
        kind="grad-failed",
        severity=Severity.WARN,
        message=f"{told(test, report.op)}: a gradient check failed, and the test passed; use .require() unless it is meant to fail",
        path=test.partition("::")[0],
        where=test,
        numbers={"seed": report.seed},
        next=_replayed(test, (), [report]),
    )


def not_selected(judged: Sequence[Judged]) -> Iterator[Finding]:
    """One line for all that this run left out."""
    left = [one for one in judged if one.state == "not-selected"]
    if left:
        yield Finding(
            kind="not-selected",
            severity=Severity.INFO,
            message=f"{listed((one.test for one in left), most=3)}: not run, or not all of it; nothing is said of it",
            numbers={"tests": len(left)},
        )
