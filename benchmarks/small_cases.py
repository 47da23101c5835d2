"""Two nights of many tiny cases: what capture, verify and diff take, as ratios to the limit of the same work.

Captured is one input and one output of eight floats a case; of the second night, one case in a hundred has another
output. The limits are measured in the same run: writing the very files plainly (with an fsync of each file and folder,
as capture does), reading every file, reading every manifest of both nights. A tenth of the cases shows whether time
grows with their number. Run: make bench, or with --folder on the disk to measure.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

import karat

CHANGED = 100  # One case in so many has another output on the second night.


class Took(NamedTuple):
    """Seconds on the clock, and of all processors."""

    wall: float
    cpu: float


def processors() -> float:
    used = [resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def timed(work: Callable[[], object]) -> Took:
    begin, used = time.perf_counter(), processors()
    work()
    return Took(time.perf_counter() - begin, processors() - used)


def capture(folder: Path, cases: int, night: int) -> None:
    rng = np.random.default_rng(0)
    for number in range(cases):
        x = rng.standard_normal(8, dtype=np.float32)
        y = x + x if night == 1 or number % CHANGED else np.nextafter(x + x, np.float32(9))
        name = f"suite/test_ops.py::test_op[{number}]"
        karat.check_and_capture(name, actual=y, expected=y, inputs=(x,), directory=folder)


def files(folder: Path, name: str = "*") -> Iterator[Path]:
    """The files of cases, without the records of their session."""
    return (p for p in folder.glob(f"*/*/*/{name}") if p.parts[len(folder.parts)] != ".karat" and p.is_file())


def plain_write(contents: dict[Path, bytes]) -> None:
    folders = sorted({path.parent for path in contents})
    for folder in folders:
        folder.mkdir(parents=True)
    for path, data in contents.items():
        with path.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    for folder in folders:
        handle = os.open(folder, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)


def command(*words: str, code: int = 0) -> None:
    done = subprocess.run([sys.executable, "-m", "karat", *words], capture_output=True, check=False, text=True)
    assert done.returncode == code, done.stdout[-2000:] + done.stderr[-2000:]


def measure(root: Path, cases: int) -> None:
    nights = [root / "night-1", root / "night-2"]
    karat.check_and_capture("warm up", actual=1.0, expected=1.0, inputs=(), directory=root / "warm-up")
    captured = timed(lambda: capture(nights[0], cases, 1))
    capture(nights[1], cases, 2)
    contents = {root / "plain" / path.relative_to(nights[0]): path.read_bytes() for path in files(nights[0])}
    written = timed(lambda: plain_write(contents))
    read = timed(lambda: [path.read_bytes() for path in files(nights[0])])
    manifests = timed(lambda: [path.read_bytes() for night in nights for path in files(night, "manifest.json")])
    show("capture", cases, captured, "writing the same files plainly", written)
    show("verify", cases, timed(lambda: command("verify", str(nights[0]))), "reading its files", read)
    diffed = timed(lambda: command("diff", *map(str, nights)))
    show("diff", cases, diffed, "reading both nights' manifests", manifests)


def show(what: str, cases: int, took: Took, limit: str, base: Took) -> None:
    beyond = (took.wall - base.wall) / cases * 1e3
    print(
        f"{what} of {cases:,} cases: {took.wall:.2f} s ({took.cpu:.2f} s CPU), {took.wall / base.wall:.1f}x {limit} "
        f"({base.wall:.2f} s, {base.cpu:.2f} s CPU), {beyond:.2f} ms a case beyond it",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--folder", type=Path, help="on the disk to measure")
    words = parser.parse_args()
    for cases in (words.cases // 10, words.cases):
        with tempfile.TemporaryDirectory(dir=words.folder) as name:
            measure(Path(name), cases)


if __name__ == "__main__":
    main()
