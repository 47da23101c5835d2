from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from msgspec import structs

from factories.editors import save_last_moment
from factories.evidence import evidence, journal, op_test
from factories.repositories import Repository
from karat.findings import UsageError
from karat.gradients.report import GradVerdict
from karat.policy.evidence import Merged, merge
from karat.policy.exemptions import ByOp, Exemption
from karat.policy.gate.decision import Policy
from karat.policy.gate.lists import BASELINE, OpBaseline, is_among, judge_ops, rewrite
from karat.policy.gate.project import rewritten

OPS: dict[str, tuple[str, ...]] = {"mylib.ops.relu": (), "mylib.ops.tanh": ()}


@pytest.fixture
def merged(tmp_path: Path) -> Merged:
    """Evidence for tanh."""
    journal(tmp_path, op_test(evidence()))
    return merge([tmp_path])


def told(merged: Merged, held: OpBaseline, *entries: Exemption, complete: bool = True) -> Any:
    found = judge_ops(merged, ByOp(entries), held, complete=complete)
    return [(one.kind, one.metric) for one in found]


def shortened(merged: Merged, held: OpBaseline, root: Path) -> tuple[str, ...]:
    policy = Policy(baseline=structs.replace(held, root=root), complete=True, today=date(2026, 1, 1))
    return rewritten(policy, merged, (), shorten=True).baseline.listed


def test_a_new_operator_without_evidence_fails(merged: Merged) -> None:
    assert told(merged, OpBaseline(ops=OPS)) == [("new-op", "mylib.ops.relu")]


def test_one_on_the_list_may_wait(merged: Merged) -> None:
    assert told(merged, OpBaseline(ops=OPS, listed=("mylib.ops.relu",))) == []


def test_one_with_evidence_must_leave_the_list(merged: Merged, tmp_path: Path) -> None:
    held = OpBaseline(ops=OPS, listed=tuple(OPS))
    assert told(merged, held) == [("baseline-stale", "mylib.ops.tanh")]
    assert told(merged, held, complete=False) == [("baseline-stale", "mylib.ops.tanh")]
    assert shortened(merged, held, tmp_path) == ("mylib.ops.relu",)


def test_one_that_is_gone_must_leave_the_list(merged: Merged) -> None:
    held = OpBaseline(ops=OPS, listed=("mylib.ops.gone", "mylib.ops.relu"))
    assert told(merged, held) == [("baseline-stale", "mylib.ops.gone")]
    assert told(merged, held, complete=False) == []


@pytest.mark.parametrize("said", [{"ops": OPS, "sure": False}, {"ops": {}}])
def test_nothing_is_gone_where_not_all_could_be_imported(merged: Merged, said: Any, tmp_path: Path) -> None:
    held = OpBaseline(listed=("mylib.ops.gone", "mylib.ops.relu"), **said)
    assert told(merged, held) == []
    assert shortened(merged, held, tmp_path) == held.listed


def test_evidence_under_another_name_of_it_will_do(merged: Merged) -> None:
    held = OpBaseline(ops={"mylib.ops.hypertan": ("mylib.ops.tanh",)})
    assert told(merged, held) == []
    other = OpBaseline(ops={"mylib.ops.relu": ("mylib.ops.ramp",)})
    assert told(merged, other) == [("new-op", "mylib.ops.relu")]
    assert told(merged, other, Exemption(op="ramp", reason="r", owner="o")) == []


def test_forward_mode_is_no_evidence_of_an_operator(tmp_path: Path) -> None:
    journal(tmp_path, op_test(evidence(mode="forward"), evidence(order=2)))
    assert told(merge([tmp_path]), OpBaseline(ops={"tanh": ()})) == [("new-op", "tanh")]


def test_an_exempt_operator_needs_no_evidence(merged: Merged) -> None:
    entry = Exemption(op="relu", reason="r", owner="o")
    assert told(merged, OpBaseline(ops=OPS), entry) == []


def test_part_of_a_suite_says_nothing_of_operators(merged: Merged) -> None:
    assert told(merged, OpBaseline(ops=OPS), complete=False) == []


@pytest.mark.parametrize(
    "spoiled",
    [
        [evidence(), evidence(verdict=GradVerdict.FAIL, input="Y")],
        [evidence(vacuous=True)],
        [evidence(strength="weak")],
        [evidence(dtype="float32")],
        [evidence(widened=0.1)],
    ],
)
def test_what_does_not_count_frees_no_operator(tmp_path: Path, spoiled: Any) -> None:
    journal(tmp_path, op_test(*spoiled))
    found = told(merge([tmp_path]), OpBaseline(ops={"mylib.ops.tanh": ()}))
    assert found == [("new-op", "mylib.ops.tanh")]


def test_names_are_compared_by_their_end() -> None:
    assert is_among("mylib.ops.tanh", frozenset({"tanh"}))
    assert is_among("mylib.ops.tanh", frozenset({"ops.tanh"}))
    assert is_among("mylib.ops.tanh", frozenset({"mylib.ops.tanh"}))
    assert not is_among("mylib.ops.arctanh", frozenset({"tanh"}))


def test_two_branches_that_change_other_lines_merge(tmp_path: Path) -> None:
    path = tmp_path / "policy-baseline.json"
    rewrite(path, ["b", "a", "b"], ())
    assert path.read_text() == ('{\n"a": null,\n"b": null,\n"schema": "karat.policy-baseline/1"\n}\n')


@given(st.sets(st.text(min_size=1).filter(lambda name: name != "schema")))
def test_what_is_written_is_read_back(ops: set[str]) -> None:
    data = json.dumps({**dict.fromkeys(ops), "schema": BASELINE.schema}).encode()
    assert BASELINE.parse(data, "x") == tuple(sorted(ops))


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"schema": 1}', b"[" * 100_000])
def test_what_is_no_baseline_is_refused(data: bytes) -> None:
    with pytest.raises(UsageError, match=r"expected b\.json to be an object of operators"):
        BASELINE.parse(data, "b.json")


def test_an_operator_that_is_typed_meanwhile_stays(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    path = repository.root / "policy-baseline.json"
    rewrite(path, ["a", "b", "typed"], ())
    typed = path.read_bytes()
    rewrite(path, (), ["typed"])
    save_last_moment(monkeypatch, path, typed)
    rewrite(path, ["c"], ["a"])
    assert BASELINE.read(path) == ("b", "c", "typed")
