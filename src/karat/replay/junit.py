"""JUnit XML of a replay: one test case per case, so that a CI's test page shows them.

A mismatch is a failure. A program that did not run, and a case that is damaged, is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from karat.findings import Finding, Severity
from karat.replay.outcome import Outcome, Replayed, ReplayReport
from karat.report.tensor_rows import TITLES, cells, type_text
from karat.report.xml_text import attributes, text
from karat.tensors.outcome import Comparison


def render(report: ReplayReport) -> bytes:
    """The XML text: well-formed whatever names and values say."""
    suites = [_suite(name, cases) for name, cases in _by_suite(report.cases)]
    grave = [f for f in report.findings if f.severity is Severity.FAIL]
    if grave:
        suites.append(_wrapped("karat replay", [_about_all(finding) for finding in grave]))
    totals = {
        "tests": sum(suite.count("<testcase ") for suite in suites),
        "failures": sum(suite.count("<failure ") for suite in suites),
        "errors": sum(suite.count("<error ") for suite in suites),
    }
    head = f'<testsuites name="karat replay"{attributes(totals)}>'
    body = "".join(suites)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{head}\n{body}</testsuites>\n'.encode()


def _by_suite(cases: Iterable[Replayed]) -> Iterator[tuple[str, list[Replayed]]]:
    suites: dict[str, list[Replayed]] = {}
    for case in cases:
        suites.setdefault(f"{case.identity.suite}/{case.identity.flow}", []).append(case)
    yield from suites.items()


def _suite(name: str, cases: Iterable[Replayed]) -> str:
    return _wrapped(name, [_case(name, case) for case in cases])


def _wrapped(name: str, cases: list[str]) -> str:
    body = "".join(cases)
    totals: dict[str, str | int] = {
        "name": name,
        "tests": len(cases),
        "failures": body.count("<failure "),
        "errors": body.count("<error "),
    }
    return f"  <testsuite{attributes(totals)}>\n{body}  </testsuite>\n"


def _case(suite: str, case: Replayed) -> str:
    identity = case.identity
    name = f"{identity.test} ({identity.subtest})" if identity.subtest else identity.test
    head = attributes({"classname": suite, "name": name, "time": f"{case.seconds:.3f}"})
    return f"    <testcase{head}>\n{_problem(case)}{_printed(case)}    </testcase>\n"


def _problem(case: Replayed) -> str:
    grave = [f for f in case.findings if f.severity is Severity.FAIL]
    if not grave:
        return ""
    tag = "failure" if case.outcome is Outcome.MISMATCH else "error"
    about = attributes({"message": grave[0].message, "type": grave[0].kind})
    body = "".join(f"{f.kind}: {f.message}\n" for f in grave)
    return f"      <{tag}{about}>{text(body)}</{tag}>\n"


def _printed(case: Replayed) -> str:
    """How close each tensor was, also where it matches."""
    calm = [f"{f.kind}: {f.message}" for f in case.findings if f.severity is not Severity.FAIL]
    printed = "\n".join([case.path, *map(_sentence, case.comparisons), *calm])
    return f"      <system-out>{text(printed)}</system-out>\n"


def _sentence(comparison: Comparison) -> str:
    named = zip(TITLES, cells(comparison.numbers), strict=True)
    numbers = ", ".join(f"{title} {value}" for title, value in named if value)
    return f"{comparison.name} {type_text(comparison)}: {numbers or 'compared exactly'}"


def _about_all(finding: Finding) -> str:
    head = attributes({"classname": "karat replay", "name": finding.kind})
    about = attributes({"message": finding.message, "type": finding.kind})
    return f"    <testcase{head}>\n      <error{about}>{text(finding.next or '')}</error>\n    </testcase>\n"
