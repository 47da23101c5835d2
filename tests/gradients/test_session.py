from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from karat.findings import UsageError
from karat.gradients import session
from karat.gradients.report import GradComparison as Comparison, GradVerdict
from karat.gradients.session import Focus, parse_focus, parse_seed, replay_command, requested_replay

AIM = Focus(input="x", output="out", dtype="float64")
words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@pytest.fixture(autouse=True)
def _no_overrides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(session.SEED, raising=False)
    monkeypatch.delenv(session.FOCUS, raising=False)


@given(words, words, words)
def test_a_focus_comes_back_from_its_word(one: str, two: str, three: str) -> None:
    focus = Focus(input=one, output=two, dtype=three)
    assert parse_focus(str(focus)) == focus


def test_plain_names_stay_readable() -> None:
    assert str(Focus(input="xs.0", output="out", dtype="bfloat16")) == "xs.0:out:bfloat16"


@pytest.mark.parametrize("word", ["", "x", "x:out", "x:out:float64:more", ":out:float64", "::"])
def test_half_a_focus_is_refused(word: str) -> None:
    with pytest.raises(UsageError, match="expected INPUT:OUTPUT:DTYPE"):
        parse_focus(word)


@pytest.mark.parametrize("word", ["-1", "1.5", "seven", "0x10", "٣", "1" * 41])
def test_what_is_no_seed_is_refused(word: str) -> None:
    with pytest.raises(UsageError, match="KARAT_GRAD_SEED: expected a seed"):
        parse_seed(word)


def test_nothing_is_overridden_unless_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert requested_replay() == (None, None)
    monkeypatch.setenv(session.SEED, "")
    monkeypatch.setenv(session.FOCUS, "")
    assert requested_replay() == (None, None)


def test_the_environment_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(session.SEED, "12345678901234567890")
    monkeypatch.setenv(session.FOCUS, "a%3Ab:out:bfloat16")
    focus = Focus(input="a:b", output="out", dtype="bfloat16")
    assert requested_replay() == (12345678901234567890, focus)


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
    assert shlex.split(replay_command(seed=7, focus=AIM)) == [
        "pytest",
        node,
        "--karat-grad-seed",
        "7",
        "--karat-grad-focus",
        "x:out:float64",
    ]
    assert shlex.split(replay_command(seed=7)) == ["pytest", node, "--karat-grad-seed", "7"]


def test_a_comparison_is_a_focus() -> None:
    failed = Comparison(
        input="x",
        output="out",
        dtype="float64",
        verdict=GradVerdict.FAIL,
        oracle="differences",
        error=1.0,
        tolerance=0.0,
        scale=1.0,
        smallest_error=0.0,
    )
    assert replay_command(seed=1, focus=failed) == replay_command(seed=1, focus=AIM)


SCRIPT = """
import os, sys
import pytest  # which is not to run under it, whatever the environment has been told
from karat.gradients.session import Focus, replay_command, requested_replay
seed, focus = requested_replay()
if seed is None:
    print(replay_command(seed=41, focus=Focus(input="it's a: x", output="$HOME", dtype="float64")))
else:
    print(seed, focus.input, focus.output, sys.argv[1:])
"""


@pytest.mark.slow
def test_outside_pytest_the_line_runs_in_a_shell_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "tests/test_ops.py::test_that_starts_it (call)")
    script = tmp_path / "my check's.py"
    script.write_text(SCRIPT)
    line = subprocess.check_output([sys.executable, str(script), "a b", "--fast"], text=True).strip()
    assert line.startswith("KARAT_GRAD_SEED=41 KARAT_GRAD_FOCUS=")
    assert " python " in line
    # The line names plain `python`; here that must be this one.
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    told = subprocess.check_output(["sh", "-c", line], text=True).strip()
    assert told == "41 it's a: x $HOME ['a b', '--fast']"


def test_what_may_be_a_secret_is_not_repeated(tmp_path: Path) -> None:
    script = tmp_path / "check.py"
    script.write_text(SCRIPT)
    arguments = [sys.executable, str(script), "--fast", "--api-key=hunter2", "more"]
    environment = {"PATH": "/usr/bin"}
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
