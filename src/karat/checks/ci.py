"""What a CI shows of a check: JUnit XML with one test case per golden and metric, GitHub's annotations and summary.

A failure says what the terminal says. What was exempted, or only shown, is a skipped test; what could not be verified
is an error rather than a failure.
"""

from __future__ import annotations

from karat.checks.report import Checked, CheckReport, details, headline
from karat.compare.gate.result import CheckOutcome, MetricResult
from karat.findings import Finding, Severity
from karat.report import junit
from karat.report.junit import TestCase, TestProblem
from karat.report.markdown import code, prose, table
from karat.report.words import count

_SKIPPED = frozenset({CheckOutcome.EXEMPTED, CheckOutcome.INFO})
_LONGEST = 4000
_RESERVED = 1 << 10  # Bytes of a step's summary that are left for the line that says what was left out.


def render_junit(report: CheckReport) -> bytes:
    """The XML text: well-formed whatever names and values say."""
    suites = []
    for checked in report.checks:
        severities = {(f.metric, f.kind): f.severity for f in checked.findings}
        cases = [_case(checked.name, r, severities.get((r.metric, r.kind))) for r in checked.results]
        error = checked.outcome is CheckOutcome.CANNOT_VERIFY
        # Without a single metric, all findings there are.
        told = [f for f in checked.about_file() if f.severity is Severity.FAIL or not checked.results]
        suites.append((checked.name, [*cases, *(_finding_case(checked.name, f, error=error) for f in told)]))
    about_all = [_finding_case("karat check", f, error=False) for f in report.findings]
    return junit.render("karat check", [*suites, ("karat check", about_all)])


def _case(owner: str, result: MetricResult, severity: Severity | None) -> TestCase:
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


def _finding_case(owner: str, finding: Finding, *, error: bool) -> TestCase:
    if finding.severity is not Severity.FAIL:
        return TestCase(classname=owner, name=finding.kind, printed=finding.message)
    problem = TestProblem("error" if error else "failure", finding.message, finding.kind, finding.next or "")
    return TestCase(classname=owner, name=finding.kind, problem=problem)


def summary(report: CheckReport, room: int) -> str:
    """The summary of a step of GitHub Actions, as Markdown of at most `room` bytes."""
    left = room - _RESERVED
    if left <= 0:
        return ""
    text = "".join(f"\n{prose(f.message, _LONGEST)}\n" for f in report.findings)
    out = [f"## karat check: {report.headline()}\n{text}"]
    left -= len(out[0].encode("utf-8", "backslashreplace"))
    for done, checked in enumerate(report.checks):
        piece = _section(checked)
        left -= len(piece.encode("utf-8", "backslashreplace"))
        if left < 0:
            rest = count(len(report.checks) - done, "golden")
            return "".join([*out, f"\n… and {rest} more; the log names them all.\n"])
        out.append(piece)
    return "".join(out)


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
