"""Exemptions held against what was seen: expired, stale, untrue, unused. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date
from typing import TYPE_CHECKING

from karat.findings import Finding, Severity
from karat.policy.evidence import Known, Merged
from karat.policy.exemptions import ByOp, Exemption, names_op
from karat.policy.gate import needs as messages
from karat.policy.gate.limits import widened_in
from karat.policy.gate.needs import is_differentiable

if TYPE_CHECKING:
    from karat.policy.gate.decision import Judged

FURTHEST = 400
"""Days ahead that an expiry may lie before somebody should be asked."""


def findings(
    merged: Merged, judged: Sequence[Judged], entries: Sequence[Exemption], *, today: date, complete: bool, ops: Iterable[str],
) -> Iterator[Finding]:  # fmt: skip
    """What there is to say about the entries themselves."""
    named = ByOp(entries)
    matched = _matched(judged, entries, named)
    # An operator without a test may be exempt from having one.
    beside = {id(entry) for op in ops for entry in named.about(op)}
    for entry in entries:
        seen = matched.get(id(entry), [])
        known = [merged.tests[one.test] for one in seen]
        if entry.has_expired(today):
            yield _expired(entry, certain=bool(seen) or complete)
            continue
        if entry.expires is not None and (entry.expires - today).days > FURTHEST:
            yield _far(entry)
        if not seen and complete and id(entry) not in beside:
            yield _unused(entry)
        yield from _held(entry, seen, known)


def _matched(
    judged: Sequence[Judged], entries: Sequence[Exemption], named: ByOp
) -> dict[int, list[Judged]]:
    """What each entry speaks of; of a test that never said its op, those that name it."""
    found: dict[int, list[Judged]] = {}
    for one in judged:
        mine = (
            [e for e in named.about(one.op) if e.narrow or e.speaks_of(one.test)]
            if one.op
            else [e for e in entries if e.names(one.test)]
        )
        for entry in mine:
            found.setdefault(id(entry), []).append(one)
    return found


def _held(entry: Exemption, seen: Sequence[Judged], known: Sequence[Known]) -> Iterator[Finding]:
    untrue = _untrue(entry, known)
    if untrue is not None:
        yield untrue
        return
    needless = [
        one.test for one, of in zip(seen, known, strict=True) if _is_needless(entry, one, of)
    ]
    if needless:
        yield _stale(entry, needless)
        return
    used = [one for one in seen if any(need.line == entry.line for need in one.needs)]
    if used or (seen and entry.rule in {"tolerance", "determinism"}):
        yield _covers(entry, [one.test for one in used or seen])
    if entry.kind == "no-grad-op":
        unasked = [one.test for one, of in zip(seen, known, strict=True) if _is_unasked(entry, one, of)]  # fmt: skip
        if unasked:
            yield _unasked(entry, unasked)


def _is_unasked(entry: Exemption, one: Judged, known: Known) -> bool:
    """Whether the entry covers an input that nobody asked for its gradient."""
    asked = {said.input for said in known.no_grads if said.op == one.op}
    return any(need.line == entry.line and need.input not in asked for need in one.needs)


def _is_needless(entry: Exemption, one: Judged, known: Known) -> bool:
    """Whether a test that the entry speaks of does not need it."""
    if entry.kind == "integer-only":
        return False  # it is true, and says what everybody can see
    if entry.rule in {"tolerance", "determinism"}:
        mine = [w for w in widened_in(known) if w.rule == entry.rule and w.op == one.op]
        inside = [w for w in mine if entry.speaks_of(w.test, w.input, w.dtype)]
        checked = any(report.op == one.op for report in known.reports)
        return checked and known.is_whole and not inside
    needs = [n for n in one.needs if entry.speaks_of(one.test, n.input, n.dtype)]
    if not needs:
        return bool(known.declared) and known.is_whole and not entry.narrow
    return all(need.state == "evidence" for need in needs)


def _untrue(entry: Exemption, known: Sequence[Known]) -> Finding | None:
    checks: dict[str, Callable[[Exemption, Known], str | None]] = {
        "no-grad-op": _has_gradient,
        "integer-only": _has_floats,
    }
    check = checks.get(entry.kind)
    for of in known if check else ():
        said = check(entry, of) if check else None
        if said:
            return _finding(
                entry, "exemption-untrue", Severity.FAIL, f"it says {entry.kind}, but {said}"
            )
    return None


def _has_gradient(entry: Exemption, known: Known) -> str | None:
    for one in known.no_grads:
        mine = names_op(entry.op, one.op) and entry.speaks_of(known.test, one.input)
        if mine and one.outcome == "gradient":
            detail = f": {one.detail}" if one.detail else ""
            return (
                f"{known.test} asked {one.op} for the gradient of {one.input} and got one{detail}"
            )
    return None


def _has_floats(entry: Exemption, known: Known) -> str | None:
    for declared in known.declared:
        for name, dtype in declared.inputs.items():
            mine = names_op(entry.op, declared.op) and is_differentiable(dtype)
            if mine and entry.speaks_of(known.test, name, dtype):
                return f"{known.test} gives {name} as {dtype}"
    return None


def _expired(entry: Exemption, *, certain: bool) -> Finding:
    severity = Severity.FAIL if certain else Severity.WARN
    said = f"expired on {entry.expires}, and covers nothing any more; check the gradient, or renew it with a reason"
    return _finding(entry, "exemption-expired", severity, said)


def _far(entry: Exemption) -> Finding:
    said = f"ends on {entry.expires}, more than {FURTHEST} days ahead; what never ends is nobody's concern"
    return _finding(entry, "exemption-invalid", Severity.WARN, said)


def _unused(entry: Exemption) -> Finding:
    said = "no op test of the whole suite is what it speaks of; remove it"
    return _finding(entry, "exemption-unused", Severity.FAIL, said)


def _stale(entry: Exemption, tests: Sequence[str]) -> Finding:
    what = {
        "gradient": "has gradient evidence, or needs none",
        "float64": "has evidence in float64",
        "weak": "has evidence that does not rest on its author alone",
        "tolerance": "passes without a widened tolerance",
        "determinism": "passes without a bound on non-determinism",
    }[entry.rule]
    narrow = "" if entry.narrow else "; remove it, or narrow its scope to the tests that need it"
    said = f"{messages.listed(tests, most=3)} {what}{narrow}"
    return _finding(entry, "exemption-stale", Severity.FAIL, said)


def _covers(entry: Exemption, tests: Sequence[str]) -> Finding:
    until = f" until {entry.expires}" if entry.expires else ""
    said = f"covers {messages.listed(tests, most=3)}{until}: {entry.reason}"
    return _finding(entry, "exempted", Severity.INFO, said)


def _unasked(entry: Exemption, tests: Sequence[str]) -> Finding:
    said = f"{messages.listed(tests, most=3)} did not ask the op for the gradient, so whether it has none is not known"
    return _finding(entry, "exemption-unverified", Severity.FAIL, said)


def _finding(entry: Exemption, kind: str, severity: Severity, said: str) -> Finding:
    return Finding(
        kind=kind,
        severity=severity,
        message=f"{entry.label}: {said}",
        path=entry.path,
        where=f"line {entry.line}",
        metric=entry.op,
        numbers={"owner": entry.owner, "expires": str(entry.expires or ""), "line": entry.line},
        next=None
        if severity is Severity.INFO
        else f"edit {shlex.quote(entry.path)}  # line {entry.line}",
    )
