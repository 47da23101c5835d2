"""An audit for people and programs: text, one page, SARIF, JSON."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from karat import __version__
from karat.audits.audit import AuditReport
from karat.audits.lint import LintReport
from karat.findings import KINDS, Severity
from karat.goldens.paths import common_root
from karat.report import sarif
from karat.report.html import FOOT, TONES, badge, head, page, text
from karat.report.terminal import Line, by_kind
from karat.report.words import short_path

_ADVICE = {
    "copied-golden": "Refresh the one that is wrong; delete the other if it is no test's.",
    "empty": "Refresh it, or delete it: a test that expects nothing passes whatever happens.",
    "conflict-markers": "Resolve the merge; `karat git-setup` lets git merge goldens by step and metric.",
    "mixed-style": "Format the whole file in one style; any will do.",
    "not-finite": "Refresh it from a run whose metric is finite.",
    "stale-golden": "Refresh it, or delete it if its test does not run any more.",
    "test-without-golden": "Record or refresh one, or delete the test.",
    "untold-tolerance": "Tell golden.capture or karat.capture the rtol and atol that the test compared with.",
    "vacuous-golden": "Narrow the tolerance, or scale the inputs so that outputs are larger than it.",
    "truncated": "Refresh it from a run that came to its end.",
    "untested-golden": "Delete it, or bring its test back.",
}


def lines(report: AuditReport | LintReport, *, everything: bool = False) -> Iterator[Line]:
    """The answer, then each kind of finding with its members, gravest first."""
    root = common_root(finding.path for finding in report.findings if finding.path)
    yield (report.headline(), "bold"), (f"  {root}/" if root else "", "dim")
    for note in report.notes if isinstance(report, AuditReport) else ():
        yield ((f"     {note}", "dim"),)
    if report.findings:
        yield ()
    yield from by_kind(report.findings, _title, _ADVICE, everything=everything, root=root)


def _title(kind: str) -> str:
    return KINDS[kind].meaning if kind in KINDS else kind


def render_sarif(report: AuditReport, exit_code: int) -> bytes:
    """For code scanning, without what is info."""
    tool = sarif.Tool(name="karat audit", version=__version__, tags=("goldens",), help=_ADVICE)
    shown = [finding for finding in report.findings if finding.severity is not Severity.INFO]
    return sarif.render(shown, tool, exit_code=exit_code, properties={"goldens": report.goldens})


def render_html(report: AuditReport, command: str) -> str:
    """One page, readable without scripts; info is folded."""
    root = common_root(finding.path for finding in report.findings if finding.path)
    answer = report.headline()
    body = [
        head(
            answer,
            about=f"Audit of goldens{f'; findings below {root}' if root else ''}",
            lines=map(text, report.notes),
            command=command,
        ),
        "<main>",
    ]
    for (severity, kind), group in groupby(report.findings, key=lambda f: (f.severity, f.kind)):
        found = list(group)
        opened = "" if severity is Severity.INFO else " open"
        words = f"{badge(severity.value, TONES[severity])} <b>{text(kind)}</b> {len(found):,} ·"
        about = text(f"{_title(kind)}. {_ADVICE.get(kind, '')}")
        body.append(f'<details{opened}><summary>{words} {about}</summary><table class="rows">')
        cells = ((short_path(finding.path, root), finding.message) for finding in found)
        body += [f"<tr><td><code>{text(path)}</code></td><td>{text(said)}</td></tr>" for path, said in cells]
        body.append("</table></details>")
    return page(title=answer, body="\n".join([*body, "</main>", FOOT]))
