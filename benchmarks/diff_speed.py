"""`karat diff` end to end against a straightforward reference, and its growth with the number of files.

The reference is what a careful person writes first: one `git show` per file, `json`, Python floats,
the seed's formula. Both run as fresh processes on the same generated repository and must give the
same numbers. Run: make bench
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

METRICS = (
    "lm loss",
    "num-zeros",
    "mem-allocated-bytes",
    "mem-max-allocated-bytes",
    "iteration-time",
)
STEPS = 262

REFERENCE = """
import csv, json, math, subprocess, sys
paths = subprocess.run(["git", "diff", "--name-only", "HEAD"], capture_output=True, text=True).stdout.splitlines()
writer = csv.writer(open(sys.argv[1], "w", newline=""))
writer.writerow(["file", "metric", "n_steps", "avg_rel_diff"])
for path in paths:
    old = json.loads(subprocess.run(["git", "show", "HEAD:" + path], capture_output=True, text=True).stdout)
    new = json.load(open(path))
    for metric in sorted(set(old) & set(new)):
        a, b = old[metric]["values"], new[metric]["values"]
        rel = []
        for step in a:
            x, y = float(a[step]), float(b.get(step, "nan"))
            if math.isfinite(x) and math.isfinite(y) and abs(x) >= 1e-12:
                rel.append((x - y) / x)
        if rel:
            writer.writerow([path, metric, len(rel), sum(rel) / len(rel)])
"""


def golden(rng: np.random.Generator, metrics: int) -> dict[str, dict[str, object]]:
    blocks: dict[str, dict[str, object]] = {}
    for name in METRICS[:metrics]:
        scale, digits = (
            (1e9, 0) if name.startswith("mem") else (2e3, 0) if name == "num-zeros" else (10.0, 5)
        )
        values: dict[str, object] = {
            str(i + 1): round(float(v), digits) for i, v in enumerate(scale * rng.random(STEPS))
        }
        if name == "iteration-time":
            values["1"] = "nan"
        blocks[name] = {"start_step": 1, "end_step": STEPS, "step_interval": 1, "values": values}
    return blocks


def moved(blocks: dict[str, dict[str, object]], rng: np.random.Generator) -> None:
    for name, block in blocks.items():
        values = block["values"]
        assert isinstance(values, dict)
        digits = 0 if name.startswith(("mem", "num")) else 5
        noise = 1 + 1e-3 * rng.standard_normal(len(values))
        for (step, value), factor in zip(values.items(), noise.tolist(), strict=True):
            if value != "nan":
                values[step] = round(value * factor, digits)


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", "-C", str(folder), *words], check=True, stdout=subprocess.DEVNULL)


def build(folder: Path, files: int) -> tuple[int, int]:
    """A repository whose every golden differs from HEAD; returns rows and points."""
    rng = np.random.default_rng(files)
    git(folder, "init", "-q", "-b", "main")
    git(folder, "config", "gc.auto", "0")
    kept = []
    rows = 0
    for i in range(files):
        path = (
            folder
            / f"tests/functional_tests/test_cases/gpt/case_{i:05d}/golden_values_dev_dgx_h100.json"
        )
        path.parent.mkdir(parents=True)
        blocks = golden(rng, 5 if i % 3 else 4)
        rows += len(blocks)
        path.write_text(json.dumps(blocks, indent=4), encoding="utf-8")
        kept.append((path, blocks))
    git(folder, "add", "-A")
    git(folder, "-c", "user.name=b", "-c", "user.email=b@example.invalid", "commit", "-qm", "old")
    for path, blocks in kept:
        moved(blocks, rng)
        path.write_text(json.dumps(blocks, indent=4), encoding="utf-8")
    return rows, rows * STEPS


def timed(command: list[str], folder: Path) -> tuple[float, float]:
    """Seconds and peak memory (MB) of a process and its children."""
    begin = time.perf_counter()
    pid = _spawn(command, folder)
    _, _, usage = os.wait4(pid, 0)
    return time.perf_counter() - begin, usage.ru_maxrss / 1024


def _spawn(command: list[str], folder: Path) -> int:
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    process.returncode = 0  # os.wait4 collects it, for the memory figure that Popen does not give
    return process.pid


def best(command: list[str], folder: Path, repeats: int) -> tuple[float, float]:
    runs = [timed(command, folder) for _ in range(repeats)]
    return min(seconds for seconds, _ in runs), max(memory for _, memory in runs)


def rows_of(path: Path) -> dict[tuple[str, str], tuple[int, float]]:
    with path.open(newline="", encoding="utf-8") as file:
        return {
            (r["file"], r["metric"]): (int(r["n_steps"]), float(r["avg_rel_diff"]))
            for r in csv.DictReader(file)
        }


def same(left: Path, right: Path) -> int:
    a, b = rows_of(left), rows_of(right)
    assert a.keys() == b.keys()
    assert all(a[k][0] == b[k][0] and abs(a[k][1] - b[k][1]) <= 1e-12 for k in a)
    return len(a)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=900)
    parser.add_argument("--growth", type=int, nargs="*", default=[100, 1_000, 10_000])
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    karat = [sys.executable, "-m", "karat", "diff", "--csv"]
    with tempfile.TemporaryDirectory() as top:
        folder = Path(top, "repository")
        folder.mkdir()
        rows, points = build(folder, options.files)
        print(f"{options.files} files, {rows:,} rows, {points:,} points on each side")
        ours, theirs = Path(top, "karat.csv"), Path(top, "reference.csv")
        reference = [sys.executable, "-c", REFERENCE, str(theirs)]
        slow, slow_memory = best(reference, folder, max(options.repeats // 2, 1))
        fast, fast_memory = best([*karat, str(ours)], folder, options.repeats)
        print(f"same numbers in {same(ours, theirs):,} rows (to 1e-12)")
        print(f"reference   {slow:7.3f} s  {slow_memory:6.0f} MB")
        print(f"karat diff  {fast:7.3f} s  {fast_memory:6.0f} MB")
        print(f"ratio       {slow / fast:7.1f} x")
    for files in options.growth:
        with tempfile.TemporaryDirectory() as top:
            folder = Path(top, "repository")
            folder.mkdir()
            build(folder, files)
            seconds, memory = best([*karat, str(Path(top, "k.csv"))], folder, 2)
            print(
                f"{files:6,} files  {seconds:7.3f} s  {1e3 * seconds / files:6.3f} ms a file  {memory:6.0f} MB"
            )
    version = [sys.executable, "-m", "karat", "--version"]
    print(f"karat --version  {1e3 * best(version, Path.cwd(), 10)[0]:.0f} ms")


if __name__ == "__main__":
    main()
