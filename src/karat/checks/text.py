"""A check shown: in a terminal, as JUnit XML with one test case per golden and metric, and as the summary of a step of CI.

In a terminal: the outcome; what failed, in full; what else there is to know; what passed, in a line. A failure in JUnit says
the same; what was exempted, or only shown, is a skipped test; what could not be verified is an error rather than a failure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal

from karat.checks.report import Checked, CheckReport, absent, details, headline
from karat.compare.gate.result import SHUT, CheckOutcome, MetricResult
from karat.findings import Finding, Severity
from karat.report import junit
from karat.report.junit import TestCase, TestProblem
from karat.report.markdown import code, fit_bytes, prose, table
from karat.report.terminal import COMMAND, STYLES, Line
from karat.report.words import count, few

_STYLES = {
    **dict.fromkeys((CheckOutcome.FAIL, CheckOutcome.MISSING_ACTUAL, CheckOutcome.NOTHING_COMPARED), "bold red"),
    CheckOutcome.CANNOT_VERIFY: "bold magenta",
    CheckOutcome.MISSING_GOLDEN: "yellow",
    CheckOutcome.IMPROVED: "cyan",
    CheckOutcome.EXEMPTED: "dim",
    CheckOutcome.PASS: "green",
    CheckOutcome.INFO: "dim",
}
_CHECKS_SHOWN = 20
_RESULTS_SHOWN = 20
_QUIET = frozenset({CheckOutcome.PASS, CheckOutcome.INFO})


def lines(report: CheckReport) -> Iterator[Line]:
    """The report: the outcome of the whole, then golden by golden, gravest first."""
    tally = Counter(c.outcome for c in report.checks)
    parts = ", ".join(f"{tally[o]:,} {o.value}" for o in CheckOutcome if tally[o])
    what = f"{count(len(report.checks), 'golden')}: {parts}" if parts else "no golden"
    yield (
        (f"{report.outcome.value}  ", _STYLES[report.outcome]),
        (f"{what}; {count(report.compared, 'value')} compared", ""),
    )
    alone = len(report.checks) == 1
    loud = [c for c in report.checks if alone or (c.outcome not in _QUIET or c.severity not in {None, Severity.INFO})]
    for checked in loud[:_CHECKS_SHOWN]:
        yield ()
        yield from _checked(checked)
    if len(loud) > _CHECKS_SHOWN:
        yield ()
        yield ((f"… and {len(loud) - _CHECKS_SHOWN:,} more (--json - lists all)", "dim"),)
    if report.findings:
        yield ()
    for finding in report.findings:
        yield from _finding(finding, "")
        if finding.next:
            yield ("  next: ", "dim"), (finding.next, COMMAND)


def _checked(checked: Checked) -> Iterator[Line]:
    against = f"  against {checked.golden}" if checked.golden else ""
    outcome = checked.outcome
    yield (f"{outcome.value}  ", _STYLES[outcome]), (checked.actual or "(no result)", "bold"), (against, "")
    about_file = checked.about_file()
    for finding in about_file:
        yield from _finding(finding, "  ")
    # A passing check has nothing else to say, so it says how close it was.
    loud = [r for r in checked.results if r.outcome not in _QUIET or r.kind]
    shown = loud or checked.results
    width = max((len(r.outcome.value) for r in shown), default=0)
    cut = any(f.kind == "truncated" for f in checked.findings)
    for result in shown[:_RESULTS_SHOWN]:
        # Where the whole run was cut off, each curve need not explain it again.
        yield from _result(result, width, brief=cut and absent(result))
    if len(shown) > _RESULTS_SHOWN:
        yield ((f"  … and {len(shown) - _RESULTS_SHOWN:,} more (--json - lists all)", "dim"),)
    for outcome in (CheckOutcome.PASS, CheckOutcome.INFO) if loud else ():
        if calm := [r.metric for r in checked.results if r.outcome is outcome and not r.kind]:
            yield (f"  {outcome.value:<{width}}  ", _STYLES[outcome]), (few(calm, 8), "dim")
    yield from _commands(checked, about_file)


def _finding(finding: Finding, indent: str) -> Iterator[Line]:
    severity = finding.severity
    yield (f"{indent}{severity.value:<5}", STYLES[severity]), (f"{finding.kind}: ", "bold"), (finding.message, "")


def _result(result: MetricResult, width: int, *, brief: bool) -> Iterator[Line]:
    outcome = (f"  {result.outcome.value:<{width}}  ", _STYLES[result.outcome])
    yield outcome, (f"{result.metric}  ", "bold"), (headline(result), "")
    if brief:
        return
    if result.outcome in SHUT or result.outcome is CheckOutcome.EXEMPTED:
        for label, sentence in details(result):
            yield (f"  {'':<{width}}  {label:<7}", "dim"), (sentence, "")
    elif result.likely and result.kind:
        yield (f"  {'':<{width}}  likely ", "dim"), (result.likely, "")


def _commands(checked: Checked, about_file: Sequence[Finding]) -> Iterator[Line]:
    """Each command once: what to look at, and what takes the result as it is."""
    wanted = [f.next for f in checked.findings if f.next and f.severity is not Severity.INFO]
    wanted += [f.next for f in about_file if f.next]
    if checked.refresh and any(r.outcome in SHUT | {CheckOutcome.IMPROVED} for r in checked.results):
        wanted.append(checked.refresh)
    for command in dict.fromkeys(wanted):
        label = "to take it" if command == checked.refresh else "next"
        yield (f"  {label}: ", "dim"), (command, COMMAND)


_SKIPPED = frozenset({CheckOutcome.EXEMPTED, CheckOutcome.INFO})
_LONGEST = 4000


def render_junit(report: CheckReport) -> bytes:
    """The XML text: well-formed whatever names and values say."""
    suites = []
    for checked in report.checks:
        severities = {(f.metric, f.kind): f.severity for f in checked.findings}
        cases = [_junit_case(checked.name, r, severities.get((r.metric, r.kind))) for r in checked.results]
        tag: Literal["error", "failure"] = "error" if checked.outcome is CheckOutcome.CANNOT_VERIFY else "failure"
        # Without a single metric, all findings there are.
        told = [f for f in checked.about_file() if f.severity is Severity.FAIL or not checked.results]
        suites.append((checked.name, [*cases, *(junit.case_of(checked.name, f, tag) for f in told)]))
    about_all = [junit.case_of("karat check", f, "failure") for f in report.findings]
    return junit.render("karat check", [*suites, ("karat check", about_all)])


def _junit_case(owner: str, result: MetricResult, severity: Severity | None) -> TestCase:
    name = result.metric
    if result.exemption is not None:
        name = f"{name} (exemption {result.exemption + 1})"
    text, problem, printed = headline(result), None, ""
    if result.outcome in _SKIPPED:
        why = f"{result.because}; {text}" if result.because else text
        problem = TestProblem("skipped", why)
    elif severity is Severity.FAIL:
        body = "".join(f"{label}: {sentence}\n" for label, sentence in details(result))
        problem = TestProblem("failure", text, result.kind, body)
    elif severity is not None:
        printed = f"{result.outcome.value}: {text}"
    return TestCase(classname=owner, name=name, problem=problem, printed=printed)


def summary(report: CheckReport, room: int) -> str:
    """The summary of a step of GitHub Actions, as Markdown of at most `room` bytes."""
    text = "".join(f"\n{prose(f.message, _LONGEST)}\n" for f in report.findings)
    head = f"## karat check: {report.headline()}\n{text}"
    return fit_bytes(head, [_section(checked) for checked in report.checks], room, "golden")


def _section(checked: Checked) -> str:
    rows = [
        (code(r.metric), r.outcome.value, prose(headline(r), _LONGEST), prose(r.likely or "", _LONGEST))
        for r in checked.results
        if r.outcome not in {CheckOutcome.PASS, CheckOutcome.INFO}
    ]
    parts = [f"\n### {checked.outcome.value}: {code(checked.name)}\n\n"]
    parts += [f"- {f.severity.value}: {prose(f.message, _LONGEST)}\n" for f in checked.about_file()]
    if rows:
        parts.append(table(("metric", "outcome", "what", "likely"), rows, numbers=False) + "\n")
    if checked.refresh and checked.outcome is not CheckOutcome.PASS:
        parts.append(f"\nTo take this result: {code(checked.refresh, _LONGEST)}\n")
    return "".join(parts)
