"""`karat diff` with the history of a repository: cold, kept, and after a new commit.

Makes a repository in which every commit refreshes a share of the goldens, by noise, with now and then a truncated one;
then times fresh processes of `karat diff` on a work tree with 30 changed goldens, and of `karat audit`. The counts must
be those that were made.
Run: python benchmarks/history_speed.py --goldens 1000 --commits 300 --share 0.1
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO

import numpy as np

KARAT = Path(sys.executable).with_name("karat")
SCALES = {"lm loss": 2e-5, "num-zeros": 5e-3, "mem-allocated-bytes": 0.0, "iteration-time": 3e-2}
STEPS = 50
_CHANGED = 30


class Goldens:
    """Curves of every golden as they stand, and their text."""

    def __init__(self, count: int) -> None:
        self.random = np.random.default_rng(15)
        shape = np.linspace(11, 9, STEPS)
        self.bases = {name: np.outer(self.random.uniform(1, 2, count), shape) for name in SCALES}

    def text(self, golden: int) -> str:
        """The golden after one more run."""
        blocks = {}
        stop = self.random.integers(5, STEPS) if self.random.random() < 0.003 else STEPS
        for name, scale in SCALES.items():
            values = np.round(self.bases[name][golden] * (1 + scale * self.random.standard_normal(STEPS)), 5).tolist()
            samples = {str(step): value if step <= stop else "nan" for step, value in enumerate(values, 1)}
            blocks[name] = {"start_step": 1, "end_step": STEPS, "step_interval": 1, "values": samples}
        return json.dumps(blocks)


def path(golden: int) -> str:
    platform = ("dgx_h100", "dgx_gb200")[golden % 2]
    return f"tests/functional_tests/test_cases/gpt/case_{golden // 2:05}/golden_values_dev_{platform}.json"


def commit(pipe: IO[bytes], number: int, files: dict[str, str]) -> None:
    head = f"commit refs/heads/main\ncommitter b <b@example.invalid> {1_700_000_000 + 3600 * number} +0000\ndata 1\nc\n"
    pipe.write(head.encode())
    for name, text in files.items():
        pipe.write(f"M 100644 inline {name}\ndata {len(text)}\n{text}\n".encode())


def build(root: Path, goldens: int, commits: int, share: float) -> int:
    """The repository; how many times a golden was replaced."""
    made = Goldens(goldens)
    subprocess.run(["git", "init", "-q", "-b", "main", str(root)], check=True)
    importing = subprocess.Popen(["git", "-C", str(root), "fast-import", "--quiet"], stdin=subprocess.PIPE)
    assert importing.stdin is not None
    commit(importing.stdin, 0, {path(golden): made.text(golden) for golden in range(goldens)})
    per_commit = max(1, round(goldens * share))
    for number in range(1, commits):
        chosen = made.random.choice(goldens, per_commit, replace=False)
        commit(importing.stdin, number, {path(golden): made.text(golden) for golden in chosen})
    importing.communicate()
    git(root, "reset", "--hard", "-q")
    for golden in range(_CHANGED):
        (root / path(golden)).write_text(made.text(golden))
    return per_commit * (commits - 1)


def git(root: Path, *words: str) -> None:
    identity = ("-c", "user.name=b", "-c", "user.email=b@example.invalid")
    subprocess.run(["git", "-C", str(root), *identity, *words], check=True)


def timed(root: Path, what: str, *words: str, runs: int = 3) -> dict[str, object]:
    """What a command says as JSON; prints its best wall time, and the processor time of that run."""
    best, cpu, out = float("inf"), 0.0, b""
    for _ in range(runs):
        start, used = time.perf_counter(), processor_time()
        done = subprocess.run([str(KARAT), *words, "--json", "-"], cwd=root, capture_output=True, check=False)
        out = done.stdout
        assert out, (done.returncode, done.stderr[-2000:])
        if (took := time.perf_counter() - start) < best:
            best, cpu = took, processor_time() - used
    found: dict[str, object] = json.loads(out)
    print(f"{what:<40} {best:7.2f} s wall {cpu:7.2f} s processor  {found.get('history') or ''}")
    return found


def processor_time() -> float:
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--goldens", type=int, default=1000)
    parser.add_argument("--commits", type=int, default=300)
    parser.add_argument("--share", type=float, default=0.1, help="of the goldens that a commit refreshes")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "repository"
        replaced = build(root, asked.goldens, asked.commits, asked.share)
        print(f"{asked.goldens:,} goldens, {asked.commits:,} commits, {replaced:,} times a golden was replaced")
        diff = ("diff", "--preset", "megatron-lm")
        timed(root, "karat diff, no history", *diff)
        cold = timed(root, "karat diff --history, the first time", *diff, "--history", runs=1)
        kept = timed(root, "karat diff, history kept", *diff)
        assert kept["history"] == cold["history"]
        counted = int(str(cold["history"]).split()[2].replace(",", ""))
        assert 0.98 * replaced <= counted <= replaced, "all but those that were truncated, and what repaired them"
        git(root, "add", path(0), path(1))
        git(root, "commit", "-q", "-m", "one more")
        timed(root, "karat diff, after one more commit", *diff, runs=1)
        timed(root, "karat audit", "audit", "--preset", "megatron-lm")
        (file,) = (root / ".git/karat/history").iterdir()
        print(f"kept in {file.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
