"""cuda_kernels.py on the CPU, with an emulated kernel: a script that only ever ran on a GPU would rot."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from conftest import framework


@pytest.mark.slow
def test_the_script_judges_right_and_wrong_kernels() -> None:
    torch = framework("torch")
    spec = importlib.util.spec_from_file_location("cuda_kernels", Path(__file__).with_name("cuda_kernels.py"))
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    planted = list(script.cases(torch, "cpu"))
    assert len(planted) == 18
    for case in (planted[0], planted[2], planted[7]):
        report = script.check(torch, case, "cpu")
        assert str(report.verdict) == case.verdict, f"{case.planted}: {report}"
