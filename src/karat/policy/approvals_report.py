"""The approvals of a range: for people as a table, for programs as schema karat.policy-approvals/1, as Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from karat.findings import ExitCode, Severity
from karat.policy.approvals import Approvals
from karat.policy.approvals_judging import Judged
from karat.policy.changed_policies_waiver import Waiver
from karat.report.plain import encode, finding_json
from karat.report.words import count, printable

SCHEMA = "karat.policy-approvals/1"
_ROWS = 200
"""GitHub takes a step summary of 1 MiB, and shows none that is larger."""
_HEADS = ("state", "rule", "change", "where", "approvers", "approved by / missing")


def document(told: Approvals) -> bytes:
    """The JSON text of the report."""
    return encode(
        {
            "schema": SCHEMA,
            "exit_code": int(told.exit_code),
            "base": told.base,
            "head": told.head,
            "request": told.request,
            "files": told.files,
            "changes": [_change(one) for one in told.judged],
            "findings": [finding_json(finding) for finding in told.findings],
        }
    )


def _change(one: Judged) -> dict[str, Any]:
    return {
        "state": one.state,
        "change": one.change.what,
        "digest": one.change.digest,
        "note": one.change.note,
        "waiver": _waiver(one.change.waiver),
        "before": _waiver(one.change.before) if one.change.before else None,
        "needed": list(one.needed),
        "approved_by": list(one.approved_by),
        "missing": list(one.missing),
        "unknown": list(one.unknown),
    }


def _waiver(waiver: Waiver) -> dict[str, Any]:
    names = ("rule", "kind", "path", "line", "scope", "op", "about", "shown")
    return {name: getattr(waiver, name) for name in names}


def lines(told: Approvals) -> Iterator[str]:
    """The report for people: a block for each change, what else there is to say, and the outcome."""
    for one in told.judged:
        yield from _block(one)
        yield ""
    for finding in told.findings:
        # What is missing stands in the blocks already.
        if finding.kind != "approval-missing" or finding.severity is not Severity.FAIL:
            yield f"{finding.severity.value}  {finding.kind}: {finding.message}"
    yield _last(told)


def _block(one: Judged) -> Iterator[str]:
    state, rule, change, where, approvers, outcome = _row(one)
    yield f"{state:<8}  {rule:<11}  {where}"
    yield f"          {change}"
    yield f"          needs {approvers}"
    yield f"          {'by' if one.approved_by else 'found'} {outcome}"


def _row(one: Judged) -> tuple[str, ...]:
    waiver = one.change.waiver
    note = f" ({one.change.note})" if one.change.note else ""
    before = f"{one.change.before.shown} → " if one.change.before and not one.change.note else ""
    what = f"{one.change.what} {waiver.label}: {before}{waiver.shown}{note}".removesuffix(": ")
    outcome = ", ".join(one.approved_by) or "; ".join(dict.fromkeys((*one.unknown, *one.missing)))
    who = " or ".join(one.needed) or "nobody"
    return tuple(map(printable, (one.state, waiver.rule, what, waiver.place, who, outcome)))


def _last(told: Approvals) -> str:
    tally = Counter(one.state for one in told.judged)
    parts = [
        f"{tally[state]:,} {state}" for state in ("approved", "missing", "unknown") if tally[state]
    ]
    of = f" ({told.request})" if told.request else ""
    span = f"{told.base[:12]}..{told.head[:12]}{of}, {count(told.files, 'Python file')} changed"
    if not told.judged:
        said = "nothing to approve" if told.exit_code is ExitCode.OK else "not verified"
        return f"{said}: {span}"
    return f"{count(len(told.judged), 'change')} to approve: {', '.join(parts)}; {span}"


def markdown(told: Approvals) -> str:
    """The table for GitHub's step summary."""
    shown = told.judged[:_ROWS]
    rows = [_HEADS, tuple("---" for _ in _HEADS), *(_row(one) for one in shown)]
    table = [f"| {' | '.join(_cells(row))} |" for row in rows] if shown else []
    if len(told.judged) > len(shown):
        table.append(f"\n… and {len(told.judged) - len(shown):,} more")
    return "\n".join(["### karat policy approvals", "", *table, "", _cells([_last(told)])[0], ""])


def _cells(row: Sequence[str]) -> list[str]:
    """Cells that cannot end the table, begin HTML or mention anyone."""
    plain = [cell.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;") for cell in row]
    return [cell.replace("@", "@\u200b").replace("`", "\\`") for cell in plain]
