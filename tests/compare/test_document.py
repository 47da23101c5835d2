from __future__ import annotations

import math
from typing import Any

import pytest

from factories.curves import change_of, kinds
from karat.compare.change import Change, Verdict
from karat.compare.pairs import GoldenPair, compare
from karat.findings import Severity
from karat.goldens.shapes import Document, Reading


def changed(old: Any, new: Any) -> Change:
    return change_of(Document(old), Document(new))


def request(**more: Any) -> dict[str, Any]:
    return {"0": {"generated_text": "the place", "logprobs": [-9.3, -2.7], "latency": 0.2, "top": None} | more}


def test_equal_documents_are_the_same() -> None:
    assert changed(request(), request()).verdict is Verdict.SAME


def test_numeric_leaves_have_tolerance_and_one_row_per_list() -> None:
    change = changed(request(), request(logprobs=[-9.3, -2.70000001]))
    assert change.verdict is Verdict.NOISE
    row = next(row for row in change.metrics if row.metric == "logprobs")
    assert (row.n_steps, row.max_step) == (2, '$["0"].logprobs[1]')


def test_a_large_move_breaks() -> None:
    change = changed(request(), request(logprobs=[-9.3, -5.0]))
    assert change.verdict is Verdict.BREAK


def test_latency_has_the_timings_rule() -> None:
    assert changed(request(), request(latency=0.205)).verdict is Verdict.NOISE


@pytest.mark.parametrize(
    ("old", "new", "kind", "severity"),
    [
        ({"a": 1, "b": 2}, {"a": 1}, "structure-changed", Severity.FAIL),
        ({"a": 1}, {"a": 1, "b": 2}, "structure-changed", Severity.INFO),
        ({"a": [1, 2, 3]}, {"a": [1, 2]}, "structure-changed", Severity.FAIL),
        ({"a": [1]}, {"a": [1, 2]}, "structure-changed", Severity.WARN),
        ({"a": 1}, {"a": "1"}, "type-changed", Severity.FAIL),
        ({"a": 1}, {"a": None}, "type-changed", Severity.FAIL),
        ({"a": None}, {"a": 1}, "type-changed", Severity.WARN),
        ({"a": True}, {"a": 1}, "type-changed", Severity.FAIL),
        ({"a": "x"}, {"a": "y"}, "text-changed", Severity.WARN),
        ({"a": True}, {"a": False}, "value-drift", Severity.WARN),
        ([1, [2, {"b": 3}]], [1, [2, {}]], "structure-changed", Severity.FAIL),
    ],
)
def test_each_kind_of_difference(old: Any, new: Any, kind: str, severity: Severity) -> None:
    change = changed(old, new)
    assert (kind, severity) in {(f.kind, f.severity) for f in change.findings}
    assert change.verdict is not Verdict.SAME


def test_tokens_are_exact() -> None:
    change = changed({"generated_tokens": [3060, 1455]}, {"generated_tokens": [3060, 1456]})
    assert change.verdict is Verdict.DRIFT
    assert "exact" in change.metrics[0].because


def test_an_answer_that_changed_from_its_first_token_on_is_a_break() -> None:
    tokens = [3060 + 7 * n for n in range(30)]
    old = {"0": {"generated_tokens": tokens, "generated_text": "a fox"}}
    other = changed(old, {"0": {"generated_tokens": [t + 1 for t in tokens], "generated_text": "no"}})
    assert other.verdict is Verdict.BREAK
    assert other.findings[0].kind == "tokens-changed"
    assert "from token 0 on: 0 of 30 are the common prefix, then 3060 → 3061" in other.findings[0].message
    assert "value-drift" not in kinds(other), "token ids have no size"
    tail = changed(old, {"0": {"generated_tokens": [*tokens[:12], *(t + 1 for t in tokens[12:])]}})
    said = next(f for f in tail.findings if f.kind == "tokens-changed")
    assert (said.severity, "from token 12 on: 12 of 30" in said.message) == (Severity.WARN, True)
    shorter = changed(old, {"0": {"generated_tokens": tokens[:20], "generated_text": "a fox"}})
    assert {"tokens-changed", "structure-changed"} <= kinds(shorter)


def test_nan_gained_is_incomplete_and_nan_on_both_sides_is_said() -> None:
    gained = changed({"a": [1.0, 2.0]}, {"a": [1.0, math.nan]})
    both = changed({"a": math.nan}, {"a": math.nan})
    assert gained.verdict is Verdict.INCOMPLETE
    assert "new-nan" in kinds(gained)
    assert "no-usable-steps" in kinds(both)


def test_the_string_nan_stands_for_a_number() -> None:
    change = changed({"a": [1.0, "nan"]}, {"a": [1.0, "nan"]})
    assert change.verdict is Verdict.SAME
    assert "new-nan" in kinds(changed({"a": [1.0, 2.0]}, {"a": [1.0, "nan"]}))


def test_the_same_difference_in_many_places_is_one_finding() -> None:
    old = {"r": [{"t": "a"} for _ in range(100)]}
    new = {"r": [{"t": "b"} for _ in range(100)]}
    texts = [f for f in changed(old, new).findings if f.kind == "text-changed"]
    assert len(texts) == 1
    assert "99 more places" in texts[0].message


@pytest.mark.slow
def test_nesting_costs_no_recursion() -> None:
    old: Any = 1.0
    new: Any = 2.0
    for _ in range(50_000):
        old, new = [old], [new]
    assert changed(old, new).verdict is Verdict.BREAK


def test_integers_too_large_for_a_float() -> None:
    change = changed({"a": 10**400, "b": 1}, {"a": 10**400, "b": 1})
    assert "no-usable-steps" in kinds(change), "infinite as floats, so no evidence"
    assert "value-drift" in kinds(changed({"a": 2**53 + 1}, {"a": 2**53}))
    assert changed({"a": 2**53 + 1}, {"a": 2**53}).verdict is Verdict.DRIFT


def test_a_loss_is_not_hidden_behind_a_gain_at_the_same_path() -> None:
    for new in ([1.0, None], [1.0, "x"]):
        change = changed({"a": [None, 1.0], "b": 1}, {"a": new, "b": 1})
        assert {f.severity for f in change.findings if f.kind == "type-changed"} == {Severity.WARN, Severity.FAIL}


def test_slow_requests_are_not_a_warm_up() -> None:
    old = {"r": [{"latency": 1.0} for _ in range(10)]}
    new = {"r": [{"latency": 500.0 if i < 3 else 1.0} for i in range(10)]}
    assert changed(old, new).verdict is Verdict.DRIFT


def test_a_document_without_numbers_can_be_the_same() -> None:
    value = {"status": "ok", "t": ["x", "y"]}
    assert kinds(changed(value, dict(value))) == {"format-only"}


def test_many_lost_keys_are_one_finding() -> None:
    change = changed({f"k{i}": "x" for i in range(5_000)} | {"a": 1}, {"a": 1})
    (lost,) = [f for f in change.findings if f.severity is Severity.FAIL]
    assert "k0, k1, k10, k100, k1000 and 4,995 more" in lost.message


def test_request_ids_are_positions() -> None:
    old = {str(i): {"logprobs": [-1.0, -2.0], "text": "a"} for i in range(50)}
    new = {str(i): {"logprobs": [-1.0, -2.0], "text": "b"} for i in range(50)}
    change = changed(old, new)
    assert [row.metric for row in change.metrics] == ["logprobs"]
    assert len(change.findings) == 1


def test_documents_of_other_shapes() -> None:
    assert changed([1], {"a": 1}).verdict is Verdict.BREAK
    assert changed([], {}).verdict is Verdict.INCOMPLETE
    assert kinds(changed({}, {})) >= {"empty"}


def test_numbers_of_documents_can_be_drawn_when_asked() -> None:
    old, new = Document({"a": [1.0, 2.0]}), Document({"a": [1.0, 3.0]})
    pair = GoldenPair(path="a.json", old=Reading(old), new=Reading(new))
    (row,) = compare(pair, keep_curves=True).metrics
    assert row.old is not None
    assert row.new is not None
    assert row.new.values.tolist() == [1.0, 3.0]
    assert compare(pair).metrics[0].old is None
