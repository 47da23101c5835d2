from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from factories.evidence import TEST, collected, declared, evidence, journal, op_test, outcome
from karat.gradients.report import GradVerdict
from karat.policy.evidence import Merged, merge
from karat.policy.journal import Recorder

FAIL = GradVerdict.FAIL


def kinds(merged: Merged) -> list[str]:
    return [one.kind for one in merged.findings]


def test_workers_of_a_session_are_one(tmp_path: Path) -> None:
    journal(tmp_path, [collected(selected=2), declared(), outcome("test_a")], worker="gw0")
    journal(tmp_path, [collected(selected=2), evidence(), outcome("test_b")], worker="gw1")
    merged = merge([tmp_path])
    known = merged.tests[TEST]
    assert (merged.journals, merged.sessions, merged.ran) == (2, 1, 2)
    assert (known.ran, known.total, known.is_whole) == (2, 2, True)
    assert (len(known.declared), len(known.evidence)) == (1, 1)


def test_shards_make_a_test_whole(tmp_path: Path) -> None:
    journal(tmp_path / "1", [collected(selected=1, deselected=1), outcome("test_a")], session="a")
    assert not merge([tmp_path]).tests[TEST].is_whole
    journal(tmp_path / "2", [collected(selected=1, deselected=1), outcome("test_b")], session="b")
    assert merge([tmp_path / "1", tmp_path / "2"]).tests[TEST].is_whole


def test_the_same_journal_twice_counts_once(tmp_path: Path) -> None:
    for folder in ("artifact-1", "artifact-2"):
        journal(tmp_path / folder, op_test(evidence()))
    assert len(merge([tmp_path]).tests[TEST].evidence) == 1


def test_what_failed_anywhere_has_failed(tmp_path: Path) -> None:
    journal(tmp_path / "a", [outcome(result="passed")], session="a")
    journal(tmp_path / "b", [outcome(result="failed", reason="why")], session="b")
    journal(tmp_path / "c", [outcome(result="skipped")], session="c")
    (one,) = merge([tmp_path]).tests[TEST].outcomes
    assert (one.outcome, one.reason) == ("failed", "why")


def test_evidence_of_yesterday_is_none_of_todays(tmp_path: Path) -> None:
    journal(tmp_path, op_test(evidence()), session="old", started="2026-11-14T10:00:00+00:00")
    journal(tmp_path, op_test(), session="new", started="2026-11-15T10:00:00+00:00")
    assert merge([tmp_path]).tests[TEST].evidence == ()


def test_a_later_run_of_other_tests_takes_nothing_away(tmp_path: Path) -> None:
    journal(tmp_path, op_test(evidence()), session="old", started="2026-11-14T10:00:00+00:00")
    left = [collected(selected=0, deselected=1), *op_test(test="t.py::Other")]
    journal(tmp_path, left, session="new", started="2026-11-15T10:00:00+00:00")
    assert len(merge([tmp_path]).tests[TEST].evidence) == 1


def test_jobs_of_one_ci_run_all_speak(tmp_path: Path) -> None:
    for session, hour in (("cpu", "10"), ("gpu", "11")):
        more = [evidence()] if session == "cpu" else []
        started = f"2026-11-15T{hour}:00:00+00:00"
        journal(tmp_path, op_test(*more), session=session, started=started, run="77")
    assert len(merge([tmp_path]).tests[TEST].evidence) == 1


def test_a_suite_is_whole_if_every_part_of_it_says_so(tmp_path: Path) -> None:
    journal(tmp_path, op_test(evidence()), worker="gw0")
    assert merge([tmp_path]).whole
    journal(tmp_path, op_test(evidence()), worker="gw1", whole=False)
    assert not merge([tmp_path]).whole


def test_a_cut_line_is_said_and_the_rest_counts(tmp_path: Path) -> None:
    path = journal(tmp_path, op_test(evidence()), ended=False)
    path.write_bytes(path.read_bytes() + b'{"type":"evidence","op":"ta')
    merged = merge([tmp_path])
    assert kinds(merged) == ["evidence-damaged"]
    assert "line 6 is not a record" in merged.findings[0].message
    assert len(merged.tests[TEST].evidence) == 1


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "no record"),
        (b"\x00\xff\n", "no record"),
        (b'{"type":"ended","exit_status":0,"records":0}\n', "expected a journal with a first line"),
        (
            b'{"type":"began","schema":"karat.evidence/9","session":"s","worker":"w","karat":"9","python":"3","started":"x"}\n',
            "expected schema karat.evidence/1",
        ),
        (
            b'{"type":"began","session":"s","worker":"w","karat":"9","python":"3","started":"x"}\n',
            "it has no last line",
        ),
        (
            b'{"type":"began","session":"s","worker":"w","karat":"9","python":"3","started":"x"}\n{"type":"ended","exit_status":0,"records":9}\n',
            "it was changed after it was written",
        ),
        (b"[" * 100_000, "no record"),
    ],
)
def test_what_is_no_journal_is_said(tmp_path: Path, data: bytes, said: str) -> None:
    (tmp_path / "evidence-x.jsonl").write_bytes(data)
    merged = merge([tmp_path])
    assert kinds(merged) == ["evidence-damaged"]
    assert said in merged.findings[0].message


@pytest.mark.parametrize("there", [True, False])
def test_a_folder_without_journals_is_said(tmp_path: Path, there: bool) -> None:  # noqa: FBT001 - a value of the table
    place = tmp_path / "evidence"
    if there:
        place.mkdir()
    assert kinds(merge([place])) == ["nothing-compared"]


def test_an_empty_folder_beside_a_full_one_is_said(tmp_path: Path) -> None:
    journal(tmp_path / "a", op_test(evidence()))
    (tmp_path / "b").mkdir()
    assert kinds(merge([tmp_path / "a", tmp_path / "b"])) == ["nothing-compared"]


def test_evidence_of_several_commits_proves_nothing_of_one(tmp_path: Path) -> None:
    for session, commit in (("a", "1" * 40), ("b", "2" * 40)):
        journal(tmp_path / session, op_test(evidence()), session=session, commit=commit, run="7")
    assert kinds(merge([tmp_path / "a", tmp_path / "b"])) == ["evidence-foreign"]


@pytest.mark.parametrize("later", [{"run": "8"}, {"run": "7", "commit": "2" * 40}])
def test_what_an_earlier_ci_run_left_in_the_folder_is_not_heard(tmp_path: Path, later: Any) -> None:
    gone = "tests/test_ops.py::TestGone"
    old = [*op_test(evidence()), *op_test(evidence(test=gone), test=gone)]
    journal(tmp_path, old, session="a", run="7", commit="1" * 40)
    journal(tmp_path, op_test(), session="b", started="2026-11-16T00:00:00+00:00", **{"commit": "1" * 40, **later})
    merged = merge([tmp_path])
    assert (kinds(merged), merged.sessions) == (["superseded"], 1)
    assert merged.tests.keys() == {TEST}
    assert merged.tests[TEST].evidence == ()


@pytest.mark.parametrize("run", [None, "9999"])
def test_a_journal_that_somebody_committed_is_not_heard_by_the_run_that_asks(tmp_path: Path, run: str | None) -> None:
    journal(tmp_path, op_test(evidence()), session="z", run=run, started="2099-01-01T00:00:00+00:00")
    journal(tmp_path, op_test(), session="a", run="7")
    merged = merge([tmp_path], run="7")
    assert (kinds(merged), merged.journals) == (["superseded"], 1)
    assert merged.findings[0].message.startswith("1 journal of other runs")
    assert merged.tests[TEST].evidence == ()


def test_runs_are_all_heard_where_each_is_named(tmp_path: Path) -> None:
    journal(tmp_path / "cpu", op_test(), session="a", run="7")
    journal(tmp_path / "gpu", op_test(evidence()), session="b", run="8")
    named = merge([tmp_path / "cpu", tmp_path / "gpu"], run="7")
    assert (kinds(named), len(named.tests[TEST].evidence)) == ([], 1)
    swept = merge([tmp_path], run="7")
    assert (kinds(swept), len(swept.tests[TEST].evidence)) == (["superseded"], 0)


def test_tests_of_one_name_in_two_suites_are_not_one(tmp_path: Path) -> None:
    journal(tmp_path, op_test(evidence()), session="a", run="7", root="pkg_a")
    journal(tmp_path, op_test(), session="b", run="7", root="pkg_b")
    merged = merge([tmp_path])
    assert kinds(merged) == ["evidence-foreign"]
    assert f"{TEST} in pkg_a and in pkg_b" in merged.findings[0].message


def test_suites_without_a_common_test_are_merged(tmp_path: Path) -> None:
    other = "tests/test_ops.py::TestOther"
    journal(tmp_path, op_test(evidence()), session="a", run="7", root="pkg_a")
    journal(tmp_path, op_test(test=other), session="b", run="7", root="pkg_b")
    assert kinds(merge([tmp_path])) == []


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ((".", "a.py"), "it ended while tests were being collected"),
        (("a.py",), "a.py could not be collected"),
        (("a.py", "b.py", "c.py", "d.py"), "a.py, b.py, c.py and 1 more could not be collected"),
    ],
)
def test_tests_that_nobody_could_collect_are_not_known(tmp_path: Path, files: Any, said: str) -> None:
    recorder = Recorder(tmp_path, environment={})
    recorder.end(2, uncollected=files)
    merged = merge([tmp_path])
    assert kinds(merged) == ["evidence-damaged"]
    assert said in merged.findings[0].message


_records = st.sampled_from(
    [
        evidence(),
        evidence(verdict=FAIL),
        evidence(input="Y", dtype="float32"),
        declared(),
        declared(inputs={"X": "float32", "Y": "int64"}),
        collected(selected=2),
        collected(selected=1, deselected=1),
        outcome("test_a"),
        outcome("test_a", "failed"),
        outcome("test_b", "skipped"),
    ]
)


@settings(max_examples=40)
@given(shards=st.lists(st.lists(_records, max_size=6), min_size=1, max_size=4), data=st.data())
def test_order_and_repetition_of_journals_change_nothing(
    tmp_path_factory: pytest.TempPathFactory, shards: list[list[object]], data: st.DataObject
) -> None:
    root = tmp_path_factory.mktemp("laws")
    for number, records in enumerate(shards):
        journal(root / str(number), records, session=f"s{number}")  # type: ignore[arg-type]
    places = [root / str(number) for number in range(len(shards))]
    shuffled = data.draw(st.permutations([*places, places[0]]))
    first, second = merge(places), merge(shuffled)
    assert first.tests.keys() == second.tests.keys()
    for test, known in first.tests.items():
        other = second.tests[test]
        assert set(known.evidence) == set(other.evidence)
        assert {(o.item, o.outcome) for o in known.outcomes} == {(o.item, o.outcome) for o in other.outcomes}
        assert (known.total, known.ran, known.ops) == (other.total, other.ran, other.ops)
