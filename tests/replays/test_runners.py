"""None"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from factories.captured import capture, identity
from factories.runners import command_line, doubling, flip
from karat.bundles.structure import flatten
from karat.findings import ExitCode
from karat.replays.judge import ReplayReport
from karat.replays.options import CaseOptions, ReplayOptions, parse_command
from karat.replays.replay import replay
from karat.replays.runners import plain_values


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    doubling(tmp_path / "bundle", 2)
    return tmp_path


def run(text: str, bundle: str = "bundle", *, timeout: float = 30.0, **judging: float) -> ReplayReport:
    options = ReplayOptions(
        runner=parse_command(text, Path.cwd()),
        timeout=timeout,
        case=CaseOptions(**judging),  # type: ignore[arg-type]
        jobs=2,
    )
    return replay(bundle, options)


def outcomes(report: ReplayReport) -> list[str]:
    return [case.outcome.value for case in report.cases]


@pytest.mark.parametrize("mode", ["table", "bare"])
def test_files_in_and_files_out(mode: str, here: Path) -> None:
    report = run(command_line(here, mode))
    assert outcomes(report) == ["match", "match"]
    assert report.exit_code is ExitCode.OK


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "outcome", "kind", "said"),
    [
        ("extra", "mismatch", "gained-tensor", "surprise.bin"),
        ("short", "failed", "replay-failed", "expected 32 bytes (float32 8), found 28 bytes"),
        ("garbage", "failed", "replay-failed", "tensors.txt"),
        ("other-shape", "mismatch", "shape-changed", "[1, 8]"),
        ("nothing", "failed", "replay-failed", "it left no output"),
        ("fail", "failed", "replay-failed", "exit status 3; it printed last: cannot allocate"),
        ("crash", "failed", "replay-failed", "SIGABRT (signal 6)"),
    ],
)
def test_whatever_a_command_does_it_is_told(mode: str, outcome: str, kind: str, said: str, here: Path) -> None:
    report = run(command_line(here, mode))
    assert outcomes(report) == [outcome, outcome]
    assert report.exit_code is ExitCode.FAIL
    told = [f.message for f in report.cases[0].findings if f.kind == kind]
    assert any(said in message for message in told), report.cases[0].findings
    # Once is enough: what is said of the whole is not said of its parts again.
    assert sum(f.severity == "fail" for f in report.cases[0].findings) == 1


@pytest.mark.slow
def test_a_command_that_hangs_is_ended_with_all_that_it_started(here: Path) -> None:
    report = run(command_line(here, "hang"), timeout=1.5)
    assert outcomes(report) == ["failed", "failed"]
    assert "it took longer than 1.5 s" in report.cases[0].findings[0].message
    child = int((here / "child.pid").read_text(encoding="utf-8"))
    until = time.monotonic() + 5
    while _lives(child) and time.monotonic() < until:
        time.sleep(0.01)
    assert not _lives(child)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False
    return state != "Z"


@pytest.mark.parametrize("file", ["inputs.safetensors", "expected.safetensors", "model.pte"])
def test_a_damaged_case_is_never_run(file: str, here: Path) -> None:
    for path in (here / "bundle").rglob(file):
        flip(path, -1)
    report = run(command_line(here))
    assert outcomes(report) == ["damaged", "damaged"]


@pytest.mark.slow
def test_a_recorded_tolerance_holds_and_another_is_said(here: Path) -> None:
    for path in (here / "bundle").rglob("model.pte"):
        assert path.read_bytes() == b"2"
    x = np.ones(8, np.float32)
    capture(here / "off", identity("test_off"), inputs=(x,), expected={"doubled": x * 2}, program=b"2.1")
    text = command_line(here)
    assert outcomes(run(text, "off")) == ["mismatch"]
    report = run(text, "off", rtol=0.5)
    assert outcomes(report) == ["match"]
    assert "tolerance-widened" in {f.kind for f in report.all_findings()}


def test_a_case_without_a_program_says_so(here: Path) -> None:
    x = np.ones(8, np.float32)
    capture(here / "none", identity("test_n"), inputs=(x,), expected={"doubled": x}, program=None)
    report = run(command_line(here), "none")
    assert outcomes(report) == ["failed"]
    assert "captured without one" in report.cases[0].findings[0].message


def test_values_that_are_no_tensors_are_said_to_be_out_of_reach(here: Path) -> None:
    x = np.ones(8, np.float32)
    capture(
        here / "mixed",
        identity("test_m"),
        inputs={"x": x, "steps": 3, "name": "adam", "none": None},
        expected={"doubled": x * 2, "count": 7},
        program=b"2",
    )
    report = run(command_line(here), "mixed")
    assert outcomes(report) == ["match"]
    told = [f.message for f in report.all_findings() if f.kind == "plain-values"]
    assert any(message.startswith("2 of the inputs") for message in told)
    assert any(message.startswith("1 of the expected") for message in told)


def test_a_case_without_expected_tensors_compares_nothing_and_says_so(here: Path) -> None:
    capture(here / "plain", identity("test_p"), inputs=(np.ones(8, "f4"),), expected=3, program=b"2")
    report = run(command_line(here, "nothing"), "plain")
    assert outcomes(report) == ["not-compared"]
    assert report.exit_code is ExitCode.CANNOT_VERIFY


LEAVES = st.sampled_from(["tensor", "none", "plain"])
NESTED = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3))


def made(node: Any) -> tuple[Any, int]:
    """The value of a description, and how many plain values are in it."""
    if isinstance(node, list):
        parts = [made(item) for item in node]
        return tuple(value for value, _ in parts), sum(n for _, n in parts)
    if isinstance(node, dict):
        parts_of = {key: made(item) for key, item in node.items()}
        return {k: v for k, (v, _) in parts_of.items()}, sum(n for _, n in parts_of.values())
    leaves: dict[str, tuple[Any, int]] = {"tensor": (np.ones(2), 0), "none": (None, 0), "plain": (0.5, 1)}
    return leaves[node]


@pytest.mark.slow
@given(NESTED)
def test_every_plain_value_is_found_and_nothing_else(node: Any) -> None:
    value, count = made(node)
    assert len(list(plain_values(flatten(value, "input").structure))) == count
