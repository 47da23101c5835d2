"""Two bundles with a float32 tensor each, compared with all statistics, against reading and against allclose.

The cases are written as a test session writes them. Timed, the best of several, with files in the page cache:

- plain: both tensors' files read with `readinto` into one buffer, the floor for whoever must see every byte;
- compare: the cases opened, their tensors streamed and compared (every number of `karat.tensors`), once with
  differences everywhere, once with a tolerance that most elements miss, once bit for bit the same;
- compare + digests: the same, and both sides' digests checked in the same pass;
- karat diff: the command, from start to exit code, which checks digests as well; of what has the same digest it opens
  nothing, so that is what starting takes;
- numpy.allclose and torch.allclose on the loaded tensors, with and without loading (safetensors' own loaders).

Two times of each: the clock's, and that of the processors, all threads together, which says more on a machine that
others use as well. Both as ratios to plain reading and to numpy.allclose on loaded tensors. Peak memory is that of
fresh processes at two sizes. Run: make bench, or with --mib for another size.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from karat.bundles.manifest import Comparator, Environment, Identity, case_path
from karat.bundles.write import NewCase, write_case

ENVIRONMENT = Environment(platform="linux", machine="any", python="3")
PEAK = """
def peak_mib():
    # Not getrusage: a child begins with its parent's peak there.
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024
"""
KARAT = Path(sys.executable).with_name("karat")
IDENTITY = Identity(suite="models", flow="cpu", test="test_large")
CASE = case_path(IDENTITY)
WIDE, TIGHT = (1e-2, 1e-3), (1.3e-6, 1e-5)

COMPARE = """
import json, sys, time
from karat.bundles.cases import cases
from karat.bundles.places import open_place
from karat.tensors.compare import compare_tensors

old, new, rtol, atol, digests, repeat = sys.argv[1:]
best = []
for _ in range(int(repeat)):
    begin, spent = time.perf_counter(), time.process_time()
    (one,), (other,) = (cases(open_place(word)) for word in (old, new))
    said = tuple(case.record("expected").digest for case in (one, other)) if digests == "yes" else None
    found = compare_tensors("expected", one.tensor("expected"), other.tensor("expected"),
                            rtol=float(rtol), atol=float(atol), digests=said)
    best.append((time.perf_counter() - begin, time.process_time() - spent))
print(json.dumps({"times": [min(times) for times in zip(*best)], "peak_mib": peak_mib(), "mismatches": found.numbers.mismatches}))
"""

LOADED = """
import json, sys, time
library, old, new, repeat = sys.argv[1:]
if library == "numpy":
    import numpy as here
    from safetensors.numpy import load_file
else:
    import torch as here
    from safetensors.torch import load_file
both, without = [], []
now = lambda: (time.perf_counter(), time.process_time())
since = lambda then: [after - before for after, before in zip(now(), then)]
one = other = None
for _ in range(int(repeat)):
    one = other = None
    begin = now()
    one, other = (load_file(f"{word}/expected.safetensors")["expected"] for word in (old, new))
    here.allclose(other, one, rtol=1e-2, atol=1e-3)
    both.append(since(begin))
# The same pair again, whose memory and temporaries the system has handed out already: the best that it can do.
for _ in range(int(repeat)):
    begin = now()
    here.allclose(other, one, rtol=1e-2, atol=1e-3)
    without.append(since(begin))
best = lambda found: [min(times) for times in zip(*found)]
print(json.dumps({"both": best(both), "without": best(without), "peak_mib": peak_mib()}))
"""


def write(root: Path, mib: int) -> dict[str, Path]:
    """Three captures of one case: as it was, moved by about 1e-4 (signs change near zero), and the same again."""
    rng = np.random.default_rng(0)
    expected = rng.standard_normal(mib << 18, np.float32)
    moved = rng.standard_normal(mib << 18, np.float32)
    moved *= np.float32(1e-4)
    moved += expected
    found = {}
    for name, values in (("old", expected), ("new", moved), ("same", expected)):
        found[name] = root / f"{name}-{mib}" / CASE
        found[name].mkdir(parents=True)
        write_case(found[name], captured(values))
    return found


def captured(values: Any) -> NewCase:
    return NewCase(
        identity=IDENTITY,
        inputs=(),
        expected=values,
        comparator=Comparator(name="karat", rtol=WIDE[0], atol=WIDE[1]),
        environment=ENVIRONMENT,
        session="benchmark",
        created="2026-01-01T00:00:00Z",
    )


Times = tuple[float, float]
"""Seconds of the clock, and of the processors."""


def now() -> Times:
    """Processes that have ended included."""
    spent = os.times()
    own = spent.user + spent.system + spent.children_user + spent.children_system
    return time.perf_counter(), own


def best(what: Callable[[], Any], repeat: int) -> Times:
    found = []
    for _ in range(repeat):
        begin = now()
        what()
        end = now()
        found.append((end[0] - begin[0], end[1] - begin[1]))
    return min(clock for clock, _ in found), min(spent for _, spent in found)


def read_plainly(*folders: Path) -> None:
    buffer = bytearray(1 << 20)
    for folder in folders:
        with (folder / "expected.safetensors").open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


def script(code: str, *words: object) -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-c", PEAK + code, *map(str, words)], check=True, capture_output=True)
    return dict(json.loads(done.stdout))


def compare(old: Path, new: Path, tolerance: tuple[float, float], digests: str, repeat: int) -> dict[str, Any]:
    return script(COMPARE, old, new, *tolerance, digests, repeat)


def karat_diff(old: Path, new: Path) -> None:
    """The folders above the cases; a command that compared nothing is no benchmark."""
    roots = [str(folder.parents[len(Path(CASE).parts) - 1]) for folder in (old, new)]
    done = subprocess.run([KARAT, "diff", *roots], capture_output=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr).decode()


def measure(folders: dict[str, Path], repeat: int) -> None:
    old, new, same = folders["old"], folders["new"], folders["same"]
    plain = best(lambda: read_plainly(old, new), repeat)
    rows: list[tuple[str, Times]] = [
        ("plain reading of both", plain),
        ("compare, all within tolerance", compare(old, new, WIDE, "no", repeat)["times"]),
        ("compare, most outside tolerance", compare(old, new, TIGHT, "no", repeat)["times"]),
        ("compare, bit for bit the same", compare(old, same, WIDE, "no", repeat)["times"]),
        ("compare + digests, different", compare(old, new, WIDE, "yes", repeat)["times"]),
        ("karat diff, different", best(lambda: karat_diff(old, new), repeat)),
        ("karat diff, the same", best(lambda: karat_diff(old, same), repeat)),
    ]
    loaded = script(LOADED, "numpy", old, new, repeat)
    rows += [("numpy.allclose, loading included", loaded["both"])]
    rows += [("numpy.allclose alone", loaded["without"])]
    if importlib.util.find_spec("torch") is not None:
        found = script(LOADED, "torch", old, new, repeat)
        rows += [("torch.allclose, loading included", found["both"])]
        rows += [("torch.allclose alone", found["without"])]
    show(rows, plain, loaded["without"])
    print(f"peak memory of numpy.allclose: {loaded['peak_mib']:.0f} MiB")


def show(rows: list[tuple[str, Times]], plain: Times, loaded: Times) -> None:
    for clock, title in enumerate(("by the clock", "of the processors")):
        print(f"\n{'seconds ' + title:38}{'':>9}{'× plain':>9}{'× numpy':>9}")
        for name, times in rows:
            each = times[clock]
            print(f"{name:38}{each:9.3f}{each / plain[clock]:9.2f}{each / loaded[clock]:9.2f}")


def memory(root: Path, sizes: tuple[int, int]) -> None:
    for mib in sizes:
        folders = write(root, mib)
        for digests in ("no", "yes"):
            found = compare(folders["old"], folders["new"], WIDE, digests, 1)
            said = " with digests" if digests == "yes" else ""
            print(f"peak memory, {mib} MiB each{said}: {found['peak_mib']:.0f} MiB")
        if mib != sizes[-1]:
            for folder in folders.values():
                shutil.rmtree(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=1024, help="size of each tensor")
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    print(f"{options.mib} MiB float32 a side, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory(prefix="karat-bench-") as root:
        memory(Path(root), (options.mib // 4, options.mib))
        folders = {name: Path(root) / f"{name}-{options.mib}" / CASE for name in ("old", "new", "same")}
        measure(folders, options.repeat)


if __name__ == "__main__":
    main()
