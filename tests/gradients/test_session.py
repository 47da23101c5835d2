from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from karat.findings import UsageError
from karat.gradients import session
from karat.gradients.session import parse_seed, replay_command, requested_seed


@pytest.fixture(autouse=True)
def _no_overrides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(session.SEED, raising=False)


@pytest.mark.parametrize("word", ["-1", "1.5", "seven", "0x10", "٣", "1" * 41])
def test_what_is_no_seed_is_refused(word: str) -> None:
    with pytest.raises(UsageError, match="KARAT_GRAD_SEED: expected a seed"):
        parse_seed(word)


def test_nothing_is_overridden_unless_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert requested_seed() is None
    monkeypatch.setenv(session.SEED, "")
    assert requested_seed() is None


def test_the_environment_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(session.SEED, "12345678901234567890")
    assert requested_seed() == 12345678901234567890


@pytest.mark.parametrize(
    "node",
    [
        "tests/test_ops.py::test_softmax",
        "tests/with space/test_ops.py::TestSoftmax::test_grad",
        "tests/test_ops.py::test_softmax[shape0-float64]",
        "tests/test_ops.py::test_it[it's-$HOME-`id`-(call)]",
    ],
)
def test_inside_pytest_the_line_runs_that_test(node: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_CURRENT_TEST", f"{node} (call)")
    assert shlex.split(replay_command(seed=7)) == ["pytest", node, "--karat-grad-seed", "7"]


SCRIPT = """
import os, sys
import pytest  # which is not to run under it, whatever the environment has been told
from karat.gradients.session import replay_command, requested_seed
seed = requested_seed()
print(replay_command(seed=41) if seed is None else (seed, sys.argv[1:]))
"""


@pytest.mark.slow
def test_outside_pytest_the_line_runs_in_a_shell_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "tests/test_ops.py::test_that_starts_it (call)")
    script = tmp_path / "my check's.py"
    script.write_text(SCRIPT)
    line = subprocess.check_output([sys.executable, str(script), "a b", "--fast"], text=True).strip()
    assert line.startswith("KARAT_GRAD_SEED=41 python ")
    # The line names plain `python`; here that must be this one.
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    told = subprocess.check_output(["sh", "-c", line], text=True).strip()
    assert told == "(41, ['a b', '--fast'])"


def test_what_may_be_a_secret_is_not_repeated(tmp_path: Path) -> None:
    script = tmp_path / "check.py"
    script.write_text(SCRIPT)
    arguments = [sys.executable, str(script), "--fast", "--api-key=hunter2", "more"]
    environment = {"PATH": "/usr/bin", "PYTHONPATH": str(Path(session.__file__).parents[2])}
    line = subprocess.check_output(arguments, text=True, env=environment)
    assert "hunter2" not in line
    assert line.rstrip().endswith(f"python {script} --fast")


def test_the_line_is_right_in_a_folder_below_the_root_of_the_tests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tests" / "deep").mkdir(parents=True)
    (tmp_path / "tests" / "test_x.py").write_text("")
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "tests/test_x.py::test_y[a::b] (call)")
    for folder, expected in ((".", "tests/test_x.py"), ("tests", "test_x.py"), ("tests/deep", "../test_x.py")):
        monkeypatch.chdir(tmp_path / folder)
        words = shlex.split(replay_command(seed=1))
        assert words[1] == f"{expected}::test_y[a::b]"
