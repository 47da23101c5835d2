"""Where the original's gate leaks, karat's fails: every leak of the notes, in real sessions of pytest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from conftest import framework
from factories.commands import karat
from factories.leaky_suite import leaky_suite, torch_suite

FILE = "test_leaks.py"


@pytest.fixture(scope="module", params=[(), ("-n", "2")], ids=["alone", "workers"])
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What the gate says of a suite in which nearly all tests pass."""
    root = tmp_path_factory.mktemp("leaks")
    suite = leaky_suite(root)
    ran = suite.run("--karat-evidence", "evidence", *request.param)
    assert ran.count("failed") == 1, ran.out  # the mean loss is not what karat uses
    result = karat("policy", "gate", "evidence", "--json", "gate.json", cwd=root)
    assert result.code == 1
    return json.loads((root / "gate.json").read_bytes())


def said_of(report: Any, name: str) -> set[str]:
    return {f["kind"] for f in report["findings"] if f["where"] == f"{FILE}::{name}"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("TestChildOfAPassingParent", "evidence-missing"),
        ("TestEmptyBody", "evidence-missing"),
        ("TestExemptByAttribute", "evidence-missing"),
        ("TestFlagsSetByHand", "evidence-missing"),
        ("TestNoDevice", "evidence-missing"),
        ("TestFailsBeforeComparing", "evidence-missing"),
        ("TestLooksAway", "grad-failed"),
        ("TestOwnGradients", "grad-failed"),
        ("TestMeanLossBlindness", "grad-failed"),
        ("TestSecondInput", "evidence-missing"),
        ("TestSetAside", "evidence-missing"),
        ("TestSkips", "skip-without-exemption"),
        ("TestChildOfASkip", "evidence-missing"),
        ("TestSkippedWhole", "evidence-missing"),
    ],
)
def test_a_leak_is_a_finding(report: Any, name: str, kind: str) -> None:
    assert said_of(report, name) == {kind}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["TestParent", "TestIntegers", "TestPlain"])
def test_what_is_as_it_should_be_is_not(report: Any, name: str) -> None:
    assert said_of(report, name) == set()


def test_the_reasons_are_given(report: Any) -> None:
    said = {f["where"]: f["message"] for f in report["findings"]}
    assert "was skipped: " in said[f"{FILE}::TestNoDevice"]
    assert "cuda" in said[f"{FILE}::TestNoDevice"]
    assert "not today" in said[f"{FILE}::TestSkippedWhole"]
    assert "for Y; left out by no_grad_set" in said[f"{FILE}::TestSetAside"]
    assert "a constant number of forwards" in said[f"{FILE}::TestSkips"]


@pytest.mark.slow
def test_the_session_itself_can_be_held_to_it(tmp_path: Path) -> None:
    suite = leaky_suite(tmp_path)
    # One class that passes, one that only looks as if it did.
    narrow = ("-k", "TestParent or TestChildOfAPassingParent")
    assert suite.run(*narrow).code == 0
    ran = suite.run(*narrow, "--karat-policy")
    assert ran.code == 1
    assert "evidence-missing: test_leaks.py::TestChildOfAPassingParent (op tanh)" in ran.out
    assert ran.out.count("fail  ") == 1
    assert "info  not-selected: " in ran.out
    assert suite.run("-k", "TestParent", "--karat-policy").code == 0


@pytest.mark.slow
def test_exemptions_are_held_against_what_torch_does(tmp_path: Path) -> None:
    framework("torch")
    ran = torch_suite(tmp_path).run("--karat-evidence", "evidence")
    assert ran.code == 0, ran.out
    words = ("evidence", "--json", "gate.json")
    assert karat("policy", "gate", *words, cwd=tmp_path, KARAT_TODAY="2026-11-15").code == 1
    report = json.loads((tmp_path / "gate.json").read_bytes())
    failed = {(f["kind"], f["metric"]) for f in report["findings"] if f["severity"] == "fail"}
    assert failed == {
        ("grad-failed", "softmax"),
        ("tolerance-override", "tanh"),
        ("exemption-untrue", "sin"),
        ("exemption-stale", "cos"),
    }
    covered = {f["metric"] for f in report["findings"] if f["kind"] == "exempted"}
    assert covered == {"argmax", "cos"}
