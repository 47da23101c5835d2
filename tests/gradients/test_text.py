from __future__ import annotations

import pytest
from hypothesis import given, strategies as st
from msgspec import structs

from karat.gradients.report import (
    WIDTH,
    Diagnosis,
    Excluded,
    GradComparison as Comparison,
    GradReport,
    GradVerdict,
    Property,
    number,
    shortened,
    text,
)
from karat.report.words import printable

WRONG = Comparison(
    input="x",
    output="out",
    dtype="float64",
    verdict=GradVerdict.FAIL,
    reason="expected 0.23 along a probe, found 0.11",
    oracle="complex-step",
    error=0.12,
    tolerance=3e-12,
    scale=1.0,
    smallest_error=4e-12,
    controls={"zero": True, "x1.01": True},
)
RIGHT = structs.replace(WRONG, input="w", verdict=GradVerdict.PASS, error=1e-14, reason="")


def report(*comparisons: Comparison, **more: object) -> GradReport:
    fields: dict[str, object] = {
        "op": "softmax",
        "framework": "torch",
        "device": "cpu",
        "seed": 7,
        "identity": "tests/test_ops.py::test_softmax",
        "verdict": GradVerdict.FAIL,
        "reason": "the gradient of out by x is wrong",
        "comparisons": comparisons,
        **more,
    }
    return GradReport(**fields)  # type: ignore[arg-type]


def test_first_line_is_the_verdict_with_its_reason() -> None:
    first = text(report(WRONG)).splitlines()[0]
    assert first == "FAIL  softmax (torch, cpu): the gradient of out by x is wrong"


def test_every_comparison_has_a_row_the_gravest_first() -> None:
    lines = text(report(RIGHT, WRONG)).splitlines()
    rows = [line for line in lines if " → out" in line and "float64" in line]
    assert [row.split()[0] for row in rows] == ["x", "w"]
    assert "FAIL" in rows[0]
    assert all(word in rows[0] for word in ("float64", "reverse", "complex-step", "0.12", "4.0e-12"))
    assert lines[lines.index(rows[0]) + 1] == "    - expected 0.23 along a probe, found 0.11"


def test_evidence_that_could_not_fail_does_not_read_as_a_pass() -> None:
    vacuous = structs.replace(RIGHT, vacuous=True, controls={"zero": False}, reason="zero everywhere it was looked")
    shown = text(report(vacuous, verdict=GradVerdict.PASS))
    assert shown.startswith("PASS, but no evidence")
    assert "no evidence" in next(line for line in shown.splitlines() if "w → out" in line)
    assert "0 of 1 corrupted gradients were noticed (zero)" in shown
    assert "unnoticed: zero for w → out" in shown


def test_a_report_of_nothing_says_so() -> None:
    assert text(report(verdict=GradVerdict.PASS, reason="")).startswith("PASS, but no evidence")


def test_require_raises_with_the_whole_story() -> None:
    with pytest.raises(AssertionError, match="the gradient of out by x is wrong"):
        report(WRONG).require()


def test_a_diagnosis_tells_where_what_and_how_to_see_it_again() -> None:
    replay = "pytest 'tests/test_ops.py::test_softmax[" + "long" * 40 + "]' --karat-grad-seed 7"
    found = Diagnosis(
        input="x",
        output="out",
        dtype="float64",
        coordinate=(3, 7),
        expected=0.25,
        found=0.5 - 1j,
        hint="twice the expected gradient",
        forwards=40,
        replay=replay,
    )
    shown = report(WRONG, diagnoses=(found, structs.replace(found, input="w", coordinate=(1,))))
    lines = str(shown).splitlines()
    assert lines[:6] == [
        "FAIL  softmax (torch, cpu): x → out in float64 is wrong at [3, 7]",
        "  expected  0.25",
        "  found     0.5-1j",
        "  hint      twice the expected gradient",
        f"  replay    {replay}",
        "",
    ]
    at = lines.index("  w → out in float64 at [1]")
    assert lines[at + 1 : at + 5] == [
        "    expected  0.25",
        "    found     0.5-1j",
        "    hint      twice the expected gradient",
        f"    replay    {replay}",
    ]


def test_a_pass_is_one_line_and_the_details_are_there_for_who_asks() -> None:
    made = report(RIGHT, verdict=GradVerdict.PASS, reason="the comparison holds", notes=("a note",))
    assert str(made) == "PASS  softmax (torch, cpu): the comparison holds"
    assert made.details().splitlines()[0] == str(made)
    assert "w → out" in made.details()
    assert "  note: a note" in made.details()


def test_laws_that_do_not_hold_are_named_with_numbers() -> None:
    laws = (
        Property(name="linearity", verdict=GradVerdict.PASS),
        Property(
            name="zero cotangent", verdict=GradVerdict.FAIL, detail="the gradient is not zero", measured=0.5, bound=0.0
        ),
    )
    shown = text(report(WRONG, properties=laws))
    assert "properties: 1 of 2 hold" in shown
    assert "FAIL  zero cotangent (float64): the gradient is not zero; measured 0.5, at most 0 allowed" in shown
    assert "linearity" not in shown


def test_what_weakens_a_comparison_is_said_beside_it() -> None:
    weak = structs.replace(RIGHT, strength="weak", kinks=3, widened=0.005, order=2)
    shown = text(report(weak))
    assert "weak: compared only with the author's own gradients" in shown
    assert "kinks: 3" in shown
    assert "a relative tolerance of 5.0e-03" in shown
    assert "reverse 2" in shown


def test_long_lists_are_cut_and_counted() -> None:
    many = tuple(structs.replace(RIGHT, input=f"x{i}") for i in range(40))
    shown = text(report(*many, WRONG, excluded=tuple(Excluded(name=f"i{i}", why="int64") for i in range(20))))
    assert "and 29 more" in shown
    assert "i5 (int64) and 14 more" in shown
    assert shown.count("→") == 13


names = st.text(min_size=0, max_size=300)


@given(names, names, names, names)
def test_hostile_names_keep_to_their_column(op: str, source: str, output: str, reason: str) -> None:
    one = structs.replace(WRONG, input=source, output=output, reason=reason)
    found = Diagnosis(input=source, output=output, dtype="float64", hint=reason, replay="x")
    law = Property(name=op, verdict=GradVerdict.FAIL, detail=reason, dtype="bfloat16")
    shown = text(
        report(
            one,
            structs.replace(one, order=2, dtype="float8_e4m3fnuz", verdict=GradVerdict.INCONCLUSIVE),
            op=op,
            identity=reason,
            reason=reason,
            diagnoses=(found,),
            properties=(law,),
            notes=(reason,),
            excluded=(Excluded(name=source, why=reason),),
        )
    )
    assert all(len(line) <= WIDTH for line in shown.split("\n"))
    assert all(char.isprintable() or char == "\n" for char in shown)
    assert "##[" not in shown


@given(st.floats())
def test_numbers_are_short(value: float) -> None:
    assert len(number(value)) <= 22


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.0, "0"), (-0.0, "0"), (0.123456, "0.123"), (1e-9, "1.0e-09"), (float("inf"), "inf"), (float("nan"), "nan")],
)
def test_a_number_reads_well(value: float, shown: str) -> None:
    assert number(value) == shown


@given(names, st.integers(3, 40))
def test_a_shortened_name_fits_and_keeps_both_ends(name: str, room: int) -> None:
    shown = shortened(name, room)
    assert len(shown) <= room
    whole = printable(name)
    assert shown == whole or (shown[0] == whole[0] and shown[-1] == whole[-1] and "…" in shown)


def test_a_report_is_its_own_story_and_a_short_one_in_an_assertion() -> None:
    made = report(WRONG)
    assert str(made) == text(made)
    assert repr(made) == "<GradReport FAIL softmax: the gradient of out by x is wrong>"


def test_a_long_identity_is_shortened() -> None:
    shown = report(RIGHT, identity="x" * 5000, verdict=GradVerdict.PASS).details()
    assert 20 < shown.count("x") < 100


def test_a_broken_law_can_be_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "tests/test_ops.py::test_softmax (call)")
    law = Property(name="linearity", verdict=GradVerdict.FAIL, detail="bent")
    shown = text(report(RIGHT, properties=(law,)))
    assert shown.splitlines()[1] == "  replay    pytest tests/test_ops.py::test_softmax --karat-grad-seed 7"
    assert "replay" not in text(report(RIGHT, verdict=GradVerdict.PASS), details=True)
    diagnosed = Diagnosis(input="x", output="out", dtype="float64", replay="pytest x")
    assert text(report(WRONG, diagnoses=(diagnosed,))).count("replay") == 1


def test_nothing_that_a_ci_log_takes_for_a_command_is_printed() -> None:
    assert "##[" not in text(report(WRONG, reason="##[error] gone", op="##[group]"))
