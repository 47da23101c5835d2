"""An audit for people: text, and one page of operator × column with each fault's script."""

from __future__ import annotations

from collections.abc import Iterator

from karat.findings import KINDS, Severity
from karat.ops.audit import NOT_AUDITED, AuditedOperator, OpsReport
from karat.ops.worker import COLUMNS, MISSING, OUTCOMES
from karat.report.html import page, text
from karat.report.terminal import COMMAND, Line, aligned, by_kind, widths
from karat.report.words import count

_SHORT = {MISSING: "-", "INCONCLUSIVE": "?", "INACCURATE": "inexact"}
_ADVICE = {
    "grad-failed": "--html has a script for each that shows it without karat.",
    "fault-unverified": "Look at it yourself: karat.gradcheck with the sample reports more.",
    "op-ended": "Run it alone, or with a longer --timeout or a larger --memory.",
}
_STYLE = """
table { border-collapse: collapse; margin: 12px 0; } td, th { border-top: 1px solid var(--line); padding: 2px 10px; text-align: left; vertical-align: top; }
.FAIL { color: var(--fail); font-weight: 650; } .unverified, .known, .INACCURATE { color: var(--warn); } .INCONCLUSIVE, .missing, .note { color: var(--dim); } .PASS { color: var(--good); }
pre { background: var(--panel); border: 1px solid var(--line); padding: 8px; overflow-x: auto; font: 12px/1.4 var(--mono); } summary { cursor: pointer; margin: 12px 0 4px; }
"""


def totals(report: OpsReport) -> str:
    """The answer, in one line; a probe of `karat hunt` can read the number of FAILs from it."""
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    operators = count(len(report.operators), "operator")
    parts = [f"{report.counts.get('FAIL', 0):,} FAIL of {operators} of {versions or report.catalogue}"]
    parts += [f"{report.counts[word]:,} {word}" for word in (*OUTCOMES[1:], NOT_AUDITED) if report.counts.get(word)]
    parts.append(f"{count(report.checks, 'check')}, {report.inconclusive_checks:,} of them inconclusive")
    parts.append(f"{report.seconds:,.0f} s at level {report.level}")
    if report.peer_ratio is not None:
        parts.append(f"{report.peer_ratio:.1f} times as long as the framework's own quick check")
    return " · ".join(parts)


def _rank(one: AuditedOperator) -> tuple[int, str]:
    return (OUTCOMES.index(one.outcome) if one.outcome in OUTCOMES else len(OUTCOMES), one.name)


def lines(report: OpsReport, *, everything: bool = False) -> Iterator[Line]:
    """The answer, a row for each operator that did not simply pass, then the findings."""
    yield ((totals(report), "bold"),)
    if report.skipped:
        yield ((f"     {count(len(report.skipped), 'operator')} not audited: karat ops list says why", "dim"),)
    yield ()
    ranked = sorted(report.operators, key=_rank)
    shown = [one for one in ranked if everything or one.outcome in {"FAIL", "unverified", NOT_AUDITED} or one.ended]
    if shown:
        cells = [[_SHORT.get(word, word) for word in (one.cells.get(c, "") for c in COLUMNS)] for one in shown]
        table = [("operator", *COLUMNS), *((one.name, *row) for one, row in zip(shown, cells, strict=True))]
        columns = widths(table)
        yield ((aligned(table[0], columns, left=len(columns)), "bold"),)
        for row in table[1:]:
            yield ((aligned(row, columns, left=len(columns)), ""),)
        yield ()
    yield from by_kind(report.findings, lambda kind: KINDS[kind].meaning, _ADVICE, everything=everything)
    for one in shown[:1]:
        for fault in one.faults[:1]:
            if fault.script:
                yield ((f"{one.name}, {fault.column}, without karat:", "bold"),)
                yield from (((f"  {line}", COMMAND),) for line in fault.script.splitlines())


def render_html(report: OpsReport, command: str) -> str:
    """One page without a script of its own: findings ranked, each with its own, then every operator."""
    body = [f'<h1>Audit of {text(report.catalogue)}</h1><p class="totals">{text(totals(report))}</p>']
    body.append(f'<p class="note"><code>{text(command)}</code></p>')
    for finding in report.findings:
        if finding.severity is Severity.INFO:
            continue
        about = f"<b>{text(finding.path)}</b> {text(finding.kind)}: {text(finding.message)}"
        body.append(f"<details><summary>{about}</summary>")
        operators = (one for one in report.operators if one.name == finding.path)
        faults = (fault for one in operators for fault in one.faults if fault.column == finding.metric and fault.script)
        scripts = ("\n".join(map(text, fault.script.splitlines())) for fault in faults)
        body += [f"<pre>{script}</pre>" for script in scripts]
        body.append("</details>")
    heads = "".join(f"<th>{text(column)}</th>" for column in ("operator", *COLUMNS, "samples"))
    body.append(f"<table><tr>{heads}</tr>")
    for one in sorted(report.operators, key=_rank):
        row = [f"<td><code>{text(one.name)}</code></td>"]
        for column in COLUMNS:
            outcome, why = one.cells.get(column, ""), one.reasons.get(column, "")
            kind = "missing" if outcome == MISSING else outcome
            row.append(f'<td class="{kind}" title="{text(why)}">{text(outcome)}</td>')
        body.append(f"<tr>{''.join(row)}<td>{one.checked:,} of {one.samples:,} {text(one.ended)}</td></tr>")
    body.append("</table>")
    if report.skipped:
        rows = (f"<li><code>{text(name)}</code>: {text(why)}</li>" for name, why in report.skipped.items())
        body.append(
            f"<details><summary>{len(report.skipped):,} not audited</summary><ul>{''.join(rows)}</ul></details>"
        )
    return page(title=f"Audit of {report.catalogue}", body="\n".join(["<main>", *body, "</main>"]), style=_STYLE)
