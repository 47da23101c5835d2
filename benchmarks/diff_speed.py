"""`karat diff` end to end against a straightforward reference, and how it and `karat check` grow with the number of files.

The reference is what a careful person writes first: one `git show` per file, `json`, Python floats.
It has two parts, timed apart: the seed's formula alone, and all the numbers that karat gives for
each (file, metric). Every process is fresh, every golden of the generated repository differs from
HEAD, and the numbers of both sides must be equal. The runs of all programs take turns, so that whatever else the machine does
slows each of them; with `--script`, a suite's own script is one of them.

Run: make bench
     python benchmarks/diff_speed.py --files 269 --steps 50 100 --script CLONE/tests/…/compare_golden_values_kl.py --growth --check
     python benchmarks/diff_speed.py --files 0 --growth 100000 --check 10000
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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from factories.wrong_goldens import LOSS, noise, training

STEPS = (262,)
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

# Runs a script and leaves its peak memory; ru_maxrss would count the launching process's. karat leaves without tidying up.
MEASURED = """
import os, runpy, sys
report, *sys.argv = sys.argv[1:]
here, leave = os.getpid(), os._exit

def measured(code):
    if os.getpid() == here:
        with open("/proc/self/status") as status, open(report, "w") as out:
            out.write(next(line.split()[1] for line in status if line.startswith("VmHWM")))
    leave(code)

os._exit = measured
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
finally:
    measured(0)
"""


class Texts:
    """Goldens as text, and each as another honest run of the same test leaves it.

    A few are drawn, and one loss tells the files apart.
    """

    def __init__(self, rng: np.random.Generator, steps: Sequence[int], kinds: int = 60) -> None:
        self._drawn = []
        for number in range(kinds):
            length = steps[number % len(steps)]
            old = training(number, length)
            new = json.loads(noise(old, rng))
            old[LOSS]["values"]["1"] = new[LOSS]["values"]["1"] = "MARK"
            texts = json.dumps(old, indent=4), json.dumps(new, indent=4)
            self._drawn.append((*texts, len(old), len(old) * length))

    def of(self, number: int) -> tuple[str, str, int, int]:
        """The old and the new text of a file; its rows and points."""
        old, new, rows, points = self._drawn[number % len(self._drawn)]
        loss = 10 + number / 1e5
        return old.replace('"MARK"', f"{loss:.5f}"), new.replace('"MARK"', f"{loss + 1e-5:.5f}"), rows, points


def git(folder: Path, *words: str, data: Iterable[bytes] = ()) -> None:
    command = ["git", "-C", str(folder), *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        assert process.stdin is not None
        process.stdin.writelines(data)
    assert process.returncode == 0, words


def build(folder: Path, files: int, steps: Sequence[int] = STEPS) -> tuple[int, int]:
    """A repository whose every golden differs from HEAD; returns rows and points."""
    texts = Texts(np.random.default_rng(files), steps)
    git(folder.parent, "init", "-q", "-b", "main", folder.name)
    names = [
        f"tests/functional_tests/test_cases/gpt/case_{i:06d}/golden_values_dev_dgx_h100.json" for i in range(files)
    ]

    def committed() -> Iterator[bytes]:
        yield b"commit refs/heads/main\ncommitter b <b@example.invalid> 1700000000 +0000\ndata 3\nold\n"
        for number, name in enumerate(names):
            text = texts.of(number)[0].encode()
            yield b"M 100644 inline %s\ndata %d\n%s\n" % (name.encode(), len(text), text)

    git(folder, "-c", "core.compression=1", "fast-import", "--quiet", data=committed())
    git(folder, "read-tree", "HEAD")
    rows = points = 0
    for number, name in enumerate(names):
        _, new, more_rows, more_points = texts.of(number)
        rows, points = rows + more_rows, points + more_points
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text(new, encoding="utf-8")
    return rows, points


def timed(commands: Mapping[str, Sequence[str]], folder: Path, repeats: int) -> dict[str, float]:
    """The best of some runs of each command, in seconds, as a user waits for it; one of each after the other."""
    # A user's interpreter keeps compiled modules; one that is told not to measures the compiler.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    best = dict.fromkeys(commands, float("inf"))
    for _ in range(repeats + 1):
        for name, command in commands.items():
            begin = time.perf_counter()
            subprocess.run(
                command, cwd=folder, env=environment, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            best[name] = min(best[name], time.perf_counter() - begin)
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
        for name in row.keys() - {
            "file",
            "metric",
            *(() if row["max_abs_rel_diff"] else ("max_step", "first_diff_step")),
        }:
            assert abs(mine[name] - row[name]) <= 1e-12, (row["file"], row["metric"], name)
    return len(theirs)


def same_csv(rows: Path, reference: Path) -> None:
    with rows.open(newline="", encoding="utf-8") as file:
        ours = {(r["file"], r["metric"]): float(r["avg_rel_diff"]) for r in csv.DictReader(file)}
    theirs = json.loads(reference.read_text(encoding="utf-8"))
    assert len(ours) == len(theirs)
    assert all(abs(ours[r["file"], r["metric"]] - r["avg_rel_diff"]) <= 1e-12 for r in theirs)


def against_the_reference(files: int, steps: Sequence[int], repeats: int, theirs: Path | None) -> None:
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        folder = top / "repository"
        rows, points = build(folder, files, steps)
        print(f"{files:,} files, {rows:,} rows, {points:,} points on each side; {os.cpu_count()} cores")
        script = top / "reference.py"
        script.write_text(REFERENCE, encoding="utf-8")
        karat = [str(KARAT), "diff", "--quiet", "--csv", str(top / "karat.csv")]
        commands = {
            "reference, the seed's formula only": [sys.executable, str(script), str(top / "seed.json"), "seed"],
            "reference, all of karat's numbers": [sys.executable, str(script), str(top / "all.json"), "all"],
            "karat diff, one process": [*karat, "--jobs", "1"],
            "karat diff": karat,
            "karat diff, nothing to compare": [str(KARAT), "diff", "--quiet", "--only", "nothing"],
        }
        if theirs:
            words = [sys.executable, str(theirs.resolve()), "--top", "20", "--csv", str(top / "theirs.csv")]
            commands = {theirs.name: words, **commands}
        best = timed(commands, folder, repeats)
        subprocess.run([KARAT, "diff", "-q", "--json", str(top / "karat.json")], cwd=folder, check=False)
        agree = same_numbers(top / "karat.json", top / "all.json")
        same_csv(top / "karat.csv", top / "seed.json")
        assert not theirs or (top / "theirs.csv").stat().st_size, "the script of the suite wrote nothing"
        print(f"every number agrees to 1e-12 in {agree:,} rows")
        for what, seconds in best.items():
            ratio = "" if what.startswith("karat") else f"{seconds / best['karat diff']:6.1f} x"
            print(f"{what:40} {seconds:7.3f} s {ratio}".rstrip())
        print(f"peak memory of karat diff {peak(top, folder, karat):.0f} MB")


def growth(sizes: Sequence[int], steps: Sequence[int]) -> None:
    for files in sizes:
        with tempfile.TemporaryDirectory() as name:
            top = Path(name)
            folder = top / "repository"
            build(folder, files, steps)
            words = [str(KARAT), "diff", "--quiet", "--csv", str(top / "karat.csv")]
            told("diff", files, timed({"": words}, folder, 2 if files <= 10_000 else 0)[""], peak(top, folder, words))


def checks(sizes: Sequence[int], steps: Sequence[int]) -> None:
    for files in sizes:
        with tempfile.TemporaryDirectory() as name:
            top = Path(name)
            texts = Texts(np.random.default_rng(files), steps)
            for number in range(files):
                for side, text in zip(("goldens", "results"), texts.of(number)[:2], strict=True):
                    path = top / side / f"case_{number:06d}" / "golden_values.json"
                    path.parent.mkdir(parents=True)
                    path.write_text(text, encoding="utf-8")
            words = [str(KARAT), "check", "results", "--golden", "goldens", "--quiet"]
            told("check", files, timed({"": words}, top, 2)[""], peak(top, top, words))


def told(verb: str, files: int, seconds: float, memory: float) -> None:
    print(
        f"karat {verb:6} {files:7,} files  {seconds:7.3f} s  {1e3 * seconds / files:6.3f} ms a file  {memory:6.0f} MB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=900)
    parser.add_argument("--steps", type=int, nargs="+", default=STEPS, help="of one file after the other")
    parser.add_argument("--script", type=Path, help="a suite's own comparison script, to be timed beside the reference")
    parser.add_argument("--growth", type=int, nargs="*", default=[100, 1_000, 10_000])
    parser.add_argument("--check", type=int, nargs="*", default=[1_000])
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    if options.files:
        against_the_reference(options.files, options.steps, options.repeats, options.script)
    growth(options.growth, options.steps)
    checks(options.check, options.steps)
    version = timed({"": [str(KARAT), "--version"]}, Path.cwd(), 10)[""]
    print(f"karat --version  {1e3 * version:.0f} ms")


if __name__ == "__main__":
    main()
