"""Counts of instructions: with the real tools where they are, and an honest word where they are not."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import missing
from factories.hunts import hunted
from karat.engines.job import Ran
from karat.hunts.model import Point
from karat.hunts.probe.metrics import RunOutput, Unverified, value_of
from karat.hunts.settings import MetricSettings

PERF = MetricSettings(name="work", instructions="perf")
HUNT = """
stages = ["values"]
[values]
list = ["v0", "v1", "v2", "v3", "v4", "v5"]
[probe]
command = ["sh", "-c", "n=3000; case {value} in v[45]) n=3300;; esac; while [ $n -gt 0 ]; do n=$((n-1)); done; %s"]
[[probe.metrics]]
name = "work"
instructions = "%s"
"""


def hunt_file(folder: Path, tool: str, ending: str = "exit 0") -> Path:
    file = folder / "hunt.toml"
    file.write_text(HUNT % (ending, tool), encoding="utf-8")
    return file


@pytest.mark.slow
def test_more_instructions_are_found_without_noise(tmp_path: Path) -> None:
    if shutil.which("valgrind") is None:
        missing("valgrind")
    report = hunted(hunt_file(tmp_path, "cachegrind"))
    (culprit,) = report.culprits
    assert (culprit.change.kind, culprit.change.new) == (
        "regression",
        Point(id="v4", label="v4", parts={"value": "v4"}),
    )
    assert culprit.change.span.before is not None
    assert culprit.change.span.before > 100_000
    assert culprit.change.verdict.confirmed


@pytest.mark.slow
def test_a_machine_without_counters_is_no_crash_of_the_program(tmp_path: Path) -> None:
    if shutil.which("perf") is None:
        missing("perf")
    file = hunt_file(tmp_path, "perf")
    command = [sys.executable, "-m", "karat", "hunt", "run", str(file)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    if done.returncode == 3:
        assert "perf counted no instructions on this machine" in done.stderr + done.stdout
        assert "  crash " not in done.stdout
    else:
        assert "regression  work" in done.stdout


def test_a_tool_that_is_not_there_is_said_before_anything_is_run(tmp_path: Path) -> None:
    file = hunt_file(tmp_path, "cachegrind")
    command = [sys.executable, "-m", "karat", "hunt", "run", str(file), "--dry-run"]
    done = subprocess.run(command, cwd=tmp_path, env={"PATH": ""}, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "(work): expected valgrind to count with, found none" in done.stderr


def counted(**files: bytes) -> RunOutput:
    return RunOutput(
        ran=Ran(role="measure", exit_code=0), files={f"karat-instructions{n}": each for n, each in files.items()}
    )


def test_counts_of_all_processes_are_added() -> None:
    perf = b"# started on Mon Nov 16 16:40:18 2026\n\n1234567,,instructions:u,9,100.00,,\n"
    assert value_of(PERF, counted(_=perf)) == 1234567
    one, other = b"==1== \n==1== I   refs:      226,360\n", b"==2== I refs: 40\n"
    assert value_of(PERF, counted(a=one, b=other)) == 226400
    with pytest.raises(Unverified, match="perf counted no instructions on this machine: <not supported>"):
        value_of(PERF, counted(_=b"# started\n\n<not supported>,,instructions:u,0,100.00,,\n"))


@pytest.mark.parametrize(
    ("more", "lowest"),
    [
        ({"seconds": True}, True),
        ({"regex": "(x)", "unit": "ms"}, True),
        ({"regex": "(x)", "unit": "ms", "better": "higher"}, False),
        ({"regex": "(x)", "unit": "MLUPS"}, False),
        ({"seconds": True, "of_repeats": "median"}, False),
        ({"regex": "(x)", "of_repeats": "min"}, True),
        ({"junit": "*"}, True),
        ({"junit": "*", "value": "failed"}, False),
    ],
)
def test_of_times_the_lowest_repeat_counts(more: dict[str, object], lowest: bool) -> None:  # noqa: FBT001
    assert MetricSettings(name="m", **more).is_lowest is lowest  # type: ignore[arg-type]
