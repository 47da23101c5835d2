"""Tensors on a device: karat's whole comparison beside copying, torch.equal and torch.allclose; and capturing them.

First every number of small tensors with NaN, infinities and −0.0, of many dtypes, is held against the CPU's, with the
sweep as it is and compiled; a difference ends the run with exit code 1. Then two float32 tensors of --gib each: GB/s of
memory that is read (and written, by the copy), the best of several; karat's with everything that a `Comparison` says, and
its parts by themselves. Then a case with one tensor of --capture-gib is written to --folder (one in memory says what
karat adds), beside a copy of it into pinned memory, and a file of it. torch.compile keeps what it made between runs.

Run: python benchmarks/device_compare.py, with PYTHONPATH=src where karat is not installed. Of other packages it needs
torch, numpy, msgspec and blake3; without a GPU, --gib 0.1 says at least that all of it runs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from math import inf, nan
from pathlib import Path
from typing import Any

import msgspec
import torch

from karat.bundles.manifest import Comparator, Environment, Identity
from karat.bundles.values import Flat
from karat.bundles.write import NewCase, write_case
from karat.tensors.arrays import device_tensor, tensor_of
from karat.tensors.bits import TensorBlocks
from karat.tensors.compare import compare_tensors
from karat.tensors.comparison import Tolerance
from karat.tensors.device import on_device
from karat.tensors.dtypes import dtype_named
from karat.tensors.statistics import statistics

DTYPES = (
    *("float32", "float64", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz"),
    *("int8", "uint8", "int16", "int32", "bool"),
)
ABOUT = {"mean_abs": 2e-6, "sqnr_db": 2e-6, "cosine": 2e-6}  # The host sums in float32 where it may.


def pair(name: str, odd: int, device: str, elements: int = 300 * 1024 + 77) -> tuple[Any, Any]:
    draw = torch.Generator().manual_seed(odd + len(name))
    expected = torch.randn(elements, generator=draw)
    actual = expected * (1 + 1e-2 * torch.randn(elements, generator=draw))
    actual[::3] = expected[::3]
    expected[7::97], actual[9::101] = 0.0, -0.0
    if name in {"int8", "uint8", "int16", "int32", "bool"}:
        expected, actual = ((30 * side).abs() for side in (expected, actual))
    elif odd:
        at = torch.randint(elements, (3, odd), generator=draw)
        expected[at[0]], actual[at[1]] = nan, inf
        expected[at[2]], actual[at[2]] = -inf, -inf
    return tuple(side.to(getattr(torch, name)).to(device) for side in (expected, actual))


def verify(device: str, names: tuple[str, ...]) -> int:
    """How many comparisons differ from the CPU's, one line each."""
    wrong = done = 0
    for name in names:
        kind, given = dtype_named(name), Tolerance(rtol=1e-2, atol=1e-3)
        for odd in (0, 9, 20_000):
            one, other = pair(name, odd, device)
            sides = [(device_tensor(side), tensor_of(side.cpu())) for side in (one, other)]
            reference = compare_tensors("x", sides[0][1], sides[1][1], rtol=1e-2, atol=1e-3, integers=True).numbers
            assert reference is not None
            for compiled in (False, True):
                found = on_device.compare_on_device(sides[0][0], sides[1][0], kind, given, compiled=compiled)
                numbers = None if found is None else found.numbers((len(one),), with_ulps=kind.layout is not None)
                if numbers is None and name == "float64" and odd:
                    continue  # The host's, as it should be.
                said = msgspec.structs.asdict(numbers) if numbers is not None else {}
                for field, value in msgspec.structs.asdict(reference).items():
                    about = ABOUT.get(field, 0.0) * abs(value) if isinstance(value, float) and abs(value) < inf else 0
                    got = said.get(field)
                    if not (got == value or (about and got is not None and abs(got - value) <= about)):
                        wrong += 1
                        print(f"DIFFERS {name} odd={odd} compiled={compiled} {field}: {value} on the CPU, {got} here")
            here, there = statistics(sides[0][0]), statistics(sides[0][1])
            same = (here.min, here.max, here.nan, here.inf) == (there.min, there.max, there.nan, there.inf)
            if not same or (there.l2 and abs((here.l2 or 0) / there.l2 - 1) > 1e-9):
                wrong += 1
                print(f"DIFFERS {name} odd={odd} statistics: {there} on the CPU, {here} here")
            done += 3
    print(f"{done - wrong} of {done} comparisons and statistics are those of the CPU, in {len(names)} dtypes\n")
    return wrong


def best(work: Callable[[], Any], device: str, repeat: int) -> float:
    times = []
    for _ in range(repeat + 1):
        begin = time.perf_counter()
        work()
        if device != "cpu":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return min(times[1:])  # Without the first, which compiles.


def row(name: str, size: float, seconds: float, note: str = "") -> None:
    print(f"{name:<52}{seconds * 1e3:>10.2f} ms{size / seconds / 1e9:>10.1f} GB/s  {note}", flush=True)


def compare(device: str, size: int, repeat: int) -> None:
    one = torch.randn(size // 4, device=device)
    other = torch.randn_like(one).mul_(1e-6).add_(one)
    sides, kind, given = (
        [device_tensor(side) for side in (one, other)],
        dtype_named("float32"),
        Tolerance(rtol=1e-3, atol=1e-3),
    )
    print(f"two float32 tensors of {size / 2**30:g} GiB on {device}")
    held = [one.clone()]
    row("copy_ (read and written)", 2 * size, best(lambda: held[0].copy_(one), device, repeat))
    row("torch.equal(x, a copy)", 2 * size, best(lambda: torch.equal(one, held[0]), device, repeat))
    held.clear()
    row(
        "torch.allclose",
        2 * size,
        best(lambda: torch.allclose(one, other, rtol=1e-3, atol=1e-3), device, max(1, repeat // 3)),
    )
    begin = time.perf_counter()
    work = partial(on_device.compare_on_device, sides[0], sides[1], kind, given, compiled=True)
    work()
    first = time.perf_counter() - begin
    row("karat, every number", 2 * size, best(work, device, repeat), f"the first took {first:.1f} s")
    if find_spec("triton") and device != "cpu":
        from karat.tensors.device import triton_sweep

        one, other = (side.value.view(-1, on_device.ROW) for side in sides)
        row(
            "  its sweep by Triton",
            2 * size,
            best(lambda: triton_sweep.sweep(one, other, 1e-3, 1e-3, name="float32"), device, repeat),
        )
    compiled = on_device.made(on_device.sweep, True, how=on_device.How(on_device.ROW, "float32", 32))
    step = 1 << 28
    pieces = [
        [side.value[at : at + step].view(-1, on_device.ROW) for side in sides] for at in range(0, size // 4, step)
    ]
    row(
        "  its sweep by torch.compile, for other dtypes",
        2 * size,
        best(partial(swept, compiled, pieces), device, repeat),
    )
    rows = [torch.cat(each, -1) for each in zip(*swept(compiled, pieces), strict=True)]
    row("  its totals", 2 * size, best(partial(on_device.totals, *rows, wide=False), device, repeat))
    begin = time.perf_counter()
    on_device.compare_on_device(sides[0], sides[1], kind, given, compiled=False)
    row("karat, every number, not compiled", 2 * size, time.perf_counter() - begin)
    row(
        "karat, statistics of one",
        size,
        best(lambda: on_device.measure_on_device(sides[0], kind, compiled=True), device, repeat),
    )
    print(flush=True)


def swept(sweep: Callable[..., Any], pieces: list[list[Any]]) -> list[Any]:
    return [sweep(*each, 1e-3, 1e-3) for each in pieces]


def capture(device: str, size: int, folder: str | None) -> None:
    value = torch.randn(size // 4, device=device)
    pinned = torch.empty(size // 4, pin_memory=device != "cpu")
    print(f"one float32 tensor of {size / 2**30:g} GiB, captured to {folder or tempfile.gettempdir()}")
    row("copy into one pinned buffer", size, best(partial(pinned.copy_, value), device, 2))
    pinned = None
    row("x.cpu()", size, best(value.cpu, device, 1))
    held = device_tensor(value)

    def through() -> None:
        from concurrent.futures import ThreadPoolExecutor

        def piece(at: int) -> None:
            blocks = TensorBlocks(held, 4 << 20)
            for first in range(at, min(at + (16 << 20), size), 4 << 20):
                blocks.block(first, min(first + (4 << 20), size))

        with ThreadPoolExecutor(16) as pool:
            [*pool.map(piece, range(0, size, 16 << 20))]

    row("karat's blocks, 16 threads, nothing kept", size, best(through, device, 2))
    with tempfile.TemporaryDirectory(dir=folder) as name:
        host = value.cpu().numpy().data.cast("B")
        begin = time.perf_counter()
        (Path(name) / "plain").write_bytes(host)
        row("write() of it from memory, one thread, no fsync", size, time.perf_counter() - begin)
        (Path(name) / "plain").unlink()
        del host
        flats = [
            Flat(role="input", structure=None, tensors={}),
            Flat(role="expected", structure={"tensor": "expected"}, tensors={"expected": held}),
        ]
        case = NewCase(
            identity=Identity(suite="s", flow="f", test="t"),
            inputs=flats[0],
            expected=flats[1],
            comparator=Comparator(name="karat"),
            environment=Environment(platform="linux", machine="any", python="3"),
            session="1",
            created="2026-01-01T00:00:00Z",
        )
        for n in range(3):
            (Path(name) / str(n)).mkdir()
            begin = time.perf_counter()
            write_case(Path(name) / str(n), case)
            row("karat: a case captured, hashed, synced", size, time.perf_counter() - begin, ("compiles", "", "")[n])
            for file in (Path(name) / str(n)).iterdir():
                file.unlink()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, default=8)
    parser.add_argument("--capture-gib", type=float, default=4)
    parser.add_argument("--folder", help="where the case is written; /dev/shm is memory")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    given = parser.parse_args()
    device = "cuda:0" if torch.cuda.is_available() else "cpu"
    print(f"torch {torch.__version__} on {torch.cuda.get_device_name(0) if device != 'cpu' else 'the CPU'}\n")
    wrong = verify(device, tuple(given.dtypes.split(",")))
    compare(device, int(given.gib * 2**30) // (4 * on_device.ROW) * 4 * on_device.ROW, given.repeat)  # whole rows
    capture(device, int(given.capture_gib * 2**30) // 4096 * 4096, given.folder)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
