from __future__ import annotations

import json
from importlib import resources
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import given, strategies as st

import karat
from karat.gradients.report import (
    SCHEMA,
    Diagnosis,
    Excluded,
    GradComparison as Comparison,
    GradReport,
    GradVerdict,
    Property,
)

PUBLISHED = json.loads(
    resources.files("karat").joinpath("schemas", "karat.grad-report.1.json").read_text(encoding="utf-8")
)


def read(report: GradReport) -> Any:
    """The document as strict JSON, valid by the published schema."""

    def refuse(word: str) -> None:
        pytest.fail(f"JSON has no {word}")

    found = json.loads(report.to_json(), parse_constant=refuse)
    jsonschema.validate(found, PUBLISHED)
    return found


def checked(factor: float, **more: Any) -> GradReport:
    """A real report of a gradient that is off by a factor."""
    return karat.gradcheck(
        lambda x, n: np.sin(x) * n,
        (np.linspace(0.1, 2, 12).reshape(3, 4), np.array([1, 2, 3, 4])),
        backward=lambda i, _o, c: (factor * c[0] * np.cos(i[0]) * i[1], None),
        op="sine",
        **more,
    )


def test_the_published_schema_is_one_and_names_itself() -> None:
    jsonschema.Draft202012Validator.check_schema(PUBLISHED)
    assert PUBLISHED["$id"] == SCHEMA


def test_a_report_that_passes() -> None:
    found = read(checked(1.0))
    assert (found["schema"], found["verdict"], found["op"]) == (SCHEMA, "PASS", "sine")
    assert {(one["input"], one["dtype"], one["counts"]) for one in found["comparisons"]} == {("x", "float64", True)}
    assert found["diagnoses"] == []
    assert int(found["seed"]) >= 0


def test_a_report_that_fails_has_its_diagnosis() -> None:
    found = read(checked(2.0, seed=2**63 + 1))
    assert found["verdict"] == "FAIL"
    assert found["seed"] == str(2**63 + 1)
    (one,) = found["diagnoses"]
    assert one["hint"] == "twice the expected gradient"
    assert one["found"] == pytest.approx(2 * one["expected"])


numbers = st.floats()
texts = st.text()


@pytest.mark.slow
@given(numbers, numbers, st.none() | numbers | st.complex_numbers(), texts, st.sampled_from(list(GradVerdict)))
def test_any_report_has_a_form(one: float, two: float, three: complex | None, word: str, verdict: GradVerdict) -> None:
    hostile = word + "\udc80\x00"
    comparison = Comparison(
        input=hostile,
        output=word,
        dtype="bfloat16",
        verdict=verdict,
        reason=hostile,
        oracle="float64",
        error=one,
        tolerance=two,
        scale=np.float64(one),
        smallest_error=two,
        controls={hostile: True},
        widened=one,
    )
    found = read(
        GradReport(
            op=hostile,
            framework="torch",
            device="cuda:0",
            seed=0,
            identity=hostile,
            verdict=verdict,
            reason=hostile,
            comparisons=(comparison,),
            properties=(Property(name=word, verdict=verdict, measured=one, bound=two),),
            diagnoses=(
                Diagnosis(input=word, output=hostile, dtype="float64", coordinate=(1, 2), expected=three, found=one),
            ),
            excluded=(Excluded(name=hostile, why=word),),
            notes=(hostile,),
        )
    )
    (row,) = found["comparisons"]
    assert row["error"] == one or (row["error"] == str(one))
    expected = found["diagnoses"][0]["expected"]
    if isinstance(three, complex):
        assert set(expected) == {"real", "imag"}
