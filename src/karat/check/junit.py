"""JUnit XML: one test case per golden and metric, so that a CI's test page shows them.

A failure says what the terminal says. What was exempted, or only shown, is a skipped test; what could
not be verified is an error rather than a failure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from karat.check.report import Checked, Report
from karat.check.sentences import details, headline
from karat.compare.gate_result import MetricResult, Outcome
from karat.findings import Finding, Severity
from karat.report.xml_text import attributes as _attributes, text as _text

_SKIPPED = frozenset({Outcome.EXEMPTED, Outcome.INFO})


def render(report: Report) -> bytes:
    """The XML text: well-formed whatever names and values say."""
    suites = [_suite(checked) for checked in report.checks]
    if report.findings:
        suites.append(_about_all(report))
    totals = {
        "tests": sum(suite.count("<testcase ") for suite in suites),
        "failures": sum(suite.count("<failure ") for suite in suites),
        "errors": sum(suite.count("<error ") for suite in suites),
        "skipped": sum(suite.count("<skipped") for suite in suites),
    }
    body = "".join(suites)
    text = f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name="karat check"{_attributes(totals)}>\n{body}</testsuites>\n'
    return text.encode()


def _suite(checked: Checked) -> str:
    strict = {(f.metric, f.kind): f.severity for f in checked.findings}
    cases = [_case(checked, result, strict) for result in checked.results]
    tag = "error" if checked.outcome is Outcome.CANNOT_VERIFY else "failure"
    cases += [_finding_case(checked.name, finding, tag) for finding in _of_the_file(checked)]
    return _wrapped(checked.name, cases)


def _about_all(report: Report) -> str:
    return _wrapped(
        "karat check", [_finding_case("karat check", f, "failure") for f in report.findings]
    )


def _wrapped(name: str, cases: list[str]) -> str:
    body = "".join(cases)
    totals: dict[str, str | int] = {
        "name": name,
        "tests": len(cases),
        "failures": body.count("<failure "),
        "errors": body.count("<error "),
        "skipped": body.count("<skipped"),
    }
    return f"  <testsuite{_attributes(totals)}>\n{body}  </testsuite>\n"


def _of_the_file(checked: Checked) -> Iterator[Finding]:
    """Findings that no metric speaks of; without a single metric, all there are."""
    for finding in checked.about_file():
        if finding.severity is Severity.FAIL or not checked.results:
            yield finding


def _case(
    checked: Checked, result: MetricResult, strict: Mapping[tuple[str | None, str], Severity]
) -> str:
    name = result.metric
    if result.exemption is not None:
        name = f"{name} (exemption {result.exemption + 1})"
    severity = strict.get((result.metric, result.kind))
    body = "".join(f"{label}: {sentence}\n" for label, sentence in details(result))
    inner = ""
    if result.outcome in _SKIPPED:
        why = f"{result.because}; {headline(result)}" if result.because else headline(result)
        inner = f"      <skipped{_attributes({'message': why})}/>\n"
    elif severity is Severity.FAIL:
        about = {"message": headline(result), "type": result.kind}
        inner = f"      <failure{_attributes(about)}>{_text(body)}</failure>\n"
    elif severity is not None:
        inner = f"      <system-out>{_text(f'{result.outcome.value}: {headline(result)}')}</system-out>\n"
    head = _attributes({"classname": checked.name, "name": name})
    return f"    <testcase{head}>\n{inner}    </testcase>\n"


def _finding_case(owner: str, finding: Finding, tag: str) -> str:
    head = _attributes({"classname": owner, "name": finding.kind})
    about = {"message": finding.message, "type": finding.kind}
    if finding.severity is not Severity.FAIL:
        inner = f"      <system-out>{_text(finding.message)}</system-out>\n"
    else:
        inner = f"      <{tag}{_attributes(about)}>{_text(finding.next or '')}</{tag}>\n"
    return f"    <testcase{head}>\n{inner}    </testcase>\n"
