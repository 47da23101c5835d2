"""The detector of level changes against its peers, all on the same series.

Simulated: false points per flat series of 100, hits (±2) of one step, of a step three points before the end, recall with many
steps and with short levels, and CPU seconds for 100 to 100,000 points with a step every hundred. `--real FILE`: false points in
windows of 100 values of a real benchmark's history (the JSON of `karat changes`), shuffled, so that no change is left.
`--labelled`: series that people marked, which the packages river and statsmodels ship, by F1 as the Turing change point benchmark
counts it (margin 5, one score over all annotators); "karat" is its steps, as the peers' cuts are, and "karat all" everything
that `karat changes` names: steps, ends of trends, and changes of noise.

Peers: ruptures (PELT with l2 cost, KernelCPD with a linear kernel, binary segmentation; penalty 3·log n times the noise's
variance, taken from the differences, or, "all", from all values), Apache Otava and asv, each with its defaults, in an
environment of its own; one that cannot be had is named.

Run: python benchmarks/detector.py [--count 500] [--seed 7] [--only karat,asv] [--labelled | --real FILE]
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

RUPTURES = ("PELT l2", "KernelCPD", "KernelCPD all", "binseg", "binseg all")
PACKAGES = {
    "otava": ("apache-otava",),
    "asv": ("asv", "numpy"),
    "labelled": ("river", "statsmodels"),
    **dict.fromkeys(RUPTURES, ("ruptures",)),
}
LONG = (100, 1_000, 10_000, 100_000)
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
    if kind in {"noisier half", "noisier end"}:
        return plain * (np.where(np.arange(n) < n // 2, 1, 4) if kind == "noisier half" else louder(n))
    if kind == "trend":
        return plain + 5 * np.arange(n) / n
    if kind == "week":
        return plain + 3 * (np.arange(n) % 7 >= 5)
    return np.exp(plain) if kind == "lognormal" else plain


def louder(n: int) -> Any:
    """A last fifth that is ten times as noisy."""
    import numpy as np

    return np.where(np.arange(n) < n * 4 // 5, 1, 10)


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


FLAT = (
    "Gauss", "t3", "lognormal", "AR(0.5)", "outliers", "bimodal", "sticky", "noisier half", "noisier end", "trend", "week",
)  # fmt: skip
SHORT = {"9 up, of 10": (range(10), 10), "6 up, of 6": (range(7), 6), "4 up and down, of 6": ((0, 1, 0, 1, 0), 6)}
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


def short_cases(levels: Sequence[int], each: int, count: int, seed: int) -> list[Case]:
    """Levels of a few points, four standard deviations apart."""
    import numpy as np

    generator = np.random.default_rng(seed)
    stairs = np.repeat(4.0 * np.array(levels), each)
    truth = [each * number for number in range(1, len(levels))]
    return [Case((stairs + generator.standard_normal(stairs.size)).tolist(), truth) for _ in range(count)]


def real_cases(file: Path, count: int, seed: int) -> list[Case]:
    """Windows of 100 neighbouring values of every metric, shuffled."""
    import numpy as np

    from karat.api import changes

    generator = np.random.default_rng(seed)
    cases = []
    for entry in changes(str(file)).entries:
        values = np.array([point.values[0] for point in entry.series.observations if point.values])
        for _ in range(count // 5):
            start = int(generator.integers(0, max(1, values.size - 100)))
            cases.append(Case(generator.permutation(values[start : start + 100]).tolist(), []))
    return cases


def long_series(n: int, seed: int) -> Series:
    """One step of three standard deviations per hundred points."""
    import numpy as np

    generator = np.random.default_rng(seed)
    values = generator.standard_normal(n)
    for at in range(50, n, 100):
        values[at:] += generator.choice([-3, 3])
    return [float(value) for value in values]


# --- detectors


def open_detector(name: str) -> Detector:
    if name in RUPTURES:
        return _ruptures(name)
    return {"karat": _karat, "karat all": _karat_all, "otava": _otava, "asv": _asv}[name]()


def _karat() -> Detector:
    from karat.changepoints.detector.detect import steps

    return lambda values: [cut.at for cut in steps(values)]


def _karat_all() -> Detector:
    """All that `karat changes` names."""
    from karat.api import changes

    def detect(values: Series) -> list[int]:
        (entry,) = changes([float(value) for value in values]).entries
        found = {step.first_bad for step in entry.analysis.steps}
        for change in entry.analysis.changes:
            if change.kind.value in {"trend", "noise"}:
                found.add(change.first)
            if change.kind.value == "trend":
                found.add(change.last + 1)
        return sorted(
            at for at in found if 5 <= at < len(values) - 5 or at in {s.first_bad for s in entry.analysis.steps}
        )

    return detect


def _ruptures(name: str) -> Detector:
    import numpy as np
    import ruptures

    searches = {
        "PELT": lambda: ruptures.Pelt(model="l2", min_size=2, jump=1),
        "KernelCPD": lambda: ruptures.KernelCPD(kernel="linear", min_size=2),
        "binseg": lambda: ruptures.Binseg(model="l2", min_size=2, jump=1),
    }

    def detect(values: Series) -> list[int]:
        array = np.array(values)
        spread = 1.4826 * float(np.median(np.abs(np.diff(array)))) / 2**0.5
        if name.endswith(" all") or spread == 0:
            spread = float(array.std())
        found = searches[name.split(maxsplit=1)[0]]().fit(array).predict(pen=3 * float(np.log(array.size)) * spread**2)
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


def as_source() -> None:
    """The series that people marked, as JSON: name → the metrics' values, and the marks of each annotator."""
    import csv

    import numpy as np
    from river.drift import datasets  # type: ignore[import-not-found]
    from statsmodels.datasets import nile  # type: ignore[import-not-found]

    found = {"Nile": ([[float(value) for value in nile.load().data["volume"]]], {"dam": [28]})}
    for name, columns, every in (
        ("AirlinePassengers", ("Total Passengers",), 1),
        ("Apple", ("Close",), 3),
        ("Bitcoin", ("price",), 1),
        ("Occupancy", ("V1", "V2", "V3", "V4"), 1),
        ("RunLog", ("Pace",), 1),
        ("UKCoalEmploy", ("Employment",), 1),
    ):
        dataset = getattr(datasets, name)()
        with Path(dataset.path).open() as file:
            rows = list(csv.DictReader(file))[::every]
        metrics = [[float(row[column]) for row in rows] for column in columns]
        found[name] = ([metric for metric in metrics if np.ptp(metric) > 0], dataset.annotations)
    print(json.dumps(found))


def f1(marks: dict[str, list[int]], cuts: set[int], margin: int = 5) -> float:
    """As the Turing benchmark counts it: precision over all marks, recall of each annotator; the start counts as found."""

    def found(wanted: set[int], there: set[int]) -> int:
        left, count = set(there), 0
        for at in sorted(wanted):
            near = min(left, key=lambda cut: abs(cut - at), default=None)
            if near is not None and abs(near - at) <= margin:
                left.remove(near)
                count += 1
        return count

    cuts = {0, *cuts}
    people = [{0, *held} for held in marks.values()]
    precision = found(set().union(*people), cuts) / len(cuts)
    recall = sum(found(held, cuts) / len(held) for held in people) / len(people)
    return 2 * precision * recall / (precision + recall)


def labelled(python: Path, name: str, source: dict[str, Any]) -> dict[str, str]:
    """The score of one detector on each series, and the mean."""
    scores = {}
    for series, (metrics, marks) in source.items():
        found = ask(python, name, metrics)
        scores[series] = f1(marks, {cut for cuts, _ in found for cut in cuts})
    return {
        **{key: f"{value:.3f}" for key, value in scores.items()},
        "mean": f"{sum(scores.values()) / len(scores):.3f}",
    }


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
    python = folder / "-".join(PACKAGES[name]) / "bin" / "python"
    if python.exists():
        return python
    try:
        subprocess.run([sys.executable, "-m", "venv", python.parent.parent], check=True, capture_output=True)
        command = [str(python), "-m", "pip", "install", "-q", *PACKAGES[name]]
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
    for title, (levels, each) in SHORT.items():
        cases = short_cases(levels, each, max(1, count // 5), seed)
        row[f"short: {title}"] = f"{hits(cases, ask(python, name, [case.values for case in cases])):.3f}"
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
    parser.add_argument("--only", default="karat,karat all,KernelCPD,KernelCPD all,binseg,binseg all,otava,asv")
    parser.add_argument("--labelled", action="store_true", help="series that people marked, which packages ship")
    parser.add_argument("--real", type=Path, metavar="FILE", help="shuffled windows of a real benchmark's history")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep environments there, and use them again")
    parser.add_argument("--as-peer", help=argparse.SUPPRESS)
    parser.add_argument("--as-source", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.as_peer:
        as_peer(arguments.as_peer)
        return
    if arguments.as_source:
        as_source()
        return
    table = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.keep or Path(temporary)
        source: dict[str, Any] = {}
        if arguments.labelled:
            python = environment("labelled", folder)
            if python is None:
                return
            done = subprocess.run([str(python), __file__, "--as-source"], capture_output=True, text=True, check=True)
            source = json.loads(done.stdout)
        for name in arguments.only.split(","):
            python = environment(name, folder)
            if python is not None:
                if arguments.real:
                    cases = real_cases(arguments.real, arguments.count, arguments.seed)
                    found = ask(python, name, [case.values for case in cases])
                    table[name] = {"false points per shuffled window": f"{falsely(cases, found):.3f}"}
                elif arguments.labelled:
                    table[name] = labelled(python, name, source)
                else:
                    table[name] = columns(python, name, arguments.count, arguments.seed)
                print(f"{name}: done", file=sys.stderr)
    print(f"count {arguments.count}, seed {arguments.seed}\n")
    print("| | " + " | ".join(table) + " |")
    print("|---" * (len(table) + 1) + "|")
    for column in next(iter(table.values())):
        print(f"| {column} | " + " | ".join(row[column] for row in table.values()) + " |")


if __name__ == "__main__":
    main()
