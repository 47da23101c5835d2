"""What karat sets for itself is not handed to what it runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HUNT = """
stages = ["values"]
[probe]
command = ["sh", "-c", "echo threads: ${OPENBLAS_NUM_THREADS:-7}"]
[[probe.metrics]]
name = "threads"
regex = 'threads: ([0-9]+)'
[values]
list = ["a", "b"]
"""


@pytest.mark.slow
def test_a_probe_has_the_threads_it_would_have_without_karat(tmp_path: Path) -> None:
    (tmp_path / "hunt.toml").write_text(HUNT, encoding="utf-8")
    words = ["env", "-u", "OPENBLAS_NUM_THREADS", sys.executable, "-m", "karat"]
    done = subprocess.run(
        [*words, "hunt", "run", "--json", "-", "--quiet"], cwd=tmp_path, capture_output=True, check=False
    )
    points = json.loads(done.stdout)["stages"][0]["points"]
    assert {value for point in points for value in point["values"]["threads"]} == {7.0}
