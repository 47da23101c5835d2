"""Push and pull against `cp` with sync; a second night of many small cases; how much is sent.

python benchmarks/store_speed.py [--gib 1] [--cases 10000] [--store s3://bucket/prefix]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from factories.captured import capture, identity
from factories.stores import cases, contents


def seconds(*words: str) -> float:
    begin = time.perf_counter()
    subprocess.run(words, check=True)
    return time.perf_counter() - begin


def karat(*words: str) -> float:
    return seconds(sys.executable, "-m", "karat", *words, "-q")


def large(scratch: Path, store: str, gib: float) -> None:
    """One tensor; each time is the better of two, and a ratio is to `cp` in the same run."""
    tensor = np.random.default_rng(1).standard_normal(int(gib * 2**28), dtype=np.float32)
    folder = capture(scratch / "captures", identity(), inputs=(), expected={"logits": tensor})
    del tensor
    file, copy = str(folder / "expected.safetensors"), str(scratch / "copy")
    runs: list[dict[str, float]] = []
    for i in range(2):
        url, pulled = f"{store}-{i}", str(scratch / f"pulled-{i}")
        push = ("push", str(scratch / "captures"), "benchmark/large", "--store", url)
        times = {"cp and sync": seconds("cp", file, copy) + seconds("sync", copy)}
        times["push"] = karat(*push)
        times["pull"] = karat("pull", "benchmark/large", pulled, "--store", url)
        times["push again"] = karat(*push)
        times["verify"] = karat("verify", pulled)
        runs.append(times)
        seconds("rm", "-rf", copy, pulled, *([] if "://" in url else [url]))
    best = {what: min(run[what] for run in runs) for what in runs[0]}
    for what, took in best.items():
        print(f"{gib:g} GiB, {what}: {took:.2f} s, {took / best['cp and sync']:.1f} × cp and sync", flush=True)


def small(scratch: Path, store: str, count: int) -> None:
    """Tiny cases of another session each night, of which 1% changed."""
    for night, changed in (("first", 0), ("second", count // 100)):
        for path, data in contents(cases(count, changed=changed, night=night, program=2000)).items():
            file = scratch / night / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        seconds("sync")
        took = karat("push", str(scratch / night), "benchmark/small", "--store", store)
        print(f"{count:,} cases, push, {changed:,} changed: {took:.1f} s", flush=True)
    for what in ("pull", "pull of what is there"):
        took = karat("pull", "benchmark/small", str(scratch / "pulled"), "--store", store)
        print(f"{count:,} cases, {what}: {took:.1f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gib", type=float, default=1.0)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--store")
    words = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = words.store or f"{folder}/store"
        if words.gib:
            large(Path(folder), f"{store}-large", words.gib)
        if words.cases:
            small(Path(folder), store, words.cases)


if __name__ == "__main__":
    main()
