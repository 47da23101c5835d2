from __future__ import annotations

import traceback

import pytest

from karat.findings import KINDS, UNVERIFIED, ExitCode, Finding, Severity, UsageError, exit_code, parse_fail_on


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


def test_in_a_traceback_too_an_error_ends_with_the_next_command() -> None:
    error = UsageError("expected a folder, found none", next_command="mkdir y")
    error.next_command = "mkdir x"
    shown = "".join(traceback.format_exception(error)).splitlines()
    assert shown[-2:] == ["karat.findings.UsageError: expected a folder, found none", "next: mkdir x"]
    assert str(error) == "expected a folder, found none", "a verb prints the two by itself"


def test_the_issues_kinds_are_all_there() -> None:
    asked = """truncated new-nan lost-steps lost-metric gained-metric lost-rows gained-rows duplicate-row
    status-regressed status-improved value-drift precision-lost type-changed structure-changed new-golden
    removed-golden empty unreadable no-usable-steps"""
    assert set(asked.split()) <= KINDS.keys()
    assert KINDS.keys() >= UNVERIFIED


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["warn"], ("warn",)),
        (["none"], ()),
        (["truncated"], ("fail", "truncated")),
        (["none,truncated"], ("truncated",)),
        (["warn", "truncated, lost-rows"], ("warn", "truncated", "lost-rows")),
    ],
)
def test_a_kind_is_added_and_a_severity_replaces(words: list[str], expected: tuple[str, ...]) -> None:
    assert parse_fail_on(words, "--fail-on", "karat diff --help") == expected


def test_a_word_nobody_knows_is_refused() -> None:
    with pytest.raises(UsageError, match="did you mean 'truncated'") as caught:
        parse_fail_on(["truncate"], "--fail-on", "karat changes --help")
    assert caught.value.next_command == "karat changes --help"


def test_a_kind_that_means_unverified_can_be_made_a_failure() -> None:
    assert exit_code([finding("fail", "cannot-read")], fail_on=("cannot-read",)) is ExitCode.FAIL


def test_what_a_kind_condemns_is_said_once_and_only_for_failures() -> None:
    cut = Finding(kind="truncated", severity=Severity.FAIL, message="")
    assert cut.condemns == "incomplete"
    assert Finding(kind="type-changed", severity=Severity.FAIL, message="").condemns == "unfit"
    assert not Finding(kind="truncated", severity=Severity.WARN, message="").condemns
    assert not Finding(kind="value-drift", severity=Severity.FAIL, message="").condemns
    assert not Finding(kind="somebody's own", severity=Severity.FAIL, message="").condemns
