from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from factories.evidence import TEST, collected, declared, evidence, op_test, outcome
from factories.gates import WEAK, entry, gated, the, told
from karat.findings import ExitCode, Severity
from karat.gradients.report import GradVerdict
from karat.policy.gate.lists import OpBaseline
from karat.policy.journal import NoGradAsked, Record, Reported


def asked_for(outcome_: Any, detail: str = "", **said: Any) -> NoGradAsked:
    usual = {"op": "tanh", "input": "X", "test": TEST}
    return NoGradAsked(outcome=outcome_, detail=detail, **{**usual, **said})


def test_an_exemption_covers_what_is_missing(tmp_path: Path) -> None:
    result = gated(tmp_path, op_test(), entry())
    assert told(result, least=Severity.INFO) == [("info", "exempted")]
    assert result.tests[0].needs[0].line == 1


@pytest.mark.parametrize("outcome_", ["raises", "zero"])
def test_no_gradient_is_verified(tmp_path: Path, outcome_: str) -> None:
    result = gated(tmp_path, op_test(asked_for(outcome_)), entry(kind="no-grad-op"))
    assert told(result) == []


def test_a_gradient_where_none_should_be_is_untrue(tmp_path: Path) -> None:
    result = gated(tmp_path, op_test(asked_for("gradient", "not 0")), entry(kind="no-grad-op"))
    assert told(result) == [("fail", "exemption-untrue")]
    assert "asked tanh for the gradient of X and got one: not 0" in result.findings[0].message


@pytest.mark.parametrize("scope", ["*", "TestTanh", "input:X", "input:*", "dtype:*"])
@pytest.mark.parametrize("more", [[], [asked_for("zero", input="Y")], [asked_for("zero", op="relu")]])
def test_nobody_asked_is_not_known(tmp_path: Path, more: list[Record], scope: str) -> None:
    result = gated(tmp_path, op_test(*more), entry(kind="no-grad-op", scope=scope))
    assert told(result) == [("fail", "exemption-unverified")]
    assert result.exit_code is ExitCode.CANNOT_VERIFY


@pytest.mark.parametrize("scope", ["input:X", "input:*", "dtype:float64"])
def test_a_narrow_scope_is_verified_too(tmp_path: Path, scope: str) -> None:
    said = entry(kind="no-grad-op", scope=scope)
    assert told(gated(tmp_path / "a", op_test(asked_for("zero")), said)) == []
    untrue = gated(tmp_path / "b", op_test(asked_for("gradient")), said)
    assert told(untrue) == [("fail", "exemption-untrue")]


def test_the_gradient_of_another_input_is_not_what_a_narrow_scope_speaks_of(tmp_path: Path) -> None:
    both = {"X": "float64", "Y": "float64"}
    records = op_test(asked_for("zero"), asked_for("gradient", input="Y"), evidence(input="Y"), inputs=both)
    assert told(gated(tmp_path, records, entry(kind="no-grad-op", scope="input:X"))) == []


def test_a_test_that_was_never_set_up_verifies_nothing(tmp_path: Path) -> None:
    records: list[Record] = [collected(op="tanh"), outcome(result="skipped")]
    result = gated(tmp_path, records, entry(kind="no-grad-op"))
    assert told(result) == [("fail", "exemption-unverified")]


def test_integer_only_is_verified(tmp_path: Path) -> None:
    true = gated(tmp_path / "a", op_test(inputs={"X": "int32"}), entry(kind="integer-only"))
    assert told(true) == []
    untrue = gated(tmp_path / "b", op_test(), entry(kind="integer-only"))
    assert ("fail", "exemption-untrue") in told(untrue)
    assert ("fail", "evidence-missing") in told(untrue)


@pytest.mark.parametrize(
    ("day", "kind"),
    [
        (date(2026, 11, 14), [("fail", "exemption-expired"), ("fail", "evidence-missing")]),
        (date(2026, 11, 15), []),
        (date(2028, 1, 1), [("fail", "exemption-invalid")]),
    ],
)
def test_an_exemption_ends_the_day_after(tmp_path: Path, day: date, kind: list[Any]) -> None:
    assert sorted(told(gated(tmp_path, op_test(), entry(expires=day)))) == sorted(kind)


def test_an_expired_entry_about_something_else_is_only_a_warning(tmp_path: Path) -> None:
    old = entry(op="relu", expires=date(2020, 1, 1))
    assert told(gated(tmp_path, op_test(evidence()), old)) == [("warn", "exemption-expired")]
    whole = gated(tmp_path, op_test(evidence()), old, complete=True)
    assert told(whole) == [("fail", "exemption-expired")]


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"scope": "TestTanh"},
        {"scope": "input:X"},
        {"scope": "dtype:float64"},
        {"rule": "float64"},
        {"rule": "weak"},
        {"rule": "tolerance", "max_relative_error": 0.1},
        {"rule": "determinism", "nondeterminism_bound": 0.1},
    ],
)
def test_an_exemption_that_is_not_needed_any_more_fails(tmp_path: Path, said: Any) -> None:
    report = Reported(op="tanh", test=TEST, device="cpu", framework="numpy", verdict=GradVerdict.PASS)
    result = gated(tmp_path, op_test(evidence(), report), entry(**said))
    assert told(result) == [("fail", "exemption-stale")]


def test_an_op_that_needs_none_needs_no_exemption(tmp_path: Path) -> None:
    result = gated(tmp_path, op_test(inputs={"X": "int32"}), entry())
    assert told(result) == [("fail", "exemption-stale")]


def test_a_scope_that_is_too_wide_is_stale(tmp_path: Path) -> None:
    other = "tests/test_ops.py::TestOther"
    records = [*op_test(evidence()), *op_test(test=other)]
    wide = gated(tmp_path / "a", records, entry())
    assert "narrow its scope to the tests that need it" in the(wide, "exemption-stale").message
    assert told(gated(tmp_path / "b", records, entry(scope="TestOther"))) == []


def test_an_entry_of_nothing_is_said_of_a_whole_suite_only(tmp_path: Path) -> None:
    spare = entry(op="relu")
    assert told(gated(tmp_path, op_test(evidence()), spare)) == []
    whole = gated(tmp_path, op_test(evidence()), spare, complete=True)
    assert told(whole) == [("fail", "exemption-unused")]


def test_a_skip_needs_a_matching_entry(tmp_path: Path) -> None:
    records = op_test(skip_reason="the forward is not smooth")
    without = gated(tmp_path, records)
    assert told(without) == [("fail", "skip-without-exemption")]
    assert "'the forward is not smooth'" in without.findings[0].message
    assert told(gated(tmp_path, records, entry(op="relu")))[0] == ("fail", "skip-without-exemption")
    assert told(gated(tmp_path, records, entry())) == []


def test_a_skip_beside_evidence_is_a_word(tmp_path: Path) -> None:
    result = gated(tmp_path, op_test(evidence(), skip_reason="once upon a time"))
    assert told(result) == [("warn", "exemption-stale")]


def test_an_operator_without_a_test_may_be_what_an_entry_speaks_of(tmp_path: Path) -> None:
    records = op_test(evidence())
    ratchet = OpBaseline(ops={"m.relu": ("m.ramp",), "m.tanh": ()})
    held = {"complete": True, "baseline": ratchet}
    assert told(gated(tmp_path, records, entry(op="relu"), **held)) == []
    assert told(gated(tmp_path, records, entry(op="ramp"), **held)) == []
    assert told(gated(tmp_path, records, entry(op="gelu"), **held)) == [
        ("fail", "exemption-unused"),
        ("fail", "new-op"),
    ]


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ("float64", {"rule": "tolerance", "max_relative_error": 0.1}),
        ("float64", {"rule": "determinism", "nondeterminism_bound": 0.1}),
        ("int64", {}),
    ],
)
def test_part_of_a_test_makes_no_entry_stale(tmp_path: Path, inputs: str, said: Any) -> None:
    report = Reported(op="tanh", test=TEST, device="cpu", framework="numpy", verdict=GradVerdict.PASS)
    half: list[Record] = [
        collected(selected=1, deselected=1),
        declared(inputs={"X": inputs}),
        evidence(),
        report,
        outcome(),
    ]
    assert told(gated(tmp_path, half, entry(**said))) == []


def test_a_test_that_never_said_its_op_is_not_every_entrys(tmp_path: Path) -> None:
    records: list[Record] = [
        *op_test(evidence(op="relu"), op="relu"),
        collected("t.py::TestT"),
        outcome(test="t.py::TestT", result="skipped"),
    ]
    old = entry(expires=date(2020, 1, 1))
    assert ("warn", "exemption-expired") in told(gated(tmp_path, records, old))
    named = entry(expires=date(2020, 1, 1), scope="TestT")
    assert ("fail", "exemption-expired") in told(gated(tmp_path, records, named))


@pytest.mark.parametrize(
    ("said", "state"),
    [
        ({"scope": "TestTanh"}, "exempt"),
        ({"scope": TEST}, "exempt"),
        ({"scope": "Test*"}, "missing"),
        ({"scope": "tests/*"}, "missing"),
        ({"scope": "*"}, "missing"),
        ({"scope": "input:*"}, "missing"),
        ({"scope": "TestTanh", "rule": "weak"}, "missing"),
    ],
)
def test_a_test_that_never_said_its_op_is_exempt_by_its_own_name_alone(tmp_path: Path, said: Any, state: str) -> None:
    result = gated(tmp_path, [collected(), outcome(result="skipped")], entry(**said))
    assert [one.state for one in result.tests] == [state]


@pytest.mark.parametrize(
    ("said", "state"), [({}, "exempt"), ({"scope": "Test*"}, "exempt"), ({"scope": "input:X"}, "missing")]
)
def test_a_test_that_was_never_set_up_may_have_said_its_op(tmp_path: Path, said: Any, state: str) -> None:
    result = gated(tmp_path, [collected(op="tanh"), outcome(result="skipped")], entry(**said))
    assert [one.state for one in result.tests] == [state]


def test_an_input_that_is_set_aside_needs_an_entry(tmp_path: Path) -> None:
    both = {"X": "float64", "Y": "float64"}
    records = op_test(evidence(), inputs=both, no_grad=("Y",))
    message = the(gated(tmp_path, records), "evidence-missing").message
    assert "for Y; left out by no_grad_set" in message
    asked = [*records, asked_for("zero", input="Y")]
    covered = gated(tmp_path, asked, entry(scope="input:Y", kind="no-grad-op"))
    assert covered.exit_code is ExitCode.OK


def test_weak_evidence_and_single_precision_may_be_exempt(tmp_path: Path) -> None:
    weak = gated(tmp_path / "a", op_test(evidence(**WEAK)), entry(rule="weak"))
    single = gated(tmp_path / "b", op_test(evidence(dtype="float32")), entry(rule="float64"))
    assert (told(weak), told(single)) == ([], [])
    other = gated(tmp_path / "c", op_test(), entry(rule="weak"))
    assert other.exit_code is ExitCode.FAIL


@pytest.mark.parametrize(("limit", "good"), [(None, False), (0.004, False), (0.005, True)])
def test_a_widened_tolerance_is_an_exemption_too(
    tmp_path: Path,
    limit: float | None,
    good: bool,  # noqa: FBT001 - a value of the table
) -> None:
    entries = [] if limit is None else [entry(rule="tolerance", max_relative_error=limit)]
    result = gated(tmp_path, op_test(evidence(widened=0.005)), *entries)
    assert told(result) == ([] if good else [("fail", "tolerance-override")])
    if not good:
        text = str(result.findings[0].numbers["entry"])
        assert "max_relative_error = 0.005" in text
        assert 'rule = "tolerance"' in text


def test_a_tolerance_that_is_needed_is_not_said_to_be_spare(tmp_path: Path) -> None:
    result = gated(tmp_path, op_test(evidence(widened=0.005, error=1e-4, tolerance=1e-9)))
    assert told(result) == [("fail", "tolerance-override")]
    assert "it passes without" not in result.findings[0].message


def test_an_allowed_non_determinism_is_an_exemption_too(tmp_path: Path) -> None:
    report = Reported(
        op="tanh", test=TEST, device="cpu", framework="torch", verdict=GradVerdict.PASS, nondeterminism_bound=1e-6
    )
    records = op_test(evidence(), report)
    assert told(gated(tmp_path, records)) == [("fail", "tolerance-override")]
    allowed = entry(rule="determinism", nondeterminism_bound=1e-5)
    assert told(gated(tmp_path, records, allowed)) == []
