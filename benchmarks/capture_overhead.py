"""What capturing costs: off, as a ratio to pytest without the plugin; on, as a ratio to the disk itself.

Off: a file of trivial tests, run by a fresh pytest with the plugin and with `-p no:karat`, in turn; the
best of each counts. On: tensors handed to `karat.capture` and `karat.check_and_capture`, against a plain
write and fsync of the same bytes into the same folder. Run: make bench
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

import karat

OFF = ("KARAT_", "GOLDEN_", "PYTEST_", "CI")


class Took(NamedTuple):
    """Seconds on the clock, and of all processors; the latter hardly mind what else the machine does."""

    wall: float
    cpu: float


def processors() -> float:
    used = [resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def timed(work: Callable[[], object]) -> Took:
    begin, used = time.perf_counter(), processors()
    work()
    return Took(time.perf_counter() - begin, processors() - used)


def best(times: list[Took]) -> Took:
    return Took(min(t.wall for t in times), min(t.cpu for t in times))


def pytest_run(folder: Path, *words: str) -> None:
    environ = {k: v for k, v in os.environ.items() if not k.startswith(OFF)}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words],
        cwd=folder,
        env=environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout.decode()


def off(tests: int, repeats: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "pytest.ini").write_text("[pytest]\n")
        body = "".join(f"def test_{n}(): pass\n" for n in range(tests))
        (folder / "test_trivial.py").write_text(body)
        forms = {"without": ("-p", "no:karat"), "with": ("-p", "karat.captures.plugin")}
        pytest_run(folder)
        times: dict[str, list[Took]] = {form: [] for form in forms}
        for _ in range(repeats):
            for form, words in forms.items():
                times[form].append(timed(lambda words=words: pytest_run(folder, *words)))  # type: ignore[misc]
    without, loaded = best(times["without"]), best(times["with"])
    noise = statistics.stdev(t.cpu for t in times["without"]) / without.cpu
    print(
        f"off, {tests} trivial tests: {loaded.wall / without.wall:.3f}x on the clock, "
        f"{loaded.cpu / without.cpu:.3f}x in CPU time ({loaded.cpu:.3f} s to {without.cpu:.3f} s; "
        f"runs without the plugin differ by {noise:.3f} among themselves)"
    )


def plain_write(folder: Path, arrays: list[np.ndarray], run: int) -> None:
    for number, array in enumerate(arrays):
        with (folder / f"plain-{run}-{number}").open("wb") as file:
            file.write(array.data)
            file.flush()
            os.fsync(file.fileno())


def clear(folder: Path) -> None:
    """Takes away what was written; the disk that is measured need not hold it all."""
    for path in folder.iterdir():
        if path.is_file():
            path.unlink()
        elif path.name != ".karat":
            shutil.rmtree(path)


def on(megabytes: int, repeats: int, folder: Path) -> None:
    rng = np.random.default_rng(0)
    elements = megabytes * 1_000_000 // 8
    values = [rng.standard_normal(elements, dtype=np.float32) for _ in range(2)]
    copies = [value.copy() for value in values]
    size = sum(value.nbytes for value in values)
    forms: dict[str, Callable[[int], object]] = {
        "write and fsync": lambda run: plain_write(folder, values, run),
        "capture": lambda run: karat.capture(f"capture {run}", inputs=values[0], expected=values[1], directory=folder),
        "check_and_capture": lambda run: karat.check_and_capture(
            f"check {run}", actual=copies[1], expected=values[1], inputs=values[0], directory=folder
        ),
    }
    times: dict[str, list[Took]] = {form: [] for form in forms}
    for run in range(repeats + 1):
        for form, work in forms.items():
            took = timed(lambda work=work, run=run: work(run))  # type: ignore[misc]
            clear(folder)
            if run:  # the first one imports and warms up
                times[form].append(took)
    base = best(times["write and fsync"])
    for form, found in times.items():
        took = best(found)
        print(
            f"on, {size / 1e6:.0f} MB: {form}: {took.wall:.3f} s, {size / took.wall / 1e6:,.0f} MB/s, "
            f"{took.wall / base.wall:.2f}x on the clock; {took.cpu:.3f} s CPU"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tests", type=int, default=1000)
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="on the disk to measure")
    words = parser.parse_args()
    off(words.tests, words.repeats)
    with tempfile.TemporaryDirectory(dir=words.folder) as name:
        on(words.megabytes, words.repeats, Path(name))


if __name__ == "__main__":
    main()
