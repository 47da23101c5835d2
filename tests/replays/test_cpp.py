from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from conftest import missing
from factories.captured import capture, identity
from karat.findings import ExitCode
from karat.replays.options import ReplayOptions, parse_command
from karat.replays.replay import replay

SOURCE = Path(__file__).parents[2] / "examples" / "cpp" / "runner.cpp"


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example's runner, compiled."""
    compiler = shutil.which("g++") or missing("g++")
    built = tmp_path_factory.mktemp("build") / "runner"
    subprocess.run([compiler, "-std=c++17", "-Wall", "-Wextra", "-Werror", "-o", built, SOURCE], check=True)
    return built


@pytest.mark.slow
def test_a_runner_without_karat_replays_what_was_captured(runner: Path, tmp_path: Path) -> None:
    x = np.linspace(-1, 1, 24, dtype=np.float32).reshape(2, 3, 4)
    y = np.float32(3) * x + np.float32(0.5)
    root = tmp_path / "mit Leerzeichen ü"
    capture(root, identity("test_one"), inputs=(x,), expected=y, program=b"3 0.5")
    capture(root, identity("test_two"), inputs=(x, x[0]), expected=(y, y[0]), program=b"3 0.5")
    capture(root, identity("test_off"), inputs=(x,), expected=y, program=b"3 0.6")
    capture(root, identity("test_bad"), inputs=(x,), expected=y, program=b"no numbers")
    command = parse_command(f"{runner} {{program}} {{inputs}} {{outputs}}", tmp_path)
    report = replay(root, ReplayOptions(runner=command, jobs=2))
    found = {case.identity.test.rpartition(":")[2]: case for case in report.cases}
    assert {name: case.outcome.value for name, case in found.items()} == {
        "test_one": "match",
        "test_two": "match",
        "test_off": "mismatch",
        "test_bad": "failed",
    }
    assert "expected two numbers" in found["test_bad"].findings[0].message
    assert report.exit_code is ExitCode.FAIL
