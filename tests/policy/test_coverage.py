from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from factories.evidence import collected, declared, evidence, journal, op_test, outcome
from karat.gradients.report import GradVerdict
from karat.policy.coverage import STATES, Coverage, coverage, lines, page
from karat.policy.evidence import merge
from karat.policy.exemptions import Exemption
from karat.policy.journal import Record


def covered(tmp_path: Path, records: list[Record], **said: Any) -> Coverage:
    journal(tmp_path, records)
    return coverage(merge([tmp_path]), **said)


def text(found: Coverage, **said: Any) -> list[str]:
    return ["".join(part for part, _ in line).rstrip() for line in lines(found, **said)]


@pytest.mark.parametrize(
    ("more", "state"),
    [
        ([evidence()], "strong"),
        ([evidence(), evidence(verdict=GradVerdict.FAIL)], "failed"),
        ([evidence(), evidence(vacuous=True)], "strong"),
        ([evidence(vacuous=True)], "vacuous"),
        ([evidence(strength="weak")], "weak"),
        ([evidence(verdict=GradVerdict.INCONCLUSIVE)], "inconclusive"),
        ([], "missing"),
    ],
)
def test_a_cell_is_the_best_of_an_input_unless_it_failed(tmp_path: Path, more: list[Record], state: str) -> None:
    (row,) = covered(tmp_path, op_test(*more)).rows
    assert row.state == state


def test_a_cell_is_the_gravest_of_its_inputs(tmp_path: Path) -> None:
    records = op_test(evidence(), inputs={"X": "float64", "Y": "float32", "Ids": "int64"})
    (row,) = covered(tmp_path, records).rows
    assert row.cells[0].inputs == {"X": "strong", "Y": "missing"}
    assert row.state == "missing"


def test_an_op_of_integers_lacks_nothing(tmp_path: Path) -> None:
    found = covered(tmp_path, op_test(inputs={"Ids": "int8", "Mask": "bool"}))
    assert [row.state for row in found.rows] == ["no-float"]
    assert text(found)[-1] == "1 op: 1 no-float; 1 journal of 1 session"
    assert "missing 1" not in page(found)


def test_an_exempt_input_is_exempt(tmp_path: Path) -> None:
    entry = Exemption(op="tanh", scope="input:X", reason="r", owner="o")
    (row,) = covered(tmp_path, op_test(), entries=[entry]).rows
    assert row.state == "exempt"


def test_devices_modes_and_orders_are_columns(tmp_path: Path) -> None:
    more = [evidence(), evidence(device="cuda:0", dtype="bfloat16"), evidence(mode="forward"), evidence(order=2)]
    found = covered(tmp_path, op_test(*more))
    told = [(c.device, c.dtype, c.mode, c.order) for c in found.columns]
    assert told == [
        ("cpu", "float64", "reverse", 1),
        ("cpu", "float64", "forward", 1),
        ("cpu", "float64", "reverse", 2),
        ("cuda:0", "bfloat16", "reverse", 1),
    ]
    head = text(found)
    assert head[0].split() == ["cpu", "cuda:0"]
    assert head[1].split() == ["op", "f64", "f64→", "f64²", "bf16"]


def test_each_device_stands_over_its_first_column(tmp_path: Path) -> None:
    each = [evidence(device=device, dtype=dtype) for device in ("cuda:0", "xpu") for dtype in ("float64", "float16")]
    devices, precisions, *_ = text(covered(tmp_path, op_test(evidence(), *each)))
    assert precisions.split() == ["op", "f64", "f64", "f16", "f64", "f16"]
    starts = [match.start() for match in re.finditer("f64", precisions)]
    assert [devices.index(name) for name in ("cpu", "cuda:0", "xpu")] == starts


def test_a_device_that_is_asked_for_is_missing_where_it_is(tmp_path: Path) -> None:
    (row,) = covered(tmp_path, op_test(evidence()), devices=("cpu", "cuda")).rows
    assert [(cell.column.device, cell.state) for cell in row.cells] == [("cpu", "strong"), ("cuda", "missing")]


def many(count: int) -> list[Record]:
    records: list[Record] = []
    for number in range(count):
        op, test = f"operator_with_a_name_{number}", f"t.py::Test{number}"
        more = [evidence(op=op, test=test)] if number % 100 else []
        records += [collected(test), declared(op=op, test=test), *more, outcome(test=test)]
    return records


def test_hundreds_of_ops_can_be_read(tmp_path: Path) -> None:
    found = covered(tmp_path, many(500))
    told = text(found)
    assert len(told) == 2 + 5 + 1 + 3
    assert told[-2] == "495 ops without a problem not shown (--all shows them)"
    assert told[-1] == "500 ops: 5 missing, 495 strong; 1 journal of 1 session"
    assert len(text(found, every=True)) == 2 + 500 + 3


HOSTILE = "</script><script>alert(1)</script>\x1b[31m\u202e##[error]"


def test_hostile_names_stay_names(tmp_path: Path) -> None:
    test = f"t.py::{HOSTILE}"
    records = op_test(
        evidence(op=HOSTILE, input=HOSTILE, test=test), op=HOSTILE, inputs={HOSTILE: "float64"}, test=test
    )
    found = covered(tmp_path, records)
    made = page(found)
    assert made.count("<script>") == 1
    assert "alert(1)&lt;/script&gt;" in made
    assert "\x1b" not in made
    assert all("\x1b" not in line and "\u202e" not in line for line in text(found))


def test_the_page_holds_every_op_and_cell(tmp_path: Path) -> None:
    made = page(covered(tmp_path, many(200)))
    assert len(re.findall(r"<tr data-state=", made)) == 200
    assert made.count('class="missing first"') == 2
    assert "://" not in made
    names = re.findall(r'<th class="op" scope="row"[^>]*>([^<]+)</th>', made)
    assert html.unescape(names[0]) == "operator_with_a_name_0"


@pytest.mark.slow
@given(
    st.lists(
        st.sampled_from(
            [
                evidence(),
                evidence(vacuous=True),
                evidence(strength="weak"),
                evidence(verdict=GradVerdict.FAIL),
                evidence(verdict=GradVerdict.INCONCLUSIVE),
            ]
        ),
        min_size=1,
    )
)
def test_more_evidence_never_hides_a_failure(tmp_path_factory: pytest.TempPathFactory, more: list[Record]) -> None:
    folder = tmp_path_factory.mktemp("laws")
    (row,) = covered(folder, op_test(*more)).rows
    failed = any(one.verdict is GradVerdict.FAIL for one in more if hasattr(one, "verdict"))
    assert (row.state == "failed") == failed
    assert row.state in STATES
