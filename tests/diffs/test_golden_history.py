"""karat over a history of golden commits: a small version of what benchmarks/golden_history.py does to a clone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "golden_history.py"
DATA = Path(__file__).parents[2] / ".." / "shared" / "data"


def replayed(tmp_path: Path, *words: str) -> dict[str, Any]:
    out = tmp_path / "tables.json"
    command = [sys.executable, str(SCRIPT), *words, "--json", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("preset", "refreshes", "harm"),
    [
        ("megatron-lm", 5, {"truncated": 1, "new-nan": 1, "no-bytes": 1, "no-metric": 1}),
        ("pytorch-dynamo", 6, {"row-removed": 1, "status-worse": 1}),
    ],
)
def test_a_generated_history(tmp_path: Path, preset: str, refreshes: int, harm: dict[str, int]) -> None:
    (table,) = replayed(tmp_path, "--generate", str(refreshes), "--preset", preset, "--sample", "8").values()
    assert table["commits"] == refreshes + 1, "commits without goldens are left out"
    assert (table["crashes"], table["missed"], table["false_alarms"]) == ([], [], [])
    assert table["harm"] == harm
    faults, harmless = list(table["planted"].items())[:-2], list(table["planted"].items())[-2:]
    assert sum(found["planted"] for _, found in faults) >= 8 * 3
    assert [name for name, found in faults if found["fails"] < found["planted"]] == []
    assert [(name, found["fails"]) for name, found in harmless if found["fails"]] == []


@pytest.mark.slow
@pytest.mark.skipif(not DATA.is_dir(), reason="the real goldens are not here")
def test_real_pairs_as_a_history(tmp_path: Path) -> None:
    tables = replayed(tmp_path, "--pairs", str(DATA), "--sample", "8")
    assert set(tables) == {"megatron-lm", "pytorch-dynamo"}
    assert all(table["crashes"] == [] for table in tables.values())
    assert tables["megatron-lm"]["findings"]["truncated fail"] >= 2
    assert tables["pytorch-dynamo"]["findings"]["lost-rows fail"] >= 1
