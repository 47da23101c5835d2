"""An audit for people and programs: text, one page, SARIF, JSON."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from karat.audits.audit import AuditReport
from karat.findings import KINDS, Finding
from karat.goldens.paths import common_root
from karat.report import sarif
from karat.report.html import page, text
from karat.report.json import encode_report
from karat.report.terminal import Line, by_kind
from karat.report.words import count, severity_counts

SCHEMA = "karat.audit/1"
_ADVICE = {
    "copied-golden": "Refresh the one that is wrong; delete the other if it is no test's.",
    "empty": "Refresh it, or delete it: a test that expects nothing passes whatever happens.",
    "not-finite": "Refresh it from a run whose metric is finite.",
    "stale-golden": "Refresh it, or delete it if its test does not run any more.",
    "test-without-golden": "Record or refresh one, or delete the test.",
    "truncated": "Refresh it from a run that came to its end.",
    "untested-golden": "Delete it, or bring its test back.",
}
_STYLE = """
h2 { font-size: 16px; margin: 22px 0 4px; } table { border-collapse: collapse; width: 100%; }
td { border-top: 1px solid var(--line); padding: 3px 8px; vertical-align: top; overflow-wrap: anywhere; }
.fail { color: var(--fail); } .warn { color: var(--warn); } .info, .note { color: var(--dim); } code { font-family: var(--mono); font-size: 12px; }
"""


def totals(report: AuditReport) -> str:
    """The answer, in one line."""
    worst = {f.path for f in report.findings if f.severity.value == "fail"}
    parts = [f"{count(report.goldens, 'golden')}: {severity_counts(report.findings) or 'nothing to object to'}"]
    if worst:
        parts.append(
            f"{count(len(worst), 'file')} must not stay as they are"
            if len(worst) > 1
            else "1 file must not stay as it is"
        )
    if report.tests:
        parts.append(count(report.tests, "test"))
    if report.known:
        parts.append(f"{report.known:,} known")
    return " · ".join(parts)


def lines(report: AuditReport, *, everything: bool = False) -> Iterator[Line]:
    """The answer, then each kind of finding with its members, gravest first."""
    root = common_root(finding.path for finding in report.findings if finding.path)
    yield (totals(report), "bold"), (f"  {root}/" if root else "", "dim")
    for note in report.notes:
        yield ((f"     {note}", "dim"),)
    yield ()
    yield from by_kind(report.findings, _title, _ADVICE, everything=everything, root=root)


def _title(kind: str) -> str:
    return KINDS[kind].meaning if kind in KINDS else kind


def render_json(report: AuditReport, fail_on: tuple[str, ...]) -> bytes:
    """Schema karat.audit/1."""
    return encode_report(SCHEMA, report, fail_on=fail_on)


def render_sarif(report: AuditReport, version: str, exit_code: int) -> bytes:
    """For code scanning; what is known is left out."""
    tool = sarif.Tool(name="karat audit", version=version, tags=("goldens",), help=_ADVICE)
    known = [finding for finding in report.findings if finding.severity.value != "info"]
    return sarif.render(known, tool, exit_code=exit_code, properties={"goldens": report.goldens})


def render_html(report: AuditReport, command: str) -> str:
    """One page without a script."""
    return page(title="Audit of goldens", body="\n".join(_body(report, command)), style=_STYLE)


def _body(report: AuditReport, command: str) -> Iterator[str]:
    yield f'<main><h1>Audit of goldens</h1><p class="totals">{text(totals(report))}</p><p class="note"><code>{text(command)}</code></p>'
    yield from (f'<p class="note">{text(note)}</p>' for note in report.notes)
    for (severity, kind), group in groupby(report.findings, key=lambda f: (f.severity, f.kind)):
        found = list(group)
        folded = "" if severity.value != "info" else f"<details><summary>{count(len(found), 'finding')}</summary>"
        yield f'<h2><span class="{severity.value}">{severity.value}</span> {text(kind)}: {len(found):,}</h2>'
        yield f'<p class="note">{text(_title(kind))}. {text(_ADVICE.get(kind, ""))}</p>{folded}<table>'
        yield from (_row(finding) for finding in found)
        yield f"</table>{'</details>' if folded else ''}"
    yield "</main>"


def _row(finding: Finding) -> str:
    then = f"<br><code>{text(str(finding.next))}</code>" if finding.next else ""
    return f"<tr><td><code>{text(finding.path)}</code></td><td>{text(finding.message)}{then}</td></tr>"
