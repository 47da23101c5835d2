"""The scan against files that were imported and run: a small version of benchmarks/scan_agreement.py."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "scan_agreement.py"


def agreement(*words: str) -> tuple[int, list[str], str]:
    """Classes, shares of agreement, and everything that was said."""
    done = subprocess.run([sys.executable, str(SCRIPT), *words, "-v"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    last = done.stdout.splitlines()[-1]
    return int(last.split()[0].replace(",", "")), re.findall(r"[0-9.]+%", last), done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_a_tree_in_the_manner_of_paddles(seed: int) -> None:
    classes, shares, said = agreement("--files", "60", "--seed", str(seed))
    assert classes > 400, said
    assert shares == ["100.00%", "100.00%"], said


@pytest.mark.slow
def test_the_count_sees_what_the_scan_cannot(tmp_path: Path) -> None:
    """A method that a loop sets: by the text alone nothing is checked, and running it does."""
    (tmp_path / "test_x_op.py").write_text(
        "from op_test import OpTest\n\n\nclass TestX(OpTest):\n    def test_check_output(self): self.check_output()\n\n\n"
        "for name in ['test_check_grad']:\n    setattr(TestX, name, lambda self: self.check_grad())\n"
    )
    classes, shares, said = agreement(str(tmp_path))
    assert (classes, shares) == (1, ["0.00%", "0.00%"]), said
    assert "TestX: run: checked, scan: unchecked" in said
