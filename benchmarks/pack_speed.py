"""`karat pack` and `karat verify` on a gigabyte of tensors, as ratios to what nobody can do without.

Packing is held against copying the same files twice (a zip per case and one of all are two copies);
verifying against reading the same files in one thread. Every process is fresh, the
page cache is warm, and copies are synced as packs are. Beside the time stands that of all processors, which
says more where others are at work, too. Run: python benchmarks/pack_speed.py
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import numpy as np

from karat.bundles.manifest import Comparator, Environment, Identity, case_path
from karat.bundles.places import open_place
from karat.bundles.verify import verify_place
from karat.bundles.write import NewCase, write_case

KARAT = Path(sys.executable).with_name("karat")
_BLOCK = 1 << 20


def build(root: Path, cases: int, mebibytes: int) -> int:
    """A capture directory; the bytes of its files."""
    rng = np.random.default_rng(1)
    elements = (mebibytes << 20) // cases // 8
    for number in range(cases):
        who = Identity(suite="models", flow="bench", test=f"bench.py::test[{number}]")
        folder = root / case_path(who)
        folder.mkdir(parents=True)
        captured = NewCase(
            identity=who,
            inputs=rng.standard_normal(elements, dtype=np.float32),
            expected=rng.standard_normal(elements, dtype=np.float32),
            program=b"program",
            comparator=Comparator(name="karat"),
            environment=Environment(platform="bench", machine="bench", python="3"),
            session="bench",
            created="2026-01-01T00:00:00Z",
        )
        write_case(folder, captured)
    return sum(path.stat().st_size for path in root.rglob("*") if path.is_file())


def copy(source: Path, target: Path, times: int) -> None:
    """Plain reads and writes, synced."""
    buffer = memoryview(bytearray(_BLOCK))
    for number in range(times):
        for path in sorted(source.rglob("*")):
            if path.is_file():
                copied = target / str(number) / path.relative_to(source)
                copied.parent.mkdir(parents=True, exist_ok=True)
                with path.open("rb", buffering=0) as old, copied.open("wb", buffering=0) as new:
                    while got := old.readinto(buffer):
                        new.write(buffer[:got])
                    os.fsync(new.fileno())


def read(source: Path, watch: Callable[[memoryview], object] = lambda _: None) -> None:
    buffer = memoryview(bytearray(_BLOCK))
    for path in sorted(source.rglob("*")):
        if path.is_file():
            with path.open("rb", buffering=0) as file:
                while got := file.readinto(buffer):
                    watch(buffer[:got])


class Took(NamedTuple):
    """Seconds by the clock, and of processors."""

    wall: float
    busy: float

    def told(self, what: str, other: Took | None = None, name: str = "") -> None:
        """One line; ratios to something else, if there is one."""
        ratios = other and f"{self.wall / other.wall:5.2f} x, processors {self.busy / other.busy:.2f} x"
        print(f"{what:33}{self.wall:7.2f} s  {self.busy:6.2f} s   {f'{ratios} {name}' if other else ''}")


def best(work: Callable[[], object], fresh: Path | None, repeats: int) -> Took:
    """The quickest of some runs; `fresh` is cleared before each."""
    runs = []
    for _ in range(repeats):
        if fresh is not None:
            shutil.rmtree(fresh, ignore_errors=True)
        begin, before = time.perf_counter(), sum(os.times()[:4])
        work()
        runs.append(Took(time.perf_counter() - begin, sum(os.times()[:4]) - before))
    return Took(min(run.wall for run in runs), min(run.busy for run in runs))


def karat(*words: str) -> None:
    subprocess.run([KARAT, *words, "-q"], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mebibytes", type=int, default=1024)
    parser.add_argument("--cases", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", help="where to work; by default the folder for temporary files")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        root, out = Path(name) / "captures", Path(name) / "out"
        size = build(root, options.cases, options.mebibytes)
        runs = options.repeats
        print(f"{options.cases} cases, {size / 2**20:,.0f} MiB; {os.cpu_count()} cores")
        two = best(lambda: copy(root, out, 2), out, runs)
        two.told("copy twice")
        plain = ("pack", str(root), "-o", str(out), "--name", "all")
        best(lambda: karat(*plain), out, runs).told("karat pack", two, "copying twice")
        reading = best(lambda: read(root), None, runs)
        reading.told("reading the files, one thread")
        best(lambda: read(root, sha256().update), None, runs).told("sha256 of them, one thread", reading, "reading")
        best(lambda: verify_place(open_place(root)), None, runs).told("verified from Python", reading, "reading")
        for word in (root, out / "all.zip"):
            took = best(lambda word=word: karat("verify", str(word)), None, runs)  # type: ignore[misc]
            what = "karat verify, a folder" if word.is_dir() else "karat verify, a zip"
            took.told(what, reading, "reading")


if __name__ == "__main__":
    main()
