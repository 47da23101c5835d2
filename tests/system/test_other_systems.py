"""karat where a system lacks what Unix has: a sentence, never a crash. What Windows lacks is hidden in a fresh process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from factories.refreshed import ONE, noisy
from factories.repositories import Repository, golden_text

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
HIDDEN = """
import os, signal, sys
for name in ("fcntl", "resource", "pwd", "grp", "termios", "tty"):
    sys.modules[name] = None
for name in ("fork", "killpg", "getuid", "geteuid", "O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "fchmod", "sched_getaffinity",
             "memfd_create", "pidfd_open", "copy_file_range", "preadv", "pread", "pwrite"):
    if hasattr(os, name):
        delattr(os, name)
for name in ("setitimer", "SIGHUP", "SIGVTALRM", "SIGURG"):
    if hasattr(signal, name):
        delattr(signal, name)
from karat.cli import run
sys.exit(run(sys.argv[1:]))
"""


def elsewhere(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name not in {"CI", "GITHUB_ACTIONS"}}
    # Python itself, not karat, may call what was taken away, so that it is not gone while Python starts.
    command = [sys.executable, "-c", HIDDEN, *words]
    env["PYTHONPATH"] = str(ROOT / "src")
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)


@pytest.fixture
def project(repository: Repository) -> Repository:
    repository.write(ONE, golden_text(noisy(1)))
    repository.commit()
    repository.write(ONE, golden_text(noisy(1), stop=13))
    repository.write("good.json", golden_text(noisy(1)))
    return repository


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--version",), 0, "karat "),
        (("--help",), 0, "Goldens"),
        (("diff",), 1, "1 must not be merged"),
        (("diff", "--cached"), 0, "No golden changed"),
        (("lint",), 1, "truncated"),
        (("audit",), 1, "truncated"),
        (("check", "good.json", "--golden", f"HEAD:{ONE}"), 0, "pass"),
        (("summary",), 0, "1 must not be merged"),
        (("doctor",), 0, ""),
        (("config",), 0, "goldens"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_only_reads_works(project: Repository, words: tuple[str, ...], code: int, said: str) -> None:
    done = elsewhere(*words, cwd=project.root)
    assert "Traceback" not in done.stderr
    assert (done.returncode, said in done.stdout) == (code, True), done.stdout + done.stderr


@pytest.mark.parametrize("words", [("stage", "--only", "*"), ("hunt", "--", "true")], ids=" ".join)
def test_what_needs_more_says_so_in_a_sentence(project: Repository, words: tuple[str, ...]) -> None:
    project.git("restore", ONE)
    project.write(ONE, golden_text(noisy(2)))
    done = elsewhere(*words, cwd=project.root)
    assert "did not foresee" not in done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode in {2, 3}, done.stdout + done.stderr
    assert done.stderr.splitlines()[-1].startswith("next: ")


def test_a_golden_is_written_where_nothing_has_to_be_locked(project: Repository) -> None:
    done = elsewhere("record", "good.json", "-o", "new/golden.json", "--json", "-", cwd=project.root)
    assert "did not foresee" not in done.stderr
    assert json.loads(done.stdout).get("state", "error") in {"written", "error"}


def test_every_module_of_the_core_can_be_imported() -> None:
    rooms = (
        "audits",
        "bundles",
        "captures",
        "checks",
        "cli",
        "compare",
        "diffs",
        "goldens",
        "net",
        "policy",
        "refreshes",
        "report",
        "runs",
        "snapshots",
        "sources",
        "store",
        "system",
        "tensors",
    )
    names = [
        ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
        for room in rooms
        for path in sorted((ROOT / "src" / "karat" / room).rglob("*.py"))
        if path.stem not in {"__init__", "__main__", "triton_sweep"}  # Triton is where a GPU is
    ]
    code = (
        HIDDEN.partition("from karat.cli")[0]
        + f"import importlib\nfor name in {names!r}: importlib.import_module(name)\n"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
