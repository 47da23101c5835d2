"""JUnit XML: one test case per golden and metric, so that a CI's test page shows them.

A failure says what the terminal says. What was exempted, or only shown, is a skipped test; what could
not be verified is an error rather than a failure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from karat.checks.report import Checked, Report, details, headline
from karat.compare.gate.result import MetricResult, Outcome
from karat.findings import Finding, Severity
from karat.report.annotations import workflow_commands as commands_of
from karat.report.junit import attributes as _attributes, text as _text
from karat.report.words import count, printable

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


# DOC-HERE github: GitHub Actions: annotations beside the code, and the summary of the step.
#
# A summary may have 1 MiB; what is over is counted instead of silently dropped by the server.

LARGEST_SUMMARY = 1 << 20
_ROOM = 1 << 10
_LONGEST_MESSAGE = 4000
_BACKTICKS = re.compile("`+")
_MARKS = re.compile(r"[\\`*_\[\]<>|#~&@]")


def workflow_commands(report: Report) -> str:
    """Workflow commands, one line each."""
    return commands_of(report.all_findings(), "karat check")


def summary(report: Report, *, taken: int = 0) -> str:
    """The step's summary as Markdown, in the room that `taken` bytes of others leave."""
    room = LARGEST_SUMMARY - _ROOM - taken
    out: list[str] = []
    size = 0
    for index, piece in enumerate(_pieces(report)):
        cost = len(piece.encode("utf-8", "backslashreplace"))
        if size + cost > room:
            rest = len(report.checks) - max(index - 1, 0)
            out.append(f"\n… and {count(rest, 'golden')} more; the log names them all.\n")
            break
        out.append(piece)
        size += cost
    return "".join(out) if room > 0 else ""


def _pieces(report: Report) -> Iterator[str]:
    """The heading, then one piece per golden."""
    told = "".join(f"\n{_cell(f.message)}\n" for f in report.findings)
    yield f"## karat check: {report.outcome.value}\n{told}"
    for checked in report.checks:
        yield _piece(checked)


def _piece(checked: Checked) -> str:
    head = f"\n### {checked.outcome.value}: {_code(checked.name)}\n\n"
    rows = [
        f"| {_code(r.metric)} | {r.outcome.value} | {_cell(headline(r))} | {_cell(r.likely or '')} |\n"
        for r in checked.results
        if r.outcome not in {Outcome.PASS, Outcome.INFO}
    ]
    told = "".join(f"- {f.severity.value}: {_cell(f.message)}\n" for f in checked.about_file())
    table = (
        f"| metric | outcome | what | likely |\n|---|---|---|---|\n{''.join(rows)}" if rows else ""
    )
    command = ""
    if checked.refresh and checked.outcome is not Outcome.PASS:
        command = f"\nTo take this result: {_code(checked.refresh)}\n"
    return f"{head}{told}{table}{command}"


def _cell(text: str) -> str:
    """Text that is nothing but text, also inside a table."""
    plain = printable(text[:_LONGEST_MESSAGE])
    return _MARKS.sub(lambda match: f"&#{ord(match[0])};", plain)


def _code(text: str) -> str:
    """Text as code: in a fence longer than any run of backticks in it."""
    plain = printable(text[:_LONGEST_MESSAGE]).replace("|", "\\|")
    longest = max(map(len, _BACKTICKS.findall(plain)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if longest else ""
    return f"{fence}{pad}{plain}{pad}{fence}"
