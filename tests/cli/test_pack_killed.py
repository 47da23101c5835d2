"""A pack that is killed leaves nothing that looks like one."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from factories.captured import capture, capture_many, identity
from factories.commands import karat

KILLS = 8
DIES = """
import os, sys
from pathlib import Path
left, rename = [int(sys.argv.pop(1))], Path.rename
def dying(self, target):
    left[0] -= 1
    if left[0] < 0:
        os._exit(9)
    return rename(self, target)
Path.rename = dying
from karat.__main__ import main
main()
"""


@pytest.mark.slow
def test_killed_at_any_moment_it_leaves_a_whole_pack_or_none(tmp_path: Path) -> None:
    for number in range(12):
        capture(tmp_path / "captures", identity(f"test_{number}"), expected=np.ones(1 << 18))
    plain = ("pack", "captures", "--name", "all", "-q")
    assert karat(*plain, "-o", "first", cwd=tmp_path).code == 0
    rng = random.Random(5)
    out, amid = tmp_path / "out", 0
    words = [sys.executable, "-m", "karat", *plain, "-o", "out"]
    for _ in range(KILLS):
        at_work = subprocess.Popen(words, cwd=tmp_path)
        while at_work.poll() is None and not list(out.glob(".karat-pack-*/new/*")):
            time.sleep(0.001)
        time.sleep(rng.uniform(0, 0.05))
        at_work.kill()
        at_work.wait()
        seen = [path.name for path in out.glob("*")]
        amid += any(name.startswith(".karat-pack-") for name in seen)
        shown = [name for name in seen if not name.startswith(".")]
        if "SHA256SUMS" in shown:
            assert karat("verify", "out", cwd=tmp_path).code == 0
            break
        if shown:  # between two renames: without sums it is no pack, and says so
            assert karat("verify", "out", cwd=tmp_path).code == 1
    result = karat(*plain, "-o", "out", "--replace", cwd=tmp_path)
    assert result.code == 0, result.err
    assert not list(out.glob(".karat-pack-*")), "what the dead left is cleared away"
    for path in (tmp_path / "first").rglob("*.zip"):
        assert (out / path.relative_to(tmp_path / "first")).read_bytes() == path.read_bytes()
    assert amid, "at least one was killed amid the writing"


@pytest.mark.slow
@pytest.mark.parametrize("renames", range(7))
def test_killed_between_two_renames_what_stood_there_comes_back(tmp_path: Path, renames: int) -> None:
    """Sums, cases and a zip leave; cases, another zip and new sums come."""
    capture_many(tmp_path / "captures", 1)
    plain = ("pack", "captures", "-q", "-o", "out")
    assert karat(*plain, "--name", "1", cwd=tmp_path).code == 0
    before = tree(tmp_path / "out")
    capture(tmp_path / "captures", identity("test_more"))
    words = [sys.executable, "-c", DIES, str(renames), *plain, "--name", "two", "--replace"]
    died = subprocess.run(words, cwd=tmp_path, check=False)
    assert died.returncode == (9 if renames < 6 else 0)
    assert_sums_are_true(tmp_path)
    if renames in range(2, 6):  # and whoever was to put it right dies, too
        words[3] = "1"
        assert subprocess.run(words, cwd=tmp_path, check=False).returncode == 9
        assert_sums_are_true(tmp_path)
    # Whoever packs next, and is refused, finds what stood there.
    refused = karat(*plain, "--name", "three", cwd=tmp_path)
    assert (refused.code, "expected an empty or new folder" in refused.err) == (2, True)
    assert (tree(tmp_path / "out") == before) == (renames < 6)
    assert karat("verify", "out", cwd=tmp_path).code == 0
    assert karat(*plain, "--name", "three", "--replace", cwd=tmp_path).code == 0
    assert {name for name in tree(tmp_path / "out") if "/" not in name} == {"SHA256SUMS", "three.zip"}


def assert_sums_are_true(where: Path) -> None:
    there = (where / "out" / "SHA256SUMS").is_file()
    assert karat("verify", "out", cwd=where).code != there


def tree(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}
