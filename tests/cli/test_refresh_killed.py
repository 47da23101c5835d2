"""Killed 200 times, at random moments: files are whole, old or new, and a second run completes."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from factories.forge import Forge
from factories.repositories import Repository, curves, golden_path, golden_text
from karat.goldens.provenance import read_lock

KILLS, PARTS, CASES = 200, 4, 40
LOCK = "tests/functional_tests/test_cases/goldens.lock.json"
OLD, NEW = golden_text(curves(1)), golden_text(curves(2))
PATHS = [golden_path(f"case{i:02}") for i in range(CASES)]


class Victim:
    """A refresh that can be started, killed, and looked at afterwards."""

    def __init__(self, forge: Forge, tree: Repository, caches: Path) -> None:
        self.tree, self.caches = tree, caches
        for path in PATHS:
            tree.write(path, OLD)
        tree.write("karat.toml", 'preset = "megatron-lm"\n')
        tree.commit()
        run = forge.github.run("owner/name", conclusion="failure")
        for i in range(CASES):
            run.job(f"gpt/case{i:02} - dev", conclusion="failure", labels=["dgx-h100"])
            noise = random.Random(i).randbytes(20_000)
            members: dict[str, bytes | str] = {"golden_values_dev_dgx_h100.json": NEW, "noise.bin": noise}
            run.artifact(f"logs-case{i:02}-{run.id}-0a{i}", members)
        self.words = [
            sys.executable,
            "-m",
            "karat",
            "refresh",
            "--source",
            "github",
            "--repo",
            "owner/name",
            "--run-id",
            str(run.id),
            "--scope",
            "all",
            "-q",
        ]
        self.env = {
            **{k: v for k, v in os.environ.items() if k != "CI"},
            "GITHUB_API_URL": forge.github_url,
            "GITHUB_TOKEN": forge.github.token,
        }

    def start(self, cache: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self.words,
            cwd=self.tree.root,
            env={**self.env, "KARAT_CACHE_DIR": str(self.caches / cache)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def put_back(self) -> None:
        self.tree.git("checkout", "--quiet", "--", ".")
        (self.tree.root / LOCK).unlink(missing_ok=True)

    def texts(self) -> list[str]:
        return [(self.tree.root / path).read_text() for path in PATHS]

    def changed(self) -> set[str]:
        listed = self.tree.git("status", "--porcelain", "-z", "-uall").split("\0")
        return {line[3:] for line in listed if line}

    def has_begun(self) -> bool:
        return (self.tree.root / PATHS[0]).read_text() == NEW


@pytest.fixture
def victim(forge: Forge, repository: Repository, tmp_path: Path) -> Victim:
    return Victim(forge, repository, tmp_path / "caches")


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_files_are_whole_and_a_second_run_completes(victim: Victim, part: int) -> None:
    dice = random.Random(part)
    begun = time.monotonic()
    assert victim.start("first").wait() == 0
    took = time.monotonic() - begun
    seen: set[str] = set()
    for i in range(KILLS // PARTS):
        victim.put_back()
        cache = f"cache{i // 5}"
        process = victim.start(cache)
        if i % 2:
            time.sleep(dice.uniform(0.1, 1.1) * took)
        else:  # in the middle of the writing, which is short
            while process.poll() is None and not victim.has_begun():
                time.sleep(0.001)
            time.sleep(dice.uniform(0, 0.03))
        process.kill()
        process.wait()
        texts = victim.texts()
        assert set(texts) <= {OLD, NEW}
        assert victim.changed() <= {*PATHS, LOCK}
        seen |= {"torn" if len(set(texts)) == 2 else "old" if texts[0] == OLD else "new"}
        assert victim.start(cache).wait() == 0
        assert set(victim.texts()) == {NEW}
        assert len(read_lock(victim.tree.root / LOCK)) == CASES
    assert {"torn", "old"} <= seen, "the moments were not random enough to prove anything"
