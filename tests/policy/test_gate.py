from __future__ import annotations

from pathlib import Path

import pytest

from factories.evidence import TEST, collected, declared, evidence, journal, op_test, outcome
from factories.gates import TODAY, WEAK, entry, gated, the, told
from karat.findings import ExitCode, Severity
from karat.gradients.report import GradVerdict
from karat.policy.evidence import merge
from karat.policy.gate.decision import Policy, gate
from karat.policy.gate.lists import OpBaseline
from karat.policy.journal import Record, Reported

INCONCLUSIVE = {"verdict": GradVerdict.INCONCLUSIVE, "reason": "the oracle is too coarse"}


def test_evidence_in_float64_for_every_input_is_what_the_rule_asks(tmp_path: Path) -> None:
    result = gated(tmp_path, op_test(evidence()))
    assert (result.findings, result.exit_code) == ((), ExitCode.OK)
    assert [one.state for one in result.tests] == ["evidence"]
    assert result.compared == 1


@pytest.mark.parametrize(
    ("more", "kind", "why"),
    [
        ([], "evidence-missing", "no gradient check finished"),
        ([evidence(dtype="float32")], "evidence-missing", "only in float32"),
        ([evidence(order=2)], "evidence-missing", "compared only in forward mode or a higher order"),
        ([evidence(mode="forward")], "evidence-missing", "compared only in forward mode or a higher order"),
        ([evidence(op="relu")], "evidence-missing", ""),
        ([evidence(input="Y")], "evidence-missing", ""),
        ([evidence(**WEAK)], "evidence-weak", "the author's own gradients"),
        ([evidence(vacuous=True)], "evidence-vacuous", "corrupted gradients passed"),
        ([evidence(**WEAK, vacuous=True)], "evidence-vacuous", "corrupted gradients passed"),
        ([evidence(**INCONCLUSIVE)], "evidence-inconclusive", "the oracle is too coarse"),
    ],
)
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
    assert "the gradient of X by Out is wrong in float64 on cpu" in the(result, "grad-failed").message


@pytest.mark.parametrize(("count", "told_"), [(2, " and 1 more comparison:"), (3, " and 2 more comparisons:")])
def test_other_comparisons_are_counted(tmp_path: Path, count: int, told_: str) -> None:
    wrong = [evidence(input=name, verdict=GradVerdict.FAIL, reason="off") for name in "XYZ"[:count]]
    result = gated(tmp_path, op_test(*wrong, inputs=dict.fromkeys("XYZ"[:count], "float64")))
    assert f"(reverse, order 1){told_} off" in the(result, "grad-failed").message


def test_an_operator_whose_gradient_is_wrong_is_not_told_to_be_tested(tmp_path: Path) -> None:
    ops = OpBaseline(ops={"mylib.tanh": (), "mylib.relu": ()})
    records = op_test(evidence(verdict=GradVerdict.FAIL))
    result = gated(tmp_path, records, complete=True, baseline=ops)
    assert told(result) == [("fail", "grad-failed"), ("fail", "new-op")]
    assert the(result, "new-op").metric == "mylib.relu"


def test_a_wrong_gradient_of_which_the_gate_says_nothing_is_no_evidence(tmp_path: Path) -> None:
    """A plain test that fails says so itself; the operator has no evidence all the same."""
    wrong = evidence(test="t.py::test_plain", verdict=GradVerdict.FAIL)
    records = [*op_test(evidence()), wrong, outcome("test_plain", "failed", test="t.py::test_plain")]
    result = gated(tmp_path, records, complete=True, baseline=OpBaseline(ops={"mylib.tanh": ()}))
    assert ("fail", "new-op") in told(result)


def test_a_law_that_is_broken_is_a_wrong_gradient(tmp_path: Path) -> None:
    report = Reported(
        op="tanh",
        test=TEST,
        device="cpu",
        framework="torch",
        verdict=GradVerdict.FAIL,
        reason="not linear in the cotangent",
        seed=7,
    )
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
    records = [collected(selected=1, deselected=1), declared(), outcome("test_check_output"), *other]
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
    assert gate(merge([tmp_path]), Policy(today=TODAY)).exit_code is ExitCode.CANNOT_VERIFY


def test_a_journal_without_its_failures_and_its_seal_is_not_verified(tmp_path: Path) -> None:
    wrong = evidence(verdict=GradVerdict.FAIL, mode="forward")
    path = journal(tmp_path, op_test(evidence(), wrong))
    *lines, _ = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(line for line in lines if b"FAIL" not in line))
    found = gate(merge([tmp_path]), Policy(today=TODAY))
    assert found.exit_code is ExitCode.CANNOT_VERIFY
    (finding,) = found.findings
    assert (finding.kind, finding.severity) == ("evidence-damaged", Severity.FAIL)
    assert finding.next is not None
    assert finding.next.startswith("pytest --karat-evidence=")


def test_plain_tests_are_left_alone_but_for_a_word(tmp_path: Path) -> None:
    plain = "t.py::test_plain"
    failed = Reported(op="f", test=plain, device="cpu", framework="numpy", verdict=GradVerdict.FAIL)
    passed: list[Record] = [collected(plain, op_test=False), failed, outcome(test=plain)]
    result = gated(tmp_path, [*op_test(evidence()), *passed])
    assert told(result) == [("warn", "grad-failed")]


def test_what_a_wrong_gradient_kept_from_being_compared_is_not_said_as_well(tmp_path: Path) -> None:
    both = {"X": "float64", "Y": "float64"}
    result = gated(tmp_path, op_test(evidence(verdict=GradVerdict.FAIL), inputs=both))
    assert told(result) == [("fail", "grad-failed")]


def test_a_wrong_gradient_is_never_exempt(tmp_path: Path) -> None:
    result = gated(tmp_path, op_test(evidence(verdict=GradVerdict.FAIL)), entry())
    assert result.tests[0].state == "failed"
    assert told(result) == [("fail", "grad-failed")]


def test_inputs_are_those_of_the_op(tmp_path: Path) -> None:
    other: list[Record] = [declared(op="relu", inputs={"Y": "float64"}), evidence(op="relu", input="Y")]
    result = gated(tmp_path, op_test(evidence(), *other))
    assert [(one.op, [n.input for n in one.needs]) for one in result.tests] == [("relu", ["Y"]), ("tanh", ["X"])]
    assert result.exit_code is ExitCode.OK


def test_limits_of_plain_tests_are_their_own(tmp_path: Path) -> None:
    plain: list[Record] = [collected("t.py::test_f", op_test=False), evidence(test="t.py::test_f", widened=0.5)]
    assert gated(tmp_path, [*op_test(evidence()), *plain]).findings == ()


def test_a_wrong_gradient_in_a_plain_test_that_failed_is_one(tmp_path: Path) -> None:
    test = "t.py::test_f"
    wrong = Reported(op="sin", test=test, device="cpu", framework="numpy", verdict=GradVerdict.FAIL)
    plain: list[Record] = [collected(test, op_test=False), wrong, outcome(test=test, result="failed")]
    result = gated(tmp_path, [*op_test(evidence()), *plain])
    assert told(result) == [("fail", "grad-failed")]
    assert (result.plain, result.proved) == (1, 0)


def test_nothing_is_said_once(tmp_path: Path) -> None:
    result = gate(merge([tmp_path / "nowhere"]), Policy(today=TODAY))
    assert told(result) == [("fail", "nothing-compared")]
