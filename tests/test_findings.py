from __future__ import annotations

import pytest

from karat.findings import KINDS, UNVERIFIED, ExitCode, Finding, Severity, exit_code


def finding(severity: str, kind: str = "value-drift") -> Finding:
    return Finding(kind=kind, severity=Severity(severity), message="x")


@pytest.mark.parametrize(
    ("severities", "fail_on", "expected"),
    [
        ([], ("fail",), ExitCode.OK),
        (["info", "warn"], ("fail",), ExitCode.OK),
        (["fail"], ("fail",), ExitCode.FAIL),
        (["warn"], ("warn",), ExitCode.FAIL),
        (["fail"], ("warn",), ExitCode.FAIL),
        (["fail"], ("info",), ExitCode.FAIL),
        (["info"], ("info",), ExitCode.FAIL),
        (["info"], ("value-drift",), ExitCode.FAIL),
        (["fail"], ("lost-rows",), ExitCode.OK),
        (["fail"], (), ExitCode.OK),
    ],
)
def test_exit_codes(severities: list[str], fail_on: tuple[str, ...], expected: ExitCode) -> None:
    assert exit_code([finding(s) for s in severities], fail_on=fail_on) is expected


def test_cannot_verify_is_neither_a_match_nor_a_difference() -> None:
    unread = finding("fail", "cannot-read")
    assert exit_code([unread]) is ExitCode.CANNOT_VERIFY
    assert exit_code([unread], fail_on=()) is ExitCode.CANNOT_VERIFY
    assert exit_code([unread, finding("fail")]) is ExitCode.FAIL, "what is certain comes first"


def test_the_issues_kinds_are_all_there() -> None:
    asked = """truncated new-nan lost-steps lost-metric gained-metric lost-rows gained-rows duplicate-row
    status-regressed status-improved value-drift precision-lost type-changed structure-changed new-golden
    removed-golden empty unreadable no-usable-steps"""
    assert set(asked.split()) <= KINDS.keys()
    assert KINDS.keys() >= UNVERIFIED
