"""Long chains of elif, and decorators that are called by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from karat.policy.scan.scanner import ScanOptions, scan


@pytest.mark.slow
def test_hundreds_of_elifs(tmp_path: Path) -> None:
    cases = "".join(f"        elif self.a == {n}: self.check_grad()\n" for n in range(400))
    around = "".join(f"elif a == {n}:\n    class T{n}(Base): pass\n" for n in range(400))
    (tmp_path / "test_x.py").write_text(
        "from op_test import OpTest\nclass Base(OpTest):\n    def test_check_grad(self):\n"
        f"        if self.a < 0: self.check_grad()\n{cases}        else: self.check_grad()\nif a < 0: pass\n{around}"
    )
    report = scan([str(tmp_path)], ScanOptions(jobs=1))
    assert {row.state for row in report.op_tests} <= {"checked", "conditional"}
    assert len(report.op_tests) == 401


@pytest.mark.parametrize("ends", ["return", "pass"])
@pytest.mark.parametrize("other", ["return", "pass"])
def test_what_comes_after_an_elif(tmp_path: Path, ends: str, other: str) -> None:
    (tmp_path / "test_x.py").write_text(
        "from op_test import OpTest\nclass T(OpTest):\n    def test_check_grad(self):\n"
        f"        if self.a: {ends}\n        elif self.b: {other}\n        else: {other}\n        self.check_grad()\n"
    )
    (row,) = scan([str(tmp_path)], ScanOptions(jobs=1)).op_tests
    expected = {"pass pass": "checked", "return return": "unchecked"}
    assert row.state == expected.get(f"{ends} {other}", "conditional")
