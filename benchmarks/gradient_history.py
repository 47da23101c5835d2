"""Gradient faults of released frameworks that a later release mended: FAIL in the old one, PASS in the new one, or an error.

Usage: python benchmarks/gradient_history.py (needs a network and uv, and 4 GB of disk; `make bench-gradients-history`).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
BESIDES = {
    "0.4.18": ("jaxlib==0.4.18", "numpy<2", "scipy<1.13"),
    "0.4.33": ("jaxlib==0.4.33", "numpy<2"),
    "2.6.2": ("numpy<2", "setuptools<80"),
    "3.3.1": ("setuptools<80",),
}
"""What these releases need beside them, and do not say."""
SHOWN = 110


@dataclass(frozen=True)
class Case:
    """One fault: where it was, where it is mended, and the smallest call that shows it."""

    name: str
    package: str
    old: str
    new: str
    upstream: str
    call: Callable[[Any], tuple[Callable[..., Any], list[Any]]]
    """From the framework's module: a function, and its inputs as lists of numbers."""


CASES = (
    Case(
        "x ** integers, one of them 0",
        "jax",
        "0.4.18",
        "0.10.2",
        "jax#17996",
        lambda jax: (lambda x: x ** jax.numpy.arange(3), [[0.5, 1.5, 2.5]]),
    ),
    Case(
        "logsumexp(where=...)",
        "jax",
        "0.4.33",
        "0.10.2",
        "jax#22398",
        lambda jax: (
            lambda x: jax.scipy.special.logsumexp(x, where=jax.numpy.array([True, False, True])),
            [[0.3, 800.0, 1.2]],
        ),
    ),
    Case("digamma", "jax", "0.4.18", "0.10.2", "", lambda jax: (jax.scipy.special.digamma, [[0.4, 1.3, 2.7]])),
    Case(
        "gather along axis 1",
        "paddlepaddle",
        "2.6.2",
        "3.3.1",
        "",
        lambda paddle: (
            lambda x: paddle.gather(x, paddle.to_tensor([2, 0, 2]), 1),
            [[[0.3, 1.2, -0.7], [0.9, -1.1, 0.4]]],
        ),
    ),
    Case(
        "amax along an axis of size 1",
        "paddlepaddle",
        "2.6.2",
        "3.3.1",
        "",
        lambda paddle: (lambda x: paddle.amax(x, 1), [[[0.3], [1.2], [-0.7]]]),
    ),
    Case(
        "amin along an axis of size 1",
        "paddlepaddle",
        "2.6.2",
        "3.3.1",
        "",
        lambda paddle: (lambda x: paddle.amin(x, 1), [[[0.3], [1.2], [-0.7]]]),
    ),
    Case(
        "trapezoid over given points",
        "paddlepaddle",
        "2.6.2",
        "3.3.1",
        "",
        lambda paddle: (paddle.trapezoid, [[[0.3, 1.2, -0.7], [0.9, -1.1, 0.4]], [0.1, 0.5, 1.7]]),
    ),
    Case("remainder", "paddlepaddle", "2.6.2", "3.3.1", "", lambda paddle: (paddle.remainder, [0.7, [0.4, 1.9, -1.3]])),
    Case(
        "view",
        "paddlepaddle",
        "2.6.2",
        "3.3.1",
        "",
        lambda paddle: (lambda x: paddle.view(x, [3, 2]), [[[0.3, 1.2, -0.7], [0.9, -1.1, 0.4]]]),
    ),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", metavar="VERSION", help=argparse.SUPPRESS)
    parser.add_argument("--package", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.check:
        check(chosen.package, chosen.check)
        return 0
    releases = dict.fromkeys((case.package, version) for case in CASES for version in (case.old, case.new))
    with tempfile.TemporaryDirectory() as folder:
        found = {one: verdicts(Path(folder), *one) for one in releases}
    wrong = 0
    for case in CASES:
        old, new = (found[case.package, version][case.name] for version in (case.old, case.new))
        wrong += (old["verdict"], new["verdict"]) != ("FAIL", "PASS")
        print(f"{case.package} {case.name}{f' ({case.upstream})' if case.upstream else ''}")
        for version, one in ((case.old, old), (case.new, new)):
            print(f"    {version:8} {one['verdict']:5} {one['reason'][:SHOWN]}")
    print(f"{len(CASES) - wrong} of {len(CASES)} faults are found in the old release and mended in the new one")
    return 1 if wrong else 0


def verdicts(folder: Path, package: str, version: str) -> dict[str, dict[str, str]]:
    """Case → verdict and reason, in an environment with this release."""
    place = folder / f"{package}-{version}"
    python = place / "bin" / "python"
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    assert uv is not None, "expected uv beside Python or on PATH; run: pip install uv"
    wanted = (f"{package}=={version}", *BESIDES.get(version, ()), str(ROOT))
    print(f"installing {wanted[0]}", file=sys.stderr)
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, place], check=True)
    subprocess.run([uv, "pip", "install", "--quiet", "--python", python, *wanted], check=True)
    argv = [str(python), __file__, "--check", version, "--package", package]
    done = subprocess.run(argv, check=False, capture_output=True)
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-2000:]
    found: dict[str, dict[str, str]] = json.loads(done.stdout.splitlines()[-1])
    return found


def check(package: str, version: str) -> None:
    """Every case of a release, in this process."""
    import numpy as np

    import karat

    name = {"paddlepaddle": "paddle"}.get(package, package)
    module = import_module(name)
    made = module.to_tensor if name == "paddle" else np.asarray
    found = {}
    for case in (one for one in CASES if one.package == package and version in {one.old, one.new}):
        call, inputs = case.call(module)
        report = karat.gradcheck(call, [made(np.array(one)) for one in inputs], op=case.name, framework=name)
        found[case.name] = {"verdict": report.verdict.value, "reason": report.reason}
    print(json.dumps(found))


if __name__ == "__main__":
    sys.exit(main())
