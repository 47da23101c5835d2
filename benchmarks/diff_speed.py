"""`karat diff` end to end against a straightforward reference, and its growth with the number of files.

The reference is what a careful person writes first: one `git show` per file, `json`, Python floats.
It has two parts, timed apart: the seed's formula alone, and all the numbers that karat gives for
each (file, metric). Every process is fresh, every golden of the generated repository differs from
HEAD, and the numbers of both sides must be equal. Run: make bench
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
from typing import Any

import numpy as np

METRICS = ("lm loss", "num-zeros", "mem-allocated-bytes", "mem-max-allocated-bytes", "iteration-time")
STEPS = 262
KARAT = Path(sys.executable).with_name("karat")

REFERENCE = """
import json, math, subprocess, sys

SEED_ONLY = sys.argv[2] == "seed"


def samples(block):
    found = {}
    for step, value in block["values"].items():
        found[int(step)] = float(value)
    return found


def relative(before, after):
    rel = {}
    for step in sorted(set(before) & set(after)):
        a, b = before[step], after[step]
        if not math.isfinite(a) or not math.isfinite(b) or abs(a) < 1e-12:
            continue
        rel[step] = (a - b) / a
    return rel


def row(old, new):
    before, after = samples(old), samples(new)
    rel = relative(before, after)
    if not rel:
        return None
    numbers = {"n_steps": len(rel), "avg_rel_diff": sum(rel.values()) / len(rel)}
    if SEED_ONLY:
        return numbers
    shared = sorted(set(before) & set(after))
    finite = math.isfinite
    sizes = {step: abs(value) for step, value in rel.items()}
    differ = [s for s in shared if before[s] != after[s] and (finite(before[s]) or finite(after[s]))]
    worst = max(sizes, key=sizes.get)
    numbers["mean_abs_rel_diff"] = sum(sizes.values()) / len(sizes)
    numbers["max_abs_rel_diff"] = sizes[worst]
    numbers["max_step"] = worst
    numbers["first_diff_step"] = differ[0] if differ else None
    numbers["bit_equal"] = sum(before[s] == after[s] for s in shared)
    numbers["steps_lost"] = sum(finite(before[s]) for s in set(before) - set(after))
    numbers["steps_gained"] = sum(finite(after[s]) for s in set(after) - set(before))
    numbers["nan_gained"] = sum(finite(before[s]) and not finite(after[s]) for s in shared)
    numbers["nan_lost"] = sum(finite(after[s]) and not finite(before[s]) for s in shared)
    return numbers


changed = subprocess.run(["git", "diff", "--name-only", "HEAD"], check=True, capture_output=True, text=True)
rows = []
for path in changed.stdout.splitlines():
    shown = subprocess.run(["git", "show", f"HEAD:{path}"], check=True, capture_output=True, text=True)
    old = json.loads(shown.stdout)
    with open(path) as file:
        new = json.load(file)
    for metric in sorted(set(old) & set(new)):
        found = row(old[metric], new[metric])
        if found:
            rows.append({"file": path, "metric": metric, **found})
with open(sys.argv[1], "w") as file:
    json.dump(rows, file)
"""

# Runs a script and leaves its peak memory; ru_maxrss would count the launching process's.
MEASURED = """
import runpy, sys
report, *sys.argv = sys.argv[1:]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
except SystemExit:
    pass
finally:
    with open("/proc/self/status") as status, open(report, "w") as out:
        out.write(next(line.split()[1] for line in status if line.startswith("VmHWM")))
"""


def golden(rng: np.random.Generator, metrics: int) -> dict[str, dict[str, Any]]:
    blocks: dict[str, dict[str, Any]] = {}
    for name in METRICS[:metrics]:
        counted = name.startswith(("mem", "num"))
        scale = 1e9 if name.startswith("mem") else 2e3 if counted else 10.0
        drawn = np.round(scale * rng.random(STEPS), 0 if counted else 5).tolist()
        values: dict[str, Any] = {str(i): value for i, value in enumerate(drawn, 1)}
        if name == "iteration-time":
            values["1"] = "nan"
        blocks[name] = {"start_step": 1, "end_step": STEPS, "step_interval": 1, "values": values}
    return blocks


def moved(blocks: dict[str, dict[str, Any]], rng: np.random.Generator) -> None:
    for name, block in blocks.items():
        digits = 0 if name.startswith(("mem", "num")) else 5
        noise = (1 + 1e-3 * rng.standard_normal(STEPS)).tolist()
        for (step, value), factor in zip(block["values"].items(), noise, strict=True):
            if value != "nan":
                block["values"][step] = round(value * factor, digits)


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", "-C", str(folder), *words], check=True, stdout=subprocess.DEVNULL)


def build(folder: Path, files: int) -> tuple[int, int]:
    """A repository whose every golden differs from HEAD; returns rows and points."""
    rng = np.random.default_rng(files)
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    git(folder, "config", "gc.auto", "0")
    rows = 0
    paths = []
    for i in range(files):
        path = folder / f"tests/functional_tests/test_cases/gpt/case_{i:05d}/golden_values_dev_dgx_h100.json"
        path.parent.mkdir(parents=True)
        blocks = golden(rng, 5 if i % 3 else 4)
        rows += len(blocks)
        path.write_text(json.dumps(blocks, indent=4), encoding="utf-8")
        paths.append(path)
    git(folder, "add", "-A")
    git(folder, "-c", "user.name=b", "-c", "user.email=b@example.invalid", "commit", "-qm", "old")
    for path in paths:
        blocks = json.loads(path.read_text(encoding="utf-8"))
        moved(blocks, rng)
        path.write_text(json.dumps(blocks, indent=4), encoding="utf-8")
    return rows, rows * STEPS


def timed(command: list[str], folder: Path, repeats: int) -> float:
    """The best of some runs, in seconds, as a user waits for it."""
    # A user's interpreter keeps compiled modules; one that is told not to measures the compiler.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    best = float("inf")
    for _ in range(repeats + 1):
        begin = time.perf_counter()
        subprocess.run(
            command, cwd=folder, env=environment, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        best = min(best, time.perf_counter() - begin)
    return best


def peak(top: Path, folder: Path, words: list[str]) -> float:
    """Peak memory of the main process in MB, from the kernel."""
    runner, report = top / "measured.py", top / "peak"
    runner.write_text(MEASURED, encoding="utf-8")
    subprocess.run(
        [sys.executable, str(runner), str(report), *words],
        cwd=folder,
        check=False,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return int(report.read_text(encoding="utf-8")) / 1024


def same_numbers(diff: Path, reference: Path) -> int:
    """How many rows agree in every number; asserts that all do."""
    ours = {
        (file["path"], row["metric"]): row
        for file in json.loads(diff.read_text(encoding="utf-8"))["files"]
        for row in file["metrics"]
    }
    theirs = json.loads(reference.read_text(encoding="utf-8"))
    assert len(ours) == len(theirs)
    for row in theirs:
        mine = ours[row["file"], row["metric"]]
        for name in row.keys() - {"file", "metric"}:
            assert abs(mine[name] - row[name]) <= 1e-12, (row["file"], row["metric"], name)
    return len(theirs)


def same_csv(rows: Path, reference: Path) -> None:
    with rows.open(newline="", encoding="utf-8") as file:
        ours = {(r["file"], r["metric"]): float(r["avg_rel_diff"]) for r in csv.DictReader(file)}
    theirs = json.loads(reference.read_text(encoding="utf-8"))
    assert len(ours) == len(theirs)
    assert all(abs(ours[r["file"], r["metric"]] - r["avg_rel_diff"]) <= 1e-12 for r in theirs)


def against_the_reference(files: int, repeats: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        folder = top / "repository"
        rows, points = build(folder, files)
        print(f"{files:,} files, {rows:,} rows, {points:,} points on each side; {os.cpu_count()} cores")
        script = top / "reference.py"
        script.write_text(REFERENCE, encoding="utf-8")
        seed = [sys.executable, str(script), str(top / "seed.json"), "seed"]
        full = [sys.executable, str(script), str(top / "all.json"), "all"]
        karat = [str(KARAT), "diff", "--quiet", "--csv", str(top / "karat.csv")]
        slow_seed = timed(seed, folder, max(repeats // 2, 1))
        slow_full = timed(full, folder, max(repeats // 2, 1))
        fast = timed(karat, folder, repeats)
        alone = timed([*karat, "--jobs", "1"], folder, repeats)
        subprocess.run([KARAT, "diff", "-q", "--json", str(top / "karat.json")], cwd=folder, check=False)
        agree = same_numbers(top / "karat.json", top / "all.json")
        same_csv(top / "karat.csv", top / "seed.json")
        memory = peak(top, folder, karat)
        print(f"every number agrees to 1e-12 in {agree:,} rows")
        print(f"reference, the seed's formula only   {slow_seed:7.3f} s")
        print(f"reference, all of karat's numbers    {slow_full:7.3f} s")
        print(f"karat diff, one process              {alone:7.3f} s")
        print(f"karat diff                           {fast:7.3f} s   peak memory {memory:.0f} MB")
        print(f"ratio to the seed's formula only     {slow_seed / fast:7.1f} x")
        print(f"ratio to all of karat's numbers      {slow_full / fast:7.1f} x")


def growth(sizes: list[int]) -> None:
    for files in sizes:
        with tempfile.TemporaryDirectory() as name:
            top = Path(name)
            folder = top / "repository"
            build(folder, files)
            words = [str(KARAT), "diff", "--quiet", "--csv", str(top / "karat.csv")]
            seconds = timed(words, folder, 2)
            memory = peak(top, folder, words)
            each = 1e3 * seconds / files
            print(f"{files:6,} files  {seconds:7.3f} s  {each:6.3f} ms a file  {memory:6.0f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=900)
    parser.add_argument("--growth", type=int, nargs="*", default=[100, 1_000, 10_000])
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    against_the_reference(options.files, options.repeats)
    growth(options.growth)
    version = timed([str(KARAT), "--version"], Path.cwd(), 10)
    print(f"karat --version  {1e3 * version:.0f} ms")


if __name__ == "__main__":
    main()
