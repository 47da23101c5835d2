"""An audit for people and programs: text, one page, SARIF, JSON."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from karat.audits.audit import AuditReport
from karat.findings import KINDS, Severity
from karat.goldens.paths import common_root
from karat.report import sarif
from karat.report.html import page, text
from karat.report.terminal import Line, by_kind
from karat.report.words import count, severity_counts, short_path

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
summary { font-size: 15px; margin: 18px 0 4px; cursor: pointer; } table { border-collapse: collapse; width: 100%; }
td { border-top: 1px solid var(--line); padding: 3px 8px; vertical-align: top; overflow-wrap: anywhere; }
.fail { color: var(--fail); } .warn { color: var(--warn); } .info, .note { color: var(--dim); } code { font-family: var(--mono); font-size: 12px; }
"""


def totals(report: AuditReport) -> str:
    """The answer, in one line."""
    worst = len({f.path for f in report.findings if f.severity is Severity.FAIL and f.path})
    parts = [f"{count(report.goldens, 'golden')}: {severity_counts(report.findings) or 'nothing to object to'}"]
    parts += [f"{count(worst, 'file')} must not stay so"] if worst else []
    parts += [count(report.tests, "test")] if report.tests else []
    parts += [f"{report.known:,} known"] if report.known else []
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


def render_sarif(report: AuditReport, version: str, exit_code: int) -> bytes:
    """For code scanning, without what is info."""
    tool = sarif.Tool(name="karat audit", version=version, tags=("goldens",), help=_ADVICE)
    shown = [finding for finding in report.findings if finding.severity is not Severity.INFO]
    return sarif.render(shown, tool, exit_code=exit_code, properties={"goldens": report.goldens})


def render_html(report: AuditReport, command: str) -> str:
    """One page without a script; info is folded."""
    root = common_root(finding.path for finding in report.findings if finding.path)
    body = [f'<h1>Audit of goldens {text(root)}</h1><p class="totals">{text(totals(report))}</p>']
    body += [f'<p class="note">{words}</p>' for words in (f"<code>{text(command)}</code>", *map(text, report.notes))]
    for (severity, kind), group in groupby(report.findings, key=lambda f: (f.severity, f.kind)):
        found = list(group)
        opened = "" if severity is Severity.INFO else " open"
        head = f'<b class="{severity}">{severity}</b> {text(kind)}: {len(found):,}'
        about = text(f"{_title(kind)}. {_ADVICE.get(kind, '')}")
        body.append(f'<details{opened}><summary>{head} <span class="note">{about}</span></summary><table>')
        cells = ((short_path(finding.path, root), finding.message) for finding in found)
        body += [f"<tr><td><code>{text(path)}</code></td><td>{text(said)}</td></tr>" for path, said in cells]
        body.append("</table></details>")
    return page(title="Audit of goldens", body="\n".join(["<main>", *body, "</main>"]), style=_STYLE)
