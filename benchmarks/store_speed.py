"""How long a push, a nightly that changed one percent, and a pull take; how much is sent.

python benchmarks/store_speed.py --cases 10000 [--store s3://bucket/prefix]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from karat.store import references
from karat.store.backends import open_backend
from karat.store.pull import PullOptions, pull
from karat.store.push import PushOptions, push

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from factories.stores import cases


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--store")
    words = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        backend = open_backend(words.store or f"{scratch}/store")
        for changed in (0, words.cases // 100):
            begin = time.perf_counter()
            told = push(backend, cases(words.cases, changed=changed, program=120_000), "benchmark/store", PushOptions())
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
