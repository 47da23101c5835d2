"""JUnit XML, as test pages of CI systems read it; well-formed whatever names and values say."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from karat.findings import UNVERIFIED, Finding, Severity

_FORBIDDEN = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class TestProblem(msgspec.Struct, frozen=True):
    """Why a test case did not simply pass."""

    tag: Literal["failure", "error", "skipped"]
    message: str
    kind: str = ""
    body: str = ""


class TestCase(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a CI's test page."""

    __test__ = False  # for pytest, which looks for classes with such a name

    classname: str
    name: str
    seconds: float | None = None
    problem: TestProblem | None = None
    printed: str = ""


def render(name: str, suites: Iterable[tuple[str, Sequence[TestCase]]]) -> bytes:
    """The XML text of all suites; one without cases is left out."""
    known = [(suite, cases) for suite, cases in suites if cases]
    body = "".join(
        f"  <testsuite{attributes({'name': suite, **_totals(cases)})}>\n{''.join(map(_case, cases))}  </testsuite>\n"
        for suite, cases in known
    )
    totals = attributes({"name": name, **_totals([c for _, cases in known for c in cases])})
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites{totals}>\n{body}</testsuites>\n'.encode()


def render_findings(verb: str, checked: Iterable[str], findings: Iterable[Finding]) -> bytes:
    """One test case for each path that was looked at, and one for each kind of failure that concerns no path."""
    by_path: dict[str, list[Finding]] = {path: [] for path in checked}
    for finding in findings:
        by_path.setdefault(finding.path or f"{verb}: {finding.kind}", []).append(finding)
    cases = []
    for path, found in by_path.items():
        wrong = [finding for finding in found if finding.severity is Severity.FAIL]
        said = [f"{f.kind}: {f.message}\n" + (f"next: {f.next}\n" if f.next else "") for f in found]
        tag: Literal["error", "failure"] = "error" if all(f.kind in UNVERIFIED for f in wrong) else "failure"
        problem = TestProblem(tag, wrong[0].message, wrong[0].kind, "".join(said)) if wrong else None
        cases.append(TestCase(classname=verb, name=path, problem=problem, printed="" if wrong else "".join(said)))
    return render(verb, [(verb, cases)])


def case_of(owner: str, finding: Finding, tag: Literal["error", "failure"]) -> TestCase:
    """A test case for one finding."""
    if finding.severity is not Severity.FAIL:
        return TestCase(classname=owner, name=finding.kind, printed=finding.message)
    problem = TestProblem(tag, finding.message, finding.kind, finding.next or "")
    return TestCase(classname=owner, name=finding.kind, problem=problem)


def _totals(cases: Sequence[TestCase]) -> dict[str, int]:
    tags = Counter(case.problem.tag for case in cases if case.problem)
    return {"tests": len(cases), "failures": tags["failure"], "errors": tags["error"], "skipped": tags["skipped"]}


def _case(case: TestCase) -> str:
    head = {"classname": case.classname, "name": case.name}
    if case.seconds is not None:
        head["time"] = f"{case.seconds:.3f}"
    inner = ""
    if problem := case.problem:
        about = {"message": problem.message} | ({"type": problem.kind} if problem.kind else {})
        inner = f"      <{problem.tag}{attributes(about)}>{text(problem.body)}</{problem.tag}>\n"
    if case.printed:
        inner += f"      <system-out>{text(case.printed)}</system-out>\n"
    return f"    <testcase{attributes(head)}>\n{inner}    </testcase>\n"


def attributes(values: Mapping[str, str | int]) -> str:
    """Attributes of an element, with a space before each."""
    return "".join(f' {name}="{text(str(value))}"' for name, value in values.items())


def text(words: str) -> str:
    """Text without what XML 1.0 forbids, which no escape can carry, and with its marks escaped."""
    kept = _FORBIDDEN.sub(lambda found: found[0].encode("unicode_escape").decode(), words)
    for mark, name in (("&", "amp"), ("<", "lt"), (">", "gt"), ('"', "quot")):
        kept = kept.replace(mark, f"&{name};")
    return kept.replace("\n", "&#10;").replace("\t", "&#9;")
