from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from factories.evidence import TEST, collected, declared, evidence, journal, op_test, outcome
from karat.findings import ExitCode, Finding, Severity
from karat.gradients.report import GradVerdict
from karat.policy.exemptions import Exemption, Exemptions
from karat.policy.gating import Asked, Gated, gate
from karat.policy.merging import merge
from karat.policy.ratchet import Ratchet
from karat.policy.records import NoGradAsked, Record, Reported

TODAY = date(2026, 11, 15)
WEAK = {"strength": "weak", "oracle": "user"}
INCONCLUSIVE = {"verdict": GradVerdict.INCONCLUSIVE, "reason": "the oracle is too coarse"}


def entry(**said: Any) -> Exemption:
    usual: dict[str, Any] = {
        "op": "tanh", "reason": "it has its reasons", "owner": "@a", "issue": "https://x.org/1",
        "expires": date(2027, 1, 1), "path": "exemptions.toml", "line": 1,
    }  # fmt: skip
    return Exemption(**{**usual, **said})


def gated(tmp_path: Path, records: list[Record], *entries: Exemption, **asked: Any) -> Gated:
    journal(tmp_path / "evidence", records)
    held = Exemptions(entries=entries, path="exemptions.toml")
    return gate(merge([tmp_path / "evidence"]), Asked(exemptions=held, today=TODAY, **asked))


def told(result: Gated, *, least: Severity = Severity.WARN) -> list[tuple[str, str]]:
    return [(f.severity.value, f.kind) for f in result.findings if f.severity.rank <= least.rank]


def the(result: Gated, kind: str) -> Finding:
    (found,) = [one for one in result.findings if one.kind == kind]
    return found


def test_evidence_in_float64_for_every_input_is_what_the_rule_asks(tmp_path: Path) -> None:
    result = gated(tmp_path, op_test(evidence()))
    assert (result.findings, result.exit_code) == ((), ExitCode.OK)
    assert [one.state for one in result.tests] == ["evidence"]
    assert result.compared == 1


@pytest.mark.parametrize(
    ("more", "kind", "why"),
    [
        ([], "evidence-missing", "no gradient check came to its end"),
        ([evidence(dtype="float32")], "evidence-missing", "only in float32"),
        ([evidence(order=2)], "evidence-missing", "compared in forward mode or a higher order alone"),
        ([evidence(mode="forward")], "evidence-missing", "compared in forward mode or a higher order alone"),
        ([evidence(op="relu")], "evidence-missing", ""),
        ([evidence(input="Y")], "evidence-missing", ""),
        ([evidence(**WEAK)], "evidence-weak", "the author's own gradients"),
        ([evidence(vacuous=True)], "evidence-vacuous", "corrupted gradients passed"),
        ([evidence(**WEAK, vacuous=True)], "evidence-vacuous", "corrupted gradients passed"),
        ([evidence(**INCONCLUSIVE)], "evidence-inconclusive", "the oracle is too coarse"),
    ],
)  # fmt: skip
def test_nothing_less_counts(tmp_path: Path, more: list[Record], kind: str, why: str) -> None:
    result = gated(tmp_path, op_test(*more))
    assert result.exit_code is ExitCode.FAIL
    message = the(result, kind).message
    assert message.startswith(f"{TEST} (op tanh): no gradient evidence in float64 for X")
    assert why in message


def test_complex_double_is_double(tmp_path: Path) -> None:
    records = op_test(evidence(dtype="complex128"), inputs={"X": "complex64"})
    assert gated(tmp_path, records).exit_code is ExitCode.OK


@pytest.mark.parametrize("dtype", ["int64", "bool", "uint8", "int4"])
def test_integers_and_booleans_need_none(tmp_path: Path, dtype: str) -> None:
    assert gated(tmp_path, op_test(inputs={"X": dtype})).findings == ()


def test_one_finding_per_test_and_cause(tmp_path: Path) -> None:
    names = dict.fromkeys("ABCDEFGH", "float64")
    more = [evidence(input="A"), evidence(input="B", **WEAK)]
    result = gated(tmp_path, op_test(*more, inputs=names))
    assert sorted(told(result)) == [("fail", "evidence-missing"), ("fail", "evidence-weak")]
    assert "for C, D, E, F, G, H" in the(result, "evidence-missing").message


def test_a_wrong_gradient_outdoes_a_right_one_and_any_exemption(tmp_path: Path) -> None:
    wrong = evidence(verdict=GradVerdict.FAIL, reason="twice the expected gradient")
    result = gated(tmp_path, op_test(evidence(), wrong), entry())
    assert told(result)[0] == ("fail", "grad-failed")
    assert (
        "the gradient of X by Out is wrong in float64 on cpu" in the(result, "grad-failed").message
    )


@pytest.mark.parametrize(
    ("count", "told_"), [(2, " and 1 more comparison:"), (3, " and 2 more comparisons:")]
)
def test_other_comparisons_are_counted(tmp_path: Path, count: int, told_: str) -> None:
    wrong = [evidence(input=name, verdict=GradVerdict.FAIL, reason="off") for name in "XYZ"[:count]]
    result = gated(tmp_path, op_test(*wrong, inputs=dict.fromkeys("XYZ"[:count], "float64")))
    assert f"(reverse, order 1){told_} off" in the(result, "grad-failed").message


def test_an_operator_whose_gradient_is_wrong_is_not_told_to_be_tested(tmp_path: Path) -> None:
    ops = Ratchet(ops=("mylib.tanh", "mylib.relu"))
    records = op_test(evidence(verdict=GradVerdict.FAIL))
    result = gated(tmp_path, records, complete=True, ratchet=ops)
    assert told(result) == [("fail", "grad-failed"), ("fail", "new-op")]
    assert the(result, "new-op").metric == "mylib.relu"


def test_a_wrong_gradient_of_which_the_gate_says_nothing_is_no_evidence(tmp_path: Path) -> None:
    """A plain test that fails says so itself; the operator has no evidence all the same."""
    wrong = evidence(test="t.py::test_plain", verdict=GradVerdict.FAIL)
    records = [
        *op_test(evidence()),
        wrong,
        outcome("test_plain", "failed", test="t.py::test_plain"),
    ]
    result = gated(tmp_path, records, complete=True, ratchet=Ratchet(ops=("mylib.tanh",)))
    assert ("fail", "new-op") in told(result)


def test_a_law_that_is_broken_is_a_wrong_gradient(tmp_path: Path) -> None:
    report = Reported(
        op="tanh", test=TEST, device="cpu", framework="torch", verdict=GradVerdict.FAIL,
        reason="not linear in the cotangent", seed=7,
    )  # fmt: skip
    finding = the(gated(tmp_path, op_test(evidence(), report)), "grad-failed")
    assert "not linear in the cotangent" in finding.message
    assert finding.next == f"pytest {TEST} --karat-grad-seed 7"


def test_every_device_that_is_asked_for_needs_evidence(tmp_path: Path) -> None:
    records = op_test(evidence(), evidence(device="gpu:0", dtype="float32"))
    assert gated(tmp_path, records, devices=("cpu",)).exit_code is ExitCode.OK
    result = gated(tmp_path, records, devices=("cpu", "cuda"))
    assert "for X on cuda; only in float32" in the(result, "evidence-missing").message


def test_a_test_that_was_never_set_up_is_known_by_its_class(tmp_path: Path) -> None:
    skipped: list[Record] = [collected(), outcome(result="skipped", reason="no CUDA device")]
    message = the(gated(tmp_path, skipped), "evidence-missing").message
    assert "test_check_grad was skipped: no CUDA device" in message


# --- what was not selected


def test_what_was_not_selected_is_not_judged(tmp_path: Path) -> None:
    other = op_test(evidence(test="b.py::B"), test="b.py::B")
    records = [
        collected(selected=1, deselected=1),
        declared(),
        outcome("test_check_output"),
        *other,
    ]
    result = gated(tmp_path, records)
    assert told(result, least=Severity.INFO) == [("info", "not-selected")]
    assert result.exit_code is ExitCode.OK


def test_only_parts_of_tests_are_nothing_to_judge(tmp_path: Path) -> None:
    records: list[Record] = [collected(selected=1, deselected=1), declared(), outcome("test_a")]
    assert gated(tmp_path, records).exit_code is ExitCode.CANNOT_VERIFY


def test_a_test_that_was_left_out_uses_no_exemption(tmp_path: Path) -> None:
    left = collected("b.py::B", selected=0, deselected=1)
    result = gated(tmp_path, [*op_test(evidence()), left], entry(op="relu", scope="B"))
    assert told(result, least=Severity.INFO) == [("info", "not-selected")]


def test_a_suite_that_is_said_to_be_whole_is_judged_whole(tmp_path: Path) -> None:
    records: list[Record] = [collected(selected=2), declared(), outcome("test_check_output")]
    message = the(gated(tmp_path, records, complete=True), "evidence-missing").message
    assert "1 of its 2 tests were not run" in message


def test_what_failed_in_part_has_failed(tmp_path: Path) -> None:
    wrong = evidence(verdict=GradVerdict.FAIL)
    records: list[Record] = [collected(selected=1, deselected=1), declared(), wrong, outcome()]
    assert told(gated(tmp_path, records)) == [("fail", "grad-failed")]


@pytest.mark.parametrize("records", [[], [outcome("test_plain", test="t.py::Plain")]])
def test_no_op_test_at_all_is_not_verified(tmp_path: Path, records: list[Record]) -> None:
    result = gated(tmp_path, records)
    assert [one.kind for one in result.findings] == ["nothing-compared"]
    assert result.exit_code is ExitCode.CANNOT_VERIFY


def test_a_damaged_journal_is_not_verified(tmp_path: Path) -> None:
    path = journal(tmp_path, op_test(evidence()), ended=False)
    assert path.exists()
    assert gate(merge([tmp_path]), Asked(today=TODAY)).exit_code is ExitCode.CANNOT_VERIFY


def test_plain_tests_are_left_alone_but_for_a_word(tmp_path: Path) -> None:
    plain = "t.py::test_plain"
    failed = Reported(op="f", test=plain, device="cpu", framework="numpy", verdict=GradVerdict.FAIL)
    passed: list[Record] = [collected(plain, op_test=False), failed, outcome(test=plain)]
    result = gated(tmp_path, [*op_test(evidence()), *passed])
    assert told(result) == [("warn", "grad-failed")]


# --- exemptions


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
@pytest.mark.parametrize(
    "more", [[], [asked_for("zero", input="Y")], [asked_for("zero", op="relu")]]
)
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
    records = op_test(asked_for("zero"), asked_for("gradient", input="Y"), evidence(input="Y"), inputs=both)  # fmt: skip
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
        (date(2028, 1, 1), [("warn", "exemption-invalid")]),
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
    report = Reported(
        op="tanh", test=TEST, device="cpu", framework="numpy", verdict=GradVerdict.PASS
    )
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


def test_what_a_wrong_gradient_kept_from_being_compared_is_not_said_as_well(tmp_path: Path) -> None:
    both = {"X": "float64", "Y": "float64"}
    result = gated(tmp_path, op_test(evidence(verdict=GradVerdict.FAIL), inputs=both))
    assert told(result) == [("fail", "grad-failed")]


def test_a_wrong_gradient_is_never_exempt(tmp_path: Path) -> None:
    result = gated(tmp_path, op_test(evidence(verdict=GradVerdict.FAIL)), entry())
    assert result.tests[0].state == "failed"
    assert told(result) == [("fail", "grad-failed")]


def test_inputs_are_those_of_the_op(tmp_path: Path) -> None:
    other: list[Record] = [
        declared(op="relu", inputs={"Y": "float64"}),
        evidence(op="relu", input="Y"),
    ]
    result = gated(tmp_path, op_test(evidence(), *other))
    assert [(one.op, [n.input for n in one.needs]) for one in result.tests] == [("relu", ["Y"]), ("tanh", ["X"])]  # fmt: skip
    assert result.exit_code is ExitCode.OK


def test_limits_of_plain_tests_are_their_own(tmp_path: Path) -> None:
    plain: list[Record] = [
        collected("t.py::test_f", op_test=False),
        evidence(test="t.py::test_f", widened=0.5),
    ]
    assert gated(tmp_path, [*op_test(evidence()), *plain]).findings == ()


def test_an_operator_without_a_test_may_be_what_an_entry_speaks_of(tmp_path: Path) -> None:
    records = op_test(evidence())
    ratchet = Ratchet(ops=("m.relu", "m.tanh"), aliases={"m.relu": ("m.ramp",)})
    held = {"complete": True, "ratchet": ratchet}
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
    report = Reported(op="tanh", test=TEST, device="cpu", framework="numpy", verdict=GradVerdict.PASS)  # fmt: skip
    half: list[Record] = [collected(selected=1, deselected=1), declared(inputs={"X": inputs}), evidence(), report, outcome()]  # fmt: skip
    assert told(gated(tmp_path, half, entry(**said))) == []


def test_a_test_that_never_said_its_op_is_not_every_entrys(tmp_path: Path) -> None:
    records: list[Record] = [*op_test(evidence(op="relu"), op="relu"), collected("t.py::TestT"), outcome(test="t.py::TestT", result="skipped")]  # fmt: skip
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
def test_a_test_that_never_said_its_op_is_exempt_by_its_own_name_alone(
    tmp_path: Path, said: Any, state: str
) -> None:
    result = gated(tmp_path, [collected(), outcome(result="skipped")], entry(**said))
    assert [one.state for one in result.tests] == [state]


@pytest.mark.parametrize(
    ("said", "state"),
    [({}, "exempt"), ({"scope": "Test*"}, "exempt"), ({"scope": "input:X"}, "missing")],
)
def test_a_test_that_was_never_set_up_may_have_said_its_op(tmp_path: Path, said: Any, state: str) -> None:  # fmt: skip
    result = gated(tmp_path, [collected(op="tanh"), outcome(result="skipped")], entry(**said))
    assert [one.state for one in result.tests] == [state]


def test_a_plain_test_that_failed_has_said_so_itself(tmp_path: Path) -> None:
    test = "t.py::test_f"
    wrong = Reported(op="sin", test=test, device="cpu", framework="numpy", verdict=GradVerdict.FAIL)
    plain: list[Record] = [
        collected(test, op_test=False),
        wrong,
        outcome(test=test, result="failed"),
    ]
    assert gated(tmp_path, [*op_test(evidence()), *plain]).findings == ()


def test_nothing_is_said_once(tmp_path: Path) -> None:
    result = gate(merge([tmp_path / "nowhere"]), Asked(today=TODAY))
    assert told(result) == [("fail", "nothing-compared")]


def test_an_input_that_is_set_aside_needs_an_entry(tmp_path: Path) -> None:
    both = {"X": "float64", "Y": "float64"}
    records = op_test(evidence(), inputs=both, no_grad=("Y",))
    message = the(gated(tmp_path, records), "evidence-missing").message
    assert "for Y; set aside by no_grad_set" in message
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
    tmp_path: Path, limit: float | None, good: bool  # noqa: FBT001 - a value of the table
) -> None:  # fmt: skip
    entries = [] if limit is None else [entry(rule="tolerance", max_relative_error=limit)]
    result = gated(tmp_path, op_test(evidence(widened=0.005)), *entries)
    assert told(result) == ([] if good else [("fail", "tolerance-override")])
    if not good:
        assert "it passes without: take it out" in result.findings[0].message
        text = str(result.findings[0].numbers["entry"])
        assert "max_relative_error = 0.005" in text
        assert 'rule = "tolerance"' in text


def test_a_tolerance_that_is_needed_is_not_said_to_be_spare(tmp_path: Path) -> None:
    result = gated(tmp_path, op_test(evidence(widened=0.005, error=1e-4, tolerance=1e-9)))
    assert told(result) == [("fail", "tolerance-override")]
    assert "it passes without" not in result.findings[0].message


def test_an_allowed_non_determinism_is_an_exemption_too(tmp_path: Path) -> None:
    report = Reported(
        op="tanh", test=TEST, device="cpu", framework="torch", verdict=GradVerdict.PASS,
        nondeterminism_bound=1e-6,
    )  # fmt: skip
    records = op_test(evidence(), report)
    assert told(gated(tmp_path, records)) == [("fail", "tolerance-override")]
    allowed = entry(rule="determinism", nondeterminism_bound=1e-5)
    assert told(gated(tmp_path, records, allowed)) == []
