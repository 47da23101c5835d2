"""Nested values compared: structure first, then leaf by leaf."""

from __future__ import annotations

import math
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from conftest import framework
from factories.captured import capture, identity
from factories.nested import ARRAYS, CLASSES, Bits, Box, Colour, Frozen, ModelOutput, Pair, nested
from karat.bundles.cases import cases
from karat.bundles.compare import compare_values
from karat.bundles.places import open_place
from karat.bundles.structure import flatten, restore
from karat.findings import KINDS
from karat.tensors.comparison import ComparisonReport
from karat.tensors.tensor import CannotStore, Tensor


def kinds(report: ComparisonReport, severity: str = "fail") -> list[str]:
    found = [*report.all_findings()]
    assert all(finding.kind in KINDS for finding in found)
    return sorted(finding.kind for finding in found if finding.severity == severity)


def ones(*shape: int) -> Any:
    return np.ones(shape, np.float32)


@pytest.mark.slow
@given(nested(ARRAYS))
def test_a_value_is_what_it_is(value: Any) -> None:
    report = compare_values(value, value, rtol=0, atol=0, equal_nan=True)
    assert kinds(report) in ([], ["nothing-compared"])
    assert report.passed == any(each.dtype != "None" for each in report.comparisons)


@pytest.mark.slow
@given(nested(ARRAYS))
def test_a_restored_value_is_what_it_was_with_and_without_its_classes(value: Any) -> None:
    flat = flatten(value, "expected")
    tensors = {name: t for name, t in flat.tensors.items() if isinstance(t, Tensor)}
    for classes in ((), CLASSES):
        restored = restore(flat.structure, tensors, classes=classes).value
        assert kinds(compare_values(value, restored, equal_nan=True)) in ([], ["nothing-compared"])


@pytest.mark.parametrize(
    ("expected", "actual", "found"),
    [
        (ones(2), ones(2) * 2, ["tensor-mismatch"]),
        (ones(2), ones(3), ["shape-changed"]),
        (ones(2), ones(2).astype(np.float64), ["dtype-changed"]),
        (ones(2), [ones(2)], ["type-changed"]),
        (ones(2), 1.0, ["type-changed"]),
        (ones(2), None, ["type-changed"]),
        ((ones(2), ones(2)), (ones(2),), ["lost-tensor", "structure-changed"]),
        ((ones(2),), (ones(2), ones(2)), ["gained-tensor", "structure-changed"]),
        ((ones(2), 1), (ones(2),), ["structure-changed"]),
        ({"a": ones(2), "b": ones(1)}, {"a": ones(2)}, ["lost-tensor", "structure-changed"]),
        ({"a": ones(2)}, {"a": ones(2), "b": ones(1)}, ["gained-tensor", "structure-changed"]),
        ({"a": ones(2)}, {"A": ones(2)}, ["gained-tensor", "lost-tensor", "structure-changed"]),
        ({0: ones(2)}, {"0": ones(2)}, ["gained-tensor", "lost-tensor", "structure-changed"]),
        ({np.int8(1): 1, 2: 2}, {np.int8(2): 1, 2: 2}, ["structure-changed"]),
        (Box(ones(2)), Box(ones(2) * 2), ["tensor-mismatch"]),
        (Box(ones(2)), Frozen(ones(2)), ["type-changed"]),
        (Pair(1), (1, None), ["type-changed"]),
        (1.0, 1.5, ["tensor-mismatch"]),
        (1.0, 1, ["type-changed"]),
        (1, True, ["type-changed"]),
        (1, 2, ["tensor-mismatch"]),
        (2**70, 2**70 + 1, ["value-drift"]),
        (2**70, 1, ["value-drift"]),
        (1.0, math.nan, ["tensor-mismatch"]),
        (math.nan, math.nan, ["tensor-mismatch"]),
        (1j, 2j, ["tensor-mismatch"]),
        ("a", "b", ["text-changed"]),
        ("a", b"a", ["type-changed"]),
        (None, None, ["nothing-compared"]),
        ([None, {}], [None, {}], ["nothing-compared"]),
        ((None, 1), (None, 1), []),
        (ones(0), ones(0), []),  # dtype and shape were compared, and could have differed
        ({math.nan}, {math.nan}, ["value-drift"]),
        ({1j * math.nan}, {1j * math.nan}, ["value-drift"]),
        ({"nan", '{"float":"nan"}'}, {"nan", '{"float":"nan"}'}, []),
        (np.datetime64("NaT", "s"), np.datetime64("NaT", "s"), ["tensor-mismatch"]),
        (True, False, ["value-drift"]),
        (Colour.RED, Colour.GREEN, ["value-drift"]),
        (Bits.A, Bits.A | Bits.B, ["value-drift"]),
        ({1, 2}, {1, 3}, ["value-drift"]),
        (slice(1, 2), slice(1, 3), ["tensor-mismatch"]),
        (np.dtype("<f4"), np.dtype(">f4"), ["value-drift"]),
        ((), (), ["nothing-compared"]),
        ({}, [], ["type-changed"]),
        (ModelOutput(loss=ones(1)), ModelOutput(logits=ones(1)), ["type-changed", "type-changed"]),
    ],
)
def test_differences_are_told_by_their_kind(expected: Any, actual: Any, found: list[str]) -> None:
    report = compare_values(expected, actual)
    told = [kind.replace("new-nan", "tensor-mismatch") for kind in kinds(report)]
    assert sorted(set(told)) == sorted(set(found)), [*report.all_findings()]
    assert report.passed == (not found)


@pytest.mark.parametrize(
    ("expected", "actual"), [(1.5, np.float64(1.5)), (np.float32(2), 2), (3, 3.0), (1j, np.complex64(1j))]
)
def test_numbers_of_python_and_of_frameworks_compare_where_dtypes_need_not_agree(expected: Any, actual: Any) -> None:
    assert compare_values(expected, actual, check_dtype=False).passed
    assert kinds(compare_values(expected, actual)) == ["type-changed"]
    wrong = compare_values(expected, actual + 1, check_dtype=False)
    assert kinds(wrong) == ["tensor-mismatch"]


def test_nan_passes_where_it_is_asked_for_and_nowhere_else() -> None:
    record = np.array([(1, math.nan), (2, 1)], [("a", "<i4"), ("b", ">f8")])
    nested = np.zeros(2, [("a", [("t", "<M8[s]", (2, 2))]), ("pad", "V3")])
    nested["a"]["t"][1, 0, 1] = "NaT"
    for value in ({math.nan}, np.array(["NaT", 0], "<m8[ns]"), record, nested):
        assert not compare_values(value, value).passed
        assert compare_values(value, value, equal_nan=True).passed
    (found,) = compare_values(record, record).comparisons
    assert found.numbers is not None
    assert (found.numbers.bit_equal, found.numbers.mismatches) == (2, 1)
    assert (found.numbers.nan_expected, found.numbers.nan_actual) == (1, 1)
    assert "equal_nan" in found.findings[0].message


@pytest.mark.parametrize(
    ("expected", "actual", "said"),
    [
        (1.5, None, "expected float 1.5, found None"),
        (2**70, "a", "expected int 0x400000000000000000, found str 'a'"),
        (None, ones(1), "expected None, found a tensor"),
    ],
)
def test_values_are_said_as_python_says_them(expected: Any, actual: Any, said: str) -> None:
    (found,) = compare_values(expected, actual).all_findings()
    assert found.message == f"in `expected`: {said}"


def test_a_list_for_a_tuple_is_told_and_passes() -> None:
    report = compare_values((ones(2), 1), [ones(2), 1])
    assert report.passed
    assert kinds(report, "info") == ["structure-changed"]
    report = compare_values({"a": 1}, OrderedDict(a=1))
    assert report.passed
    assert kinds(report, "info") == ["structure-changed"]


def test_the_order_of_keys_does_not_matter() -> None:
    assert compare_values({"a": ones(1), "b": ones(2)}, {"b": ones(2), "a": ones(1)}).passed


def test_tolerances_reach_every_leaf() -> None:
    expected, actual = {"a": (ones(2), 1.0)}, {"a": (ones(2) * 1.1, 1.1)}
    assert not compare_values(expected, actual).passed
    report = compare_values(expected, actual, rtol=0.2, atol=0)
    assert report.passed
    assert [c.name for c in report.comparisons] == ["expected/a/0", "expected/a/1"]
    assert compare_values(ones(2), ones(2).astype(np.float64), check_dtype=False).passed
    assert compare_values([math.nan], [math.nan], equal_nan=True).passed


def test_frameworks_may_differ_where_dtypes_do_not() -> None:
    torch = framework("torch")
    assert compare_values(torch.ones(2), ones(2)).passed


def test_what_cannot_be_compared_names_its_side() -> None:
    with pytest.raises(CannotStore, match=r"^actual\[0\]"):
        compare_values((1,), (object(),))
    with pytest.raises(CannotStore, match=r"^expected\[0\]"):
        compare_values((object(),), (1,))


def test_a_case_is_compared_where_it_lies(tmp_path: Path) -> None:
    expected = {"x": ones(3), "n": 2.5, np.int8(4): "key"}
    capture(tmp_path, identity(), expected=expected)
    (case,) = cases(open_place(tmp_path))
    assert compare_values(case.flat("expected"), flatten(expected, "expected")).passed
    changed = flatten({**expected, "x": ones(3) + 1}, "expected")
    assert kinds(compare_values(case.flat("expected"), changed)) == ["tensor-mismatch"]
