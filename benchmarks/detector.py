"""The detector of level changes against its peers, all on the same simulated series.

False points per flat series of 100, hits (±2) of one step, of a step three points before the end, recall with many steps,
and CPU seconds for long series. Peers: ruptures (PELT with l2 cost, KernelCPD with a linear kernel; penalty 3·log n times the
noise's variance, taken from the differences), Apache Otava and asv, each with its defaults, in an environment of its own
that uv makes; one that cannot be had is named.

Run: python benchmarks/detector.py [--count 500] [--seed 7] [--only karat,asv]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

Series = list[float]
Detector = Callable[[Series], list[int]]

PACKAGES = {"otava": ("apache-otava",), "asv": ("asv", "numpy")}
LONG = (1_000, 10_000, 100_000)
PATIENCE = 60.0


class Case(NamedTuple):
    """One simulated series, and where its steps are."""

    values: Series
    steps: list[int]


# --- series


def noise(kind: str, n: int, generator: Any) -> Any:
    import numpy as np

    plain = generator.standard_normal(n)
    if kind in {"outliers", "bimodal", "sticky"}:
        return plain + jumps(kind, n, generator)
    if kind == "t3":
        return generator.standard_t(3, n)
    if kind == "AR(0.5)":
        return autocorrelated(generator, n)
    return np.exp(plain) if kind == "lognormal" else plain


def jumps(kind: str, n: int, generator: Any) -> Any:
    """Three in a hundred far off; one of two modes; the same, left at every fifth point."""
    import numpy as np

    if kind == "outliers":
        return 10 * (generator.random(n) < 0.03) * generator.choice([-1, 1], n)
    if kind == "bimodal":
        return 5 * (generator.random(n) < 0.5)
    return 5 * (np.cumsum(generator.random(n) < 0.2) % 2)


def autocorrelated(generator: Any, n: int) -> Any:
    values = [0.0]
    for shock in generator.standard_normal(n + 50):
        values.append(0.5 * values[-1] + float(shock))
    import numpy as np

    return np.array(values[-n:])


FLAT = ("Gauss", "t3", "lognormal", "AR(0.5)", "outliers", "bimodal", "sticky")
STEPS = (1.0, 2.0, 3.0, 5.0)


def flat_cases(kind: str, count: int, seed: int) -> list[Case]:
    import numpy as np

    generator = np.random.default_rng(seed)
    return [Case(noise(kind, 100, generator).tolist(), []) for _ in range(count)]


def step_cases(size: float, count: int, seed: int, *, after: int = 0) -> list[Case]:
    """One step in 100 points, anywhere from 10 to 90, or `after` points before the end."""
    import numpy as np

    generator = np.random.default_rng(seed)
    cases = []
    for _ in range(count):
        values = generator.standard_normal(100)
        at = 100 - after if after else int(generator.integers(10, 91))
        values[at:] += size
        cases.append(Case(values.tolist(), [at]))
    return cases


def many_cases(count: int, seed: int) -> list[Case]:
    """Four steps of 3 to 8 standard deviations and a dip of five points in 256."""
    import numpy as np

    generator = np.random.default_rng(seed)
    cases = []
    for _ in range(count):
        values = generator.standard_normal(256)
        places = sorted(int(place) * 10 for place in generator.choice(np.arange(1, 25), 5, replace=False))
        dip = int(generator.integers(0, 5))
        steps = []
        for number, at in enumerate(places):
            if number == dip:
                values[at : at + 5] -= 6
                steps += [at, at + 5]
            else:
                values[at:] += generator.choice([-1, 1]) * generator.uniform(3, 8)
                steps.append(at)
        cases.append(Case(values.tolist(), steps))
    return cases


def long_series(n: int, seed: int) -> Series:
    """One step of three standard deviations per thousand points."""
    import numpy as np

    generator = np.random.default_rng(seed)
    values = generator.standard_normal(n)
    for at in range(500, n, 1000):
        values[at:] += generator.choice([-3, 3])
    return [float(value) for value in values]


# --- detectors


def open_detector(name: str) -> Detector:
    return {"karat": _karat, "PELT l2": _pelt, "KernelCPD": _kernel, "otava": _otava, "asv": _asv}[name]()


def _karat() -> Detector:
    from karat.changepoints.detector.detect import steps

    return lambda values: [cut.at for cut in steps(values)]


def _penalty(values: Any) -> float:
    import numpy as np

    spread = 1.4826 * float(np.median(np.abs(np.diff(values)))) / 2**0.5
    return 3 * float(np.log(len(values))) * spread**2


def _pelt() -> Detector:
    import numpy as np
    import ruptures

    def detect(values: Series) -> list[int]:
        array = np.array(values)
        found = ruptures.Pelt(model="l2", min_size=2, jump=1).fit(array).predict(pen=_penalty(array))
        return [int(cut) for cut in found[:-1]]

    return detect


def _kernel() -> Detector:
    import numpy as np
    import ruptures

    def detect(values: Series) -> list[int]:
        array = np.array(values)
        found = ruptures.KernelCPD(kernel="linear", min_size=2).fit(array).predict(pen=_penalty(array))
        return [int(cut) for cut in found[:-1]]

    return detect


def _otava() -> Detector:
    from otava.series import AnalysisOptions, Metric, Series as Measured  # type: ignore[import-not-found]

    def detect(values: Series) -> list[int]:
        times = list(range(len(values)))
        measured = Measured("x", None, times, {"m": Metric()}, {"m": values}, {})
        found = measured.analyze(AnalysisOptions()).change_points["m"]
        return [int(point.index) for point in found]

    return detect


def _asv() -> Detector:
    from asv.step_detect import detect_steps  # type: ignore[import-not-found]

    return lambda values: [int(step[0]) for step in detect_steps(values)[1:]]


# --- running


def as_peer(name: str) -> None:
    """Series in, cuts out, one line of JSON each: this file within a peer's environment."""
    detect = open_detector(name)
    for line in sys.stdin:
        values = json.loads(line)
        started = time.process_time()
        print(json.dumps([detect(values), time.process_time() - started]), flush=True)


def ask(python: Path, name: str, series: Sequence[Series], patience: float | None = None) -> list[Any]:
    """What a detector finds in each series, and the CPU seconds it took."""
    lines = "".join(json.dumps(values) + "\n" for values in series)
    command = [str(python), __file__, "--as-peer", name]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=True, timeout=patience)
    return [json.loads(line) for line in done.stdout.splitlines()]


def environment(name: str, folder: Path) -> Path | None:
    """The interpreter that has a detector; None, and a word about it, where there is none."""
    if name not in PACKAGES:
        return Path(sys.executable)
    python = folder / name / "bin" / "python"
    uv = Path(sys.executable).with_name("uv")
    try:
        subprocess.run([uv, "venv", "-q", "-p", "3.11", python.parent.parent], check=True, capture_output=True)
        command = [str(uv), "pip", "install", "-q", "--python", str(python), *PACKAGES[name]]
        subprocess.run(command, check=True, capture_output=True)
    except (subprocess.CalledProcessError, OSError) as error:
        print(f"{name}: cannot be installed here ({error})")
        return None
    return python


def falsely(cases: Sequence[Case], found: Sequence[Any]) -> float:
    pairs = zip(cases, found, strict=True)
    return sum(sum(all(abs(cut - at) > 2 for at in case.steps) for cut in cuts) for case, (cuts, _) in pairs) / len(
        cases
    )


def hits(cases: Sequence[Case], found: Sequence[Any]) -> float:
    pairs = list(zip(cases, found, strict=True))
    right = sum(any(abs(cut - at) <= 2 for cut in cuts) for case, (cuts, _) in pairs for at in case.steps)
    return right / sum(len(case.steps) for case in cases)


def columns(python: Path, name: str, count: int, seed: int) -> dict[str, str]:
    """Every figure of one detector."""
    row = {}
    for kind in FLAT:
        cases = flat_cases(kind, count, seed)
        row[f"flat {kind}"] = f"{falsely(cases, ask(python, name, [case.values for case in cases])):.3f}"
    for size in STEPS:
        cases = step_cases(size, count, seed)
        row[f"hit {size:.0f} sd"] = f"{hits(cases, ask(python, name, [case.values for case in cases])):.3f}"
    cases = step_cases(5.0, count, seed, after=3)
    row["hit 5 sd, 3 points after"] = f"{hits(cases, ask(python, name, [case.values for case in cases])):.3f}"
    cases = many_cases(max(1, count // 5), seed)
    found = ask(python, name, [case.values for case in cases])
    row["many: recall"] = f"{hits(cases, found):.3f}"
    row["many: false"] = f"{falsely(cases, found):.3f}"
    for n in LONG:
        row[f"CPU seconds {n:,}"] = seconds(python, name, n, seed)
    return row


def seconds(python: Path, name: str, n: int, seed: int) -> str:
    """The second run of two: the first pays for what is imported late."""
    series = [long_series(100, seed), long_series(n, seed)]
    try:
        return f"{ask(python, name, series, PATIENCE)[-1][1]:.3f}"
    except subprocess.TimeoutExpired:
        return f"> {PATIENCE:.0f}"
    except subprocess.CalledProcessError:
        return "fails"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=500, help="series per column (a fifth of it for many steps)")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--only", default="karat,PELT l2,KernelCPD,otava,asv")
    parser.add_argument("--as-peer", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.as_peer:
        as_peer(arguments.as_peer)
        return
    table = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.only.split(","):
            python = environment(name, Path(folder))
            if python is not None:
                table[name] = columns(python, name, arguments.count, arguments.seed)
                print(f"{name}: done", file=sys.stderr)
    print(f"count {arguments.count}, seed {arguments.seed}\n")
    print("| | " + " | ".join(table) + " |")
    print("|---" * (len(table) + 1) + "|")
    for column in next(iter(table.values())):
        print(f"| {column} | " + " | ".join(row[column] for row in table.values()) + " |")


if __name__ == "__main__":
    main()
