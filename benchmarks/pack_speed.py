"""`karat pack` and `karat verify` on a gigabyte of tensors, as ratios to what nobody can do without.

Packing is held against copying the same files twice (a zip per case and one of all are two copies) and, with
--no-cases, once; verifying against `sha256` over the same bytes in one thread. Every process is fresh, the
page cache is warm, and copies are synced as packs are. Run: python benchmarks/pack_speed.py
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

import numpy as np

from karat.bundles.identity import case_path
from karat.bundles.manifest import Comparator, Environment, Identity
from karat.bundles.writing import Captured, write_case

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
        captured = Captured(
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


def hashed(source: Path) -> None:
    buffer = memoryview(bytearray(_BLOCK))
    for path in sorted(source.rglob("*")):
        if path.is_file():
            whole = sha256()
            with path.open("rb", buffering=0) as file:
                while got := file.readinto(buffer):
                    whole.update(buffer[:got])


def best(work: Callable[[], object], fresh: Path | None, repeats: int) -> float:
    """The quickest of some runs; `fresh` is cleared before each."""
    quickest = float("inf")
    for _ in range(repeats):
        if fresh is not None:
            shutil.rmtree(fresh, ignore_errors=True)
        begin = time.perf_counter()
        work()
        quickest = min(quickest, time.perf_counter() - begin)
    return quickest


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
        one = best(lambda: copy(root, out, 1), out, runs)
        two = best(lambda: copy(root, out, 2), out, runs)
        print(f"copy once                        {one:7.2f} s")
        print(f"copy twice                       {two:7.2f} s")
        plain = ("pack", str(root), "-o", str(out), "--name", "all")
        both = best(lambda: karat(*plain), out, runs)
        print(f"karat pack                       {both:7.2f} s   {both / two:5.2f} x copying twice")
        single = best(lambda: karat(*plain, "--no-cases"), out, runs)
        print(
            f"karat pack --no-cases            {single:7.2f} s   {single / one:5.2f} x copying once"
        )
        digest = best(lambda: hashed(root), None, runs)
        print(f"sha256 of the files, one thread  {digest:7.2f} s")
        for word in (root, out / "all.zip"):
            took = best(lambda word=word: karat("verify", str(word)), None, runs)  # type: ignore[misc]
            what = "karat verify, a folder" if word.is_dir() else "karat verify, a zip"
            print(f"{what:32} {took:7.2f} s   {took / digest:5.2f} x sha256")


if __name__ == "__main__":
    main()
