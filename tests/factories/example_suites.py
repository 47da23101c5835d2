"""The suites under examples/ as their users have them: copied elsewhere, run in processes of their own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from factories.commands import Outcome

EXAMPLES = Path(__file__).parents[2] / "examples"


def copy_example(name: str, to: Path) -> Path:
    """The example without what earlier runs of it left behind."""
    ignored = shutil.ignore_patterns("__pycache__", ".pytest_cache", "golden*", "packed", "evidence")
    return shutil.copytree(EXAMPLES / name, to, ignore=ignored)


def python(*words: str, cwd: Path, **environment: str) -> Outcome:
    """A process that knows nothing of this one, above all not that it is itself run by pytest.

    Warnings stay warnings: what torch and ExecuTorch warn of is not karat's to fix.
    """
    clean = {
        name: value
        for name, value in os.environ.items()
        if name not in {"CI", "COLUMNS", "FORCE_COLOR", "PYTHONPATH", "PYTHONWARNINGS"}
        and not name.startswith(("PYTEST_", "KARAT_", "GOLDEN_"))
    }
    done = subprocess.run(
        [sys.executable, *words],
        cwd=cwd,
        # One thread each: there are as many processes as cores already.
        env={**clean, "NO_COLOR": "1", "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


def karat(*words: str | Path, cwd: Path) -> Outcome:
    return python("-m", "karat", *map(str, words), cwd=cwd)


def suite(folder: Path, *words: str, workers: int = 2, **environment: str) -> Outcome:
    """`pytest -n 2` in the example's folder."""
    return python("-m", "pytest", "-n", str(workers), *words, cwd=folder, **environment)


def manifests(root: Path) -> dict[str, Any]:
    """Case path → manifest, read with nothing of karat's."""
    return {
        path.parent.relative_to(root).as_posix(): json.loads(path.read_text("utf-8"))
        for path in sorted(root.rglob("manifest.json"))
        if not path.relative_to(root).parts[0].startswith(".karat")
    }


def junit_counts(path: Path) -> dict[str, int]:
    """What a CI server would count, case by case rather than as the file sums itself up."""
    cases = list(ET.parse(path).getroot().iter("testcase"))  # noqa: S314 - karat's own file
    marks = {tag: sum(case.find(tag) is not None for case in cases) for tag in _MARKS}
    return {"tests": len(cases), **marks}


_MARKS = ("failure", "error", "skipped")
