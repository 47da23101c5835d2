"""How long a check takes beside torch's fast mode and beside its own bare forwards, and how much memory it wants.

Three ops of one input (a sine, a softmax over rows of 16, a product with a fixed matrix) from 16 to 10⁷ elements, on
the CPU or with --device cuda. Times are the best of several, taken in turn; bare forwards are as many calls of the op
as karat made. Copies are the peak of memory above what was there before, in sizes of the input.
Run: python benchmarks/gradient_speed.py --sizes 16 1000000
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

import karat

SIZES = (16, 1_024, 65_536, 1_000_000, 10_000_000)
WIDTH = 16
W = torch.randn(WIDTH, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
OPS: dict[str, Callable[[Any], Any]] = {
    "sine": torch.sin,
    "softmax": lambda x: torch.softmax(x.view(-1, WIDTH), -1),
    "product": lambda x: x.view(-1, WIDTH) @ W.to(x.device, x.dtype),
}


class Took(NamedTuple):
    seconds: float
    copies: float
    result: Any


def _memory(device: str) -> int:
    """The peak of memory since the last reset, in bytes; 0 where the system does not say."""
    if device != "cpu":
        return int(torch.cuda.max_memory_allocated())
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), 0)


def _reset(device: str) -> None:
    if device != "cpu":
        torch.cuda.reset_peak_memory_stats()
    elif (refs := Path("/proc/self/clear_refs")).exists():
        refs.write_text("5")


def timed(work: Callable[[], Any], x: Any, device: str, seconds: float = 2.0) -> Took:
    """The best of what fits into so many seconds, after a first one that is not counted where it is quick."""
    best, copies, begun, runs = float("inf"), 0.0, time.perf_counter(), 0
    result = None
    while runs < 2 or (time.perf_counter() - begun < seconds and runs < 200):
        result = None
        _reset(device)
        before, start = _memory(device), time.perf_counter()
        result = work()
        if device != "cpu":
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - start)
        copies = max(copies, (_memory(device) - before) / (x.numel() * 8))
        runs += 1
    return Took(best, copies, result)


def bare(fn: Callable[[Any], Any], x: Any, times: int) -> None:
    for _ in range(times):
        fn(x)


def row(name: str, size: int, device: str, levels: list[str]) -> None:
    x = torch.randn(size, dtype=torch.float64, generator=torch.Generator().manual_seed(size)).to(device)
    fn = OPS[name]
    leaf = x.clone().requires_grad_()
    fast = timed(lambda: torch.autograd.gradcheck(fn, (leaf,), fast_mode=True), x, device)
    print(f"| {name} | {size:,} | fast mode | | {fast.seconds * 1e3:.2f} | 1 | | {fast.copies:.1f} | |", flush=True)
    for level in levels:
        more: dict[str, Any] = {} if level == "default" else {"level": level}
        took = timed(lambda more=more: karat.gradcheck(fn, (x,), op="speed", seed=1, **more), x, device)  # type: ignore[misc]
        report = took.result
        forwards = timed(lambda times=report.forwards: bare(fn, x, times), x, device).seconds  # type: ignore[misc]
        print(
            f"| {name} | {size:,} | karat {level} | {report.forwards} | {took.seconds * 1e3:.2f} "
            f"| {took.seconds / fast.seconds:.1f} | {took.seconds / forwards:.1f} | {took.copies:.1f} "
            f"| {report.verdict} |",
            flush=True,
        )


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--device", default="cpu")
    words.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    words.add_argument("--ops", nargs="*", default=list(OPS))
    words.add_argument("--levels", nargs="*", default=["default"])
    given = words.parse_args()
    warnings.simplefilter("ignore")
    print(
        "| op | elements | checker | forwards | ms | times fast mode | times its bare forwards | copies | verdict |\n"
        "|---|---|---|---|---|---|---|---|---|"
    )
    for name in given.ops:
        for size in given.sizes:
            row(name, size, given.device, given.levels)
    return 0


if __name__ == "__main__":
    sys.exit(main())
