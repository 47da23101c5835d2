"""Replays of programs that print all they see."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

import karat
from factories.runners import doubling
from karat.replays.options import ReplayOptions, parse_command, parse_function

TOKEN, PASSED = "ghp-0123456789abcdef", "hf-0123456789abcdef"
SCRIPT = """
import os, sys
print(*(f"{name}={value}" for name, value in os.environ.items()), sep="\\n", flush=True)
open("seen.txt", "w").write(repr(dict(os.environ)))
sys.exit("HF " + os.environ.get("HF_TOKEN", "none"))
"""
MODULE = """
import os

def run(program, inputs):
    print(os.environ.get("HF_TOKEN"), flush=True)
    open("seen.txt", "w").write(repr(dict(os.environ)))
    raise ValueError("HF " + os.environ.get("HF_TOKEN", "none"))
"""
BROKEN = "import os\nraise RuntimeError(os.environ['HF_TOKEN'])\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
    monkeypatch.setenv("HF_TOKEN", PASSED)
    doubling(tmp_path / "bundle", 1)
    (tmp_path / "tell.py").write_text(SCRIPT, encoding="utf-8")
    (tmp_path / "telling.py").write_text(MODULE, encoding="utf-8")
    (tmp_path / "broken.py").write_text(BROKEN, encoding="utf-8")
    return tmp_path


HOW = {"command": {"command": f"{shlex.quote(sys.executable)} tell.py {{outputs}}"}, "function": {"run": "telling:run"}}


@pytest.mark.slow
@pytest.mark.parametrize("how", HOW)
def test_a_program_sees_no_secret(how: str, here: Path) -> None:
    report = karat.replay("bundle", **HOW[how])  # type: ignore[arg-type]
    seen = (here / "seen.txt").read_text(encoding="utf-8")
    assert TOKEN not in seen
    assert PASSED not in seen
    assert "PATH" in seen
    assert "HF none" in report.cases[0].findings[0].message


@pytest.mark.slow
@pytest.mark.parametrize("how", HOW)
def test_what_is_passed_is_seen_and_not_kept(how: str, here: Path) -> None:
    report = karat.replay("bundle", env_pass=["HF_TOKEN"], keep=here / "kept", **HOW[how])  # type: ignore[arg-type]
    seen = (here / "seen.txt").read_text(encoding="utf-8")
    assert PASSED in seen
    assert TOKEN not in seen
    (finding,) = report.cases[0].findings
    assert "HF ***" in finding.message
    assert "--env-pass HF_TOKEN" in str(finding.next)
    (log,) = (here / "kept").rglob("log.txt")
    assert "***" in log.read_text(encoding="utf-8")
    for path in (here / "kept").rglob("*"):
        assert path.is_dir() or PASSED.encode() not in path.read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("lines", [0, 1], ids=["a long line", "a long log"])
def test_no_part_of_a_long_secret_is_left_where_a_log_is_cut(
    lines: int, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = "".join(chr(97 + i * i % 25) for i in range(900))
    monkeypatch.setenv("HF_TOKEN", token)
    text = f"import os, sys\nsys.exit(os.environ['HF_TOKEN'] + {lines} * ('\\n' + 'x' * 1500))\n"
    (here / "tell.py").write_text(text, encoding="utf-8")
    report = karat.replay("bundle", env_pass=["HF_TOKEN"], **HOW["command"])  # type: ignore[arg-type]
    said = report.cases[0].findings[0].message
    assert "it printed last: ***" in said
    assert not any(token[i : i + 12] in said for i in range(len(token) - 12))


@pytest.mark.slow
def test_a_module_that_tells_when_it_is_imported(here: Path) -> None:
    assert here.is_dir()
    with pytest.raises(karat.KaratError, match=r"RuntimeError: \*\*\*"):
        karat.replay("bundle", "broken:run", env_pass=["HF_TOKEN"])


def test_only_who_reads_from_a_bucket_keeps_the_variables_of_the_cloud(here: Path) -> None:
    function = ReplayOptions(runner=parse_function("a:b"), store="s3://bucket/x")
    assert function.passed("store:nightly") == function.passed("s3://b#x") != ()
    assert function.passed("captured") == ()
    command = ReplayOptions(runner=parse_command(HOW["command"]["command"], here), store="s3://bucket/x")
    assert command.passed("store:nightly") == ()
