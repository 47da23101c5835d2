"""How long a push, a nightly that changed one percent, and a pull take; how much is sent.

python benchmarks/store_speed.py --cases 10000 [--store s3://bucket/prefix]
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from karat.bundles.extents import MemoryExtent
from karat.store import references
from karat.store.backends import open_backend
from karat.store.pull import PullOptions, pull
from karat.store.push import PushOptions, push
from karat.store.upload import CaseFiles

SIZES = {
    "manifest.json": 3_000,
    "inputs.safetensors": 20_000,
    "expected.safetensors": 500,
    "program/model.pte": 100_000,
}


def cases(count: int, changed: int) -> Iterator[CaseFiles]:
    for i in range(count):
        version = "changed" if i < changed else ""
        yield CaseFiles(
            path=f"models/xnnpack/case-{i:06}",
            files={
                name: MemoryExtent(data=random.Random(f"{i} {version} {name}").randbytes(size), name=name)
                for name, size in SIZES.items()
            },
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--store")
    words = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        backend = open_backend(words.store or f"{scratch}/store")
        for changed in (0, words.cases // 100):
            begin = time.perf_counter()
            told = push(backend, cases(words.cases, changed), "benchmark/store", PushOptions())
            print(
                f"push, {changed:,} of {words.cases:,} changed: {time.perf_counter() - begin:.1f} s, "
                f"{told.new_objects:,} objects, {told.new_bytes / told.size:.2%} of the bytes sent"
            )
        digest = references.resolve(backend, "benchmark/store").digest
        for what in ("pull", "pull of what is there"):
            begin = time.perf_counter()
            pull(backend, digest, Path(scratch) / "out", PullOptions())
            print(f"{what}: {time.perf_counter() - begin:.1f} s")


if __name__ == "__main__":
    main()
