"""What docs/gradcheck.md shows of a wrong gradient is what its program prints."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from conftest import framework
from factories.example_suites import python

ROOT = Path(__file__).parents[2]


def blocks(page: str, language: str = "") -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [block for said, block in fenced if said == language]


@pytest.mark.slow
def test_a_wrong_gradient_is_shown_as_it_is_printed(tmp_path: Path) -> None:
    framework("torch")
    (tmp_path / "softmax_check.py").write_text(blocks("docs/gradcheck.md", "python")[0], "utf-8")
    done = python("softmax_check.py", cwd=tmp_path)
    assert done.code == 1
    (shown,) = [block for block in blocks("docs/gradcheck.md") if "AssertionError" in block]
    # A traceback names the error's module, too, and no two runs take equally long.
    lines = [line for line in shown.splitlines()[1:] if " forwards, " not in line]
    assert len(lines) > 5
    assert [line for line in lines if line not in done.err.splitlines()] == []
