from __future__ import annotations

import pytest

from karat.bundles.manifest import Identity
from karat.replays.judge import ReplayedCase, ReplayOutcome, ReplayReport
from karat.replays.report import text_lines
from karat.tensors.comparison import Comparison, TensorNumbers

PATHS = [f"models/xnnpack/{'tests_test_models.py_' * 4}{n}-0123456789abcde{n}" for n in range(3)]


def report() -> ReplayReport:
    numbers = TensorNumbers(elements=1_000_000, bit_equal=0, mismatches=999_999, max_abs=1e9, max_ulp=1 << 40)
    compared = Comparison(name="expected", dtype="float32", shape=(1_000_000,), numbers=numbers)
    cases = tuple(
        ReplayedCase(
            path=path,
            identity=Identity(suite="models", flow="xnnpack", test=f"t{path[-1]}"),
            outcome=ReplayOutcome.MISMATCH,
            comparisons=(compared,),
        )
        for path in PATHS
    )
    return ReplayReport(bundle="bundle", runner="m:f", cases=cases)


def table(width: int | None) -> list[str]:
    told = ["".join(text for text, _ in line) for line in text_lines(report(), width=width)]
    return [line for line in told if line.startswith(("case", "models"))]


@pytest.mark.parametrize("width", [80, 100, 120, 160])
def test_the_table_fits_the_terminal_and_cases_stay_apart(width: int) -> None:
    rows = table(width)
    assert len(rows) == 4
    assert max(map(len, rows)) <= width
    assert len({row.split()[0] for row in rows}) == 4
    assert all("999,999 of 1,000,000" in row for row in rows[1:])


def test_a_pipe_gets_whole_paths_and_every_column() -> None:
    head, *rows = table(None)
    assert [row.split()[0] for row in rows] == PATHS
    assert "ULP" in head
