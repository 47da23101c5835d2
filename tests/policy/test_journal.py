from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, strategies as st

from karat.findings import CannotVerify
from karat.gradients.report import GradComparison as Comparison, GradReport, GradVerdict
from karat.gradients.session import Declared, GradChecked as Checked, NoGrad
from karat.policy.journal import Evidence, NoGradAsked, OpTested, Recorder, Reported, read_journal, unit_of
from karat.schemas import schema

SCHEMA = schema("karat.evidence/1")


def report(**said: Any) -> GradReport:
    one = Comparison(
        input="X",
        output="Out",
        dtype="float64",
        verdict=GradVerdict.PASS,
        oracle="differences",
        error=float("nan"),
        tolerance=1e-9,
        scale=1.0,
        smallest_error=float("inf"),
        **said.pop("one", {}),
    )
    usual: dict[str, Any] = {
        "op": "tanh",
        "framework": "numpy",
        "device": "cpu",
        "seed": 7,
        "identity": "i",
        "verdict": GradVerdict.PASS,
        "reason": "",
        "comparisons": (one,),
    }
    return GradReport(**{**usual, **said})


def only(folder: Path) -> Any:
    (path,) = folder.glob("evidence-*.jsonl")
    return read_journal(path)


def test_every_event_is_a_line_of_the_schema(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, worker="gw/0 ü", environment={"GITHUB_SHA": "c" * 40})
    recorder.tell(Declared(op="tanh", test="t.py::T", inputs={"X": "float64"}, no_grad=("Y",)))
    recorder.tell(Checked(report=report(), test="t.py::T"))
    recorder.tell(NoGrad(op="tanh", input="X", test="t.py::T", outcome="zero", detail="d"))
    recorder.end(0, ran=3)
    journal = only(tmp_path)
    assert journal.findings == ()
    assert journal.began.commit == "c" * 40
    kinds = [type(record) for _, record in journal.lines]
    assert kinds[:4] == [OpTested, Reported, Evidence, NoGradAsked]
    (path,) = tmp_path.iterdir()
    for line in path.read_bytes().splitlines():
        jsonschema.validate(json.loads(line), SCHEMA)


def test_a_session_without_a_word_has_a_journal(tmp_path: Path) -> None:
    Recorder(tmp_path).end(5)
    assert only(tmp_path).findings == ()


def test_what_is_no_number_is_said_to_be_none(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder.tell(Checked(report=report(), test="t.py::T"))
    recorder.end()
    evidence = only(tmp_path).lines[1][1]
    assert (evidence.error, evidence.tolerance, evidence.smallest_error) == (None, 1e-9, None)


@pytest.mark.parametrize("limit", [float("inf"), float("nan")])
def test_a_limit_without_end_is_the_widest_there_is(tmp_path: Path, limit: float) -> None:
    recorder = Recorder(tmp_path)
    told = report(one={"widened": limit})
    recorder.tell(Checked(report=told, test="t.py::T", nondeterminism_bound=limit))
    recorder.end()
    (_, reported), (_, evidence), _ = only(tmp_path).lines
    assert evidence.widened > 1e300
    assert reported.nondeterminism_bound > 1e300


def test_the_test_that_runs_is_the_one_that_tells(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder.current = "t.py::Child"
    recorder.tell(Checked(report=report(), test="t.py::Parent"))
    reported = read_journal(next(tmp_path.iterdir())).lines[0][1]
    assert isinstance(reported, Reported)
    assert reported.test == "t.py::Child"


# Where another test of this process has imported jax, it warns; the child below runs nothing of it.
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")
def test_a_forked_process_writes_nothing_between_the_lines(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder.tell(NoGrad(op="a", input="X", test="t", outcome="zero"))
    child = os.fork()
    if child == 0:
        recorder.tell(NoGrad(op="b", input="X", test="t", outcome="zero"))
        os._exit(0)
    os.waitpid(child, 0)
    recorder.end()
    journal = only(tmp_path)
    assert (journal.findings, len(journal.lines)) == ((), 2)


def test_a_folder_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotVerify, match="cannot write evidence to"):
        Recorder(tmp_path / "file").tell(NoGrad(op="a", input="X", test="t", outcome="zero"))


@given(name=st.text(alphabet=st.characters(exclude_categories=[])), dtype=st.text())
def test_names_of_any_kind_come_through(tmp_path_factory: pytest.TempPathFactory, name: str, dtype: str) -> None:
    folder = tmp_path_factory.mktemp("names")
    recorder = Recorder(folder, session=name or "s")
    recorder.tell(Declared(op=name, test=name, inputs={name: dtype}))
    recorder.end()
    journal = only(folder)
    assert journal.findings == ()
    assert len(journal.lines) == 2


@pytest.mark.parametrize(
    ("node", "unit"),
    [
        ("a/test_x.py::TestX::test_y", "a/test_x.py::TestX"),
        ("a/test_x.py::TestX::test_y[a::b]", "a/test_x.py::TestX"),
        ("a/test_x.py::TestX::TestIn::test_y", "a/test_x.py::TestX::TestIn"),
        ("a/test_x.py::test_y[1-2]", "a/test_x.py::test_y"),
        ("a/test_x.py::test_y", "a/test_x.py::test_y"),
        ("a [x]/test_x.py::T::test_y", "a [x]/test_x.py::T"),
        ("README.md", "README.md"),
    ],
)
def test_the_unit_is_the_class_or_the_function(node: str, unit: str) -> None:
    assert unit_of(node) == unit
