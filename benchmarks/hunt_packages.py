"""The hunt of docs/hunt-packages.md on the real package index: the same four changes, or an error.

Usage: python benchmarks/hunt_packages.py (needs a network; `make soak-index`).
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

EXAMPLE = Path(__file__).parents[1] / "examples" / "hunt_packages"
TRUE = [
    ("family", "0.2.8", "0.2.9"),
    ("lines", "0.2.8", "0.2.9"),
    ("lines", "0.2.9", "0.2.10"),
    ("lines", "0.2.14", "0.3.0"),
]


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file in ("hunt.toml", "widths.py"):
            shutil.copy(EXAMPLE / file, folder)
        argv = (sys.executable, "-m", "karat", "hunt", "run", "--json", "found.json")
        done = subprocess.run(argv, check=False, cwd=folder)
        assert done.returncode == 1, "expected exit code 1: two regressions"
        report = json.loads((folder / "found.json").read_bytes())
    found = [
        (culprit["metric"], culprit["change"]["old"]["id"], culprit["change"]["new"]["id"])
        for culprit in report["culprits"]
    ]
    assert sorted(found) == sorted(TRUE), f"expected {TRUE}, found {found}"
    print(f"{len(found)} changes, as documented, with {report['runs']} runs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
