"""An audit for people: text, and one page of operator × column with each fault's script."""

from __future__ import annotations

from collections.abc import Iterator

from karat.findings import KINDS, Severity
from karat.ops.audit import NOT_AUDITED, AuditedOperator, OpsReport
from karat.ops.worker import COLUMNS, MISSING, OUTCOMES
from karat.report.html import FOOT, TONES, Markup, badge, head, page, table, text
from karat.report.terminal import Line, aligned, by_kind, widths
from karat.report.words import count

_SHORT = {MISSING: "-", "INCONCLUSIVE": "?", "INACCURATE": "inexact"}
_ADVICE = {
    "grad-failed": "--html has a script for each that shows it without karat.",
    "fault-unverified": "Look at it yourself: karat.gradcheck with the sample reports more.",
    "op-ended": "Run it alone, or with a longer --timeout or a larger --memory.",
}
_STYLE = "pre { background: var(--panel); border: 1px solid var(--line); padding: 8px; overflow-x: auto; }"
_TONES = {
    "FAIL": "grave",
    "unverified": "warn",
    "INACCURATE": "warn",
    NOT_AUDITED: "warn",
    "known": "info",
    "INCONCLUSIVE": "info",
    "PASS": "good",
}


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


def render_html(report: OpsReport, command: str) -> str:
    """One page: faults ranked, each with its script, then every operator."""
    answer, *rest = totals(report).split(" · ")
    about = f"Audit of {report.catalogue}"
    body = [head(answer, about=about, lines=[text(" · ".join(rest))], command=command), "<main>"]
    faults = {(one.name, fault.column): fault.script for one in report.operators for fault in one.faults}
    for finding in report.findings:
        if finding.severity is Severity.INFO:
            continue
        said = f"{badge(finding.severity.value, TONES[finding.severity])} <b>{text(finding.path)}</b>"
        body.append(f"<details><summary>{said} {text(finding.kind)}: {text(finding.message)}</summary>")
        script = faults.get((finding.path, finding.metric or ""), "")
        lines = "\n".join(map(text, script.splitlines()))
        body.append(f'<pre><code data-copy="script">{lines}</code></pre></details>' if script else "</details>")
    rows: list[tuple[str, list[object]]] = []
    for one in sorted(report.operators, key=_rank):
        cells = (one.cells.get(column, "") for column in COLUMNS)
        marked = (
            Markup(badge(cell, _TONES[cell])) if _TONES.get(cell) in {"grave", "warn"} else cell for cell in cells
        )
        why = (f"{column}: {one.reasons[column]}" for column in COLUMNS if one.reasons.get(column))
        ended = "; ".join(filter(None, (*why, one.ended)))
        rows.append((one.outcome, [one.name, *marked, f"{one.checked:,} of {one.samples:,}", ended]))
    body.append(table("operators", ["operator", *COLUMNS, "samples", "why"], rows, _TONES))
    if report.skipped:
        left = (f"<li><code>{text(name)}</code>: {text(why)}</li>" for name, why in report.skipped.items())
        said = f"{len(report.skipped):,} not audited"
        body.append(f"<details><summary>{said}</summary><ul>{''.join(left)}</ul></details>")
    return page(title=f"{answer} · {about}", body="\n".join([*body, "</main>", FOOT]), style=_STYLE)
