"""A pack that is killed leaves nothing that looks like one."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from factories.captured import capture, identity
from factories.commands import karat

KILLS = 8


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
        while at_work.poll() is None and not list(out.glob(".karat-pack-*/*")):
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
            shutil.rmtree(out)
    if not (out / "SHA256SUMS").exists():
        result = karat(*plain, "-o", "out", cwd=tmp_path)
        assert result.code == 0, result.err
        assert not list(out.glob(".karat-pack-*")), "what the dead left is cleared away"
    for path in (tmp_path / "first").rglob("*.zip"):
        assert (out / path.relative_to(tmp_path / "first")).read_bytes() == path.read_bytes()
    assert amid, "at least one was killed amid the writing"
